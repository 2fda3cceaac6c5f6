"""The columns of a table, which only grow: more of them, and wider types.

Every commit carries the columns of the table as its writer knew them. A writer takes the union of all
commits, adds the columns of its own stream, and writes all of them, those of others as null. So a driver that
runs with an older spec takes no column away and makes no type narrower.

For Hudi, the table has the columns of the commit that was *requested* last. If two drivers change them at
once, or one changes them while another writes, that commit may lack columns; the union never does.
``docs/concepts/pipeline/schema.md`` has the rules.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.spec.load import misplaced
from asynclock.spark.spec.model import RECORD_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock.spark.spec.model import Spec, StreamSpec
    from asynclock.spark.spec.toml import Keys

# Spark's names for Avro's types.
_TYPES: Final = {"long": "bigint", "timestamp-micros": "timestamp", "timestamp-millis": "timestamp"}
# Conversions that keep every value and the order of values.
_WIDER: Final = frozenset({("int", "bigint"), ("int", "double"), ("float", "double")})
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_RULE: Final = (
    "a type may only grow (int to bigint or double, float to double, decimals to more digits), and that of a "
    "key or partition column not at all"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """How a column is stored.

    Attributes:
        kind: Its Spark type in the files.
        declared: The widest type that a spec has declared. It differs from ``kind`` for ``float``, which is
            stored as ``double``: when a type grows, Hudi would convert floats through their text, by which
            the float 0.1 becomes the double 0.1, which is another number.
    """

    kind: str
    declared: str


def stored_as(declared: str) -> Stored:
    """Return the stored form of a new column of that type."""
    return Stored("double" if declared == "float" else declared, declared)


def is_wider(wanted: str, stored: str) -> bool:
    """Return whether a column of type ``stored`` may become one of type ``wanted``."""
    before, after = _DECIMAL.fullmatch(stored), _DECIMAL.fullmatch(wanted)
    if before and after:
        return before[2] == after[2] and int(before[1]) < int(after[1])
    return (stored, wanted) in _WIDER


@lru_cache(maxsize=64)
def stored_columns(schema: str, floats: frozenset[str] | None = None) -> Mapping[str, Stored]:
    """Return the columns of a commit, without Hudi's and the record key.

    Args:
        schema: The commit's Avro schema.
        floats: The columns that hold floats as doubles; None if the commit does not say, as one of plain SQL.
            Then a double may hold floats, and other commits decide.
    """
    columns = {}
    for field in json.loads(schema)["fields"] if schema else []:
        name = field["name"]
        if name == RECORD_KEY or name.startswith("_hoodie_"):
            continue
        kind = _spark_type(field["type"])
        holds_floats = kind == "double" and (floats is None or name in floats)
        columns[name] = Stored(kind, "float" if holds_floats else kind)
    return MappingProxyType(columns)


def union(first: Mapping[str, Stored], second: Mapping[str, Stored]) -> dict[str, Stored]:
    """Return the columns of both, each with the wider of its types."""
    columns = dict(first)
    for name, other in second.items():
        known = columns.get(name)
        # If two types do not fit each other, the first stays: a writer of the other one is refused.
        if known is None or is_wider(other.declared, known.declared):
            columns[name] = other
    return columns


def is_behind(present: Mapping[str, Stored], columns: Mapping[str, Stored]) -> bool:
    """Return whether ``present`` lacks some of ``columns``, or has them with other types in the files."""
    return any(name not in present or present[name].kind != one.kind for name, one in columns.items())


def floats_among(columns: Mapping[str, Stored]) -> frozenset[str]:
    """Return the columns that hold floats as doubles."""
    return frozenset(name for name, one in columns.items() if (one.kind, one.declared) == ("double", "float"))


def columns_to_write(spec: Spec, stream: StreamSpec, table: Mapping[str, Stored]) -> dict[str, Stored]:
    """Return the columns of a batch: all of the table, and those that the stream adds or widens.

    The columns of a stream change with its own batches only; the first commit of a table has those of all.

    Args:
        spec: The spec of this writer, which may be older or newer than the table.
        stream: The stream of the batch.
        table: The union of the table's columns; empty before its first commit.
    """
    streams = [stream] if table else spec.streams
    named = {name: stored_as(spec.shared_type(name)) for name in spec.table.shared_columns}
    for one in streams:
        named |= {name: stored_as(column.type) for name, column in one.stored(spec.table).items()}
    return union(table, named) if table else named


def columns_to_delete(spec: Spec, table: Mapping[str, Stored]) -> dict[str, Stored]:
    """Return the columns of a delete: all of the table, and the tombstones of this spec's streams."""
    groups = (group for stream in spec.streams for group in stream.column_groups(spec.table))
    tombstones = {group.stored_tombstone: stored_as("boolean") for group in groups if group.has_tombstone}
    return union(table, tombstones)


