"""Orders, payments and shipments of a few shops, made from a seed: source files, specs, and the oracle.

The schema changes three times: payments gain a column, shipments begin, and the items of an order outgrow
``int``. Values are null, orderings tie, and tombstones come late. Nothing of asynclock or Spark is used.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Row = dict[str, Any]
Key = tuple[str, int]

SHOPS: Final = ("Aachen", "Bad Ems", "Łódź", 'Quote"s, commas', "a/b")
ORDERS_OF_A_SHOP: Final = 40
ROWS_OF_A_FILE: Final = 30
NULLS: Final = 0.25
TOMBSTONES: Final = 0.15
EPOCH: Final = 1_700_000_000
# Few seconds for many events, so that orderings tie and events come late.
SPAN: Final = 3_000
OUTGROWN: Final = 2**31

SCHEMA_CHANGES: Final = 3
ADDED_COLUMN, ADDED_STREAM, WIDENED_TYPE = range(1, SCHEMA_CHANGES + 1)
CHANGED: Final = {ADDED_COLUMN: "payments", ADDED_STREAM: "shipments", WIDENED_TYPE: "orders"}
"""The stream that a version of the schema changes."""

_COLUMNS: Final = {
    "orders": ("updated_at", "status", "items", "amount"),
    "payments": ("updated_at", "status", "fee", "deleted"),
    "shipments": ("updated_at", "status", "weight", "deleted"),
}
VIEW: Final = {
    "orders": {
        "updated_at": "orders__updated_at",
        "status": "order_status",
        "items": "items",
        "amount": "amount",
    },
    "payments": {
        "updated_at": "payments__updated_at",
        "status": "payments__status",
        "fee": "fee",
        "note": "note",
    },
    "shipments": {"updated_at": "shipments__updated_at", "status": "shipments__status", "weight": "weight"},
}
"""For each stream the names of its columns in the view."""


def streams(version: int) -> tuple[str, ...]:
    """Return the streams of a version of the schema."""
    return ("orders", "payments", "shipments") if version >= ADDED_STREAM else ("orders", "payments")


def spec(version: int, *, adds_up: bool = False) -> str:
    """Return the spec of a version of the schema, for a folder that holds everything.

    Args:
        version: Of the schema.
        adds_up: Whether the amounts of an order are added up.
    """
    merge = '\nmerge = { amount = "sum" }' if adds_up else ""
    note = ', note = "string"' if version >= ADDED_COLUMN else ""
    items = "bigint" if version >= WIDENED_TYPE else "int"
    text = f"""\
[table]
path = "table"
key = ["shop", "number"]
buckets = 2

[locks]
validity = 5.0

[services]
compaction = {{ every_commits = 6 }}
cleaning = {{ retain_commits = 4 }}
archiving = {{ keep_min_commits = 8, keep_max_commits = 12 }}

[streams.orders]
source = "in/orders/*.csv"
ordering = "updated_at"
max_files_per_trigger = 1
as = {{ status = "order_status" }}
columns = {{ number = "bigint", updated_at = "timestamp", status = "string", items = "{items}", \
amount = "decimal(10,2)" }}{merge}

[streams.payments]
source = "in/payments/*.json"
ordering = "updated_at"
max_files_per_trigger = 1
columns = {{ updated_at = "timestamp", status = "string", fee = "double", deleted = "boolean"{note} }}
"""
    if version >= ADDED_STREAM:
        text += """
