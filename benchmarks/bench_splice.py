"""What does splicing cost compared with plain Hudi upserts, and does a batch cost more on a larger table?"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock import sync
from asynclock.spark import Splice, hoodie, load_spec, session
from asynclock.spark.hudi.options import sql_options
from asynclock.spark.source.reading import ARRIVAL, FILE, LINE, RAW, REASON, Source, settled
from asynclock.spark.writer.splice import stream_lock
from benchmarks.measure import SCRATCH, Line, interleaved, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

ROUNDS = 3
ROWS = 20_000
BUCKETS = 4
SMALL, MIDDLE, LARGE = 4_000, 40_000, 400_000
TOUCHED = 2_000
LEAST, FLAT = 0.9, 1.2
FILES, FILE_ROWS, LEAST_READING = 4, 100_000, 0.8
FORMATS = ("csv", "json", "parquet")
SPEC = """
[table]
path = "{table}"
key = ["k"]
buckets = {buckets}
[locks]
url = "locks-{table}"
max_clock_skew = 0.0
[services]
[streams.a]
source = "in/*"
format = "csv"
ordering = "at"
checkpoint = "checkpoints/a"
columns = {{ at = "bigint", x = "double", note = "string" }}
[streams.b]
source = "in/*"
format = "csv"
ordering = "seen"
checkpoint = "checkpoints/b"
columns = {{ seen = "bigint", y = "double" }}
"""
READING = """
[table]
path = "table"
key = ["k"]
[locks]
url = "locks"
[streams.a]
source = "{format}/part-*"
format = "{format}"
ordering = "at"
checkpoint = "checkpoints/a"
columns = {{ at = "bigint", x = "double", note = "string" }}
"""
TYPES = {"k": "string", "at": "bigint", "x": "double", "note": "string"}
PLAIN = {
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.ordering.fields": "at",
    "hoodie.datasource.write.precombine.field": "at",
    hoodie.DATASOURCE_WRITE_RECORDKEY_FIELD: "k",
    "hoodie.write.concurrency.mode": "SINGLE_WRITER",
    "hoodie.clean.failed.writes.policy": "EAGER",
}
SPLICE_ONLY = (
    "hoodie.write.record.merge.strategy.id",
    hoodie.WRITE_RECORD_MERGE_CUSTOM_IMPLEMENTATION_CLASSES,
    "hoodie.write.lock.provider",
)


def lines() -> Iterator[Line]:
    """Both writers append the same rows to as many buckets, metadata table off; one micro-batch a call."""
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=SCRATCH)))
        (folder / "in").mkdir()
        conf = {"spark.local.dir": str(folder / "spark"), "spark.sql.shuffle.partitions": "2"}
        spark = session("asynclock bench", master="local[2]", conf=conf)
        resources.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        wide = resources.enter_context(spliced(spark, folder, "wide"))
        plain = plain_writer(spark, folder)
        small = resources.enter_context(spliced(spark, folder, "small"))
        middle = resources.enter_context(spliced(spark, folder, "middle"))
        large = resources.enter_context(spliced(spark, folder, "large"))
        sizes = ((wide, SMALL), (plain, SMALL), (small, SMALL), (middle, MIDDLE), (large, LARGE))
        for write, keys in sizes:
            write(events(spark, rows=keys, keys=keys, at=0))
        batches = {name: Batches(spark, rows, keys) for name, rows, keys in (
            ("rows", ROWS, SMALL), ("small", TOUCHED, SMALL), ("middle", TOUCHED, MIDDLE),
            ("large", TOUCHED, LARGE))}  # fmt: skip
        samples = interleaved(
            {
                "splice": lambda: timed(wide, batches["rows"].next()),
                "plain": lambda: timed(plain, batches["rows"].next()),
                "small": lambda: timed(small, batches["small"].next()),
                "middle": lambda: timed(middle, batches["middle"].next()),
                "large": lambda: timed(large, batches["large"].next()),
            },
            rounds=ROUNDS,
        )
        reading = {
            f"{reader} {form}": read
            for form in FORMATS
            for reader, read in readers(spark, folder, form).items()
        }
        readings = interleaved(
            {name: lambda read=read: timed(discard, read) for name, read in reading.items()}, rounds=ROUNDS
        )
        whole = interleaved(
            {
                name: lambda read=read: timed(lambda read: stream_batch(read, wide), read)
                for name, read in reading.items()
                if not name.startswith("bare")
            },
            rounds=ROUNDS,
        )
    for name in ("splice", "plain"):
        yield Line(name=f"{name} write of {ROWS} rows", unit="s", samples=samples[name])
    yield ratio(
        "splice rows per second over plain Hudi upserts",
        samples["plain"],
        samples["splice"],
        target=LEAST,
        bound="least",
    )
    for name, keys in (("small", SMALL), ("middle", MIDDLE), ("large", LARGE)):
        yield Line(name=f"micro-batch of {TOUCHED} rows on {keys} keys", unit="s", samples=samples[name])
    for name, keys in (("middle", MIDDLE), ("large", LARGE)):
        yield ratio(
            f"micro-batch on {keys} keys over {SMALL} keys", samples[name], samples["small"], target=FLAT
        )

    for form in FORMATS:
        strict = readings[f"strict {form}"]
        yield Line(name=f"{form}: strict reading of {FILES * FILE_ROWS} rows", unit="s", samples=strict)
        yield ratio(
            f"{form}: strict reading, rows per second over Spark's reader with casts and the same columns",
            readings[f"lenient {form}"],
            strict,
            target=LEAST_READING,
            bound="least",
        )
        yield ratio(
            f"{form}: strict reading, rows per second over Spark's reader with casts alone",
            readings[f"bare {form}"],
            strict,
        )
        yield Line(name=f"{form}: read and spliced as one batch", unit="s", samples=whole[f"strict {form}"])
        yield ratio(
            f"{form}: rows per second of such a batch over one of Spark's reader with casts",
            whole[f"lenient {form}"],
            whole[f"strict {form}"],
            target=LEAST_READING,
            bound="least",
        )


class Batches:
    """Batches of one size, each newer than the one before."""

    def __init__(self, spark: SparkSession, rows: int, keys: int) -> None:
        self._spark, self._rows, self._keys, self._at = spark, rows, keys, 0

    def next(self) -> DataFrame:
        """The next batch."""
        self._at += 1
        return events(self._spark, rows=self._rows, keys=self._keys, at=self._at)


def events(spark: SparkSession, *, rows: int, keys: int, at: int) -> DataFrame:
    """Events spread evenly over the keys, hence over the buckets; rows of one key differ in ordering."""
    number = F.col("id")
    # A step that has no divisor in common with the number of keys visits them all.
    return spark.range(rows).select(
        F.concat(F.lit("key-"), (number * 7919 % keys).cast("string")).alias("k"),
        (number + at * rows).alias("at"),
        F.rand(seed=at).alias("x"),
        F.concat(F.lit("note "), number.cast("string")).alias("note"),
    )


def readers(spark: SparkSession, folder: Path, form: str) -> dict[str, Callable[[], DataFrame]]:
    """Ways of reading the same files into typed rows, with a reason for each bad row.

    ``strict`` is a stream's. ``lenient`` gives the same columns by Spark's own reader, as a stream might that
    trusts its sources: the place of each row, what is wrong with it and the row as it was. ``bare`` gives
    values, file and reason alone.
    """
    made = events(spark, rows=FILES * FILE_ROWS, keys=SMALL, at=0).repartition(FILES)
    made.write.format(form).option("header", "true").save(str(folder / form))
    path = folder / f"{form}.toml"
    path.write_text(READING.format(format=form))
    spec = load_spec(path)
    source = Source(spec, spec.stream("a"), spark)
    texts = ", ".join(f"{name} {TYPES[name] if form == 'parquet' else 'string'}" for name in TYPES)
    options = {"header": "true", "enforceSchema": "false"} if form == "csv" else {}

    values = [F.expr(f"try_cast({name} AS {kind})").alias(name) for name, kind in TYPES.items()]

    def raw() -> DataFrame:
        return spark.read.format(form).schema(texts).options(**options).load(str(folder / form))

    def bare() -> DataFrame:
        complaints = [
            F.when(F.col(name).isNotNull() & F.expr(f"try_cast({name} AS {kind})").isNull(), name)
            for name, kind in TYPES.items()
        ]
        reason = F.concat_ws("; ", *complaints).alias("reason")
        return raw().select(*values, F.col("_metadata.file_path").alias("file"), reason)

    def lenient() -> DataFrame:
        complaints = [
            F.when(F.col(name).isNull() | (F.col(name).cast("string") == ""), F.lit(f"{name} is missing"))
            for name in ("k", "at")
        ]
        for name, kind in TYPES.items():
            text = F.col(name).cast("string")
            wrong = F.col(name).isNotNull() & (text != "") & F.expr(f"try_cast({name} AS {kind})").isNull()
            complaints.append(F.when(wrong, F.concat(F.lit(f"{name} is no {kind}: "), text)))
        place = F.struct(
            F.col("_metadata.file_modification_time").alias("modified"),
            F.col("_metadata.file_path").alias("file"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("row"),
        )
        file = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "file:///")
        reason = F.concat_ws("; ", *complaints)
        return (
            raw()
            .select("*", file.alias(FILE), place.alias(ARRIVAL))
            .withColumn(REASON, F.when(reason != "", reason))
            .withColumn(RAW, F.when(F.col(REASON).isNotNull(), F.to_json(F.struct(*TYPES))))
            .select(*values, ARRIVAL, FILE, REASON, RAW)
        )

    return {"strict": lambda: source.parse(source.all()), "lenient": lenient, "bare": bare}


def discard(read: Callable[[], DataFrame]) -> None:
    """Compute every row and column."""
    read().write.format("noop").mode("overwrite").save()


def stream_batch(read: Callable[[], DataFrame], write: Callable[[DataFrame], object]) -> None:
    """Read and write as a stream does in each batch."""
    parsed = read().persist()
    try:
        whole = settled(parsed) if LINE in parsed.columns else parsed
        whole.agg(F.count("*"), F.count(REASON)).collect()
        write(whole.where(F.col(REASON).isNull()).select(*TYPES, ARRIVAL))
    finally:
        parsed.unpersist()


@contextmanager
def spliced(spark: SparkSession, folder: Path, table: str) -> Iterator[Callable[[DataFrame], object]]:
    """A writer of stream ``a`` of a splice table, its lease held across the batches as in a run."""
    path = folder / f"{table}.toml"
    path.write_text(SPEC.format(table=table, buckets=BUCKETS))
    spec = load_spec(path)
    splice = Splice(spec, spark)
    with (
        sync.connect(spec.locks.url, settings=spec.locks.settings) as client,
        client.lock(stream_lock("a")).hold() as lease,
    ):
        yield lambda df: splice.write(df, "a", lease=lease)


def plain_writer(spark: SparkSession, folder: Path) -> Callable[[DataFrame], object]:
    """A writer of the same columns to a table that Hudi merges by its own ordering field, without locks."""
    path = f"file://{folder}/plain"
    described = folder / "plain.toml"
    described.write_text(SPEC.format(table="plain", buckets=BUCKETS))
    options = sql_options(load_spec(described), tasks=spark.sparkContext.defaultParallelism)
    options = {name: value for name, value in options.items() if name not in SPLICE_ONLY} | PLAIN
    return lambda df: df.write.format("hudi").options(**options).mode("append").save(path)


def timed(work: Callable[[T], object], argument: T) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    work(argument)
    return time.perf_counter() - began
