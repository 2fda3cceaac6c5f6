"""Check that an existing table is the one that a spec describes; nothing is written unless it is."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from asynclock.hudi import hoodie
from asynclock.spark.hudi.options import MERGER_STRATEGY_ID, partition_options
from asynclock.spark.spec.load import misplaced
from asynclock.spark.spec.model import RECORD_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asynclock.spark.hudi.instants import BatchCommit
    from asynclock.spark.spec.model import Spec
    from asynclock.spark.spec.toml import Keys

# Spark's names for Avro's types.
_TYPES: Final = {"long": "bigint", "timestamp-micros": "timestamp", "timestamp-millis": "timestamp"}
# Conversions that keep every value and the order of values. Not float to double: Hudi converts through the
# text, so the float 0.1 becomes the double 0.1, which is another number.
_WIDER: Final = frozenset({("int", "bigint"), ("int", "double")})
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


def check_properties(spec: Spec, properties: Mapping[str, str]) -> None:
    """Refuse a table with another record key, partitioning or merger.

    Args:
        spec: The spec.
        properties: The table's ``hoodie.properties``; empty without a table.

    Raises:
        SpecError: The table differs from the spec; nothing was written.
    """
    table = spec.table
    if not properties:
        return
    if (found := properties.get(hoodie.TABLE_RECORDKEY_FIELDS, "")) != RECORD_KEY:
        reason = (
            f"the table at {table.path} has the record key {found!r}, a splice table has {RECORD_KEY!r}: it "
            "was made by something else, or by a version of asynclock that could confuse keys, and cannot be "
            "written any more. Nothing was written; splice into a new table, with new checkpoints"
        )
        raise misplaced(spec, ("table", "path"), found, reason)
    expected = {
        hoodie.TABLE_PARTITION_FIELDS: ",".join(table.partition_by),
        hoodie.TABLE_TYPE: "MERGE_ON_READ",
        hoodie.RECORD_MERGE_MODE: "CUSTOM",
        hoodie.RECORD_MERGE_STRATEGY_ID: MERGER_STRATEGY_ID,
        **(partition_options() if table.partition_by else {}),
    }
    for name, value in expected.items():
        if (found := properties.get(name, "")) != value:
            keys = ("table", "partition_by" if name == hoodie.TABLE_PARTITION_FIELDS else "path")
            reason = (
                f"the table at {table.path} has {name}={found!r}, this spec needs {value!r}; nothing was "
                "written. Correct the spec, or splice into a new table"
            )
            raise misplaced(spec, keys, found, reason)


def check_commit(spec: Spec, commit: BatchCommit) -> None:
    """Refuse a table with a commit under another key or number of buckets.

    Raises:
        SpecError: The table differs from the spec; nothing was written.
    """
    table = spec.table
    if commit.key != table.key:
        reason = (
            f"the table at {table.path} has the key {', '.join(commit.key)}, this spec has "
            f"{', '.join(table.key)}; nothing was written. Correct the spec, or splice into a new table"
        )
        raise misplaced(spec, ("table", "key"), list(table.key), reason)
    if commit.buckets != table.buckets:
        reason = (
            f"the table at {table.path} has {commit.buckets} buckets; with another number keys would be "
            "stored twice. Nothing was written; correct the spec, or splice into a new table"
        )
        raise misplaced(spec, ("table", "buckets"), table.buckets, reason)


def check_columns(spec: Spec, types: Mapping[str, str]) -> None:
    """Refuse a table with a column that is not in the spec, or whose type there cannot hold its values.

    Hudi would accept more changes, such as a number turned into text, after which a stream would be ordered
    as text. Here a type may only grow: ``int`` to ``bigint`` or ``double``, a decimal to more digits. The
    type of a key or partition column cannot change.

    Args:
        spec: The spec.
        types: The types of the table's columns, by name.

    Raises:
        SpecError: A column does not fit; nothing was written.
    """
    expected: dict[str, tuple[str, Keys]] = {}
    for name in spec.table.shared_columns:
        owner = next((s for s in spec.streams if any(one.name == name for one in s.columns)), None)
        place = ("streams", owner.name, "columns", name) if owner else ("table", "key")
        expected[name] = (spec.shared_type(name), place)
    for stream in spec.streams:
        for column in stream.owned(spec.table):
            place = ("streams", stream.name, "columns", column.name)
            expected[stream.physical(column)] = (column.type, place)
    for name, stored in types.items():
        if name not in expected:
            raise _surplus(spec, name, stored)
        wanted, keys = expected[name]
        if wanted == stored or (name not in spec.table.shared_columns and is_wider(wanted, stored)):
            continue
        reason = (
            f"the table at {spec.table.path} has {name} as {stored}, this spec as {wanted}: a type may only "
            "grow (int to bigint or double, decimals to more digits), and that of a key or "
            f"partition column not at all. Nothing was written; declare {stored}, or splice into a new table"
        )
        raise misplaced(spec, keys, wanted, reason)


def is_wider(wanted: str, stored: str) -> bool:
    """Return whether a column of type ``stored`` may become one of type ``wanted``."""
    before, after = _DECIMAL.fullmatch(stored), _DECIMAL.fullmatch(wanted)
    if before and after:
        return before[2] == after[2] and int(before[1]) < int(after[1])
    return (stored, wanted) in _WIDER


@lru_cache(maxsize=64)
def stored_types(schema: str) -> Mapping[str, str]:
    """Return the Spark types of the columns in a commit's Avro schema, without Hudi's and the record key."""
    fields = json.loads(schema)["fields"] if schema else []
    return MappingProxyType({
        field["name"]: _spark_type(field["type"])
        for field in fields
        if field["name"] != RECORD_KEY and not field["name"].startswith("_hoodie_")
    })  # fmt: skip


def _spark_type(kind: Any) -> str:  # noqa: ANN401  JSON
    if isinstance(kind, list):
        return _spark_type(next(one for one in kind if one != "null"))
    if isinstance(kind, dict):
        logical = kind.get("logicalType")
        if logical == "decimal":
            return f"decimal({kind['precision']},{kind.get('scale', 0)})"
        return _spark_type(logical or kind["type"])
    return _TYPES.get(kind, str(kind))


def _surplus(spec: Spec, name: str, stored: str) -> Exception:
    stream, separator, column = name.partition("__")
    known = [one.name for one in spec.streams]
    if separator and stream not in known:
        keys: Keys = ("streams",)
        what = f"of a stream {stream!r} that this spec does not have: put [streams.{stream}] back"
    else:
        keys = ("streams", stream, "columns") if separator else ("table",)
        what = f"that this spec does not have: put {column or name!r} back"
    reason = (
        f"the table at {spec.table.path} has the column {name} ({stored}) {what}; its values stay where they "
        "are. To feed only some streams, name those to the run. Nothing was written"
    )
    return misplaced(spec, keys, name, reason)
