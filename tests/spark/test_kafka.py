"""A stream whose source is a Kafka topic, on a real broker."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark import explain
from asynclock.spark.check.validation import validate
from asynclock.spark.errors import BadRowsError
from asynclock.spark.reader.snapshot import read
from asynclock.spark.services.savepoints import restore, savepoint
from asynclock.spark.source.backlog import BacklogLook
from asynclock.spark.spec.load import load_spec
from tests.laboratory.kafka import Broker, Topic, broker
from tests.spark.pipeline_kit import Background, Pipeline, misread, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

pytestmark = pytest.mark.timeout(300)

FILES_OF_A = 'source = "in/a/*"\nformat = "csv"'
ONE_FILE = "max_files_per_trigger = 1\ncolumns = { at"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    """One broker for all tests."""
    with broker() as running:
        yield running


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def spec_of(pipeline: Pipeline, kafka: Broker, topic: str, *, more: str = "") -> Spec:
    """The spec of the pipeline, with a topic in place of the files of stream ``a``."""
    source = f'kafka = {{ servers = "{kafka.servers}", topic = "{topic}" }}\n{more}'
    return pipeline.spec({FILES_OF_A: source, ONE_FILE: "columns = { at"})


def rows(pipeline: Pipeline, spec: Spec) -> dict[str, tuple[object, ...]]:
    """What the view says of stream ``a``, by key."""
    found = read(spec, pipeline.spark).select("k", "at", "x", "note").collect()
    return {row["k"]: (row["at"], row["x"], row["note"]) for row in found}


def event(key: str, at: int, x: int | None = None, note: str | None = None) -> dict[str, object]:
    """An event of stream ``a``."""
    return {"k": key, "at": at, "x": x, "note": note}


def test_records_are_spliced_with_files_and_validated(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """Each record is an event of its key; a commit says up to which offsets its batch read.

    A look at the backlog finds all records before the run and none after it.
    """
    topic = Topic(spark, kafka.servers, partitions=2)
    topic.send([event("N1", 1, 10, "first"), event("N1", 3, 30), event("N1", 2, 20, "late")])
    topic.send([event("N2", 1, 5, 'ä,"')], partition=1)
    pipeline.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": 0.5})
    spec = spec_of(pipeline, kafka, topic.name)
    look = BacklogLook(spec, spec.stream("a"), spark)
    before = look()

    pipeline.run(spec)

    assert (before.offsets, look().offsets) == (4, 0)
    assert rows(pipeline, spec) == {"N1": (3, 30, None), "N2": (1, 5, 'ä,"')}
    (commit,) = [one for one in pipeline.timeline(spec).commits if one.stream == "a"]
    assert json.loads(commit.offset) == {topic.name: {"0": 3, "1": 1}}
    report = validate(spec, spark)
    assert (report.ok, report.keys) == (True, 2)
    assert (report.streams[0].events, report.streams[0].unread_records) == (4, 0)


def test_the_names_of_fields_are_mapped(pipeline: Pipeline, kafka: Broker, spark: SparkSession) -> None:
    """A record calls its key, its ordering and its columns as it likes."""
    topic = Topic(spark, kafka.servers)
    topic.send([{"_id": "N1", "When?": 1, "2016": 7, "note": "n", "a.b": 0}])
    spec = spec_of(pipeline, kafka, topic.name)
    text = spec.path.read_text()
    plain = 'columns = { at = "bigint", x = "int",'
    assert plain in text
    named = (
        'columns = { k = { type = "string", from = "_id" }, at = { type = "bigint", from = "When?" }, '
        'x = { type = "int", from = "2016" },'
    )
    spec.path.write_text(text.replace(plain, named, 1))
    spec = load_spec(spec.path)

    report = pipeline.run(spec)

    assert report.streams[0].unnamed_columns == ("a.b",)
    assert rows(pipeline, spec) == {"N1": (1, 7, "n")}
    assert validate(spec, spark).ok


def test_the_empty_record_after_a_delete_in_debeziums_envelope_is_no_event(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """Kafka's compaction needs it; it is not a bad record either."""
    topic = Topic(spark, kafka.servers)
    topic.send([{"op": "c", "after": event("N1", 1, 1)}, {"op": "c", "after": event("N2", 1, 2)}])
    topic.send([{"op": "d", "before": event("N1", 2)}])
    topic.send_bytes([None])
    source = f'kafka = {{ servers = "{kafka.servers}", topic = "{topic.name}" }}\nenvelope = "debezium"'
    source += '\non_bad_row = "quarantine"'
    spec = pipeline.spec({FILES_OF_A: source, ONE_FILE: 'columns = { deleted = "boolean", at'})

    ran = pipeline.run(spec)

    assert ran.streams[0].quarantined == 0
    assert rows(pipeline, spec) == {"N2": (1, 2, None)}
    report = validate(spec, spark)
    assert (report.ok, report.streams[0].events, report.streams[0].bad_rows) == (True, 3, 0)


