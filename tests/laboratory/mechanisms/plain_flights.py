"""A plain table of departures, which two drivers write, and what can be seen of their writes."""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import SpecError
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.reader.snapshot import read
from asynclock.spark.spec.load import load_spec
from examples.fleet_data import prepare
from tests.laboratory.mechanisms.stage import NotShownError, must
from tests.spark.pipeline_kit import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

DRIVERS: Final = ("first", "second")
KEY: Final = ("tailnum", "origin", "day")
_COLUMNS: Final = {
    "departed_at": "timestamp",
    "carrier": "string",
    "flight": "int",
    "dest": "string",
    "dep_delay": "double",
}
_TABLE: Final = """\
[table]
path = "table"
key = ["tailnum", "origin", "day"]
{table}

[locks]
url = "locks"
validity = 120.0
"""
_STREAM: Final = """
[streams.{name}]
source = "in/{name}/*.csv"
ordering = "departed_at"
checkpoint = "checkpoints/{name}"
max_files_per_trigger = 1
columns = {{ {columns} }}
"""


def departures(stage: Stage, rows: int) -> pd.DataFrame:
    """Return the departures among the first ``rows`` events of the year, one of an aircraft and a moment."""
    fleet = prepare(stage.folder / "fleet", rows=rows, files_per_stream=1)
    events = pd.read_csv(fleet.streams["departures"].files[0])
    events["day"] = events["departed_at"].str[:10]
    return events.drop_duplicates([*KEY, "departed_at"], ignore_index=True)


def table(folder: Path, settings: str, *, kind: str = "plain") -> Spec:
    """Describe a table in a folder of its own, to which two drivers write by a stream each.

    Args:
        folder: It is made.
        settings: Lines of ``[table]``.
        kind: Of the table.
    """
    for name in DRIVERS:
        (folder / "in" / name).mkdir(parents=True)
    path = folder / "flights.toml"
    columns = ", ".join(f'{name} = "{type_}"' for name, type_ in _COLUMNS.items())
    path.write_text(
        _TABLE.format(table=f'kind = "{kind}"\n{settings}')
        + "".join(_STREAM.format(name=name, columns=columns) for name in DRIVERS)
    )
    return load_spec(path)


def refusal(folder: Path, settings: str, *, kind: str = "plain") -> str:
    """Return the sentence with which a table is refused before anything is written."""
    try:
        table(folder, settings, kind=kind)
    except SpecError as error:
        must(not (folder / "table").exists() and not (folder / "locks").exists(), "nothing was written")
        return str(error)
    raise NotShownError(f"{settings!r} is refused for a {kind} table")


def deliver(spec: Spec, driver: str, events: pd.DataFrame, *, files: int) -> None:
    """Deliver the events to a driver's stream in their order, as that many files."""
    size = -(-len(events) // files)
    for number in range(files):
        part = events.iloc[number * size : (number + 1) * size]
        part.to_csv(spec.path.parent / "in" / driver / f"{number:03}.csv", index=False)


def frame(spark: SparkSession, events: pd.DataFrame) -> DataFrame:
    """Return the events as ``Splice.write`` takes them, in one task: one that waits leaves a core free."""
    rows = [*events[[*KEY, *_COLUMNS]].itertuples(index=False, name=None)]
    types = dict.fromkeys(KEY, "string") | _COLUMNS
    schema = ", ".join(f"{name} {type_}" for name, type_ in (types | {"departed_at": "string"}).items())
    read_as_text = spark.createDataFrame(rows, schema)
    return read_as_text.withColumn("departed_at", F.col("departed_at").cast("timestamp")).coalesce(1)


def is_newest(spec: Spec, spark: SparkSession, events: pd.DataFrame) -> bool:
    """Return whether the table has exactly the newest of these events for each key."""
    newest = events.sort_values("departed_at").drop_duplicates(KEY, keep="last")
    moments = pd.to_datetime(newest["departed_at"]).dt.tz_localize(None)
    expected = set(zip(*(newest[name] for name in KEY), moments, strict=True))
    found = read(spec, spark).select(*KEY, "departed_at").collect()
    return len(found) == len(expected) and {tuple(row) for row in found} == expected


def pending(spec: Spec, spark: SparkSession) -> list[str]:
    """Return the instants of the writes in flight."""
    timeline = Timeline(spark, spec.table.path)
    return [instant.requested for instant in timeline.pending()]


def begun(spec: Spec, spark: SparkSession, known: Sequence[str] = ()) -> str:
    """Wait until one more write than the known ones is in flight, and return its instant."""
    found: list[str] = []

    def look() -> bool:
        found[:] = [instant for instant in pending(spec, spark) if instant not in known]
        return bool(found)

    wait_for(look)
    return found[0]


def data_files(spec: Spec, instant: str) -> list[Path]:
    """Return the data files of a write, committed or not."""
    files = _folder(spec).rglob(f"*_{instant}*.parquet")
    return [path for path in files if ".hoodie" not in path.parts]


def markers(spec: Spec, instant: str) -> list[Path]:
    """Return the files in which a write notes its markers."""
    files = (_folder(spec) / ".hoodie" / ".temp" / instant).rglob("*")
    return [path for path in files if path.is_file() and not path.name.endswith(".crc")]


@contextlib.contextmanager
def commits_held_up(spec: Spec) -> Iterator[None]:
    """Hold Hudi's commit lock, so that a write that has done its work waits before its commit."""
    with (_folder(spec) / ".hoodie" / ".locks" / "asynclock.lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def _folder(spec: Spec) -> Path:
    return Path(spec.table.path.removeprefix("file://"))
