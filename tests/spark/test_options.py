"""Hudi's options for a table, as far as they depend on the spec."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.errors import ConfigError
from asynclock.hudi._core.lock_options import STORE_LOCK_PROVIDER
from asynclock.spark import hoodie
from asynclock.spark.hudi.options import (
    FILE_LOCK_PROVIDER,
    LAYERS,
    USES,
    call_argument,
    cleaning_options,
    clustering_options,
    compaction_options,
    compose,
    lock_provider,
    read_options,
    sql_options,
    write_options,
)
from asynclock.spark.hudi.options.explanation import TASKS, explain
from asynclock.spark.spec.service_settings import ServicesSpec
from tests.unit.specs import table_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.spark.hudi.options import Use
    from asynclock.spark.spec.model import Spec
    from asynclock.spark.spec.service_settings import ServicesMode


@pytest.mark.parametrize(
    ("base_path", "provider"),
    [
        ("file:///data/t", FILE_LOCK_PROVIDER),
        ("/data/t", FILE_LOCK_PROVIDER),
        ("s3a://bucket/t", STORE_LOCK_PROVIDER),
        ("gs://bucket/t", STORE_LOCK_PROVIDER),
        ("abfss://container@account/t", STORE_LOCK_PROVIDER),
    ],
)
def test_the_place_of_the_table_chooses_the_lock(base_path: str, provider: str) -> None:
    """A local disk has the operating system's lock, an object store the lock file beside the data."""
    assert lock_provider(base_path) == provider


def test_a_place_without_a_lock_is_refused() -> None:
    """Without a lock for its commits a table would lose them."""
    with pytest.raises(ConfigError, match=r"hdfs://name/t.*use file://.*s3a://"):
        write_options(table_spec("hdfs://name/t"))


def test_a_commit_in_a_store_waits_for_longer_than_a_killed_writer_has_the_lock() -> None:
    """Hudi's lock there is free 300.5 s after its last renewal; no batch of the others fails before."""
    options = write_options(table_spec("s3a://bucket/t"))

    tries = 1 + int(options[hoodie.WRITE_LOCK_CLIENT_NUM_RETRIES])
    waits = tries * int(options[hoodie.WRITE_LOCK_WAIT_TIME_MS]) / 1000

    assert waits > 300.5 + 2


@pytest.mark.parametrize("use", USES)
def test_each_key_is_set_by_one_layer_with_its_reason(use: Use) -> None:
    """Composing layers is adding them up: none overrules another, and each value is explained."""
    options = compose(table_spec("s3a://bucket/t", partition_by=("day",)), use)

    assert [key for key, count in Counter(option.key for option in options).items() if count > 1] == []
    for option in options:
        assert option.layer in LAYERS
        assert option.why.endswith("."), option.key


def test_the_tasks_of_the_session_reach_every_shuffle() -> None:
    """Nothing is left at Hudi's defaults, which suit large clusters."""
    options = compose(table_spec("file:///t"), "write", tasks=7)

    assert {option.value for option in options if option.key.endswith("parallelism")} == {"7"}


def test_an_existing_table_keeps_its_name() -> None:
    """A table whose folder was renamed is still the same table to Hudi."""
    spec = table_spec("file:///data/new-name")

    assert write_options(spec)[hoodie.TABLE_NAME] == "new_name_splice"
    assert write_options(spec, name="old")[hoodie.TABLE_NAME] == "old"


def test_a_statement_is_reduced_to_one_row_per_key_and_a_batch_is_not() -> None:
    """A batch has one row per key in the order of arrival, which Hudi's shuffle would not keep."""
    spec = table_spec("file:///t")

    assert write_options(spec)[hoodie.COMBINE_BEFORE_UPSERT] == "false"
    assert sql_options(spec)[hoodie.COMBINE_BEFORE_UPSERT] == "true"