def test_the_later_record_of_a_partition_wins_a_tie_within_and_between_batches(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """Offsets are the order of arrival, also where ordering values are equal."""
    topic = Topic(spark, kafka.servers)
    topic.send([event(f"N{i}", 1, x, f"{x}") for i in range(20) for x in (1, 2)])
    topic.send([event("N0", 1, 3, "third")])
    spec = spec_of(pipeline, kafka, topic.name, more="max_records_per_trigger = 7")

    report = pipeline.run(spec)

    assert report.streams[0].batches == 6
    expected = {f"N{i}": (1, 2, "2") for i in range(1, 20)} | {"N0": (1, 3, "third")}
    assert rows(pipeline, spec) == expected
    assert validate(spec, spark).ok


def test_a_batch_that_was_committed_is_not_written_again(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """A kill between the commit and Spark's checkpoint repeats the batch, which is skipped."""
    topic = Topic(spark, kafka.servers)
    topic.send([event("N1", 1, 1)])
    spec = spec_of(pipeline, kafka, topic.name)
    pipeline.run(spec)
    pipeline.forget_last_batch("a")
    topic.send([event("N2", 1, 2)])

    report = pipeline.run(spec)

    assert (report.streams[0].skipped, report.streams[0].batches) == (1, 2)
    assert len([one for one in pipeline.timeline(spec).commits if one.stream == "a"]) == 2
    assert rows(pipeline, spec) == {"N1": (1, 1, None), "N2": (1, 2, None)}
    assert validate(spec, spark).ok


BAD = [
    b'{"k": "N1", "at": "soon", "x": 1}',
    b'{"k": null, "at": 1}',
    b'{"at": 1}',
    b'{"k": "N1"}',
    b'{"k": "N1", "at": 1',
    b"",
    None,
    b"\xff\xfe",
    b'{"k": "N1", "at": 1} {"k": "N2", "at": 1}',
]


def test_bad_records_are_put_aside_with_topic_partition_and_offset(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """The good ones beside them are written, and validation finds the same ones bad."""
    topic = Topic(spark, kafka.servers, partitions=2)
    topic.send_bytes([*BAD, b'{"k": "N9",\n "at": 4, "x": 7}'], partition=1)
    spec = spec_of(pipeline, kafka, topic.name, more='on_bad_row = "quarantine"')

    report = pipeline.run(spec)

    assert report.streams[0].quarantined == len(BAD)
    assert rows(pipeline, spec) == {"N9": (4, 7, None)}
    found = pipeline.quarantined("a")
    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
        (topic.name, 1, offset) for offset in range(len(BAD))
    ]
    assert found[0]["reason"] == "at is no bigint: soon"
    assert found[0]["record"] == BAD[0].decode()  # type: ignore[union-attr]
    assert found[1]["reason"] == found[2]["reason"] == "k is missing"
    assert found[6]["reason"] == "it has no value"
    compared = validate(spec, spark)
    assert (compared.ok, compared.streams[0].bad_rows) == (True, len(BAD))


def test_a_bad_record_fails_the_batch_where_that_is_asked_for(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """The error names the record; nothing was written."""
    topic = Topic(spark, kafka.servers)
    topic.send([event("N1", 1)])
    topic.send_bytes([b"nonsense"])
    spec = spec_of(pipeline, kafka, topic.name)

    with pytest.raises(BadRowsError, match=f"topic {topic.name}, partition 0, offset 1: no well-formed JSON"):
        pipeline.run(spec)

    assert not [one for one in pipeline.timeline(spec).commits if one.stream == "a"]


def test_a_topic_that_does_not_exist_is_refused(pipeline: Pipeline, kafka: Broker) -> None:
    """One sentence with the line of the spec; nothing was written."""
    spec = spec_of(pipeline, kafka, "nowhere")
    before = pipeline.everything()

    with pytest.raises(SpecError, match="the topic does not exist; nothing was written"):
        pipeline.run(spec)

    assert pipeline.everything() == before


def test_a_broker_that_goes_away_and_comes_back_costs_a_retry(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream goes on with the first record that it has not committed."""
    topic = Topic(spark, kafka.servers)
    topic.send([event("N1", 1, 1)])
    impatient = '{ "default.api.timeout.ms" = 2000, "request.timeout.ms" = 1000 }'
    named = f'servers = "{kafka.servers}", topic = "{topic.name}"'
    source = f"kafka = {{ {named}, options = {impatient} }}"
    spec = pipeline.spec({FILES_OF_A: source, ONE_FILE: "columns = { at"})
    stop = threading.Event()
    running = Background(lambda: pipeline.endless(spec, streams=["a"], stop=stop))
    wait_for(lambda: pipeline.timeline(spec).commits)
    kafka.stop()
    try:
        wait_for(lambda: "retry 1 of" in caplog.text)
    finally:
        kafka.start()
    topic.send([event("N2", 1, 2)])
    wait_for(lambda: len(pipeline.timeline(spec).commits) == 2)
    stop.set()

    report = running.result()
    assert report.streams[0].retries > 0
    assert rows(pipeline, spec) == {"N1": (1, 1, None), "N2": (1, 2, None)}


def test_a_restore_reads_the_records_after_the_savepoint_again(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """The offsets are in the checkpoint, which is set back with the table."""
    topic = Topic(spark, kafka.servers)
    topic.send([event("N1", 1, 1)])
    spec = spec_of(pipeline, kafka, topic.name)
    pipeline.run(spec, streams=["a"])
    kept = savepoint(spec, spark=spark)
    topic.send([event("N1", 2, 2), event("N2", 1, 1)])
    pipeline.run(spec, streams=["a"])

    restore(spec, kept, spark=spark)

    assert rows(pipeline, spec) == {"N1": (1, 1, None)}
    assert validate(spec, spark).streams[0].unread_records == 2
    assert pipeline.run(spec, streams=["a"]).streams[0].rows == 2
    assert rows(pipeline, spec) == {"N1": (2, 2, None), "N2": (1, 1, None)}
    assert validate(spec, spark).ok


def test_validation_finds_a_value_that_the_topic_does_not_have(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """What another writer put into the stream's columns differs from the records."""
    topic = Topic(spark, kafka.servers)
    topic.send([event("N1", 1, 1)])
    spec = spec_of(pipeline, kafka, topic.name)
    pipeline.run(spec)
    row = spark.sql("SELECT 'N1' AS k, 2L AS at, 9 AS x, 'forged' AS note")
    misread(spec, spark, row, "a")

    report = validate(spec, spark)

    assert {(one.column, one.expected, one.found) for one in report.sample} == {
        ("a__ts", "1", "2"), ("a__x", "1", "9"), ("a__note", None, "forged"),
    }  # fmt: skip


def test_records_that_the_topic_has_lost_are_not_compared(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """What the retention has dropped is counted, and the rest is compared."""
    topic = Topic(spark, kafka.servers)
    topic.send([event("N1", 1, 1), event("N2", 1, 1)])
    spec = spec_of(pipeline, kafka, topic.name)
    pipeline.run(spec)
    topic.drop_before(1)

    report = validate(spec, spark)

    assert (report.ok, report.keys, report.not_comparable) == (True, 2, 1)
    assert (report.streams[0].events, report.streams[0].removed_records) == (1, 1)


def test_a_new_checkpoint_reads_the_topic_again_and_validates(
    pipeline: Pipeline, kafka: Broker, spark: SparkSession
) -> None:
    """What only the earlier query has read is expected, too."""
    topic = Topic(spark, kafka.servers)
    topic.send([event("N1", 1, 1), event("N2", 1, 1)])
    pipeline.run(spec_of(pipeline, kafka, topic.name))
    (pipeline.folder / "checkpoints" / "a").rename(pipeline.folder / "former")
    spec = spec_of(pipeline, kafka, topic.name)

    assert validate(spec, spark).ok
    assert pipeline.run(spec).streams[0].rows == 2
    assert validate(spec, spark).ok


def test_a_spec_with_a_topic_is_explained_without_a_broker(pipeline: Pipeline) -> None:
    """Neither Spark nor Kafka is asked."""
    source = 'kafka = { servers = "nowhere:9092", topic = "t" }'
    spec = pipeline.spec({FILES_OF_A: source, ONE_FILE: "columns = { at"})

    assert explain(spec).options
    assert (spec.streams[0].source, spec.streams[0].format) == ("", "json")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('kafka = { servers = "b", topic = "t" }', "host:port"),
        ('kafka = { servers = "b:1", topic = "a b" }', "1 to 249 letters"),
        ('kafka = { servers = "b:1", topics = "t" }', "did you mean 'topic'"),
        ('kafka = { servers = "b:1" }', "missing"),
        ('kafka = { servers = "b:1", topic = "t", options = { "group.id" = "g" } }', "is decided"),
        ('kafka = { servers = "b:1", topic = "t", options = { "ssl.key.password" = "x" } }', "is a secret"),
        ('kafka = { servers = "b:1", topic = "t", options = { "ssl.keystore.key" = "x" } }', "is a secret"),
        ('kafka = { servers = "b:1", topic = "t" }\nsource = "in/a/*"', "there is a topic too"),
        ('kafka = { servers = "b:1", topic = "t" }\nformat = "csv"', "are JSON"),
        ('kafka = { servers = "b:1", topic = "t" }\nmax_files_per_trigger = 1', "max_records_per_trigger"),
        ('kafka = { servers = "b:1", topic = "t" }\nmax_records_per_trigger = 0', "1 or more"),
        (f"{FILES_OF_A}\nmax_records_per_trigger = 1", "max_files_per_trigger"),
        ("", "missing; name the files, or a topic"),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_is_refused(pipeline: Pipeline, text: str, reason: str) -> None:
    """With its line of the spec, before anything is started."""
    with pytest.raises(SpecError, match=reason):
        pipeline.spec({FILES_OF_A: text, ONE_FILE: "columns = { at"})
