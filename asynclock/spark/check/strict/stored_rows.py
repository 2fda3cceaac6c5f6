"""The form of a source's rows in the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asynclock.spark.check.strict.source_file import layout_of
from asynclock.spark.spec.column_groups import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asynclock.spark.check.strict.expected import Cells, Key, Types
    from asynclock.spark.check.strict.rows import Layout
    from asynclock.spark.spec.model import Spec, StreamSpec

NamedTypes = tuple[tuple[str, str], ...]


class Reading:
    """The reading of a batch with certain columns, and the present form of its values in the table.

    Args:
        spec: The table.
        stream: The stream.
        columns: Its own columns and their types in that batch; none: those of the spec.
        groups: The columns of the table that its events set, and their types, by their group's number.

    Attributes:
        layout: The rules that turn the texts of a row into values.
    """

    def __init__(
        self, spec: Spec, stream: StreamSpec, columns: NamedTypes, groups: Mapping[int, Types]
    ) -> None:
        self.layout: Layout = layout_of(spec, stream, columns)
        self._shared = len(spec.table.shared_columns)
        places = {name: at for at, name in enumerate(self.layout.names) if at >= self._shared}
        orderings = _orderings(spec, stream, columns)
        names = {stored: column.name for stored, column in stream.stored(spec.table).items()} | orderings
        ruled = (
            {}
            if stream.whole_rows
            else {group.stored_ordering: group for group in stream.column_groups(spec.table)}
        )
        self._groups: list[_Group] = []
        for number, columns_of in groups.items():
            ordering = next(stored for stored in orderings if stored in dict(columns_of))
            group = ruled.get(ordering)
            cells = [
                (places.get(name), kind == "double" and self.layout.types.get(name) == "int")
                for name, kind in ((names.get(stored, ""), kind) for stored, kind in columns_of)
            ]
            rank = places.get(orderings[ordering])
            needed = rank
            if group is not None and group.needed not in {None, group.ordering.name}:
                needed = places.get(group.needed)
            self._groups.append(
                _Group(
                    number=number,
                    rank=rank,
                    ordering=[stored for stored, _ in columns_of].index(ordering),
                    needed=needed,
                    deleted=places.get(TOMBSTONE) if group is not None and group.says_deleted else None,
                    may_be_empty=group is not None and not group.name,
                    cells=cells,
                )
            )

    def events(self, values: tuple[Any, ...]) -> Iterator[tuple[int, Key, Any, Cells]]:
        """Yield number, key, ordering value and cells for each group that a row has an event for."""
        key = values[: self._shared]
        for group in self._groups:
            if group.rank is None or not group.is_in(values):
                continue
            cells: list[Any] = [None if place is None else values[place] for place, _ in group.cells]
            grown = zip(cells, group.cells, strict=True)
            cells = [float(cell) if is_whole and cell is not None else cell for cell, (_, is_whole) in grown]
            yield group.number, key, cells[group.ordering], tuple(cells)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """The places of a column group's values in the rows of a batch; None: they have no such column.

    ``ordering`` is the place of the ordering value among the cells.
    """

    number: int
    rank: int | None
    ordering: int
    needed: int | None
    deleted: int | None
    may_be_empty: bool
    cells: list[tuple[int | None, bool]]

    def is_in(self, values: tuple[Any, ...]) -> bool:
        """Return whether a row has an event for the group."""
        if self.deleted is not None and values[self.deleted]:
            return True
        value = None if self.needed is None else values[self.needed]
        return value is not None and (self.may_be_empty or value != "")


def _orderings(spec: Spec, stream: StreamSpec, columns: NamedTypes) -> dict[str, str]:
    """Return the columns that order the groups of a batch, by their stored names; empty: no such group."""
    if stream.whole_rows:
        return {stream.ordering: columns[0][0] if columns else stream.ordering}
    said = {kind.partition(" ")[0].rstrip("?").partition("@")[2]: name for name, kind in reversed(columns)}
    names = {}
    for group in stream.column_groups(spec.table):
        name = group.ordering.name
        if columns and group.name:
            name = said.get(group.name, "")
        elif columns and name == stream.ordering:
            name = columns[0][0]
        names[group.stored_ordering] = name
    return names