@pytest.mark.parametrize("options", [compaction_options, cleaning_options])
def test_services_of_a_table_with_a_long_key_fit_into_a_call(
    options: Callable[[Spec], dict[str, str]],
) -> None:
    """A CALL separates options by commas, so a list of key columns must not be among them."""
    argument = call_argument(options(table_spec("file:///t", key=["a", "b"])))

    assert "hoodie.datasource.write.recordkey.field=_asynclock_key," in argument


@pytest.mark.parametrize("value", ["a,b", "it's"])
def test_what_a_call_cannot_carry_is_refused(value: str) -> None:
    """Hudi would read another option or end the statement."""
    with pytest.raises(ConfigError, match=r"hoodie\.x"):
        call_argument({"hoodie.x": value})


COMPACTING = (hoodie.COMPACT_INLINE, hoodie.COMPACT_INLINE_MAX_DELTA_COMMITS)
CLUSTERING = (hoodie.CLUSTERING_INLINE, hoodie.CLUSTERING_INLINE_MAX_COMMITS)
PLAIN = {"kind": "plain", "merge": "event_time", "concurrency": "occ", "buckets": 0, "type": "cow"}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("merge", ["event_time", "commit_time", "partial_update"])
@pytest.mark.parametrize("concurrency", ["occ", "occ-early"])
@pytest.mark.parametrize("markers", ["direct", "timeline-server"])
@pytest.mark.parametrize("mode", ["elected", "inline"])
@pytest.mark.parametrize("layout", [{"type": "mor", "buckets": 2}, {"type": "cow", "buckets": 0}])
def test_each_layer_of_a_plain_table_adds_keys_of_its_own(  # noqa: PLR0917  a product of choices
    use: Use, merge: str, concurrency: str, markers: str, mode: ServicesMode, layout: dict[str, Any]
) -> None:
    """Whatever is chosen in one layer, no other one overrules it."""
    services = ServicesSpec(mode=mode, cluster_every_commits=None if layout["buckets"] else 3)
    table = {**PLAIN, **layout, "merge": merge, "concurrency": concurrency, "markers": markers}
    options = compose(table_spec("file:///t", services=services, **table), use)

    assert [key for key, count in Counter(option.key for option in options).items() if count > 1] == []


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, {hoodie.TABLE_TYPE: "COPY_ON_WRITE", hoodie.INDEX_TYPE: "SIMPLE"}),
        ({"type": "mor", "buckets": 3}, {hoodie.INDEX_TYPE: "BUCKET", hoodie.BUCKET_INDEX_NUM_BUCKETS: "3"}),
        ({}, {hoodie.PARQUET_BLOOM_FILTER_ENABLED: "false"}),
        (
            {"merge": "event_time"},
            {
                hoodie.WRITE_RECORD_MERGE_MODE: "EVENT_TIME_ORDERING",
                hoodie.DATASOURCE_WRITE_PRECOMBINE_FIELD: "at",
            },
        ),
        ({"merge": "commit_time"}, {hoodie.WRITE_RECORD_MERGE_MODE: "COMMIT_TIME_ORDERING"}),
        (
            {"concurrency": "occ"},
            {
                hoodie.WRITE_CONCURRENCY_MODE: "OPTIMISTIC_CONCURRENCY_CONTROL",
                hoodie.WRITE_MARKERS_TYPE: "DIRECT",
                hoodie.EMBED_TIMELINE_SERVER: "false",
            },
        ),
        (
            {"concurrency": "occ-early", "markers": "timeline-server"},
            {
                hoodie.WRITE_CONCURRENCY_EARLY_CONFLICT_DETECTION_ENABLE: "true",
                hoodie.WRITE_MARKERS_TYPE: "TIMELINE_SERVER_BASED",
                hoodie.MARKERS_TIMELINE_SERVER_BASED_BATCH_INTERVAL_MS: "20",
                hoodie.EMBED_TIMELINE_SERVER: "true",
            },
        ),
        (
            {"type": "mor", "buckets": 2, "concurrency": "nbcc"},
            {hoodie.WRITE_CONCURRENCY_MODE: "NON_BLOCKING_CONCURRENCY_CONTROL"},
        ),
        (
            {"kind": "splice", "merge": "splice", "type": "cow", "buckets": 2},
            {
                hoodie.WRITE_RECORD_MERGE_MODE: "CUSTOM",
                hoodie.WRITE_CONCURRENCY_MODE: "OPTIMISTIC_CONCURRENCY_CONTROL",
                hoodie.COMPACT_INLINE: "false",
            },
        ),
    ],
)
def test_a_choice_in_the_spec_becomes_an_option(table: dict[str, Any], expected: dict[str, str]) -> None:
    """What the spec says is what Hudi is given."""
    options = write_options(table_spec("file:///t", **{**PLAIN, **table}))

    assert {key: options.get(key) for key in expected} == expected


