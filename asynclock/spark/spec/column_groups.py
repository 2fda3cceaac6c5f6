"""The column groups of a stream: columns that are merged as one, by an ordering of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock.spark.spec.checked import checked, raise_all, wrong
from asynclock.spark.spec.column import Column
from asynclock.spark.spec.ordering import ORDERING, Ordering, merged_as, misfits, stored_name
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asynclock.errors import ConfigError

TOMBSTONE: Final = "deleted"

_NAME: Final = re.compile(r"[a-z][a-z0-9]*")
_MARK: Final = "_in_"
"""Begins the stored names of a group's columns; no name of a stream begins with ``_``."""
_OF_FUNCTION: Final = re.compile(rf"({ORDERING}[0-9]*|{TOMBSTONE})$")
"""Ends the word for a function in the stored names of what orders and erases its values."""


@checked
class GroupSpec:
    """Columns of a stream that are merged as one, apart from the others.

    Attributes:
        ordering: The columns whose newer values win the group, compared in turn; a row with a null in one of
            them has no event for it.
        columns: The other columns of the group.
    """

    ordering: Ordering
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ColumnGroup:
    """Stored columns that are merged as one.

    Attributes:
        stream: The stream whose events set them.
        name: Name of the group in the stream; empty: the stream's own columns.
        orderings: The columns that order its events, compared in turn.
        columns: Its columns, the ordering columns among them, and its tombstone if events say it.
    """

    stream: str
    name: str
    orderings: tuple[Column, ...]
    columns: tuple[Column, ...]

    @property
    def label(self) -> str:
        """Its name for users: ``orders``, or ``orders.price``."""
        return f"{self.stream}.{self.name}" if self.name else self.stream

    @property
    def alias(self) -> str:
        """A name that no other group of the stream has; empty: the stream's own columns."""
        return self.name

    @property
    def prefix(self) -> str:
        """The beginning of the stored names, before the first ``__``; the merger finds the groups by it."""
        return group_prefix(self.stream, self.name)

    @property
    def is_reversed(self) -> bool:
        """Whether the least ordering value wins, and of equal ones the first to arrive."""
        return False

    @property
    def is_sum(self) -> bool:
        """Whether the values of all events are added, so that each event must come once."""
        return False

    @property
    def has_tombstone(self) -> bool:
        """Whether a tombstone erases the group."""
        return True

    @property
    def says_deleted(self) -> bool:
        """Whether a tombstone counts as an event even without a value in the needed column."""
        return False

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns without whose values a row has no event for the group; none: each row has one."""
        return tuple(column.name for column in self.orderings) if self.name else ()

    @property
    def stored_orderings(self) -> tuple[str, ...]:
        """The stored names of the ordering columns, in turn."""
        return tuple(map(self.physical, self.orderings))

    @property
    def stored_tombstone(self) -> str:
        """The stored name of the tombstone."""
        return f"{self.prefix}__{TOMBSTONE}"

    def physical(self, column: Column) -> str:
        """Return the stored name of one of its columns."""
        ordering = [one.name for one in self.orderings]
        return physical_name(self.stream, self.name, column.name, ordering)

    def values(self) -> dict[str, Column]:
        """Return the columns whose values an event sets, by their stored names."""
        return {self.physical(column): column for column in self.columns}

    def stored(self) -> dict[str, Column]:
        """Return its columns by their stored names, always with its tombstone.

        Every record has the tombstone's column, so a delete changes no schema under running streams.
        """
        stored = self.values()
        stored.setdefault(self.stored_tombstone, Column(name=TOMBSTONE, type="boolean"))
        return stored

    def owns(self, physical: str) -> bool:
        """Return whether a column of the table becomes null by an event that does not set it."""
        prefix, separator, _ = physical.partition("__")
        return bool(separator) and prefix == self.prefix


def group_prefix(stream: str, group: str) -> str:
    """Return the beginning of the stored names of a group's columns."""
    return f"{_MARK}{group}_{stream}" if group else stream


