"""The ways to store the streams of a table: each stream in columns of its own, or whole rows.

The stored names of columns are in the spec, which must know them without Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import ChainMap
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import ConfigError
from asynclock.spark.spec.column_groups import TOMBSTONE
from asynclock.spark.spec.load import misplaced

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column, DataFrame

    from asynclock.spark.spec.column_groups import ColumnGroup
    from asynclock.spark.spec.kinds import TableKind
    from asynclock.spark.spec.model import Spec, StreamSpec

Place = tuple[int, str]
"""Place of a commit in the order of the merge."""


class Layout(ABC):
    """The differences between splice tables and plain ones, apart from the options of Hudi.

    Args:
        spec: The table and its streams.

    Attributes:
        in_buckets: Whether the table is guarded, and a file outside its buckets makes every write fail.
        one_partition: Whether the rows of a key are in one partition.
        logs_events: Whether the logs of a commit have its rows unmerged.
        in_groups: Whether the columns of a stream are merged in groups, which a view puts together.
        null_keeps_value: Whether a null of a row leaves the value that an earlier row has given.
    """

    in_buckets: bool
    one_partition: bool
    logs_events: bool
    in_groups: bool
    null_keeps_value: bool

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    @abstractmethod
    def groups(self) -> list[dict[str, str]]:
        """Return the stored columns that are merged as one, with their types in the spec."""

    @abstractmethod
    def column_groups(self) -> tuple[ColumnGroup, ...]:
        """Return the column groups behind ``groups``; none: a row is merged as a whole."""

    @abstractmethod
    def orderings(self) -> list[tuple[str, ...]]:
        """Return the stored columns that order each of ``groups``."""

    @abstractmethod
    def groups_of(self, stream: int) -> tuple[int, ...]:
        """Return which of ``groups`` the stream of that number writes."""

    @abstractmethod
    def further_groups(self, stream: StreamSpec) -> tuple[ColumnGroup, ...]:
        """Return the groups of a stream, without the first, which have an order of their own in a batch."""

    @abstractmethod
    def batch_ordering(self, stream: StreamSpec) -> tuple[str, ...]:
        """Return the columns that order the events of a key in a batch; none: the later row wins."""

    @abstractmethod
    def origins(self, stream: StreamSpec) -> dict[str, tuple[str, str]]:
        """Return the group's alias and the column of a batch for each stored column of the stream."""

    @abstractmethod
    def place(self, plans: Sequence[str], requested: str, completed: str) -> Place:
        """Return the place of a commit among those that the merge meets.

        Args:
            plans: When the compactions were planned, in order.
            requested: The instant time of the commit's request.
            completed: The instant time of its completion.
        """

    @abstractmethod
    def removed_columns(self, stream: StreamSpec, table: Collection[str]) -> list[str]:
        """Return the table's columns that the spec does not name and that newer events turn to null."""

    @abstractmethod
    def shown(self, stored: DataFrame) -> DataFrame:
        """Return the rows of the view, given a snapshot."""

    @abstractmethod
    def refuse_deletes(self) -> None:
        """Make sure that deletes append to the table.

        Raises:
            ConfigError: They do not; nothing was written.
        """

    @abstractmethod
    def refuse_repair(self) -> None:
        """Make sure that there are buckets to move rows into.

        Raises:
            SpecError: There are none; nothing was changed.
        """

    @abstractmethod
    def refuse_rebucket(self) -> None:
        """Make sure that the table is in buckets, whose number can change.

        Raises:
            SpecError: It is not; nothing was changed.
        """

    @abstractmethod
    def refuse_views(self) -> None:
        """Make sure that the streams have columns to be put together in a view.

        Raises:
            SpecError: They have none.
        """

    def _filled(self, value: Column, physical: str) -> Column:
        """Return the value that the view shows, which is the default of the column if there is none."""
        default = self._spec.view_defaults().get(physical)
        return value if default is None else F.coalesce(value, F.expr(default))

    def _undeleted(self, tombstone: str) -> Column:
        if tombstone not in self._spec.physical_types():
            return F.lit(True)
        return ~F.coalesce(F.col(tombstone), F.lit(False))


