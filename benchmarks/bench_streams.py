"""What does a splice cost next to Spark's own join of the streams, and where does the time of a batch go?"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark import load_spec, run, session, timeline
from asynclock.spark.hudi.options import sql_options
from asynclock.spark.hudi.timeline import Timeline
from benchmarks.bench_splice import PLAIN, SPLICE_ONLY
from benchmarks.measure import SCRATCH, Line, interleaved, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark import Instant, Spec
    from asynclock.spark.results import BatchReport

ROUNDS = 2
FILES, ROWS, KEYS = 4, 5_000, 20_000
STREAMS = ("a", "b", "c", "d")
STREAM = """
[streams.{name}]
source = "in/{name}/*.csv"
format = "csv"
ordering = "at"
checkpoint = "{table}/checkpoints/{name}"
max_files_per_trigger = 1
columns = {{ at = "bigint", x = "double" }}
"""
TABLE = """
[table]
path = "{table}/table"
key = ["k"]
[locks]
url = "{table}/locks"
max_clock_skew = 0.0
[services]
"""
_LOG = "writing the logs"
_OTHER = "other jobs"
_START = "Hudi's start of a commit: its request, the view of the files"
_COMMIT = "Hudi's end of a commit: its metadata, the commit lock"
_REST = "between commits: Spark's trigger and checkpoint, looks at the timeline, the plan"
_JOBS = {  # by the words with which Spark and Hudi describe them
    "runId = ": "reading and checking the files",
    "Building workload profile": "shuffling the rows to their buckets",
    "Committing stats": _LOG,
    "": _OTHER,
}
SCHEMA = "k string, at bigint, x double"


class Round(NamedTuple):
    """A table of its own, and what its run took."""

    seconds: float
    spec: Spec


def lines() -> Iterator[Line]:
    """Each contender reads the same files, one a trigger, and writes a table of its own in every round."""
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=SCRATCH)))
        conf = {
            "spark.local.dir": str(folder / "spark"),
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.retainedJobs": "10000",
        }
        spark = session("asynclock bench", master="local[2]", conf=conf)
        resources.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        deliver(spark, folder)
        tables = Tables(spark, folder)
        joined = Joined(spark, folder)
        samples = interleaved(
            {
                "1 stream": lambda: tables.write(1).seconds,
                "2 streams": lambda: tables.write(2).seconds,
                "4 streams": lambda: tables.write(4).seconds,
                "join": joined.write,
            },
            rounds=ROUNDS,
        )
        parts = [tables.parts() for _ in range(ROUNDS)]
    yield Line(
        name=f"splice of 2 streams, {FILES} files of {ROWS} rows each", unit="s", samples=samples["2 streams"]
    )
    yield Line(
        name="stream-stream join into one wide table, the same files", unit="s", samples=samples["join"]
    )
    yield ratio("splice, rows per second over the join", samples["join"], samples["2 streams"])
    yield Line(name="state that the join keeps at the end", unit="rows", samples=joined.state_rows)
    yield Line(name="state that the join keeps at the end", unit="MiB", samples=joined.state_mib)
    yield Line(name="a batch of the join, from its trigger to its commit", unit="s", samples=joined.batches)
    yield Line(
        name="a batch of a splice of 2, from its trigger to its commit", unit="s", samples=tables.batches
    )
    for count in (2, 4):
        name = f"rows per second of {count} streams at once over one"
        yield ratio(name, [count * each for each in samples["1 stream"]], samples[f"{count} streams"])
    for part in parts[0]:
        shares = [100 * each[part] / sum(each.values()) for each in parts]
        yield Line(name=f"share of a batch: {part}", unit="%", samples=shares)


def deliver(spark: SparkSession, folder: Path) -> None:
    """Files of all streams: each key once per stream, the streams in different orders."""
    for number, name in enumerate(STREAMS):
        key = F.concat(F.lit("key-"), ((F.col("id") * 7919 + number * 1009) % KEYS).cast("string"))
        events = spark.range(FILES * ROWS).select(
            key.alias("k"), F.col("id").alias("at"), F.rand(number).alias("x")
        )
        scratch = folder / f"scratch-{name}"
        events.repartition(FILES).write.option("header", "true").csv(str(scratch))
        (folder / "in" / name).mkdir(parents=True)
        for file in scratch.glob("part-*"):
            file.rename(folder / "in" / name / file.name)
        shutil.rmtree(scratch)


class Tables:
    """Splice tables, each written from the start by some of the streams.

    Attributes:
        batches: Seconds of each batch of two streams.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.batches: list[float] = []
        self._spark, self._folder = spark, folder
        self._numbers = itertools.count()

    def write(self, count: int) -> Round:
        """Let that many streams write what there is."""
        table = f"splice-{next(self._numbers)}"
        path = self._folder / f"{table}.toml"
        streams = (STREAM.format(name=name, table=table) for name in STREAMS[:count])
        path.write_text(TABLE.format(table=table) + "".join(streams))
        spec = load_spec(path)
        began = time.perf_counter()
        batches: list[BatchReport] = []
        report = run(spec, once=True, spark=self._spark, on_batch=batches.append)
        seconds = time.perf_counter() - began
        assert not report.failed, report
        if count == 2:  # noqa: PLR2004  what the join joins
            self.batches += [batch.seconds for batch in batches]
        return Round(seconds, spec)

    def parts(self) -> dict[str, float]:
        """Seconds of a stream's batches, the first left out, by what they were spent on."""
        store = self._spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001  no public way
        before = store.jobsList(None).size()
        spec = self.write(1).spec
        found = store.jobsList(None)
        jobs = sorted(Job.of(found.apply(number)) for number in range(found.size() - before))
        zone = Timeline(self._spark, spec.table.path).properties().get("hoodie.table.timeline.timezone")
        spans = [Span.of(instant, zone) for instant in timeline(spec, self._spark)]
        start, end = spans[0].end, spans[-1].end
        spent = dict.fromkeys((*_JOBS.values(), _START, _COMMIT, _REST), 0.0)
        spent[_REST] = end - start
        for span in spans[1:]:
            inside = [job for job in jobs if span.start <= job.start and job.end <= span.end]
            written = max(job.end for job in inside if job.part == _LOG)
            after = sum(job.end - job.start for job in inside if job.start >= written)
            before_that = sum(job.end - job.start for job in inside if job.start < written)
            spent[_COMMIT] += span.end - written - after
            spent[_START] += written - span.start - before_that
        for job in jobs:
            if start <= job.start and job.end <= end:
                spent[job.part] += job.end - job.start
        spent[_REST] -= sum(seconds for part, seconds in spent.items() if part != _REST)
        return spent


