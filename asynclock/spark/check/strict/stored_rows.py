"""The form of a source's rows in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asynclock.spark.check.strict.source_file import layout_of

if TYPE_CHECKING:
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
        group: The columns of the table that its events set, and their types.

    Attributes:
        layout: The rules that turn the texts of a row into values.
    """

    def __init__(self, spec: Spec, stream: StreamSpec, columns: NamedTypes, group: Types) -> None:
        self.layout: Layout = layout_of(spec, stream, columns)
        names, types = self.layout.names, self.layout.types
        self._shared = len(spec.table.shared_columns)
        ordering = columns[0][0] if columns else stream.ordering
        self._rank = names.index(ordering)
        self._cells: list[tuple[int | None, bool]] = []
        own = {stream.physical(column): column.name for column in stream.stored(spec.table)}
        for stored, kind in group:
            name = ordering if own.get(stored) == stream.ordering else own.get(stored, "")
            place = names.index(name, self._shared) if name in names[self._shared :] else None
            self._cells.append((place, kind == "double" and types.get(name) == "int"))

    def event(self, values: tuple[Any, ...]) -> tuple[Key, Any, Cells]:
        """Return key, ordering value and cells of a row."""
        cells: list[Any] = [None if place is None else values[place] for place, _ in self._cells]
        grown = zip(cells, self._cells, strict=True)
        cells = [float(cell) if is_whole and cell is not None else cell for cell, (_, is_whole) in grown]
        return values[: self._shared], values[self._rank], tuple(cells)
