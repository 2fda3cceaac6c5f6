"""Hudi's options for a splice table: how it is written, read, compacted and cleaned.

Everything a splice depends on is set here and nowhere else:

- merge-on-read with :class:`SpliceMerger`, so that a write only appends to logs and the streams are merged
  by reads and compaction;
- a simple bucket index and non-blocking concurrency control, so that streams write at the same time;
- a lock for the moment of the commit: :data:`FILE_LOCK_PROVIDER` on ``file://``, Hudi's own
  :data:`STORAGE_LOCK_PROVIDER` on object stores;
- no metadata table (it about doubles the time of a write), no table service inside a write, and dead
  writers rolled back by the cleaner.

Hudi reduces a batch to one record per key before it writes, in whatever order Spark's shuffle gives. Events
of one stream with *equal* ordering values keep arrival order between batches; within a batch the caller must
reduce them first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from asynclock.errors import ConfigError
from asynclock.hudi import hoodie
from asynclock.hudi.options import STORAGE_LOCK_PROVIDER
from asynclock.hudi.paths import STORAGE_LOCK_SCHEMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MERGER_CLASS: Final = "io.asynclock.hudi.SpliceMerger"
MERGER_STRATEGY_ID: Final = "3158b597-87e4-4016-bcb2-5fe63391c0b1"
FILE_LOCK_PROVIDER: Final = "io.asynclock.hudi.FileLockProvider"

QueryType = Literal["snapshot", "read_optimized", "incremental"]


def splice_write_options(
    *,
    base_path: str,
    table: str,
    key: Sequence[str],
    partition_by: Sequence[str] = (),
    buckets: int = 4,
    parallelism: int = 2,
    heartbeat_interval_ms: int = 2_000,
    heartbeat_misses: int = 5,
) -> dict[str, str]:
    """Return options for ``df.write.format("hudi").options(**...).mode("append").save(base_path)``.

    Each write needs every column of the table, those of other streams as null, and all of them nullable,
    because the schema of the last commit becomes the table's.

    Args:
        base_path: The table's URL, or a local path.
        table: The table's name, kept in ``hoodie.properties``.
        key: Key columns, at least one; fixed at creation.
        partition_by: Columns that never change for a key; fixed at creation.
        buckets: Files per partition; fixed at creation.
        parallelism: Spark tasks of each of Hudi's shuffles.
        heartbeat_interval_ms: Milliseconds between two heartbeats of a writer.
        heartbeat_misses: Missed heartbeats after which the cleaner may roll a write back. A writer that
            was paused for longer, by default 10 seconds, fails at its commit.

    Returns:
        A new dict; change it freely.

    Raises:
        ConfigError: No key, no bucket, or a file system that no lock provider serves. Nothing was written.
    """
    if not key:
        raise ConfigError(setting="key", value=list(key), reason="name at least one key column")
    if buckets < 1:
        raise ConfigError(setting="buckets", value=buckets, reason="at least 1")
    tasks = str(parallelism)
    return {
        **_table_options(base_path=base_path, key=key),
        hoodie.TABLE_NAME: table,
        hoodie.DATASOURCE_WRITE_TABLE_NAME: table,
        hoodie.DATASOURCE_WRITE_OPERATION: "upsert",
        hoodie.DATASOURCE_WRITE_PARTITIONPATH_FIELD: ",".join(partition_by),
        **(partition_options() if partition_by else {}),
        hoodie.BUCKET_INDEX_NUM_BUCKETS: str(buckets),
        hoodie.WRITE_MARKERS_TYPE: "DIRECT",
        hoodie.EMBED_TIMELINE_SERVER: "false",
        hoodie.UPSERT_SHUFFLE_PARALLELISM: tasks,
        hoodie.INSERT_SHUFFLE_PARALLELISM: tasks,
        hoodie.DELETE_SHUFFLE_PARALLELISM: tasks,
        hoodie.FINALIZE_WRITE_PARALLELISM: tasks,
        hoodie.MARKERS_DELETE_PARALLELISM: tasks,
        hoodie.ROLLBACK_PARALLELISM: tasks,
        hoodie.CLIENT_HEARTBEAT_INTERVAL_IN_MS: str(heartbeat_interval_ms),
        hoodie.CLIENT_HEARTBEAT_TOLERABLE_MISSES: str(heartbeat_misses),
        **_NO_INLINE_SERVICES,
    }


def partition_options() -> dict[str, str]:
    """Return options that name partition folders ``column=value``, percent-encoded; fixed at creation.

    Without the encoding a slash would open a folder; without the column's name ``..`` would leave the table.
    """
    return {
        hoodie.DATASOURCE_WRITE_HIVE_STYLE_PARTITIONING: "true",
        hoodie.DATASOURCE_WRITE_PARTITIONPATH_URLENCODE: "true",
    }


def read_options(*, query_type: QueryType = "snapshot") -> dict[str, str]:
    """Return options for ``spark.read.format("hudi").options(**...).load(base_path)``.

    ``hoodie.properties`` has the merger's id but not its class, so every reader must name the class. One
    that does not fails with "No valid spark merger implementation set".

    Args:
        query_type: ``snapshot`` merges the logs; ``read_optimized`` is the state of the last compaction;
            ``incremental`` has, for each key, only what the newest events wrote.
    """
    return {
        hoodie.WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES: MERGER_CLASS,
        hoodie.DATASOURCE_QUERY_TYPE: query_type,
        # With it, persist() on a join with a snapshot read hangs.
        hoodie.METADATA_ENABLE: "false",
    }


def compaction_options(
    *, base_path: str, key: Sequence[str], every_commits: int = 10, parallelism: int = 2
) -> dict[str, str]:
    """Return options for ``CALL run_compaction``.

    Args:
        base_path: The table's URL, or a local path.
        key: The table's key columns.
        every_commits: Commits since the last compaction after which to plan one; 1 always plans.
        parallelism: Spark tasks of each of Hudi's shuffles.

    Raises:
        ConfigError: A file system that no lock provider serves.
    """
    return {
        # One key column is enough for Hudi's check, and a CALL cannot carry a list.
        **_table_options(base_path=base_path, key=key[:1]),
        hoodie.COMPACT_INLINE_MAX_DELTA_COMMITS: str(every_commits),
        hoodie.EMBED_TIMELINE_SERVER: "false",
        hoodie.WRITE_MARKERS_TYPE: "DIRECT",
        hoodie.FINALIZE_WRITE_PARALLELISM: str(parallelism),
        hoodie.MARKERS_DELETE_PARALLELISM: str(parallelism),
    }


def cleaning_options(
    *,
    base_path: str,
    key: Sequence[str],
    retain_commits: int = 10,
    parallelism: int = 2,
    heartbeat_interval_ms: int = 2_000,
    heartbeat_misses: int = 5,
) -> dict[str, str]:
    """Return options for ``CALL run_clean``, which also rolls back dead writers.

    Args:
        base_path: The table's URL, or a local path.
        key: The table's key columns.
        retain_commits: Number of commits whose files are kept for running queries.
        parallelism: Spark tasks of each of Hudi's shuffles.
        heartbeat_interval_ms: As given to :func:`splice_write_options`.
        heartbeat_misses: As given to :func:`splice_write_options`.

    Raises:
        ConfigError: A file system that no lock provider serves.
    """
    return {
        **_table_options(base_path=base_path, key=key[:1]),
        hoodie.CLEAN_POLICY: "KEEP_LATEST_COMMITS",
        hoodie.CLEAN_COMMITS_RETAINED: str(retain_commits),
        hoodie.CLEAN_PARALLELISM: str(parallelism),
        hoodie.ROLLBACK_PARALLELISM: str(parallelism),
        hoodie.EMBED_TIMELINE_SERVER: "false",
        hoodie.CLIENT_HEARTBEAT_INTERVAL_IN_MS: str(heartbeat_interval_ms),
        hoodie.CLIENT_HEARTBEAT_TOLERABLE_MISSES: str(heartbeat_misses),
    }


def call_argument(options: Mapping[str, str]) -> str:
    """Return the ``options`` argument of a ``CALL``: ``k=v,k=v``, to be put between single quotes.

    Raises:
        ConfigError: A value has a comma or a quote, which that syntax cannot carry.
    """
    for name, value in options.items():
        if set(value) & {",", "'"}:
            raise ConfigError(setting=name, value=value, reason="a CALL cannot carry commas or quotes")
    return ",".join(f"{name}={value}" for name, value in options.items())


def lock_provider(base_path: str) -> str:
    """Return the class of Hudi's commit lock for a table at ``base_path``.

    Raises:
        ConfigError: No lock provider works on the file system; nothing was written.
    """
    scheme = base_path.partition("://")[0].lower() if "://" in base_path else "file"
    if scheme == "file":
        return FILE_LOCK_PROVIDER
    if scheme in STORAGE_LOCK_SCHEMES:
        return STORAGE_LOCK_PROVIDER
    allowed = ", ".join(f"{name}://" for name in ("file", *sorted(STORAGE_LOCK_SCHEMES)))
    raise ConfigError(
        setting="base_path", value=base_path, reason=f"no lock for commits there; use {allowed}"
    )


def _table_options(*, base_path: str, key: Sequence[str]) -> dict[str, str]:
    """Return the options that all writers and services of a table must share."""
    provider = lock_provider(base_path)
    return {
        **(_ONE_CLOCK if provider == FILE_LOCK_PROVIDER else {}),
        # Hudi reads the type under both names, but its concurrency control reads only the first.
        hoodie.TABLE_TYPE: "MERGE_ON_READ",
        hoodie.DATASOURCE_WRITE_TABLE_TYPE: "MERGE_ON_READ",
        hoodie.DATASOURCE_WRITE_RECORDKEY_FIELD: ",".join(key),
        hoodie.WRITE_RECORD_MERGE_MODE: "CUSTOM",
        hoodie.WRITE_RECORD_MERGE_STRATEGY_ID: MERGER_STRATEGY_ID,
        hoodie.WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES: MERGER_CLASS,
        hoodie.INDEX_TYPE: "BUCKET",
        hoodie.INDEX_BUCKET_ENGINE: "SIMPLE",
        hoodie.WRITE_CONCURRENCY_MODE: "NON_BLOCKING_CONCURRENCY_CONTROL",
        hoodie.WRITE_LOCK_PROVIDER: provider,
        hoodie.WRITE_LOCK_WAIT_TIME_MS: "60000",
        hoodie.WRITE_LOCK_CLIENT_NUM_RETRIES: "3",
        hoodie.CLEAN_FAILED_WRITES_POLICY: "LAZY",
        hoodie.METADATA_ENABLE: "false",
    }


# Twice per commit Hudi waits for the largest difference between writers' clocks, by default 0.2 s. The
# writers of a file:// table share one machine and its clock.
_ONE_CLOCK: Final = {hoodie.TIME_GENERATOR_MAX_EXPECTED_CLOCK_SKEW_MS: "1"}

_NO_INLINE_SERVICES: Final = {
    hoodie.COMPACT_INLINE: "false",
    hoodie.COMPACT_SCHEDULE_INLINE: "false",
    hoodie.DATASOURCE_COMPACTION_ASYNC_ENABLE: "false",
    hoodie.CLUSTERING_INLINE: "false",
    # A clustering plan on a bucket table makes every later upsert fail.
    hoodie.CLUSTERING_ASYNC_ENABLED: "false",
    hoodie.CLEAN_AUTOMATIC: "false",
    hoodie.CLEAN_ASYNC_ENABLED: "false",
    hoodie.ARCHIVE_AUTOMATIC: "false",
}
