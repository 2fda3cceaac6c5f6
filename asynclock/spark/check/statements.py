"""The table's expected rows by commits without a source: by SQL and by ``Splice.write``.

Their rows are read from the log files that they wrote, before any merge.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.check.state import on_disk
from asynclock.spark.check.strict.expected import digest_of, rank_among
from asynclock.spark.hudi.changed import statements
from asynclock.spark.jvm import classes
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.source.files import frame_of
from asynclock.spark.spec.keys import as_stored
from asynclock.spark.spec.model import RECORD_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column, Row

    from asynclock.spark.check.state import Order, State
    from asynclock.spark.check.strict.expected import Cells, Expected, Key
    from asynclock.spark.hudi.changed import Statement

_BUCKET: Final = re.compile(r"\d{8}-0000-0000-0000-000000000000(-0)?")
_RAW: Final = {"date": "int", "timestamp": "bigint"}
_CHUNK: Final = 2000


class StatementEvents:
    """The commits of a table other than batches from a source and deletes of the pipeline.

    Only merge-on-read splice tables keep the rows of a commit unmerged. In others such a commit is unknown.
    It is unknown too if its files are cleaned away.

    Args:
        table: The table as of an instant.

    Attributes:
        count: Number of these commits.
        unknown: Number of those taken so far that cannot be read.
    """

    def __init__(self, table: State) -> None:
        self._spec = spec = table.spec
        self._spark = table.spark
        self._table = table
        self._readable = table.table.layout.logs_events
        self.unknown = 0
        self._ranks: list[list[int]] = []
        if self._readable:
            for group, columns in zip(spec.column_groups(), table.groups, strict=True):
                names = [name for name, _ in columns]
                self._ranks.append(list(map(names.index, group.stored_orderings)))
        self._all = sorted(self._find(), key=itemgetter(0))
        self.count = len(self._all)

    @contextmanager
    def steps(self, expected: Expected) -> Iterator[Iterator[tuple[Order, Callable[[], None]]]]:
        """Yield for each commit its place in the merge, and a function that adds its rows.

        The rows are on the disks of Spark while the context lasts, so that no cleaning can take them away.
        Call each function before you take the next one.
        """
        frame = self._rows()
        if frame is None:
            yield self._steps(iter(()), expected)
            return
        with on_disk(frame):
            yield self._steps(frame.toLocalIterator(prefetchPartitions=True), expected)

    def _find(self) -> Iterator[tuple[Order, Statement, tuple[int, ...]]]:
        """Yield the commits with their places in the merge, and the groups that they may have set."""
        if self._table.as_of is None:
            return
        spec = self._spec
        batches = {commit.requested: commit for commit in self._table.commits}
        names = [stream.name for stream in spec.streams]
        queries = {stream.name: Checkpoint(spec, stream, self._spark).query_id() for stream in spec.streams}
        every = tuple(range(len(self._table.groups)))
        for statement in statements(self._table.table, self._table.as_of):
            groups = every
            if (batch := batches.get(statement.requested)) is not None:
                if batch.stream not in names:
                    continue
                if batch.batch_id >= 0 and batch.query_id == queries[batch.stream]:
                    continue  # a batch without its end in its source
                groups = self._table.table.layout.groups_of(names.index(batch.stream))
            if statement.logs or (statement.bases and self._unreadable(statement)):
                yield self._table.order(statement), statement, groups

    def _unreadable(self, statement: Statement) -> bool:
        """Return whether the commit may have set values that are not in log files of their own.

        Rows outside the buckets are not events until a repair appends them.
        """
        if not self._readable:
            return True
        return any(_BUCKET.fullmatch(group) for group in statement.bases)

    def _rows(self) -> DataFrame | None:
        """Return the rows and deletes of the readable commits, in their order."""
        if not self._readable:
            return None
        files = [
            (place, file.partition, file.path)
            for place, (_, statement, _) in enumerate(self._all)
            for file in statement.logs
        ]
        if not files:
            return None
        table = self._spec.table
        shared = [(name, self._spec.shared_type(name)) for name in table.shared_columns]
        columns = [*shared, *(column for group in self._table.groups for column in group)]
        types = ", ".join(f"c{at} {_RAW.get(kind, kind)}" for at, (_, kind) in enumerate(columns))
        tasks = min(len(files), 4 * self._spark.sparkContext.defaultParallelism)
        frame = frame_of(self._spark, files, "place int, parts array<string>, path string").repartition(tasks)
        java: Any = classes(self._spark).io.asynclock.rows.LogRows
        read = DataFrame(java.read(frame._jdf, [name for name, _ in columns], types), self._spark)  # noqa: SLF001
        read = read.withColumns(
            {f"d{at}": self._deleted(name).cast(kind) for at, (name, kind) in enumerate(shared)}
        )
        keys = [
            F.when(F.col("kind") == "delete", F.expr(as_stored(f"d{at}", kind))).otherwise(F.col(f"c{at}"))
            for at, (_, kind) in enumerate(shared)
        ]
        cells = [F.col(f"c{at}") for at in range(len(shared), len(columns))]
        return read.orderBy("place").select("place", "kind", *keys, *cells)

    def _deleted(self, name: str) -> Column:
        """Return the text of a key or partition column in a delete."""
        table = self._spec.table
        if name in table.key:
            # Some of Hudi's key generators put the name of the field first; the value has no colon.
            key = F.regexp_replace("record_key", f"^{RECORD_KEY}:", "")
            return F.url_decode(F.split(key, "[|]").getItem(table.key.index(name)))
        return F.col("parts").getItem(table.partition_by.index(name))

    def _steps(self, rows: Iterator[Row], expected: Expected) -> Iterator[tuple[Order, Callable[[], None]]]:
        by_place = groupby(rows, key=itemgetter(0))
        ahead = next(by_place, None)
        for place, (order, statement, groups) in enumerate(self._all):
            mine: Iterator[Row] = iter(())
            if ahead is not None and ahead[0] == place:
                mine = ahead[1]
            yield order, partial(self._take, mine, statement, groups, expected)
            if ahead is not None and ahead[0] == place:
                ahead = next(by_place, None)

    def _take(
        self, rows: Iterator[Row], statement: Statement, groups: tuple[int, ...], expected: Expected
    ) -> None:
        lost = self._unreadable(statement)
        while chunk := list(islice(rows, _CHUNK)):
            lost = self._add(chunk, groups, expected) or lost
        if lost:
            self.unknown += 1
            if statement.sets:
                expected.lose(groups)
            if statement.removes:
                expected.doubt()

    def _add(self, chunk: list[Row], groups: tuple[int, ...], expected: Expected) -> bool:
        """Take in some rows of one commit, and return whether a file of it is missing."""
        events: dict[int, list[tuple[Key, object, Cells]]] = {group: [] for group in groups}
        digests = []
        lost = False
        width = len(self._spec.table.shared_columns)
        for row in chunk:
            values = iter(row)
            _, kind = next(values), next(values)
            key = tuple(islice(values, width))
            if kind == "row":
                for group, columns in enumerate(self._table.groups):
                    cells = tuple(islice(values, len(columns)))
                    if group in events and (rank := rank_among(cells, self._ranks[group])) is not None:
                        events[group].append((key, rank, cells))
            elif kind == "delete":
                digests.append(digest_of(key))
            else:
                lost = True
        for group, found in events.items():
            expected.add(group, found)
            if digests:
                expected.forget(group, digests)
        return lost
