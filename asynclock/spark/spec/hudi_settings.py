"""The user's own options of Hudi, and the refusal of those that asynclock sets itself."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  pydantic reads it
from dataclasses import field
from functools import partial
from typing import Final

from asynclock.spark import hoodie
from asynclock.spark.spec.checked import checked, run_all, wrong
from asynclock.spark.spec.environment import FromEnvironment, Settings, refuse_literal_setting, resolved

_PREFIX: Final = "hoodie."
_PASSED: Final = ("", "")
METADATA_PAGE: Final = "docs/concepts/pipeline/options.md"
"""Says what a metadata table costs, and why there is no record index."""

_METADATA: Final = (
    "by table.metadata_table whether there is a metadata table, and that none has a record index or "
    f"statistics ({METADATA_PAGE} says why)"
)

# Names without the prefix; one with a dot at its end is a family. The longest name decides. Older names of
# options, which Hudi reads as well, are among them.
_OWNED: Final[Mapping[tuple[str, str], str]] = {
    ("place", "the lock of a commit"): "write.lock. auto.adjust.lock.configs fs.atomic_creation.support",
    ("place", "the clocks of the timeline"): "time.generator.",
    ("place", "the number of tasks"): """
        upsert.shuffle.parallelism insert.shuffle.parallelism delete.shuffle.parallelism
        finalize.write.parallelism markers.delete.parallelism rollback.parallelism clean.parallelism
        cleaner.parallelism""",
    ("table", "the identity of the table, of its rows and of their times"): """
        table. timeline. database.name base. asynclock. storage.class io.factory.class metaserver.
        bootstrap. datasource. keygen. populate. allow.operation. write.table. write.auto. write.complex.
        skip.default. partition.metafile. deltastreamer.keygen. streamer.keygen.""",
    ("table", "the file of each row"): """
        index. bloom.index. bucket.index. simple.index. global.index. global.simple.index.
        expression.index. storage.layout. layout. logfile.data.block.format fileid.
        enable.data.skipping hfile.writes.""",
    ("table", _METADATA): """
        metadata. record.index.""",
    ("table", "the columns and their values"): """
        parquet.bloom. parquet.outputtimestamptype parquet.writelegacyformat. parquet.write. parquet.avro.
        parquet.spark. parquet.flink. avro. schema. internal. write.schema write.set.""",
    ("merge", "which of two records of a key wins, and which rows a read shows"): """
        write.record. write.partial. write.merge. write.concat. record.merge. combine. payload. merge.
        compact.merge. compaction.payload. compaction.record. compaction.reverse. datasource.query.
        datasource.read. datasource.view. datasource.merge. datasource.insert. datasource.overwrite.
        datasource.streaming. datasource.write.precombine. datasource.write.payload.
        datasource.write.operation datasource.write.record. datasource.write.insert.
        datasource.write.partitions. spark.sql. sql. static. file.group. file.index. read.
        memory.dfs. bulkinsert.overwrite. allow.empty. errortable.""",
    ("concurrency", "what writers that run at the same time do about each other"): """
        write.concurrency. write.markers. write.rolling. write.ignore. write.can. write.num.
        post.commit. client.heartbeat. embed.timeline. filesystem.view. filesystem.remote. rollback.
        clean.failed. cleaner.policy.failed. prewrite.cleaner. markers.timeline_server_based.batch.interval_ms
        block.writes. datasource.write.commitmeta. datasource.write.streaming.""",
    ("services", "who compacts, clusters, cleans and archives, and when"): """
        compact. compaction.strategy compaction.plan. compaction.daybased. compaction.partition. clean.
        cleaner. archive. archivelog. commits.archival. keep. clustering. log.compaction. partition.ttl.
        datasource.compaction. datasource.clustering. table.service. table.services. write.empty.
        fail.writes.""",
    ("table", "what a catalog learns about the table"): """
        datasource.hive_sync.partition_fields datasource.hive_sync.partition_extractor_class
        datasource.hive_sync.base_file_format datasource.hive_sync.create_managed_table
        datasource.meta.sync.base. meta.sync.metadata_file_listing meta.sync.decode_partition""",
    ("merge", "which rows the name of the table shows in a catalog"): """
        datasource.hive_sync.skip_ro_suffix datasource.hive_sync.table.strategy""",
    _PASSED: """
        clustering.plan.strategy.target. clustering.plan.strategy.small. clustering.max.parallelism
        clustering.plan.strategy.max. clustering.group. file.index.cache. merge.data.validation.
        datasource.hive_sync. datasource.meta.sync. datasource.meta_sync. meta.sync. meta_sync.""",
}
_OWNERS: Final = {name: owner for owner, names in _OWNED.items() for name in names.split()}
_SYNC: Final = (
    "datasource.hive_sync.",
    "datasource.meta.sync.",
    "datasource.meta_sync.",
    "meta.sync.",
    "meta_sync.",
)


@checked
class HudiSpec:
    """Options of Hudi that no layer of asynclock sets: they are passed on as they are.

    Attributes:
        options: The options by their full names.
    """

    options: Settings = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        run_all(*(partial(self._check, key) for key in self.options), self._check_sync)
        resolved(self.options)

    def _check(self, key: str) -> None:
        refuse_literal_setting(key, self.options[key])
        if not key.startswith(_PREFIX):
            raise wrong(key, "...", f"options of Hudi begin with {_PREFIX!r}; write the whole name")
        if (owned := owner(key)) is not None:
            layer, decides = owned
            reason = (
                f"the layer {layer!r} of asynclock decides {decides}; another value would break the table or "
                "show other rows: remove it ('asynclock pipeline explain' prints what each layer sets)"
            )
            raise wrong(key, "...", reason)

    def _check_sync(self) -> None:
        if not (given := self.synced()):
            return
        first = next(iter(given))
        if not self.syncs:
            switch = hoodie.DATASOURCE_META_SYNC_ENABLE
            raise wrong(first, "...", f"nothing uses it unless the meta sync is on; add {switch} = true")
        if (name := hoodie.DATASOURCE_HIVE_SYNC_TABLE) not in given:
            raise wrong(first, "...", f'the catalog needs a name for the table; add {name} = "NAME"')

    @property
    def syncs(self) -> bool:
        """Whether a catalog outside, such as Hive or Glue, learns of the table."""
        switches = (hoodie.DATASOURCE_META_SYNC_ENABLE, hoodie.DATASOURCE_HIVE_SYNC_ENABLE)
        return any(self.options.get(switch) == "true" for switch in switches)

    def synced(self) -> dict[str, str | FromEnvironment]:
        """Return the options of the meta sync, which its elected service alone gets."""
        return {key: value for key, value in self.options.items() if _is_of_sync(key)}

    def passed(self) -> dict[str, str | FromEnvironment]:
        """Return the options that writers, readers and services get."""
        return {key: value for key, value in self.options.items() if not _is_of_sync(key)}


def owner(key: str) -> tuple[str, str] | None:
    """Return the layer that sets an option, or one with the same effect, and what it decides; None: no layer.

    Args:
        key: The full name of the option.
    """
    parts = key.removeprefix(_PREFIX).split(".")
    names = [".".join(parts), *(".".join(parts[:end]) + "." for end in range(len(parts) - 1, 0, -1))]
    found = next((_OWNERS[name] for name in names if name in _OWNERS), _PASSED)
    return None if found == _PASSED else found


def _is_of_sync(key: str) -> bool:
    return key.removeprefix(_PREFIX).startswith(_SYNC)
