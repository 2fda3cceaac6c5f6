"""The form of a source's rows in the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asynclock.spark.check.strict.expected import rank_among
from asynclock.spark.check.strict.source_file import layout_of
from asynclock.spark.spec.column_groups import TOMBSTONE
from asynclock.spark.spec.functions import FunctionGroup

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
        places = {name: at for at, name in enumerate(self.layout.stored) if at >= self._shared}
        orderings = _orderings(spec, stream, columns)
        names = {stored: column.name for stored, column in stream.stored(spec.table).items()} | orderings
        ruled = (
            {}
            if stream.whole_rows
            else {group.stored_orderings[0]: group for group in stream.column_groups(spec.table)}
        )
        self._groups: list[_Group] = []
        for number, columns_of in groups.items():
            ordering = [stored for stored in orderings if stored in dict(columns_of)]
            group = ruled.get(ordering[0])
            cells = [
                (places.get(name), kind == "double" and self.layout.types.get(name) == "int")
                for name, kind in ((names.get(stored, ""), kind) for stored, kind in columns_of)
            ]
            needed = [orderings[stored] for stored in ordering]
            if isinstance(group, FunctionGroup):
                needed = list(group.needed)
            self._groups.append(
                _Group(
                    number=number,
                    is_known=orderings[ordering[0]] in places,
                    ordering=list(map([stored for stored, _ in columns_of].index, ordering)),
                    needed=list(map(places.get, needed)),
                    deleted=places.get(TOMBSTONE) if group is not None and group.says_deleted else None,
                    may_be_empty=group is not None and not group.name,
                    cells=cells,
                )
            )

    def events(self, values: tuple[Any, ...]) -> Iterator[tuple[int, Key, Any, Cells]]:
        """Yield number, key, ordering value and cells for each group that a row has an event for."""
        key = values[: self._shared]
        for group in self._groups:
            if not group.is_known or not group.is_in(values):
                continue
            cells: list[Any] = [None if place is None else values[place] for place, _ in group.cells]
            grown = zip(cells, group.cells, strict=True)
            cells = [float(cell) if is_whole and cell is not None else cell for cell, (_, is_whole) in grown]
            yield group.number, key, rank_among(tuple(cells), group.ordering), tuple(cells)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """The places of a column group's values in the rows of a batch; None: they have no such column.

    ``is_known`` says whether the rows of the batch had its ordering value. ``ordering`` has the places of the
    ordering values among the cells.
    """

    number: int
    is_known: bool
    ordering: list[int]
    needed: list[int | None]
    deleted: int | None
    may_be_empty: bool
    cells: list[tuple[int | None, bool]]

    def is_in(self, values: tuple[Any, ...]) -> bool:
        """Return whether a row has an event for the group."""
        if self.deleted is not None and values[self.deleted]:
            return True
        needed = [None if place is None else values[place] for place in self.needed]
        return None not in needed and (self.may_be_empty or "" not in needed)


def _orderings(spec: Spec, stream: StreamSpec, columns: NamedTypes) -> dict[str, str]:
    """Return the columns that order the groups of a batch, by their stored names; empty: no such group.

    The stored name of the first may stay when the column gets another name.
    """
    if stream.whole_rows:
        return {name: name for name in stream.ordering}
    said = {kind.partition(" ")[0].rstrip("?").partition("@")[2]: name for name, kind in reversed(columns)}
    names: dict[str, str] = {}
    for group in stream.column_groups(spec.table):
        own = [column.name for column in group.orderings]
        if columns and group.name:
            own[0] = said.get(group.name, "")
        elif columns and own[0] == stream.ordering[0]:
            own[0] = columns[0][0]
        names |= zip(group.stored_orderings, own, strict=True)
    return names
