"""One splice table from files, a Kafka topic, DataFrames and a streaming DataFrame, against files alone."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark import Splice, load_spec, read, run, validate
from tests.laboratory.kafka import Topic, broker
from tests.laboratory.mechanisms.stage import Shown, must

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

_PARTITIONS: Final = 2
_NUMBERS: Final = {"flight": int, "dep_delay": float}


def show(stage: Stage) -> Shown:
    """Deliver the flights twice: all as files, and each stream in another way; the tables must be equal."""
    files = stage.fleet(stage.sized(3_000, 200_000), files=stage.sized(2, 6))
    run(files, once=True, spark=stage.spark)
    with broker() as kafka:
        topic = Topic(stage.spark, kafka.servers, partitions=_PARTITIONS)
        mixed = _mixed(files, f'kafka = {{ servers = "{kafka.servers}", topic = "{topic.name}" }}')
        sent = _send(topic, stage.folder / "data" / "departures")
        started = time.monotonic()
        report = run(mixed, streams=["registry", "departures"], once=True, spark=stage.spark)
        ran = time.monotonic() - started
        _forget_last_batch(stage.folder / ".asynclock/mixed/checkpoints/departures")
        again = run(mixed, streams=["departures"], once=True, spark=stage.spark)
        direct, streamed = _write_arrivals(stage, mixed)
        must(report.streams[1].rows == sent, "each record of the topic has been read once")
        must(again.streams[0].skipped == 1, "a batch of the topic that is on the timeline is skipped")
        must(again.streams[0].rows == 0, "and no record is written again")
        missing, surplus, keys = _difference(stage, files, mixed)
        must(missing == surplus == 0, "the table is the one of files alone")
        must(validate(mixed, stage.spark).ok, "the table agrees with its files and its topic")
    registry, departures = report.streams
    return Shown(
        sentence=f"{keys} rows from files, a topic, DataFrames and a streaming DataFrame are those of files "
        "alone; a batch of the topic killed before its checkpoint was skipped",
        table=[
            {"source": "files", "stream": "registry", "events": registry.rows, "batches": registry.batches,
             "seconds": registry.seconds},
            {"source": "Kafka topic", "stream": "departures", "events": departures.rows,
             "batches": departures.batches, "seconds": departures.seconds},
            {"source": "DataFrames", "stream": "arrivals", **direct},
            {"source": "streaming DataFrame", "stream": "arrivals", **streamed},
            {"source": "both of run", "stream": "", "events": sent + registry.rows, "batches": "",
             "seconds": ran},
        ],
    )  # fmt: skip


def _mixed(files: Spec, kafka: str) -> Spec:
    lines = []
    for line in files.path.read_text().splitlines():
        if line.startswith("source") and "/departures/" in line:
            lines.append(kafka)
        elif line.startswith("max_files_per_trigger = 3") and lines[-2] == kafka:
            lines.append("max_records_per_trigger = 20000")
        else:
            lines.append(line.replace('/table"', '/mixed"'))
    path = files.path.with_name("mixed.toml")
    path.write_text("\n".join(lines))
    return load_spec(path)


def _send(topic: Topic, folder: Path) -> int:
    """Send the events of files in the order of their delivery, those of an aircraft to one partition."""
    sent = 0
    by_partition: dict[int, list[dict[str, object]]] = {number: [] for number in range(_PARTITIONS)}
    for file in sorted(folder.glob("*.csv")):
        for event in _events(file):
            by_partition[sum(str(event["tailnum"]).encode()) % _PARTITIONS].append(event)
            sent += 1
    for partition, events in by_partition.items():
        topic.send(events, partition=partition)
    return sent


def _events(file: Path) -> Iterator[dict[str, object]]:
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            yield {name: None if text == "" else _NUMBERS.get(name, str)(text) for name, text in row.items()}


def _write_arrivals(stage: Stage, mixed: Spec) -> tuple[dict[str, object], dict[str, object]]:
    """Write half of the files as frames, the other half by a streaming query of the user's own."""
    files = sorted((stage.folder / "data" / "arrivals").glob("*.csv"))
    half = len(files) // 2
    splice = Splice(mixed, stage.spark)
    types = {"tailnum": "string", **{one.name: one.type for one in mixed.stream("arrivals").columns}}
    schema = ", ".join(f"{name} {kind}" for name, kind in types.items())
    reader: dict[str, Any] = {"schema": schema, "header": True}
    started = time.monotonic()
    events = 0
    for number, file in enumerate(files[:half]):
        frame = stage.spark.read.csv(str(file), **reader)
        events += frame.count()
        must(splice.write(frame, "arrivals", batch_id=number), "a frame is committed")
        must(not splice.write(frame, "arrivals", batch_id=number), "the same batch is not committed twice")
    direct: dict[str, object] = {"events": events, "batches": half, "seconds": time.monotonic() - started}

    rest = stage.folder / "rest"
    rest.mkdir()
    for file in files[half:]:
        (rest / file.name).hardlink_to(file)
    counts: list[int] = []
    committed: list[bool] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        counts.append(frame.count())
        committed.append(Splice(mixed, frame.sparkSession).write(frame, "arrivals", batch_id=batch_id))

    stream = stage.spark.readStream.option("maxFilesPerTrigger", 1).csv(str(rest), **reader)
    mine = stage.folder / "mine"
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(mine))
    started = time.monotonic()
    query.trigger(availableNow=True).start().awaitTermination()
    streamed: dict[str, object] = {
        "events": sum(counts), "batches": len(counts), "seconds": time.monotonic() - started
    }  # fmt: skip
    _forget_last_batch(mine)
    query.trigger(availableNow=True).start().awaitTermination()
    batches = len(files) - half
    must(committed == [True] * batches + [False], "the batch of a query that died is not committed twice")
    return direct, streamed


def _forget_last_batch(checkpoint: Path) -> None:
    """Leave what a kill between the commit of a batch and its checkpoint leaves behind."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def _difference(stage: Stage, one: Spec, other: Spec) -> tuple[int, int, int]:
    left, right = (read(spec, stage.spark).cache() for spec in (one, other))
    try:
        return left.exceptAll(right).count(), right.exceptAll(left).count(), left.count()
    finally:
        left.unpersist()
        right.unpersist()
