"""The columns that order the events of a stream or a group: one, or several that are compared in turn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BeforeValidator, Field

from asynclock.spark.spec.checked import wrong
from asynclock.spark.spec.column import COLUMN_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ORDERING: Final = "ts"
ORDERING_TYPES: Final = tuple(kind for kind in COLUMN_TYPES if kind != "boolean")

_FURTHER: Final = re.compile(r"_ts(?P<turn>[1-9][0-9]*)(?P<group>_|in_[^_]+_)(?P<stream>.+)")
"""The beginning of the stored name of a second or later ordering column, before the first ``__``."""


def _columns(value: object) -> object:
    """Return the names of the columns, of which a file may give one as a text."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(one, str) for one in names):
        raise wrong("", value, f"expected a column, or a list of columns, found {value!r}")
    if len(set(names)) < len(names):
        raise wrong("", value, "a column is named twice; name each once")
    return tuple(names)


Ordering = Annotated[
    tuple[str, ...],
    BeforeValidator(_columns, json_schema_input_type=str | Annotated[list[str], Field(min_length=1)]),
]
"""The columns that order events; a file may give one as a text."""


def unordered(kind: str) -> str:
    """Return the reason why values of a type order no events."""
    return f"cannot order by {kind}; use one of {', '.join(ORDERING_TYPES)}"


def misfits(ordering: Iterable[str], types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the ordering columns whose types have no order, and the reasons."""
    yield from ((name, unordered(types[name])) for name in ordering if types.get(name) == "boolean")


def stored_name(stream: str, group: str, column: str, turn: int) -> str:
    """Return the stored name of an ordering column.

    Args:
        stream: The stream.
        group: The group in the stream; empty: the stream's own columns.
        column: The column.
        turn: Its place among those that are compared in turn, from 1.
    """
    if turn == 1:
        return f"{f'_in_{group}_' if group else ''}{stream}__{ORDERING}"
    return f"_{ORDERING}{turn}{f'in_{group}_' if group else '_'}{stream}__{column}"


def merged_as(prefix: str) -> str:
    """Return the beginning of the stored names of a group, given that of one of its columns."""
    found = _FURTHER.fullmatch(prefix)
    if found is None:
        return prefix
    return f"{'' if found['group'] == '_' else '_'}{found['group'].removeprefix('_')}{found['stream']}"


def orderings_among(stored: Iterable[str]) -> dict[str, list[str]]:
    """Return the ordering columns among stored columns, in turn, by the beginning of their group's names."""
    found: dict[str, list[tuple[int, str]]] = {}
    for physical in stored:
        prefix, separator, column = physical.partition("__")
        further = _FURTHER.fullmatch(prefix)
        if separator and prefix and (further or column == ORDERING):
            turn = int(further["turn"]) if further else 1
            found.setdefault(merged_as(prefix), []).append((turn, physical))
    return {prefix: [name for _, name in sorted(columns)] for prefix, columns in found.items()}