[streams.shipments]
source = "in/shipments/*.parquet"
ordering = "updated_at"
max_files_per_trigger = 1
columns = { updated_at = "bigint", status = "string", weight = "double", deleted = "boolean" }
"""
    return text


@dataclass
class Shop:
    """Delivers files and knows what the table must say once all of them are read.

    Args:
        folder: Where the source folders are.
        seed: Of every value.
        put: Called with the stream, the name and the bytes of each file; None: they go into the folder.
        adds_up: Whether the amounts of an order are added up.
    """

    folder: Path
    seed: int = 0
    put: Callable[[str, str, bytes], object] | None = None
    adds_up: bool = False
    files: int = 0
    _newest: dict[tuple[str, Key], tuple[tuple[int, int], Row]] = field(default_factory=dict)
    _amounts: dict[Key, Decimal] = field(default_factory=dict)
    _arrivals: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        if self.put is None:
            for stream in streams(SCHEMA_CHANGES):
                (self.folder / "in" / stream).mkdir(parents=True)

    def deliver(self, stream: str, version: int, also: Sequence[Key] = ()) -> None:
        """Write one more file of a stream, younger than those before it.

        Args:
            stream: The stream.
            version: Of the schema.
            also: Keys that get an event in it beside those that are drawn.
        """
        rows = [self._event(stream, version) for _ in range(ROWS_OF_A_FILE)]
        rows += [self._event(stream, version, key) for key in also]
        self.files += 1
        suffix, body = _FORMATS[stream](rows)
        if self.put is not None:
            self.put(stream, f"{self.files:05}.{suffix}", body)
            return
        hidden = self.folder / "in" / stream / f".{self.files}"
        hidden.write_bytes(body)
        os.utime(hidden, (EPOCH + self.files, EPOCH + self.files))
        hidden.rename(hidden.with_name(f"{self.files:05}.{suffix}"))

    def expected(self) -> dict[Key, Row]:
        """Return the rows of the view, by key: per stream the newest event, ties by arrival, or sums."""
        table: dict[Key, Row] = {}
        for (stream, key), (_, event) in self._newest.items():
            if not event.get("deleted"):
                empty = dict.fromkeys(name for names in VIEW.values() for name in names.values())
                row = table.setdefault(key, empty)
                row.update({name: event.get(column) for column, name in VIEW[stream].items()})
                if self.adds_up and stream == "orders":
                    row["amount"] = self._amounts.get(key)
        return table

    def newest(self, stream: str) -> dict[Key, tuple[int, Row]]:
        """Return the second and the row of the newest event of each key of a stream."""
        return {
            key: (rank[0], event) for (name, key), (rank, event) in self._newest.items() if name == stream
        }

    def _event(self, stream: str, version: int, key: Key | None = None) -> Row:
        dice = self._random
        key = key or (dice.choice(SHOPS), dice.randrange(ORDERS_OF_A_SHOP))
        second = EPOCH + dice.randrange(SPAN)
        row: Row = {"shop": key[0], "number": key[1], "updated_at": second}
        if stream != "shipments":
            row["updated_at"] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for name in self._columns(stream, version):
            row[name] = None if dice.random() < NULLS else self._value(name, version)
        if (amount := row.get("amount")) is not None:
            self._amounts[key] = self._amounts.get(key, Decimal(0)) + amount
        self._arrivals += 1
        rank = (second, self._arrivals)
        if (stream, key) not in self._newest or rank > self._newest[stream, key][0]:
            self._newest[stream, key] = (rank, row)
        return row

    @staticmethod
    def _columns(stream: str, version: int) -> tuple[str, ...]:
        added = ("note",) if stream == "payments" and version >= ADDED_COLUMN else ()
        return (*_COLUMNS[stream][1:], *added)

    def _value(self, name: str, version: int) -> Any:  # noqa: ANN401  of the column's type
        dice = self._random
        match name:
            case "items":
                return dice.randrange(1000) + (OUTGROWN if version >= WIDENED_TYPE else 0)
            case "amount":
                return Decimal(dice.randrange(-(10**7), 10**7)).scaleb(-2)
            case "fee" | "weight":
                return dice.uniform(-1e6, 1e6)
            case "deleted":
                return dice.random() < TOMBSTONES
            case _:
                return dice.choice(["new", "paid", "late, again", 'said "no"', "ü"]) + str(
                    dice.randrange(100)
                )


def _csv(rows: list[Row]) -> tuple[str, bytes]:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return "csv", text.getvalue().encode()


def _json(rows: list[Row]) -> tuple[str, bytes]:
    return "json", "".join(json.dumps(row) + "\n" for row in rows).encode()


def _parquet(rows: list[Row]) -> tuple[str, bytes]:
    schema = pa.schema(
        [("shop", pa.string()), ("number", pa.int64()), ("updated_at", pa.int64()), ("status", pa.string()),
         ("weight", pa.float64()), ("deleted", pa.bool_())]
    )  # fmt: skip
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), body)
    return "parquet", body.getvalue()


_FORMATS: Final = {"orders": _csv, "payments": _json, "shipments": _parquet}
