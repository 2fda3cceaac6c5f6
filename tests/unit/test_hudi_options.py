"""Options of Hudi in a spec: passed on, or refused because a layer of asynclock sets them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asynclock.errors import ConfigError, SpecError
from asynclock.spark.hudi.options import USES, compose, sync_options, write_options
from asynclock.spark.hudi.options.explanation import explain
from asynclock.spark.spec.environment import FromEnvironment
from asynclock.spark.spec.hudi_settings import HudiSpec, owner
from asynclock.spark.spec.load import load_spec
from asynclock.spark.spec.service_settings import ServicesSpec
from tests.unit.specs import SPEC, table_spec

ROOT = Path(__file__).parents[2]
SIZE = "hoodie.parquet.max.file.size"
SYNC = {
    "hoodie.datasource.meta.sync.enable": "true",
    "hoodie.datasource.hive_sync.table": "fleet",
    "hoodie.datasource.hive_sync.mode": "hms",
}
PLAIN = {"kind": "plain", "merge": "event_time", "concurrency": "occ", "type": "cow", "buckets": 0}
TABLES: list[dict[str, Any]] = [
    {"partition_by": ("day",)},
    {"type": "cow", "concurrency": "occ"},
    *({**PLAIN, "merge": merge} for merge in ("event_time", "commit_time", "partial_update")),
    {**PLAIN, "type": "mor", "buckets": 2, "concurrency": "occ-early", "markers": "timeline-server"},
    {**PLAIN, "concurrency": "occ-early"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the sources of the spec."""
    for stream in ("departures", "arrivals"):
        (tmp_path / "in" / stream).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("mode", ["elected", "inline"])
def test_each_option_that_a_layer_sets_is_refused_with_its_layer(table: dict[str, Any], mode: Any) -> None:  # noqa: ANN401  a choice
    """No value of the user can overrule a layer, under whatever use it is set."""
    cluster = 3 if table.get("buckets") == 0 else None
    services = ServicesSpec(mode=mode, cluster_every_commits=cluster, cluster_by=("at",) if cluster else ())
    spec = table_spec("file:///t", **table)
    for use in USES:
        for option in compose(replace_services(spec, services), use):
            owned = owner(option.key)
            assert owned is not None, option.key
            assert owned[0] == option.layer, option.key


def replace_services(spec: Any, services: ServicesSpec) -> Any:  # noqa: ANN401  a spec
    """The spec with other services, unless they do not fit it."""
    try:
        return replace(spec, services=services)
    except ConfigError:
        return spec


@pytest.mark.parametrize(
    ("key", "layer"),
    [
        ("hoodie.write.lock.zookeeper.url", "place"),
        ("hoodie.auto.adjust.lock.configs", "place"),
        ("hoodie.table.timeline.timezone", "table"),
        ("hoodie.datasource.write.keygenerator.class", "table"),
        ("hoodie.datasource.write.storage.type", "table"),
        ("hoodie.write.table.version", "table"),
        ("hoodie.populate.meta.fields", "table"),
        ("hoodie.bucket.index.partition.expressions", "table"),
        ("hoodie.simple.index.update.partition.path", "table"),
        ("hoodie.storage.layout.type", "table"),
        ("hoodie.metadata.record.index.enable", "table"),
        ("hoodie.parquet.outputtimestamptype", "table"),
        ("hoodie.schema.on.read.enable", "table"),
        ("hoodie.write.set.null.for.missing.columns", "table"),
        ("hoodie.datasource.write.record.merger.impls", "merge"),
        ("hoodie.compaction.record.merger.strategy", "merge"),
        ("hoodie.compaction.payload.class", "merge"),
        ("hoodie.payload.delete.field", "merge"),
        ("hoodie.merge.use.record.positions", "merge"),
        ("hoodie.write.partial.update.schema", "merge"),
        ("hoodie.datasource.merge.type", "merge"),
        ("hoodie.datasource.query.incremental.format", "merge"),
        ("hoodie.file.group.reader.enabled", "merge"),
        ("hoodie.sql.insert.mode", "merge"),
        ("hoodie.write.rolling.metadata.keys", "concurrency"),
        ("hoodie.datasource.write.streaming.ignore.failed.batch", "concurrency"),
        ("hoodie.write.num.retries.on.conflict.failures", "concurrency"),
        ("hoodie.cleaner.policy.failed.writes", "concurrency"),
        ("hoodie.compact.inline.trigger.strategy", "services"),
        ("hoodie.cleaner.hours.retained", "services"),
        ("hoodie.clustering.execution.strategy.class", "services"),
        ("hoodie.log.compaction.inline", "services"),
        ("hoodie.partition.ttl.inline", "services"),
        ("hoodie.table.services.enabled", "services"),
        ("hoodie.datasource.hive_sync.partition_fields", "table"),
        ("hoodie.datasource.hive_sync.skip_ro_suffix", "merge"),
        ("hoodie.datasource.hive_sync.table.strategy", "merge"),
    ],
)
def test_an_option_that_would_break_the_table_names_the_layer(key: str, layer: str) -> None:
    """Older names and whole families count as well; each error is one sentence."""
    with pytest.raises(ConfigError, match=rf"the layer '{layer}' of asynclock decides .*remove it") as caught:
        HudiSpec(options={**SYNC, key: "x"})

    assert caught.value.setting == key


