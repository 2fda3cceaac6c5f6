"""Two reporters of an aircraft's state, each with news of one half: a group keeps what one ordering loses."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final

from asynclock.spark import load_spec, read, run, validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.services.work import Compaction
from tests.laboratory.mechanisms.stage import Shown, must

if TYPE_CHECKING:
    from pathlib import Path

    from tests.laboratory.mechanisms.stage import Stage

Row = dict[str, str]
_NAMES: Final = ("tailnum", "departed_at", "origin", "arrived_at", "landed_in")
_STREAM: Final = """
[streams.{name}]
source = "reports/*.csv"
ordering = "departed_at"
columns = {{ departed_at = "timestamp", origin = "string", arrived_at = "timestamp", landed_in = "string" }}
"""
_SPEC: Final = f"""\
[table]
path = "states"
key = ["tailnum"]
buckets = 1

[services]
compaction = {{ every_commits = 1 }}
{_STREAM.format(name="grouped")}
[streams.grouped.groups.landing]
ordering = "arrived_at"
columns = ["landed_in"]
{_STREAM.format(name="whole")}"""


def show(stage: Stage) -> Shown:
    """Deliver the newest reports first, compact, deliver the older ones; compare with the newest halves."""
    stage.fleet(stage.sized(1_500, 6_000))
    reports = _reports(stage.folder / "data")
    path = stage.folder / "states.toml"
    path.write_text(_SPEC)
    folder = stage.folder / "reports"
    folder.mkdir()
    spec = load_spec(path)
    half = len(reports) // 2
    arrived: dict[str, list[Row]] = {}
    for number, part in enumerate((reports[half:], reports[:half])):
        for row in part[::-1]:
            arrived.setdefault(row["tailnum"], []).append(row)
        _deliver(folder / f"{number}.csv", part[::-1])
        run(spec, once=True, spark=stage.spark)
        if number == 0:
            compaction = Compaction(Table(spec, stage.spark))
            compaction.step()
            must(compaction.done, "a compaction has work to do")

    columns = [f"{stream}__{name}" for stream in ("grouped", "whole") for name in ("origin", "landed_in")]
    rows = read(spec, stage.spark).select("tailnum", *columns).collect()
    found = {row.tailnum: tuple(row)[1:] for row in rows}
    must(found.keys() == arrived.keys(), "each aircraft has a row")
    expected = {key: _newest(reported) for key, reported in arrived.items()}
    right = sum(states[:2] == expected[key] for key, states in found.items())
    naive = sum(states[2:] == expected[key] for key, states in found.items())
    must(right == len(found), f"the group keeps the newest half of each report, for {right} of {len(found)}")
    must(naive < len(found), "one ordering for the whole row loses some")
    must(validate(spec, stage.spark).ok, "the table agrees with the reports")
    return Shown(
        sentence="the newest reports first, a compaction, then the older ones: with a group "
        f"{right} of {len(found)} aircraft have their newest departure and landing; with one ordering of "
        f"the row {naive} do"
    )


def _reports(data: Path) -> list[Row]:
    """Return reports by time: of a departure, without a landing; of a landing, with the first departure."""
    events = [(row["departed_at"], "origin", row) for row in _rows(data / "departures")]
    events += [(row["arrived_at"], "landed_in", row) for row in _rows(data / "arrivals")]
    first: dict[str, Row] = {}
    reports: list[Row] = []
    for at, what, row in sorted(events, key=lambda event: event[:2]):
        key = row["tailnum"]
        if what == "origin":
            first.setdefault(key, row)
            reports.append(_report(key, row, {}))
        elif key in first:
            reports.append(_report(key, first[key], row | {"arrived_at": at}))
    return reports


def _report(key: str, departure: Row, landing: Row) -> Row:
    known = {"tailnum": key, "departed_at": departure["departed_at"], "origin": departure["origin"]}
    return known | {name: landing.get(name, "") for name in ("arrived_at", "landed_in")}


def _newest(arrived: list[Row]) -> tuple[str | None, str | None]:
    """Return the origin of the newest departure and the place of the newest landing of one aircraft.

    Args:
        arrived: Its reports in the order of their arrival; of equal times the later arrival wins.
    """
    # Of equal values max gives the first.
    departure = max(reversed(arrived), key=lambda row: row["departed_at"])
    landed = [row for row in reversed(arrived) if row["arrived_at"]]
    landing = max(landed, key=lambda row: row["arrived_at"]) if landed else None
    return departure["origin"], landing["landed_in"] if landing else None


def _rows(folder: Path) -> list[Row]:
    found: list[Row] = []
    for file in sorted(folder.glob("*.csv")):
        with file.open(newline="") as lines:
            found += csv.DictReader(lines)
    return found


def _deliver(file: Path, rows: list[Row]) -> None:
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, _NAMES, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
