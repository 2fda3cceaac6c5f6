"""What does Hudi's metadata table cost a commit and save a reader, on a table of 10,000 files?"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark import hoodie, session
from benchmarks.measure import SCRATCH, Line, interleaved, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

ONLY_IF_NAMED = True
ROUNDS = 3
PARTITIONS, BUCKETS = 100, 100
ROWS_OF_A_FILE = 10
BATCH, PARTITION = 20, 7
TABLE = {
    "hoodie.table.name": "wide",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    hoodie.DATASOURCE_WRITE_RECORDKEY_FIELD: "k",
    hoodie.DATASOURCE_WRITE_PARTITIONPATH_FIELD: "p",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.ordering.fields": "at",
    "hoodie.datasource.write.precombine.field": "at",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    hoodie.PARQUET_BLOOM_FILTER_ENABLED: "false",
}
BY_HASH = {hoodie.INDEX_TYPE: "BUCKET", "hoodie.bucket.index.num.buckets": str(BUCKETS)}
METADATA = {hoodie.METADATA_ENABLE: "true"}
HASH, HASH_METADATA = "hash of the key", "hash of the key, metadata table"
FILES, RECORD_INDEX = "look-up in the files", "look-up in a record index"
WAYS: Mapping[str, Mapping[str, str]] = {
    HASH: {hoodie.METADATA_ENABLE: "false", **BY_HASH},
    HASH_METADATA: {**METADATA, **BY_HASH},
    FILES: {hoodie.METADATA_ENABLE: "false", hoodie.INDEX_TYPE: "SIMPLE"},
    RECORD_INDEX: {
        **METADATA,
        "hoodie.metadata.global.record.level.index.enable": "true",
        hoodie.INDEX_TYPE: "RECORD_INDEX",
    },
}
"""How a write finds the file of a key, by whether there is a metadata table."""


def lines() -> Iterator[Line]:
    """One table is made, and copied for each way; the first commit to a copy makes its metadata table."""
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=SCRATCH)))
        conf = {"spark.local.dir": str(folder / "spark"), "spark.sql.shuffle.partitions": "2"}
        spark = session("asynclock bench", master="local[2]", conf=conf)
        resources.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        tables = {
            name: Table(spark, folder / str(number), way) for number, (name, way) in enumerate(WAYS.items())
        }
        first, *copies = tables.values()
        first.make()
        for copy in copies:
            shutil.copytree(first.path, copy.path)
        files = sum(1 for _ in first.path.rglob("*.parquet"))
        begun = {name: [table.commit()] for name, table in tables.items()}
        commits = interleaved({name: table.commit for name, table in tables.items()}, rounds=ROUNDS)
        lists = interleaved({name: tables[name].list for name in (HASH, HASH_METADATA)}, rounds=ROUNDS)
        reads = interleaved({name: tables[name].read for name in (HASH, HASH_METADATA)}, rounds=ROUNDS)
    yield Line(name="base files of the table", unit="files", samples=[files])
    for name in (HASH_METADATA, RECORD_INDEX):
        yield Line(name=f"{name}: first commit, which makes it", unit="s", samples=begun[name])
    for name, samples in commits.items():
        yield Line(name=f"{name}: commit of {BATCH} rows to a partition", unit="s", samples=samples)
    for with_it, without in ((HASH_METADATA, HASH), (RECORD_INDEX, FILES), (RECORD_INDEX, HASH)):
        yield ratio(f"commit: {with_it}, over {without}", commits[with_it], commits[without])
    for what, samples_of in (("list all files", lists), ("count one partition", reads)):
        for name, samples in samples_of.items():
            yield Line(name=f"{name}: {what}", unit="s", samples=samples)
        yield ratio(
            f"{what}, with the metadata table over without", samples_of[HASH_METADATA], samples_of[HASH]
        )


class Table:
    """The table, written in one way."""

    def __init__(self, spark: SparkSession, path: Path, way: Mapping[str, str]) -> None:
        self.path = path
        self._spark = spark
        self._way = way
        self._at = 0

    def make(self) -> None:
        """Write the first commit: a file in each bucket of each partition."""
        rows = self._rows(PARTITIONS * BUCKETS * ROWS_OF_A_FILE)
        by = {hoodie.DATASOURCE_WRITE_OPERATION: "bulk_insert", "hoodie.bulkinsert.shuffle.parallelism": "2"}
        self._write(rows, "overwrite", by)

    def commit(self) -> float:
        """Update a few rows of one partition; return the seconds."""
        self._at += 1
        began = time.perf_counter()
        rows = self._rows(PARTITIONS * BATCH).where(F.col("p") == PARTITION)
        self._write(rows, "append", {hoodie.DATASOURCE_WRITE_OPERATION: "upsert"})
        return time.perf_counter() - began

    def list(self) -> float:
        """Name all files, as the plan of a query of the whole table does; return the seconds."""
        began = time.perf_counter()
        assert len(self._read().inputFiles()) > 0.99 * PARTITIONS * BUCKETS
        return time.perf_counter() - began

    def read(self) -> float:
        """Count the rows of one partition; return the seconds."""
        began = time.perf_counter()
        assert self._read().where(F.col("p") == PARTITION).count() == BUCKETS * ROWS_OF_A_FILE
        return time.perf_counter() - began

    def _rows(self, count: int) -> DataFrame:
        number = F.col("id")
        return self._spark.range(count).select(
            F.concat(F.lit("key-"), number.cast("string")).alias("k"),
            (number % PARTITIONS).alias("p"),
            F.lit(self._at).alias("at"),
            F.rand(seed=self._at).alias("x"),
        )

    def _write(self, rows: DataFrame, mode: str, more: Mapping[str, str]) -> None:
        options = {**TABLE, **self._way, **more}
        rows.write.format("hudi").options(**options).mode(mode).save(str(self.path))

    def _read(self) -> DataFrame:
        enabled = {hoodie.METADATA_ENABLE: self._way[hoodie.METADATA_ENABLE]}
        return self._spark.read.format("hudi").options(**enabled).load(str(self.path))
