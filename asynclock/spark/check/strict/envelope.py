"""Debezium's envelope around the changes of a database's rows.

Source of the names: Debezium, New Record State Extraction,
https://debezium.io/documentation/reference/stable/transformations/event-flattening.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from asynclock.spark.spec.column_groups import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Fields = dict[str, tuple[Any, str]]
"""The fields of an object: the value of each, and its text."""

_ROWS: Final = {"c": "after", "u": "after", "r": "after", "d": "before"}
"""Where the row of each change is: created, updated, read in a snapshot, deleted."""
_UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What a connector of PostgreSQL writes for a large value that did not change:
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-toasted-values
"""
_REMEDY: Final = "set REPLICA IDENTITY FULL for its table"
_OF_ENVELOPE: Final = "__"
_OF_SOURCE: Final = "__source_"


class NoChangeError(Exception):
    """The object is no change of a row; the text has the reason."""


def changed_row(change: Fields, wanted: Collection[str], parsed: Callable[[str], Fields]) -> Fields:
    """The row that was changed, with the wanted fields of the envelope and the tombstone.

    Args:
        change: The fields of a record.
        wanted: The names that columns are from; ``__op`` and ``__source_lsn`` are fields of the envelope.
        parsed: Reads one object.

    Raises:
        NoChangeError: There is no row in it.
    """
    if payload := _object(change, "payload"):
        change = parsed(payload)
    op = _text(change, "op")
    if op is None:
        raise NoChangeError("it is no change in Debezium's envelope: it has no op")
    if op not in _ROWS:
        raise NoChangeError(f"its op is {op!r}, which is no change of a row")
    if not (row := _object(change, _ROWS[op])):
        raise NoChangeError(f"its op is {op!r}, and it has no row in {_ROWS[op]}")
    fields = {
        name: field
        for name, field in parsed(row).items()
        if name.lower() != TOMBSTONE and not name.startswith(_OF_ENVELOPE)
    }
    for name in wanted:
        if name in fields and _text(fields, name) in {_UNAVAILABLE, f'["{_UNAVAILABLE}"]'}:
            raise NoChangeError(f"Debezium has left out {name}, which did not change; {_REMEDY}")
    source = parsed(origin) if (origin := _object(change, "source")) else {}
    for name in wanted:
        if name.startswith(_OF_SOURCE):
            fields[name] = source.get(name.removeprefix(_OF_SOURCE), (None, ""))
        elif name.startswith(_OF_ENVELOPE):
            fields[name] = change.get(name.removeprefix(_OF_ENVELOPE), (None, ""))
    is_delete = str(op == "d").lower()
    return fields | {TOMBSTONE: (is_delete, is_delete)}


def _text(fields: Fields, name: str) -> str | None:
    value, text = fields.get(name, (None, ""))
    return value if isinstance(value, str) else None if value is None else text


def _object(fields: Fields, name: str) -> str:
    """The text of an object, or of a string with one in it, as some connectors write rows; else nothing."""
    text = _text(fields, name) or ""
    return text if text.startswith("{") else ""