class Job(NamedTuple):
    """A job of Spark: epoch seconds, and what it was for."""

    start: float
    end: float
    part: str

    @classmethod
    def of(cls, job: Any) -> Job:  # noqa: ANN401  a JobData of the JVM
        """Read it from Spark's own store."""
        start, end = (when().get().getTime() / 1000 for when in (job.submissionTime, job.completionTime))
        text = job.description().get() if job.description().isDefined() else ""
        return cls(start, end, next((part for words, part in _JOBS.items() if words in text), _OTHER))


class Span(NamedTuple):
    """A commit, from its request to its completion, in epoch seconds."""

    start: float
    end: float

    @classmethod
    def of(cls, instant: Instant, zone: str | None) -> Span:
        """Read the times of Hudi, which are in UTC or in the zone of the machine."""
        known = None if zone == "LOCAL" else UTC

        def seconds(digits: str | None) -> float:
            return datetime.strptime(f"{digits}000", "%Y%m%d%H%M%S%f").replace(tzinfo=known).timestamp()

        return cls(seconds(instant.requested), seconds(instant.completed))


class Joined:
    """The way without a splice: Spark joins two streams and upserts the pairs into a plain Hudi table.

    Its state keeps every event, as it must where any may come late.

    Attributes:
        state_rows: Rows in the state at the end of each run.
        state_mib: Its memory then.
        batches: Seconds of each batch that wrote.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.state_rows: list[float] = []
        self.state_mib: list[float] = []
        self.batches: list[float] = []
        self._spark, self._folder = spark, folder
        self._numbers = itertools.count()

    def write(self) -> float:
        """Join what there is into a new table, and return the seconds."""
        table = f"join-{next(self._numbers)}"
        described = self._folder / f"{table}.toml"
        described.write_text(TABLE.format(table=table) + STREAM.format(name="a", table=table))
        spec = load_spec(described)
        options = sql_options(spec, tasks=self._spark.sparkContext.defaultParallelism)
        options = {name: value for name, value in options.items() if name not in SPLICE_ONLY} | PLAIN

        def upsert(frame: DataFrame, _: int) -> None:
            frame.write.format("hudi").options(**options).mode("append").save(spec.table.path)

        left, right = (
            self._spark.readStream.schema(SCHEMA)
            .option("header", "true")
            .option("maxFilesPerTrigger", 1)
            .csv(str(self._folder / "in" / name))
            for name in STREAMS[:2]
        )
        pairs = left.join(right.select("k", F.col("at").alias("b_at"), F.col("x").alias("b_x")), "k")
        began = time.perf_counter()
        query = (
            pairs.writeStream.foreachBatch(upsert)
            .option("checkpointLocation", str(self._folder / table / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - began
        (state,) = query.lastProgress["stateOperators"]
        self.state_rows.append(state["numRowsTotal"])
        self.state_mib.append(state["memoryUsedBytes"] / 2**20)
        self.batches += [
            one["durationMs"]["triggerExecution"] / 1000
            for one in query.recentProgress
            if one["numInputRows"]
        ]
        return seconds