def physical_name(stream: str, group: str, column: str, ordering: Sequence[str]) -> str:
    """Return the stored name of a column of a group.

    Args:
        stream: The stream.
        group: The group in the stream; empty: the stream's own columns.
        column: The column.
        ordering: The columns that order the group.
    """
    if column in ordering:
        return stored_name(stream, group, column, ordering.index(column) + 1)
    return f"{group_prefix(stream, group)}__{column}"


def owner(physical: str) -> tuple[str, str] | None:
    """Return the stream and the group of a stored column; None for a key or partition column.

    The group of a column with a merge function is the word for the function, between underscores.
    """
    prefix, separator, _ = physical.partition("__")
    prefix = merged_as(prefix)
    if not separator or not prefix:
        return None
    if not prefix.startswith("_"):
        return prefix, ""
    word, _, rest = prefix[1:].partition("_")
    if word != _MARK.strip("_"):
        return rest, f"_{_OF_FUNCTION.sub('', word)}_"
    group, _, stream = rest.partition("_")
    return stream, group


def group_of(physical: str) -> str:
    """Return the group of a stored column in its stream; empty: the stream's own columns."""
    found = owner(physical)
    return found[1] if found else ""


def check_groups(groups: Mapping[str, GroupSpec], types: Mapping[str, str], ordering: Sequence[str]) -> None:
    """Refuse groups that cannot be merged.

    Args:
        groups: The groups of a stream by their names.
        types: The types of the stream's columns by their names.
        ordering: The columns that order the stream.

    Raises:
        ConfigError: A name cannot be a group's, a column is unknown or in two groups, or the type of an
            ordering column has no order.
    """
    raise_all(_misfits(groups, types, ordering))


def _misfits(
    groups: Mapping[str, GroupSpec], types: Mapping[str, str], ordering: Sequence[str]
) -> Iterator[ConfigError]:
    taken = dict.fromkeys(ordering, "it orders the stream")
    for name, group in groups.items():
        setting = f"groups.{name}"
        if not _NAME.fullmatch(name):
            yield wrong(setting, name, "group names are a-z and 0-9, the first a letter; rename the group")
            continue
        for key, column in _named(group):
            unordered = dict(misfits(group.ordering, types)) if key == "ordering" else {}
            reason = _unfit(column, types) or unordered.get(column)
            if not reason and column in taken:
                reason = f"a column is in one group only, and {taken[column]}; name another column"
            if reason:
                yield wrong(f"{setting}.{key}", column, reason)
            else:
                taken[column] = f"it is in the group {name!r} already"


def _named(group: GroupSpec) -> Iterator[tuple[str, str]]:
    for column in group.ordering:
        yield "ordering", column
    for column in group.columns:
        yield "columns", column


def _unfit(column: str, types: Mapping[str, str]) -> str | None:
    if column not in types:
        return unknown_name(column, types)
    if column == TOMBSTONE:
        return "a row deletes every group that it has an event for; take the tombstone out"
    return None


def split(
    stream: str, ordering: Sequence[str], groups: Mapping[str, GroupSpec], owned: Sequence[Column]
) -> tuple[ColumnGroup, ...]:
    """Return the column groups of a stream, that of its own ordering first.

    Args:
        stream: Its name.
        ordering: The columns that order it.
        groups: Its further groups by their names.
        owned: Its columns without those that have a merge function.
    """
    by_name = {column.name: column for column in owned}
    elsewhere = {name for group in groups.values() for name in (*group.ordering, *group.columns)}
    tombstone = [by_name[TOMBSTONE]] if TOMBSTONE in by_name else []
    own = tuple(column for column in owned if column.name not in elsewhere)
    return (
        ColumnGroup(stream=stream, name="", orderings=tuple(by_name[name] for name in ordering), columns=own),
        *(
            ColumnGroup(
                stream=stream,
                name=name,
                orderings=tuple(by_name[one] for one in group.ordering),
                columns=(*(by_name[one] for one in (*group.ordering, *group.columns)), *tombstone),
            )
            for name, group in groups.items()
        ),
    )
