"""Columns with a merge function of their own: each is a column group for itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import WithJsonSchema

from asynclock.spark.spec.checked import raise_all, wrong
from asynclock.spark.spec.column import Column
from asynclock.spark.spec.column_groups import TOMBSTONE, ColumnGroup
from asynclock.spark.spec.ordering import ORDERING
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from asynclock.errors import ConfigError

Nulls = Literal["erase", "keep"]

NEWEST: Final = "last_value"
KEPT: Final = "last_non_null_value"
_WORDS: Final[Mapping[str, str]] = {
    KEPT: "last",
    "first_value": "firstany",
    "first_non_null_value": "first",
    "max": "max",
    "min": "min",
    "bool_or": "max",
    "bool_and": "min",
    "sum": "sum",
}
"""The words in the stored names by which the merger knows the function."""
Function = Annotated[str, WithJsonSchema({"type": "string", "enum": [NEWEST, *_WORDS]})]
_OF_VALUES: Final = frozenset({"max", "min"})
_SUM: Final = "sum"
SUMS: Final = f"_{_SUM}_"
"""The group of stored sums."""
_UNORDERED: Final = _OF_VALUES | {_SUM}
_ADDED: Final = re.compile(r"int|bigint|decimal\(.*")
_OF_BOOLEANS: Final = frozenset({"bool_or", "bool_and"})
_REVERSED: Final = frozenset({"min", "first", "firstany"})


@dataclass(frozen=True, kw_only=True)
class FunctionGroup(ColumnGroup):
    """A column with a merge function.

    Attributes:
        value: The column.
        word: The word for the function in the stored names.
        deleted: Whether events say that they are tombstones.
    """

    value: Column
    word: str
    deleted: bool = False

    @property
    def says_deleted(self) -> bool:
        """Whether a row without a value has an event all the same if it is a tombstone."""
        return self.deleted

    @property
    def label(self) -> str:
        """Its name for users: that of the stream, whose tombstones it takes."""
        return self.stream

    @property
    def alias(self) -> str:
        """A name that no other group of the stream has."""
        return f"{self.word}_{self.value.name}"

    @property
    def is_reversed(self) -> bool:
        """Whether the least ordering value wins, and of equal ones the first to arrive."""
        return self.word in _REVERSED

    @property
    def is_sum(self) -> bool:
        """Whether the values of all events are added, so that each event must come once."""
        return self.word == _SUM

    @property
    def has_tombstone(self) -> bool:
        """Whether a tombstone takes the value away: only the newest of several has an order to erase by."""
        return self.word == _WORDS[KEPT]

    @property
    def stored_value(self) -> str:
        """The stored name of the column."""
        return f"_{self.word}_{self.stream}__{self.value.name}"

    @property
    def stored_orderings(self) -> tuple[str, ...]:
        """The stored names of the columns that order the events; of a maximum or sum the column itself."""
        if self.word in _UNORDERED:
            return (self.stored_value,)
        turns = ("", *range(2, len(self.orderings) + 1))
        return tuple(f"_{self.word}{ORDERING}{turn}_{self.stream}__{self.value.name}" for turn in turns)

    @property
    def stored_tombstone(self) -> str:
        """The stored name of the tombstone, if there is one."""
        return f"_{self.word}{TOMBSTONE}_{self.stream}__{self.value.name}"

    @property
    def needed(self) -> tuple[str, ...]:
        """The column without whose value a row has no event; none: each row has one."""
        return () if self.word == _WORDS["first_value"] else (self.value.name,)

    def values(self) -> dict[str, Column]:
        """Return the columns whose values an event sets, by their stored names."""
        return self._stored(with_tombstone=self.says_deleted)

    def stored(self) -> dict[str, Column]:
        """Return its columns by their stored names."""
        return self._stored(with_tombstone=self.has_tombstone)

    def _stored(self, *, with_tombstone: bool) -> dict[str, Column]:
        found = dict(zip(self.stored_orderings, self.orderings, strict=True))
        found[self.stored_value] = self.value
        return found | {self.stored_tombstone: _TOMBSTONE_COLUMN} if with_tombstone else found

    def owns(self, physical: str) -> bool:  # noqa: ARG002  as the other has it
        """Return False: an event without the column does not count for this group."""
        return False


def sums(merge: Mapping[str, str]) -> list[str]:
    """Return the columns whose values are added."""
    return [name for name, function in merge.items() if function == _SUM]


def stored_name(stream: str, column: str, function: str) -> str:
    """Return the stored name of a column with a merge function other than ``last_value``."""
    return f"_{_WORDS[function]}_{stream}__{column}"


def described(word: str) -> str:
    """Return the functions that a word in stored names stands for."""
    return " or ".join(function for function, known in _WORDS.items() if known == word)


def function_groups(
    stream: str, orderings: tuple[Column, ...], functions: Mapping[str, str], owned: Sequence[Column]
) -> tuple[FunctionGroup, ...]:
    """Return a group for each column with a merge function other than ``last_value``.

    Args:
        stream: The name of the stream.
        orderings: The columns that order it.
        functions: The merge functions by the names of the columns.
        owned: The columns of the stream.
    """
    deleted = any(column.name == TOMBSTONE for column in owned)
    return tuple(
        FunctionGroup(
            stream=stream,
            name="",
            orderings=(column,) if _WORDS[function] in _UNORDERED else orderings,
            columns=(column,),
            value=column,
            word=_WORDS[function],
            deleted=deleted and function == KEPT,
        )
        for column in owned
        if (function := functions.get(column.name, NEWEST)) != NEWEST
    )


def check_functions(
    merge: Mapping[str, str],
    nulls: str,
    types: Mapping[str, str],
    ordering: Sequence[str],
    grouped: Collection[str],
) -> None:
    """Refuse merge functions that a column cannot have.

    Args:
        merge: The functions by the names of the columns.
        nulls: What a null does by default.
        types: The types of the stream's columns by their names.
        ordering: The columns that order the stream.
        grouped: The columns in column groups.

    Raises:
        ConfigError: A column is unknown, orders events or is in a group, a function cannot merge values of
            its type, or no tombstone could take back the values of a function.
    """
    raise_all(_misfits(merge, nulls, types, ordering, grouped))


def _misfits(
    merge: Mapping[str, str],
    nulls: str,
    types: Mapping[str, str],
    ordering: Sequence[str],
    grouped: Collection[str],
) -> Iterator[ConfigError]:
    if nulls == "keep" and grouped:
        reason = "with groups no function is the default; name the columns in merge, or drop the groups"
        yield wrong("nulls", nulls, reason)
    for name, function in merge.items():
        if name not in types:
            yield wrong(f"merge.{name}", function, unknown_name(name, types))
            continue
        is_boolean = types[name] == "boolean"
        rules = (
            (function not in {NEWEST, *_WORDS}, unknown_name(function, [NEWEST, *_WORDS])),
            (name in {*ordering, TOMBSTONE}, "the newest event sets it; take it out"),
            (name in grouped, "a column in a group is merged with that; take it out of one of them"),
            (
                function in _OF_BOOLEANS and not is_boolean,
                f"merges booleans only, and this is a column of {types[name]}; use max or min",
            ),
            (function in _OF_VALUES and is_boolean, "merges no booleans; use bool_or or bool_and"),
            (function == _SUM and not _ADDED.fullmatch(types[name]), _not_added(types[name])),
            (
                TOMBSTONE in types and function in _WORDS.keys() - {KEPT},
                "no tombstone takes back what this has kept; drop the function, or the column 'deleted'",
            ),
        )
        yield from (wrong(f"merge.{name}", function, said) for applies, said in rules if applies)


def _not_added(kind: str) -> str:
    if kind in {"double", "float"}:
        return f"additions of {kind} in another order give another value; make the column a decimal"
    return f"adds int, bigint and decimal only, and this is a column of {kind}; use another function"


_TOMBSTONE_COLUMN: Final = Column(name=TOMBSTONE, type="boolean")