class SpliceLayout(Layout):
    """Each stream has columns of its own, in one or more groups."""

    in_buckets = True
    one_partition = True
    in_groups = True
    null_keeps_value = False

    @property
    def logs_events(self) -> bool:  # type: ignore[override]
        """Merge-on-read alone has logs."""
        return self._spec.table.type == "mor"

    def groups(self) -> list[dict[str, str]]:
        """Return the column groups, stream by stream."""
        return [
            {name: column.type for name, column in group.stored().items()}
            for group in self._spec.column_groups()
        ]

    def column_groups(self) -> tuple[ColumnGroup, ...]:
        """Return those of all streams."""
        return self._spec.column_groups()

    def orderings(self) -> list[tuple[str, ...]]:
        """Return those of each column group."""
        return [group.stored_orderings for group in self.column_groups()]

    def groups_of(self, stream: int) -> tuple[int, ...]:
        """Return the column groups of the stream."""
        name = self._spec.streams[stream].name
        every = enumerate(self._spec.column_groups())
        return tuple(number for number, group in every if group.stream == name)

    def further_groups(self, stream: StreamSpec) -> tuple[ColumnGroup, ...]:
        """Return all but the stream's own group."""
        return stream.column_groups(self._spec.table)[1:]

    def batch_ordering(self, stream: StreamSpec) -> tuple[str, ...]:
        """Return those of the stream."""
        return stream.ordering

    def origins(self, stream: StreamSpec) -> dict[str, tuple[str, str]]:
        """Return those of each group, by the physical names."""
        return {
            physical: (group.alias, column.name)
            for group in stream.column_groups(self._spec.table)
            for physical, column in group.values().items()
        }

    def place(self, plans: Sequence[str], requested: str, completed: str) -> Place:
        """Return the number of compactions below the commit, and its request.

        If two commits go to the logs of one base file, the one that was requested earlier is earlier, even if
        both ran at once. But if a commit was complete when a compaction was planned, it is in the new base
        file or below it, or else above.
        """
        return bisect_right(plans, completed), requested

    def removed_columns(self, stream: StreamSpec, table: Collection[str]) -> list[str]:
        """Return those in a group of the stream; for a group that the spec does not name it has no event."""
        named = stream.stored(self._spec.table)
        groups = stream.column_groups(self._spec.table)
        return [name for name in table if name not in named and any(group.owns(name) for group in groups)]

    def shown(self, stored: DataFrame) -> DataFrame:
        """Return the keys with a group that is alive, and that no stream deletes; dead groups are null."""
        spec, names = self._spec, self._spec.view_names()
        groups = [(group, self._alive(group)) for group in spec.column_groups()]
        alive = {physical: is_alive for group, is_alive in groups for physical in group.stored()}
        plain = [F.col(name) for name in spec.table.shared_columns]
        plain += [
            self._filled(F.when(alive[physical], F.col(physical)), physical).alias(name)
            for physical, name in names.items()
        ]
        is_shown = reduce(or_, (is_alive for _, is_alive in groups))
        for stream in spec.streams:
            if stream.deletes == "row":
                is_shown &= self._undeleted(f"{stream.name}__{TOMBSTONE}")
        return stored.where(is_shown).select(*plain)

    def _alive(self, group: ColumnGroup) -> Column:
        ordered = reduce(and_, (F.col(name).isNotNull() for name in group.stored_orderings))
        return ordered & self._undeleted(group.stored_tombstone)

    def refuse_deletes(self) -> None:
        """Allow them: a tombstone is an event."""

    def refuse_repair(self) -> None:
        """Allow it."""

    def refuse_rebucket(self) -> None:
        """Allow it."""

    def refuse_views(self) -> None:
        """Allow them."""


