"""A splice that merges at each write, read without our class, and what it costs beside merge-on-read."""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from asynclock.spark import Splice, load_spec, read, run, run_services, validate
from asynclock.spark.hudi.session import hudi_bundle
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import physical_columns, snapshot
from tests.laboratory.mechanisms.stage import Shown, must
from tests.spark import foreign_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

_NO_COMPACTION: Final = ("compaction = { every_commits = 10 }\n", "")
_COW: Final = ('key = ["tailnum"]', 'key = ["tailnum"]\ntype = "cow"')
_FLIGHTS: Final = """
[table]
path = "flights_{type}"
key = ["flight"]
type = "{type}"
[locks]
max_clock_skew = 0.0
[streams.departures]
source = "data/departures/*.csv"
ordering = "departed_at"
columns = {{ departed_at = "timestamp", dest = "string", dep_delay = "double" }}
"""


def show(stage: Stage) -> Shown:
    """Splice the same files into a table of each type; then measure writes and reads in turns."""
    mor = stage.fleet(rows=stage.sized(3_000, 60_000), files=6)
    cow = _copy_on_write(mor)
    spark = stage.spark
    conflicts = _Conflicts()
    with conflicts:
        at_once = {"mor": _seconds(lambda: run(mor, once=True, spark=spark))}
        must(conflicts.seen == 0, "on merge-on-read no write meets a conflict")
        at_once["cow"] = _seconds(lambda: run(cow, once=True, spark=spark))
    run_services(cow, once=True, spark=spark)
    for spec in (mor, cow):
        must(validate(spec, spark).ok, f"the {spec.table.type} table is what its sources make it")
    aircraft = read(cow, spark).count()
    must(_equal(read(cow, spark), read(mor, spark)), "both types show the same rows")

    names = ", ".join(f"`{name}`" for name in physical_columns(cow))
    digest = ["count(*)", f"bit_xor(xxhash64({names}))"]
    merged, refused = _without_our_jar(stage, digest, cow, mor)
    expected = [list(row) for row in snapshot(Table(cow, spark)).selectExpr(*digest).collect()]
    must(merged == {"value": expected}, "a session without our jar reads merged rows of copy-on-write")
    must("io.asynclock.hudi.SpliceMerger" in str(refused), "it cannot read merge-on-read")
    reads = {
        spec.table.type: statistics.median(_seconds(read(spec, spark).collect) for _ in range(3))
        for spec in (mor, cow)
    }
    return Shown(
        sentence=f"{aircraft} aircraft have the same rows on both types, and a session without our jar reads "
        f"those of copy-on-write; {conflicts.seen} of its writes met a conflict, and each was written again; "
        "times are ratios of copy-on-write to merge-on-read",
        table=[
            {"what": "three streams at once, with retries", "cow/mor": at_once["cow"] / at_once["mor"]},
            {"what": "read of all rows, logs not compacted", "cow/mor": reads["cow"] / reads["mor"]},
            *_batches(stage),
        ],
    )


def _copy_on_write(spec: Spec) -> Spec:
    """Return the spec with another table, which is copy-on-write."""
    text = spec.path.read_text()
    for old, new in (_NO_COMPACTION, _COW, ('/table"', '/table_cow"')):
        must(old in text, f"the spec has {old!r}")
        text = text.replace(old, new)
    path = spec.path.with_name("fleet_cow.toml")
    path.write_text(text)
    return load_spec(path)


def _batches(stage: Stage) -> list[dict[str, object]]:
    """Write batches of one size on tables of two sizes: the price of a rewrite grows with the files."""
    departures = (
        stage.spark.read.csv(str(stage.folder / "data" / "departures"), header=True)
        .selectExpr(
            "concat(tailnum, ' ', departed_at) AS flight",
            "to_timestamp(departed_at) AS departed_at",
            "dest",
            "CAST(dep_delay AS double) AS dep_delay",
        )
        .dropDuplicates(["flight"])
    )
    found = []
    for flights in (stage.sized(500, 2_000), stage.sized(1_500, 25_000)):
        writers = {type_: _writer(stage, type_, flights) for type_ in ("mor", "cow")}
        of_all = departures.orderBy("flight").limit(flights).localCheckpoint()
        batch = of_all.limit(200).localCheckpoint()
        for write in writers.values():
            write(of_all)
        seconds: dict[str, list[float]] = {type_: [] for type_ in writers}
        for _ in range(stage.sized(2, 7)):
            for type_, write in writers.items():
                seconds[type_].append(_seconds(partial(write, batch)))
        ratio = statistics.median(seconds["cow"]) / statistics.median(seconds["mor"])
        found.append({"what": f"batch of 200 on {of_all.count()} flights", "cow/mor": ratio})
    return found


def _writer(stage: Stage, type_: str, flights: int) -> Callable[[DataFrame], object]:
    path = stage.folder / f"flights_{type_}_{flights}.toml"
    path.write_text(_FLIGHTS.format(type=type_).replace("flights_", f"flights_{flights}_"))
    splice = Splice(load_spec(path), stage.spark)
    return lambda frame: splice.write(frame, "departures")


def _without_our_jar(stage: Stage, columns: list[str], *specs: Spec) -> list[dict[str, object]]:
    """Return what a session of its own, with Hudi alone, reads of each table: a value or an error."""
    warehouse = (stage.folder / "warehouse").as_uri()
    reads = (
        f"spark.read.format('hudi').load({spec.table.path!r}).selectExpr(*{columns!r}).collect()"
        for spec in specs
    )
    done = subprocess.run(
        [sys.executable, foreign_session.__file__, str(hudi_bundle()), warehouse],
        input="".join(f"{piece}\n" for piece in reads),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _equal(one: DataFrame, other: DataFrame) -> bool:
    return not (one.exceptAll(other).count() or other.exceptAll(one).count())


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class _Conflicts(logging.Handler):
    """Counts the attempts that a conflict has ended, while the context lasts."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen = 0
        self._log = logging.getLogger("asynclock.spark.writer.conflicts")
        self._level = self._log.level

    def emit(self, record: logging.LogRecord) -> None:
        """Count one."""
        self.seen += "at attempt" in record.getMessage()

    def __enter__(self) -> None:
        self._log.addHandler(self)
        self._log.setLevel(logging.INFO)

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)
        self._log.setLevel(self._level)
