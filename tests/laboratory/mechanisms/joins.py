"""The wide table is the full join of its streams; views of the spec show its other joins and top rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asynclock.errors import SpecError
from asynclock.spark import load_spec, register, run
from examples import fleet_oracle
from tests.laboratory.mechanisms.stage import Shown, Stage, must

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = "mechanisms_fleet"
_VIEWS = """
[views.flown]
join = "inner"
streams = ["departures", "arrivals"]
[views.started]
join = "left"
streams = ["departures", "arrivals"]
[views.landed]
join = "right"
streams = ["departures", "arrivals"]
[views.moved]
streams = ["departures", "arrivals"]
[views.last]
streams = ["departures"]
top = { n = 2, by = "departed_at", per = ["origin"] }
"""


def show(stage: Stage) -> Shown:
    """Compare each view with the join that the oracle's rows give."""
    spec = stage.fleet(stage.sized(400, 8_000))
    text = spec.path.read_text()
    spec.path.write_text(text + _VIEWS)
    spec = load_spec(spec.path)
    run(spec, once=True, spark=stage.spark)
    rows = fleet_oracle.expect(spec.path).rows
    left = {key for key, row in rows.items() if row["departed_at"]}
    right = {key for key, row in rows.items() if row["arrived_at"]}
    expected = {
        "flown": left & right,
        "started": left,
        "landed": right,
        "moved": left | right,
        "last": _last_two(rows, left),
    }
    register(spec, stage.spark, name=_NAME)
    try:
        for view, keys in expected.items():
            found = [row.tailnum for row in stage.spark.table(f"{_NAME}_{view}").collect()]
            must(sorted(found) == sorted(keys), f"{view} has {len(keys)} rows; it has {len(found)}")
    finally:
        for view in ("", *(f"_{one}" for one in expected)):
            stage.spark.sql(f"DROP VIEW IF EXISTS {_NAME}{view}")
        stage.spark.sql(f"DROP TABLE IF EXISTS {_NAME}_stored")
    must(len({frozenset(keys) for keys in expected.values()}) > 2, "the joins differ")
    spec.path.write_text(text + '[views.wrong]\nstreams = ["weather"]\n')
    try:
        load_spec(spec.path)
    except SpecError:
        said = ", ".join(f"{view} {len(keys)}" for view, keys in expected.items())
        return Shown(sentence=f"rows of the joins: {said}; a view of an unknown stream is refused")
    raise AssertionError("a view of an unknown stream was taken")


def _last_two(rows: Mapping[str, Mapping[str, Any]], departed: set[str]) -> set[str]:
    origins = {rows[key]["origin"] for key in departed}
    groups = ([key for key in departed if rows[key]["origin"] == origin] for origin in origins)
    # Of equal times the lesser key comes first, as the reference of the spec says.
    latest = (
        sorted(sorted(group), key=lambda key: rows[key]["departed_at"], reverse=True) for group in groups
    )
    return {key for group in latest for key in group[:2]}
