"""Is one wide table faster to read than a join of the tables that its streams would have had?"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from asynclock.spark import Splice, load_spec, read, session
from asynclock.spark.hudi.table import Table
from asynclock.spark.services.work import Compaction
from benchmarks.measure import SCRATCH, Line, interleaved, ratio
from examples.fleet_data import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark import Spec

FLIGHTS = 81_000
"""The earliest of the year."""
ROUNDS = 2
BATCHES = 2
STREAMS = {
    "departures": "dep_at bigint, origin string, carrier string, tailnum string, dep_delay double",
    "arrivals": "arr_at bigint, dest string, arr_delay double, air_time double",
    "schedule": "planned_at bigint, month int, distance double",
}
HEAD = """
[table]
path = "{name}/table"
key = ["flight_id"]
{kind}
[locks]
url = "{name}/locks"
max_clock_skew = 0.0
[services]
compaction = {{ every_commits = 1 }}
"""
STREAM = """
[streams.{name}]
source = "in/*"
format = "csv"
ordering = "{ordering}"
checkpoint = "{table}/checkpoints/{name}"
columns = {{ flight_id = "bigint", {columns} }}
"""
QUERIES = {
    "scan of all columns": "SELECT count(*), count(dest), sum(dep_delay), sum(air_time), sum(distance) "
    "FROM {all}",
    "filter on two streams": "SELECT count(*) FROM {all} WHERE dep_delay > 60 AND arr_delay < 60",
    "groups over three streams": "SELECT origin, dest, month, avg(dep_delay), avg(arr_delay), sum(distance) "
    "FROM {all} GROUP BY origin, dest, month",
    "first rows of each group": "SELECT * FROM (SELECT origin, dest, arr_delay, row_number() OVER "
    "(PARTITION BY origin ORDER BY arr_delay DESC, flight_id) AS place FROM {all}) WHERE place <= 10",
    "a join with a dimension": "SELECT p.manufacturer, avg(f.air_time), count(DISTINCT f.dest) FROM {all} f "
    "JOIN planes p ON f.tailnum = p.tailnum GROUP BY p.manufacturer",
}


def lines() -> Iterator[Line]:
    """Both hold the same events, written in as many batches to as many buckets, merge-on-read."""
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=SCRATCH)))
        conf = {"spark.local.dir": str(folder / "spark"), "spark.sql.shuffle.partitions": "4"}
        spark = session("asynclock bench", master="local[2]", conf=conf)
        resources.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        planes = read_table("planes.csv")[["tailnum", "manufacturer"]]
        spark.createDataFrame(planes).createOrReplaceTempView("planes")
        tables = Tables(spark, folder / "tables", FLIGHTS)
        yield from compared(tables, f"{FLIGHTS} flights, with logs")
        tables.compact()
        yield from compared(tables, f"{FLIGHTS} flights, compacted")


def compared(tables: Tables, where: str) -> Iterator[Line]:
    """The seconds of the join over those of the wide table, by query, cold and warm."""
    for name, query in QUERIES.items():
        answers = {way: tables.answer(query, way) for way in ("wide", "joined")}
        assert answers["wide"] == answers["joined"], f"{name}: the answers differ"
        samples = interleaved(
            {
                (f"{way} cold" if cold else f"{way} warm"): partial(tables.seconds, query, way, cold=cold)
                for way in ("wide", "joined")
                for cold in (True, False)
            },
            rounds=ROUNDS,
            warm_up=False,  # the answers were
        )
        for state in ("cold", "warm"):
            told = f"{name}, {where}, {state}: seconds of the join over those of the wide table"
            yield ratio(told, samples[f"joined {state}"], samples[f"wide {state}"])


class Tables:
    """A wide table, and one table a stream, with the same flights."""

    def __init__(self, spark: SparkSession, folder: Path, flights: int) -> None:
        self._spark, self._folder = spark, folder
        (folder / "in").mkdir(parents=True)
        self._wide = self._spec("wide", "", list(STREAMS))
        self._plain = {name: self._spec(name, 'kind = "plain"\ntype = "mor"', [name]) for name in STREAMS}
        events = numbered(flights)
        for name, columns in STREAMS.items():
            schema = f"flight_id bigint, {columns}"
            names = [each.split()[0] for each in schema.split(", ")]
            for number in range(BATCHES):
                # Every flight is written, and a part of them twice: logs that have to be merged.
                part = events[events["flight_id"] % BATCHES <= number][names]
                part = part.assign(**{names[1]: part[names[1]] + number})
                path = folder / f"{name}-{number}.parquet"
                part.to_parquet(path)
                frame = spark.read.schema(schema).parquet(str(path))
                Splice(self._wide, spark).write(frame, name)
                Splice(self._plain[name], spark).write(frame, name)

    def compact(self) -> None:
        """Merge the logs of all tables into base files."""
        for spec in (self._wide, *self._plain.values()):
            Compaction(Table(spec, self._spark)).step()

    def answer(self, query: str, way: str) -> list[str]:
        """The rows of a query, in an order of their own."""
        return sorted(str(row) for row in self._asked(query, way).collect())

    def seconds(self, query: str, way: str, *, cold: bool) -> float:
        """How long a query takes, also with none of the files in the system's cache."""
        if cold:
            self._forget()
        began = time.perf_counter()
        self._asked(query, way).collect()
        return time.perf_counter() - began

    def _asked(self, query: str, way: str) -> DataFrame:
        if way == "wide":
            read(self._wide, self._spark).createOrReplaceTempView("wide")
            return self._spark.sql(query.format(all="wide"))
        for name, spec in self._plain.items():
            read(spec, self._spark).createOrReplaceTempView(name)
        joined = " FULL JOIN ".join(
            f"{name}{' USING (flight_id)' if at else ''}" for at, name in enumerate(STREAMS)
        )
        return self._spark.sql(query.format(all=f"(SELECT * FROM {joined})"))  # noqa: S608  our own names

    def _forget(self) -> None:
        self._spark.catalog.clearCache()
        for path in self._folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _spec(self, table: str, kind: str, streams: list[str]) -> Spec:
        text = HEAD.format(name=table, kind=kind)
        for name in streams:
            declared = [each.split() for each in STREAMS[name].split(", ")]
            columns = ", ".join(f'{column} = "{kind}"' for column, kind in declared)
            text += STREAM.format(name=name, table=table, ordering=declared[0][0], columns=columns)
        path = self._folder / f"{table}.toml"
        path.write_text(text)
        return load_spec(path)


def numbered(flights: int) -> pd.DataFrame:
    """The first flights of the year, each with an id, and times that order their events."""
    source = read_table("flights.csv.zip").head(flights).reset_index(drop=True)
    return source.assign(
        flight_id=source.index.astype("int64"),
        dep_at=source.index.astype("int64") * 10,
        arr_at=source.index.astype("int64") * 10,
        planned_at=source.index.astype("int64") * 10,
        month=source["month"].astype("int32"),
        distance=source["distance"].astype("float64"),
    )
