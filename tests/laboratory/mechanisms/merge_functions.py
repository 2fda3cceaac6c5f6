"""A column for each merge function over departures, next to the same columns of the newest event."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark import load_spec, read, run, validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.services.work import Compaction
from tests.laboratory.mechanisms.stage import Shown, must

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.laboratory.mechanisms.stage import Stage

Row = dict[str, Any]
_COLUMNS: Final = {
    "note": ("string", "last_non_null_value"),
    "home": ("string", "first_value"),
    "first_note": ("string", "first_non_null_value"),
    "worst": ("double", "max"),
    "best": ("double", "min"),
    "delayed": ("boolean", "bool_or"),
    "punctual": ("boolean", "bool_and"),
}
_STREAM: Final = """
[streams.{name}]
source = "departures/*.csv"
ordering = "number"
columns = {{ number = "bigint", {columns} }}
{merge}
"""


def _spec() -> str:
    """Return a spec with the same columns twice: with their functions, and those of the newest event."""
    columns = ", ".join(f'{name} = "{kind}"' for name, (kind, _) in _COLUMNS.items())
    merge = ", ".join(f'{name} = "{function}"' for name, (_, function) in _COLUMNS.items())
    return (
        'table = { path = "flown", key = ["tailnum"], buckets = 1 }\n'
        "services.compaction = { every_commits = 1 }\n"
        + _STREAM.format(name="merged", columns=columns, merge=f"merge = {{ {merge} }}")
        + _STREAM.format(name="newest", columns=columns, merge="")
    )


def show(stage: Stage) -> Shown:
    """Deliver the latest departures first and twice, compact, then the earlier ones; compare the columns."""
    stage.fleet(stage.sized(1_500, 6_000))
    rows = _departures(stage.folder / "data" / "departures")
    path = stage.folder / "flown.toml"
    path.write_text(_spec())
    folder = stage.folder / "departures"
    folder.mkdir()
    spec = load_spec(path)
    half = len(rows) // 2
    for number, part in enumerate((rows[half:], rows[half:] + rows[:half])):
        _deliver(folder / f"{number}.csv", part[::-1])
        run(spec, once=True, spark=stage.spark)
        if number == 0:
            compaction = Compaction(Table(spec, stage.spark))
            compaction.step()
            must(compaction.done, "a compaction has work to do")

    names = [f"{stream}__{name}" for stream in ("merged", "newest") for name in _COLUMNS]
    found = {row.tailnum: row for row in read(spec, stage.spark).select("tailnum", *names).collect()}
    events: dict[str, list[Row]] = {}
    for row in rows:  # in the order of their numbers
        events.setdefault(row["tailnum"], []).append(row)
    must(found.keys() == events.keys(), "each aircraft has a row")
    table = []
    for name, (_, function) in _COLUMNS.items():
        wanted = {key: _DEFINED[function]([row[name] for row in mine]) for key, mine in events.items()}
        right = sum(row[f"merged__{name}"] == wanted[key] for key, row in found.items())
        naive = sum(row[f"newest__{name}"] == wanted[key] for key, row in found.items())
        must(right == len(found), f"{function} gives what it says, for {right} of {len(found)}")
        must(naive < right, f"the newest event does not have what {function} gives")
        table.append({"function": function, "as defined": right, "in the newest event": naive})
    must(validate(spec, stage.spark).ok, "the table agrees with its files")
    return Shown(
        sentence=f"{len(rows)} departures of {len(found)} aircraft, the latest first and twice, with a "
        f"compaction in between: all {len(table)} functions give what their definitions say",
        table=table,
    )


def _first(values: Sequence[Any]) -> Any:  # noqa: ANN401  a value of any type
    return next((value for value in values if value is not None), None)


_DEFINED: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "last_non_null_value": lambda values: _first(values[::-1]),
    "first_value": lambda values: values[0],
    "first_non_null_value": _first,
    "max": lambda values: max((value for value in values if value is not None), default=None),
    "min": lambda values: min((value for value in values if value is not None), default=None),
    "bool_or": lambda values: None if _first(values) is None else any(values),
    "bool_and": lambda values: None if _first(values) is None else False not in values,
}
"""What each function gives for the values of an aircraft's events, the earliest first."""


def _departures(folder: Path) -> list[Row]:
    """Return the departures by their time, numbered; one in three has no note."""
    found: list[dict[str, str]] = []
    for file in sorted(folder.glob("*.csv")):
        with file.open(newline="") as lines:
            found += csv.DictReader(lines)
    rows: list[Row] = []
    for number, row in enumerate(sorted(found, key=lambda one: (one["departed_at"], one["tailnum"]))):
        delay = float(row["dep_delay"]) if row["dep_delay"] else None
        note = f"{row['carrier']}{row['flight']}" if int(row["flight"]) % 3 else None
        late = None if delay is None else delay > 0
        on_time = None if delay is None else delay <= 0
        rows.append(
            {
                "tailnum": row["tailnum"],
                "number": number,
                "note": note,
                "home": row["origin"],
                "first_note": note,
                "worst": delay,
                "best": delay,
                "delayed": late,
                "punctual": on_time,
            }
        )
    return rows


def _deliver(file: Path, rows: list[Row]) -> None:
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, ["tailnum", "number", *_COLUMNS], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: "" if value is None else str(value) for name, value in row.items()})