@pytest.mark.parametrize(
    "key",
    [
        "hoodie.metadata.enable",
        "hoodie.metadata.index.column.stats.enable",
        "hoodie.record.index.use.caching",
    ],
)
def test_an_option_of_the_metadata_table_is_refused_with_the_setting_and_the_page(key: str) -> None:
    """The page has the reasons, and an explanation names it as well."""
    with pytest.raises(ConfigError) as caught:
        HudiSpec(options={key: "true"})

    (page,) = re.findall(r"by table\.metadata_table whether .* \((\S+) says why\)", caught.value.reason)
    assert "\n## Metadata table\n" in (ROOT / page).read_text()
    explained = explain(table_spec("file:///t")).options
    assert [page in one.why for one in explained if one.key == "hoodie.metadata.enable"] == [True]


@pytest.mark.parametrize(
    "key",
    [
        SIZE,
        "hoodie.parquet.compression.codec",
        "hoodie.memory.merge.max.size",
        "hoodie.metrics.on",
        "hoodie.bulkinsert.shuffle.parallelism",
        "hoodie.markers.timeline_server_based.batch.num_threads",
        "hoodie.clustering.plan.strategy.target.file.max.bytes",
        "hoodie.common.spillable.diskmap.type",
    ],
)
def test_any_other_option_reaches_writers_readers_services_and_statements(key: str) -> None:
    """As the layer of the user, with its reason; a meta sync is none of their work."""
    spec = replace(table_spec("file:///t"), hudi=HudiSpec(options={key: "7"}))

    for use in USES:
        found = [option for option in compose(spec, use) if option.layer == "user"]
        assert [(each.key, each.value) for each in found] == ([] if use == "sync" else [(key, "7")])
    (line,) = (each for each in explain(spec).options if each.key == key)
    assert (line.layer, line.value) == ("user", "7")
    assert line.used_by == ("write", "sql", "read", "compaction", "cleaning")


def test_a_meta_sync_reaches_its_elected_service_alone() -> None:
    """A writer with these options would run it, once for each of several writers."""
    spec = replace(table_spec("file:///t", partition_by=("day",)), hudi=HudiSpec(options={**SYNC, SIZE: "7"}))

    for use in USES:
        given = {option.key for option in compose(spec, use)}
        assert given.isdisjoint(SYNC) if use != "sync" else given >= SYNC.keys()
    assert sync_options(spec)["hoodie.datasource.hive_sync.partition_fields"] == "day"
    assert {each.used_by for each in explain(spec).options if each.key in SYNC} == {("sync",)}


def test_without_a_meta_sync_an_explanation_has_no_such_service() -> None:
    """The use is named only if somebody has it."""
    assert all("sync" not in each.used_by for each in explain(table_spec("file:///t")).options)


def test_a_secret_comes_from_the_environment_and_reaches_no_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The catalog keeps the properties of a statement in clear text, and an explanation is for eyes."""
    monkeypatch.setenv("OTHERS_KEY", "s3cret")
    name = "hoodie.metrics.datadog.api.key"
    spec = replace(table_spec("file:///t"), hudi=HudiSpec(options={name: FromEnvironment("OTHERS_KEY")}))

    assert write_options(spec)[name] == "s3cret"
    (line,) = (each for each in explain(spec).options if each.key == name)
    assert line.value == '{ env = "OTHERS_KEY" }'
    assert "sql" not in line.used_by


@pytest.mark.parametrize(
    ("options", "key", "sentence"),
    [
        ('"parquet.max.file.size" = 7', "parquet.max.file.size", "options of Hudi begin with 'hoodie.'"),
        (
            '"hoodie.index.type" = "BLOOM"',
            "hoodie.index.type",
            "the layer 'table' of asynclock decides the file",
        ),
        ('hoodie.aws.secret.key = "x"', "hoodie.aws.secret.key", "is a secret"),
        (f'"{SIZE}" = {{ env = "NOT_SET_ANYWHERE" }}', SIZE, "NOT_SET_ANYWHERE is not set"),
        (f'"{SIZE}" = [1]', SIZE, "expected a string or a number"),
        (
            '"hoodie.datasource.hive_sync.mode" = "hms"',
            "hoodie.datasource.hive_sync.mode",
            "nothing uses it unless the meta sync is on; add hoodie.datasource.meta.sync.enable = true",
        ),
        (
            '"hoodie.datasource.meta.sync.enable" = true',
            "hoodie.datasource.meta.sync.enable",
            "the catalog needs a name for the table",
        ),
    ],
)
def test_a_mistake_has_a_sentence_and_its_line(folder: Path, options: str, key: str, sentence: str) -> None:
    """As any other mistake of a spec; nothing is created."""
    path = folder / "spec.toml"
    path.write_text(f"{SPEC}\n[hudi]\n{options}\n")
    before = set(folder.rglob("*"))

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    assert (caught.value.line, caught.value.key) == (SPEC.count("\n") + 3, f"hudi.{key}")
    assert sentence in caught.value.reason
    assert set(folder.rglob("*")) == before


def test_a_meta_sync_goes_with_elected_services_only() -> None:
    """Inline services run in each writer."""
    spec = table_spec("file:///t", services=ServicesSpec(mode="inline"), **PLAIN)

    with pytest.raises(ConfigError, match="runs in one elected service, not in writers"):
        replace(spec, hudi=HudiSpec(options=SYNC))


def test_options_may_be_written_in_parts(folder: Path) -> None:
    """TOML makes a table of each part; numbers and switches become text."""
    path = folder / "spec.toml"
    path.write_text(f"{SPEC}\n[hudi]\nhoodie.parquet.max.file.size = 7\n[hudi.hoodie.metrics]\non = true\n")

    assert load_spec(path).hudi.options == {SIZE: "7", "hoodie.metrics.on": "true"}