class PlainLayout(Layout):
    """Every stream writes whole rows, under the names of the spec."""

    in_buckets = False
    one_partition = False
    logs_events = False
    in_groups = False

    @property
    def null_keeps_value(self) -> bool:  # type: ignore[override]
        """Partial updates alone."""
        return self._spec.table.merge == "partial_update"

    def groups(self) -> list[dict[str, str]]:
        """Return one group: a row is merged as a whole."""
        return [dict(ChainMap(*(_stored_types(self._spec, stream) for stream in self._spec.streams)))]

    def column_groups(self) -> tuple[ColumnGroup, ...]:
        """Return none."""
        return ()

    def orderings(self) -> list[tuple[str, ...]]:
        """Return the ordering of the streams, which is one for all."""
        return [self._spec.streams[0].ordering]

    def groups_of(self, stream: int) -> tuple[int, ...]:  # noqa: ARG002  as the other has it
        """Return 0, the only group."""
        return (0,)

    def further_groups(self, stream: StreamSpec) -> tuple[ColumnGroup, ...]:  # noqa: ARG002  as the other has it
        """Return none: a row has one order."""
        return ()

    def batch_ordering(self, stream: StreamSpec) -> tuple[str, ...]:
        """Return those of the stream if the table is merged by them."""
        return stream.ordering if self._spec.table.merge == "event_time" else ()

    def origins(self, stream: StreamSpec) -> dict[str, tuple[str, str]]:
        """Return the columns under the names of the spec, without an alias."""
        return {column.name: ("", column.name) for column in stream.owned(self._spec.table)}

    def place(self, plans: Sequence[str], requested: str, completed: str) -> Place:  # noqa: ARG002  as the other has it
        """Return the completion: commits count as they complete."""
        return 0, completed

    def removed_columns(self, stream: StreamSpec, table: Collection[str]) -> list[str]:  # noqa: ARG002  as the other has it
        """Return those that no stream names; with partial updates nulls erase nothing."""
        known = () if self.null_keeps_value else table
        return [name for name in known if name not in self._spec.physical_types()]

    def shown(self, stored: DataFrame) -> DataFrame:
        """Return the rows that are not deleted."""
        undeleted = stored.where(self._undeleted(TOMBSTONE))
        names = (self._filled(F.col(name), name).alias(name) for name in self._spec.view_names())
        return undeleted.select(*self._spec.table.shared_columns, *names)

    def refuse_deletes(self) -> None:
        """Refuse them: only an event or SQL deletes a row."""
        reason = (
            "rows of a plain table are deleted by an event whose column 'deleted' is true, or by SQL; "
            "nothing was written"
        )
        raise ConfigError(setting="kind", value="plain", reason=reason)

    def refuse_repair(self) -> None:
        """Refuse it: there are no buckets."""
        reason = "this is a plain table; its services handle any file, so there is nothing to repair"
        raise misplaced(self._spec, ("table", "kind"), "plain", reason)

    def refuse_rebucket(self) -> None:
        """Refuse it: there are no buckets."""
        reason = "a plain table finds the file of a key by a look-up and can have any number of files"
        raise misplaced(self._spec, ("table", "kind"), "plain", f"{reason}; nothing was changed")

    def refuse_views(self) -> None:
        """Refuse them: a row is one thing already."""
        reason = "a plain table has no columns to put together for a view; use Hudi's own SQL"
        raise misplaced(self._spec, ("table", "kind"), "plain", reason)


_LAYOUTS: Final[dict[TableKind, type[Layout]]] = {"splice": SpliceLayout, "plain": PlainLayout}


def layout_of(spec: Spec) -> Layout:
    """Return the layout of the table of a spec."""
    return _LAYOUTS[spec.table.kind](spec)


def _stored_types(spec: Spec, stream: StreamSpec) -> dict[str, str]:
    return {name: column.type for name, column in stream.stored(spec.table).items()}
