"""Guard a splice table with its properties against sessions that do not know asynclock.

Hudi uses every entry of a table's ``hoodie.properties`` as an option of each Spark write, by SQL or by
DataFrame, and refuses a write with another value. So the options without which a write breaks a splice table
are there, with a key generator that checks every row (``io.asynclock.hudi``'s ``SpliceKeyGenerator``).
``docs/concepts/sql.md`` lists the things that a session without our extension can still do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.spark import hoodie
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.options import sql_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock.spark.spec.model import Spec

KEY_GENERATOR: Final = "io.asynclock.hudi.SpliceKeyGenerator"

# Without these a write makes files outside the buckets, compacts or cleans next to the elected services,
# rolls running streams back, looks dead to the cleaning, or commits without the lock of the others.
_GUARDED: Final = (
    hoodie.DATASOURCE_WRITE_TABLE_TYPE,
    hoodie.INDEX_TYPE,
    hoodie.INDEX_BUCKET_ENGINE,
    hoodie.BUCKET_INDEX_NUM_BUCKETS,
    hoodie.WRITE_CONCURRENCY_MODE,
    hoodie.WRITE_LOCK_PROVIDER,
    hoodie.WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES,
    hoodie.CLEAN_FAILED_WRITES_POLICY,
    hoodie.METADATA_ENABLE,
    hoodie.METADATA_INDEX_COLUMN_STATS_ENABLE,
    hoodie.METADATA_INDEX_PARTITION_STATS_ENABLE,
    hoodie.COMPACT_INLINE,
    hoodie.COMPACT_SCHEDULE_INLINE,
    hoodie.DATASOURCE_COMPACTION_ASYNC_ENABLE,
    hoodie.CLUSTERING_INLINE,
    hoodie.CLUSTERING_ASYNC_ENABLED,
    hoodie.CLEAN_AUTOMATIC,
    hoodie.ARCHIVE_AUTOMATIC,
    hoodie.CLIENT_HEARTBEAT_INTERVAL_IN_MS,
    hoodie.CLIENT_HEARTBEAT_TOLERABLE_MISSES,
)
# Hudi compacts in a frame's write that does not forbid it, whatever the properties say.
_NEVER: Final = str(2**31 - 1)


def guard_properties(spec: Spec) -> dict[str, str]:
    """Return the entries that guard the table of the spec."""
    options = sql_options(spec)
    return {
        **{name: options[name] for name in _GUARDED if name in options},
        hoodie.COMPACT_INLINE_MAX_DELTA_COMMITS: _NEVER,
        hoodie.TABLE_KEYGENERATOR_TYPE: "USER_PROVIDED",
        hoodie.TABLE_KEYGENERATOR_CLASS: KEY_GENERATOR,
        hoodie.ASYNCLOCK_KEY: ",".join(spec.table.key),
    }


def is_guarded(spec: Spec, properties: Mapping[str, str]) -> bool:
    """Return whether a table with these properties is guarded; a plain table need not be."""
    return not layout_of(spec).in_buckets or guard_properties(spec).items() <= properties.items()