def check_columns(spec: Spec, table: Mapping[str, Stored]) -> None:
    """Refuse a spec with a type that cannot hold the table's values of that column.

    Hudi would accept more changes, such as a number turned into text, after which a stream would be ordered
    as text. It is not an error if only one side has a column or stream: the table keeps it, or gets it.

    Args:
        spec: The spec of a writer that begins.
        table: The union of the table's columns.

    Raises:
        SpecError: A type does not fit; nothing was written.
    """
    for name, (wanted, keys) in _expected(spec).items():
        stored = table.get(name)
        if stored is None or wanted == stored.declared:
            continue
        if name in spec.table.shared_columns or not is_wider(wanted, stored.declared):
            raise _misfit(spec, name, wanted, stored, keys)


def check_change(spec: Spec, stream: StreamSpec, opened: frozenset[str], table: Mapping[str, Stored]) -> None:
    """Refuse a change by another driver, made since this writer opened the table, that it cannot follow.

    Other streams may change as they like. A type of this stream may have become wider: its values are
    converted. A new column of this stream may hold values that newer events of this writer, which does not
    read it from the files, would replace with null.

    Args:
        spec: The spec of this writer.
        stream: The stream that it writes.
        opened: The columns that the table had when the writer opened it.
        table: The union of the table's columns now.

    Raises:
        SpecError: The writer cannot go on; nothing was written.
    """
    for name in layout_of(spec).removed_columns(stream, table):
        if name not in opened:
            reason = (
                f"another driver gave stream {stream.name!r} the column {name} ({table[name].declared}), "
                "which this driver's spec does not name: newer events would turn its values into null. "
                "Nothing was written; start this driver again with the present spec"
            )
            raise misplaced(spec, ("streams", stream.name, "columns"), name, reason)
    expected = _expected(spec)
    for name in (*spec.table.shared_columns, *stream.stored(spec.table)):
        wanted, keys = expected[name]
        stored = table.get(name)
        if stored is not None and not _fits(wanted, stored):
            raise _misfit(spec, name, wanted, stored, keys)


def _fits(wanted: str, stored: Stored) -> bool:
    return wanted == stored.declared or is_wider(stored.declared, wanted) or is_wider(wanted, stored.declared)


def _misfit(spec: Spec, name: str, wanted: str, stored: Stored, keys: Keys) -> Exception:
    reason = (
        f"the table at {spec.table.path} has {name} as {stored.declared}, this spec as {wanted}: {_RULE}. "
        f"Nothing was written; declare {stored.declared}, or splice into a new table"
    )
    return misplaced(spec, keys, wanted, reason)


def _expected(spec: Spec) -> dict[str, tuple[str, Keys]]:
    """Return the declared type of each column, and its place in the spec."""
    expected: dict[str, tuple[str, Keys]] = {}
    derived = spec.table.derive
    place: Keys
    for name in spec.table.shared_columns:
        owner = next((s for s in spec.streams if any(one.name == name for one in s.columns)), None)
        place = ("streams", owner.name, "columns", name) if owner else ("table", "key")
        expected[name] = (spec.shared_type(name), ("table", "derive", name) if name in derived else place)
    for stream in spec.streams:
        for name, column in stream.stored(spec.table).items():
            place = (
                ("table", "derive", name)
                if name in derived
                else ("streams", stream.name, "columns", column.name)
            )
            expected[name] = (column.type, place)
    return expected


def _spark_type(kind: Any) -> str:  # noqa: ANN401  JSON
    if isinstance(kind, list):
        return _spark_type(next(one for one in kind if one != "null"))
    if isinstance(kind, dict):
        logical = kind.get("logicalType")
        if logical == "decimal":
            return f"decimal({kind['precision']},{kind.get('scale', 0)})"
        return _spark_type(logical or kind["type"])
    return _TYPES.get(kind, str(kind))