def test_partial_updates_are_chosen_by_the_payload_alone() -> None:
    """Beside a merge mode Hudi would forget them, and nulls would erase."""
    options = write_options(table_spec("file:///t", **{**PLAIN, "merge": "partial_update"}))

    assert options[hoodie.DATASOURCE_WRITE_PAYLOAD_CLASS].endswith(
        ".OverwriteNonDefaultsWithLatestAvroPayload"
    )
    assert hoodie.WRITE_RECORD_MERGE_MODE not in options


def test_early_detection_is_off_where_nobody_asked_for_it() -> None:
    """It costs a look at every other write's markers."""
    options = write_options(table_spec("file:///t", **PLAIN))

    assert not any("early.conflict" in key for key in options)


def test_the_services_run_inside_of_the_writes_only_where_the_spec_says_so() -> None:
    """Elected services are off in a write; inline ones are on, with the numbers of the spec."""
    logs = {**PLAIN, "type": "mor", "buckets": 2}
    switches = (hoodie.CLEAN_AUTOMATIC, hoodie.ARCHIVE_AUTOMATIC)
    for table, services, switch, key, number in (
        (logs, ServicesSpec(mode="inline", compact_every_commits=7), *COMPACTING, "7"),
        (PLAIN, ServicesSpec(mode="inline", cluster_every_commits=3), *CLUSTERING, "3"),
    ):
        elected = write_options(table_spec("file:///t", **table))
        inline = write_options(table_spec("file:///t", services=services, **table))
        assert {elected[one] for one in (*switches, switch)} == {"false"}
        assert {inline[one] for one in (*switches, switch)} == {"true"}
        assert inline[key] == number


@pytest.mark.parametrize(
    "spec",
    [
        table_spec("file:///t", partition_by=("day",)),
        table_spec("s3a://bucket/t", **PLAIN),
        table_spec("file:///t", type="cow", concurrency="occ"),
        table_spec("file:///t", services=ServicesSpec(cluster_every_commits=3), **PLAIN),
    ],
)
def test_an_explanation_has_exactly_the_options_that_are_used(spec: Spec) -> None:
    """Put together again by their uses, the lines are what writers, readers and services are given."""
    explained: dict[str, dict[str, str]] = {}
    for option in explain(spec).options:
        for use in option.used_by:
            assert option.key not in explained.setdefault(use, {})
            explained[use][option.key] = option.value.replace(TASKS, "2")

    given = {
        "write": write_options(spec),
        "sql": sql_options(spec),
        "read": read_options(spec),
        "compaction": compaction_options(spec),
        "clustering": clustering_options(spec),
        "cleaning": cleaning_options(spec),
    }
    assert explained == {use: given[use] for use in explained}
    assert {"write", "sql", "read", "cleaning"} <= explained.keys()
    assert ("compaction" in explained) == (spec.table.type == "mor")
    assert ("clustering" in explained) == (spec.services.cluster_every_commits is not None)
