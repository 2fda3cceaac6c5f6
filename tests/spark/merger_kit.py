"""The compiled merger in a JVM of its own, without Spark: records and programs of merges in, rows out."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tests.spark.histories import COLUMNS
from tests.spark.oracle import Delete

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.spark.jvm import JavaProgram
    from tests.spark.oracle import Arrival

META: Final = {"_hoodie_commit_time": "string", "_hoodie_record_key": "string"}
KEY: Final = {"key": "string"}
FULL: Final = {**META, **KEY, **COLUMNS}
_AVRO: Final[dict[str, object]] = {
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "bigint": "long",
    "decimal(12,3)": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    "date": {"type": "int", "logicalType": "date"},
    "array<string>": {"type": "array", "items": "string"},
}


Record = dict[str, Any] | None
Program = list[int | str]


class Merger:
    """The compiled merger in a JVM of its own."""

    def __init__(self, program: JavaProgram) -> None:
        self._program = program
        self._known: set[tuple[str, ...]] = set()

    def ask(self, request: object) -> Any:  # noqa: ANN401 - JSON
        """One request, one answer."""
        return json.loads(self._program.ask(json.dumps(request)))

    def schema(self, columns: Mapping[str, str]) -> str:
        """Make a schema known, return its name."""
        names = tuple(columns)
        name = ",".join(names)
        if names not in self._known:
            fields = [
                {"name": column, "type": ["null", _AVRO.get(kind, kind)], "default": None}
                for column, kind in columns.items()
            ]
            self.ask({"schemas": {name: {"type": "record", "name": "row", "fields": fields}}})
            self._known.add(names)
        return name

    def run(self, records: Sequence[Record], programs: Sequence[Program]) -> list[dict[str, Any]]:
        """Run each program on the records."""
        return self.ask({"records": records, "programs": programs})

    def record(self, arrival: Arrival, index: int, columns: Mapping[str, str] = FULL) -> Record:
        """An arrival as Hudi would hand it over, the ``index``-th of its history."""
        if isinstance(arrival, Delete):
            return {"delete": True}
        row = {"_hoodie_commit_time": f"{index:03d}", "_hoodie_record_key": "key", "key": "key"}
        row.update({name: plain(value) for name, value in arrival.columns().items()})
        return {"schema": self.schema(columns), "row": {name: row[name] for name in row if name in columns}}

    def records(self, history: Sequence[Arrival], columns: Mapping[str, str] = FULL) -> list[Record]:
        """A whole history."""
        return [self.record(arrival, index, columns) for index, arrival in enumerate(history)]


def plain(value: object) -> object:
    """A value as JSON has it."""
    return str(value) if isinstance(value, Decimal) else value


def any_grouping(order: Sequence[int], rng: random.Random) -> Program:
    """The same order with random parentheses, now and then a record made binary, as Hudi may do."""
    binary: Program = ["b"] if rng.random() < 0.3 else []
    if len(order) == 1:
        return [order[0]]
    cut = rng.randint(1, len(order) - 1)
    return [*any_grouping(order[:cut], rng), *any_grouping(order[cut:], rng), "+", *binary]
