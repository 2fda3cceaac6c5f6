"""Write the batches of a stream to the table, each exactly once."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock._shared.internals import refuse_if_held
from asynclock._shared.words import printable
from asynclock.errors import ConfigError
from asynclock.spark.hudi.columns import (
    check_change,
    check_columns,
    columns_to_delete,
    columns_to_write,
    floats_among,
    is_behind,
)
from asynclock.spark.hudi.instants import DELETES, BatchCommit
from asynclock.spark.hudi.locks import CREATION_LOCK
from asynclock.spark.hudi.options import write_options
from asynclock.spark.hudi.order import in_order_at
from asynclock.spark.hudi.own import own_session
from asynclock.spark.hudi.table import Table
from asynclock.spark.hudi.view_names import carried_names
from asynclock.spark.retry import CONFLICT, retry
from asynclock.spark.source.reading import ARRIVAL, event_columns
from asynclock.spark.spec.keys import unfit
from asynclock.spark.work.leases import acquire_until
from asynclock.spark.work.worker import working
from asynclock.spark.writer.batch_columns import declare_columns, read_with
from asynclock.spark.writer.conflicts import Conflicts
from asynclock.spark.writer.deletion import DELETE_LOCK, Deletion, key_frame
from asynclock.spark.writer.once import refuse_another_batch, refuse_another_query, refuse_unnumbered
from asynclock.spark.writer.sql_text import (
    event_of,
    quoted,
    rank_of,
    reduced,
    required,
    wide_frame,
    with_derived,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from asynclock import sync
    from asynclock.spark.results import DeleteReport, Wasted
    from asynclock.spark.spec.model import Spec, StreamSpec
    from asynclock.spark.writer.deletion import UpTo

log = logging.getLogger(__name__)
T = TypeVar("T")

DIRECT_QUERY: Final = "direct"
_QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
_GROUP: Final = "_asynclock_group"
_RANK: Final = "_asynclock_rank"


def stream_lock(stream: str) -> str:
    """Return the name of the lock that allows ``stream`` one writer at a time."""
    return f"stream/{stream}"


class Splice:
    """Writes batches of events to the table of a spec.

    In a splice table a batch has its stream's columns, and null in the columns of others. Hudi merges records
    of a key when they meet, on copy-on-write in the write itself. In a plain table a batch is an upsert of
    whole rows. A conflict with another writer costs a further attempt. Events with equal ordering values keep
    their order of arrival. Other drivers may add columns and streams and widen types meanwhile: each batch
    also has the columns that the table has gained.

    Not thread-safe: each stream and thread needs its own.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi and the merger, as ``asynclock.spark.hudi.session`` makes it.

    Raises:
        SpecError: The table exists with another key, partitioning, merger or number of buckets, with types
            that the spec's cannot hold, under other locks, with another name for a column of the view, or
            with a column that is derived otherwise.
            Nothing was written.
        ClusteringPlanError: The table has a clustering plan, with which every write fails.
        StrayFilesError: The table has files outside its buckets, with which every write fails.
    """

    def __init__(self, spec: Spec, spark: SparkSession) -> None:
        self._spec = spec
        self._table = Table(spec, own_session(spark))
        self._commits = self._table.commits
        self._claimed = False
        self._table_id = ""
        self._opened: frozenset[str] | None = None
        self._announced: set[object] = set()
        self._conflicts = Conflicts()
        self._check_table()
        self._claimed = self._table.check_locks() and self._table.is_guarded()

    @property
    def wasted(self) -> Wasted:
        """The cost of conflicts for this object so far."""
        return self._conflicts.wasted

    def table_id(self) -> str | None:
        """Return the id of the table, or None if nothing is committed yet."""
        self._commits.refresh()
        return commit.table_id if (commit := self._commits.newest()) else None

    def committed(self, stream: str, batch_id: int, *, query_id: str | None = None, offset: str = "") -> bool:
        """Return whether that batch is on the timeline, the archived one included.

        Args:
            stream: Name of the stream.
            batch_id: Number of the batch in its query.
            query_id: The query; default: the running streaming query, else ``direct``.
            offset: The end of the batch in its source, which is compared with that of the commit.

        Raises:
            SpecError: The commit of that number is of another batch.
        """
        self._commits.refresh()
        batch = (stream, query_id or self._query_id(), batch_id)
        if not self._commits.has(*batch):
            return False
        if offset:
            found = (one.offset for one in self._table.timeline.commits if one.batch == batch)
            refuse_another_batch(self._spec, self._spec.stream(stream), batch_id, next(found, None), offset)
        return True

    def write(
        self,
        df: DataFrame,
        stream: str,
        *,
        batch_id: int | None = None,
        query_id: str | None = None,
        lease: sync.Lease | None = None,
        offset: str = "",
        stop: threading.Event | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Append the events of ``df``.

        Args:
            df: The key and partition columns and every column of the stream, under their plain names and
                with their declared types, without derived ones. If rows have equal key and ordering value,
                the later one wins: by the column ``_asynclock_arrival`` if the frame has it, else by its
                place in the frame.
            stream: Name of the stream.
            batch_id: Number of the batch in its query; a committed batch is not written again. None: the
                batch is always written, unless the stream has a sum.
            query_id: The query the batch belongs to; default: the running streaming query, else ``direct``.
            lease: The stream's lease, held by a caller who has waited for the end of a reservation
                (``Gate``) and cancels the jobs of this thread when it is lost; None: this call does these
                things.
            offset: The end of the batch in its source; kept in the commit.
            stop: Set it to end the wait for another writer that creates the table meanwhile.
            timeout: Longest wait for the lease that this call takes, and for the end of a reservation, in
                seconds; None: no limit.

        Returns:
            True if this call committed the batch; False if it was committed before, so nothing was written.

        Raises:
            ConfigError: No such stream, or a column is missing, unknown or of another type, or this process
                holds the table's own lock, or the stream has a sum and the batch no number. Nothing was
                written.
            SpecError: Another driver has changed the columns of the stream in a way that this writer cannot
                follow, or the stream has a sum and the batches of another query; nothing was written.
            AcquireTimeoutError: The time is out, or ``stop`` was set while another writer created the table;
                nothing was written.
            LeaseLostError: The lease was lost. If the write had not begun, nothing was written. Otherwise its
                jobs were cancelled, and the cleaning service rolls back an uncommitted write.
        """
        spec = self._spec.stream(stream)
        refuse_if_held(self._spec.table.path)
        refuse_unnumbered(spec, batch_id)
        self._check_columns(df, spec)
        with contextlib.ExitStack() as held:
            if lease is None:
                worker = f"a write to stream {stream}"
                lock = stream_lock(stream)
                lease = held.enter_context(working(self._table, lock, worker, timeout=timeout))
            if not self._claimed:
                # Two writers that create the table at once would overwrite each other's properties, and
                # neither would see a commit to compare its number of buckets with.
                held.enter_context(self._creation(lease, stop))
            query_id = query_id or self._query_id()
            write = partial(self._write, df, spec, batch_id, query_id, lease, offset=offset)
            return self._retry(write, lease, f"stream {stream}")

    def delete(
        self,
        keys: DataFrame | Iterable[Mapping[str, Any]],
        *,
        stream: str | None = None,
        up_to: UpTo | Mapping[str, UpTo] | None = None,
        timeout: float | None = None,
    ) -> DeleteReport:
        """Append deletes, while streams may run.

        With ``up_to`` a tombstone with that ordering value is stored for each key, whether or not the table
        has the key: an event below it never comes back, however late it arrives; an event above it lives on.
        If an event has the same value, the later arrival wins, so choose a value above the last one to erase.

        Without ``up_to``, one stream's newest event in the table becomes a tombstone. The delete of a whole
        row is then Hudi's own, which also removes the key: any event that is committed later, even an old
        one, creates the row again.

        The next compaction and cleaning remove the values from the files of the table, unless a savepoint
        keeps them.

        Args:
            keys: Rows of the key and partition columns; other columns are left out.
            stream: The stream whose columns are deleted; None: the whole row.
            up_to: An ordering value of that stream; if several columns order it, a list of their values. For
                a whole row, or a stream with groups: a timestamp for all of them, or a value for each by its
                name: ``orders``, ``orders.price``.
            timeout: Longest wait for another delete, and for the end of a reservation, in seconds; None: no
                limit.

        Raises:
            AcquireTimeoutError: The time is out; nothing was written.
            ConfigError: No such stream; a value is not of the type of its ordering column; a column of the
                stream has a merge function whose values no tombstone takes back; a key column is missing or
                of another type; nothing is committed yet. Nothing was written.
            LeaseLostError: As for ``write``.
        """
        deletion = Deletion.of(self._spec, stream, up_to)
        refuse_if_held(self._spec.table.path)
        frame = key_frame(self._table, keys)
        with working(self._table, DELETE_LOCK, "a delete", timeout=timeout) as lease:
            self._first_commit()
            shared = (f"{self._fit(name)} AS {quoted(name)}" for name in self._spec.table.shared_columns)
            with deletion.found(frame.selectExpr(*shared), self._table) as (deletes, report):
                if report.delete_id is not None:
                    append = partial(self._append_deletes, deletes, deletion, report.delete_id, lease)
                    self._retry(append, lease, "a delete")
        return report

    def _append_deletes(self, deletes: DataFrame, deletion: Deletion, query: str, lease: sync.Lease) -> None:
        first = self._first_commit()
        columns = columns_to_delete(self._spec, table := self._commits.columns())
        commit = dataclasses.replace(
            first,
            stream=DELETES,
            query_id=query,
            batch_id=0,
            fencing_token=lease.fencing_token,
            owner=lease.owner,
            columns=(),
            floats=tuple(sorted(floats_among(columns))),
            locks=self._spec.locks.url,
            view=carried_names(self._spec, self._commits.view_names()),
            offset="",
        )
        wide = wide_frame(self._spec, deletes, deletion.values(), columns)
        self._append(wide, commit, lease, deletion.options)
        if is_behind(table, columns):
            declare_columns(self._table)

    def _first_commit(self) -> BatchCommit:
        """Check the table and return one of its commits, since there must be something to delete."""
        self._check_table()
        if commit := self._commits.newest():
            return commit
        reason = "nothing is committed to the table yet, so there is nothing to delete"
        raise ConfigError(setting="path", value=self._spec.table.path, reason=reason)

    @contextlib.contextmanager
    def _creation(self, own: sync.Lease, stop: threading.Event | None) -> Iterator[None]:
        """Bind the locks to the table and guard it; until the body has ended, no other writer creates it."""
        with (
            self._spec.locks.connect() as client,
            acquire_until(client.lock(CREATION_LOCK), stop, own=own) as lease,
        ):
            self._check_table()
            self._table.clear_unfinished()
            self._table_id = self._table.claim_locks(client=client, lease=lease)
            self._table.guard()  # before the write, which must agree with the existing locks
            yield
            self._table.guard()
        self._claimed = True

    def _write(
        self,
        df: DataFrame,
        stream: StreamSpec,
        batch_id: int | None,
        query_id: str,
        lease: sync.Lease,
        *,
        offset: str,
    ) -> bool:
        self._check_table(stream)
        if batch_id is not None and self._commits.has(stream.name, query_id, batch_id):
            log.info("batch %d of stream %s is committed already: skipped", batch_id, stream.name)
            return False
        self._announce(stream.name, query_id)
        first = self._commits.newest()
        table = self._commits.columns()
        columns = columns_to_write(self._spec, stream, table)
        commit = BatchCommit(
            requested="",
            completed="",
            stream=stream.name,
            query_id=query_id,
            batch_id=-1 if batch_id is None else batch_id,
            fencing_token=lease.fencing_token,
            owner=lease.owner,
            buckets=self._spec.table.buckets,
            key=self._spec.table.key,
            table_id=first.table_id if first else self._table_id,
            columns=read_with(stream, self._spec),
            floats=tuple(sorted(floats_among(columns))),
            locks=self._spec.locks.url,
            view=carried_names(self._spec, self._commits.view_names()),
            offset=offset,
        )
        wide = wide_frame(self._spec, self._newest(df, stream), self._values(stream), columns)
        self._append(wide, commit, lease)
        if self._opened is None:
            self._opened = frozenset(columns)
        if table and is_behind(table, columns):
            declare_columns(self._table)
        return True

    def _append(
        self, wide: DataFrame, commit: BatchCommit, lease: sync.Lease, more: Mapping[str, str] | None = None
    ) -> None:
        write = wide.write.format("hudi").options(**self._options() | commit.metadata() | dict(more or {}))
        lease.check()
        with in_order_at(self._spec.table.path):
            write.mode("append").save(self._spec.table.path)

    def _newest(self, df: DataFrame, stream: StreamSpec) -> DataFrame:
        """Return one row per key, with its newest event as the struct ``_GROUP``; sums are added.

        Hudi would reduce the batch too, but in the random order of its shuffle. If the later commit wins, the
        later row of a batch wins too. So it does not matter how the rows are cut into batches.
        """
        # SQL text, because building each column by hand costs several calls to the JVM.
        table = self._spec.table
        arrival = quoted(ARRIVAL) if ARRIVAL in df.columns else "monotonically_increasing_id()"
        df = with_derived(self._spec, df)
        own = ", ".join(quoted(column.name) for column in stream.owned(table))
        types = {column.name: column for column in stream.columns}
        orderings = [types[name] for name in self._table.layout.batch_ordering(stream)]
        further = self._table.layout.further_groups(stream)
        ranks = {group.alias: rank_of(group.orderings, arrival) for group in further}
        events = df.selectExpr(
            *(f"{self._fit(name)} AS {quoted(name)}" for name in table.shared_columns),
            f"struct({own}) AS {_GROUP}",
            f"{rank_of(orderings, arrival, required)} AS {_RANK}",
            *(
                f"CASE WHEN {event_of(group)} THEN {ranks[group.alias]} END AS {_RANK}_{group.alias}"
                for group in further
            ),
        )
        newest = f"max_by({_GROUP}, {_RANK})"
        if self._table.layout.null_keeps_value:
            names = (quoted(column.name) for column in stream.owned(table))
            values = (
                f"max_by({_GROUP}.{name}, {_RANK}) FILTER (WHERE {_GROUP}.{name} IS NOT NULL) AS {name}"
                for name in names
            )
            newest = f"struct({', '.join(values)})"
        by_group = (
            f"{reduced(group, _GROUP, f'{_RANK}_{group.alias}')} AS {_GROUP}_{group.alias}"
            for group in further
        )
        found = (F.expr(one) for one in (f"{newest} AS {_GROUP}", *by_group))
        return events.groupBy(*table.shared_columns).agg(*found)

    def _values(self, stream: StreamSpec) -> dict[str, str]:
        """Return SQL for the physical columns of a batch, over the rows of ``_newest``."""
        return {
            physical: f"{_GROUP}{'_' if alias else ''}{alias}.{quoted(name)}"
            for physical, (alias, name) in self._table.layout.origins(stream).items()
        }

    def _fit(self, name: str) -> str:
        """Return SQL for the value of a key or partition column, which fails on an unfit value."""
        complaints = unfit(self._spec.table, name, self._spec.shared_type(name))
        return required(name, f"CAST({quoted(name)} AS STRING) = ''", complaints)

    def _retry(self, write: Callable[[], T], lease: sync.Lease, what: str) -> T:
        """Write again while other writers' commits are in the way; nothing of such an attempt can be read."""
        return retry(write, CONFLICT, check=lease.check, on_failure=partial(self._conflicts.note, what))

    def _options(self) -> dict[str, str]:
        return write_options(self._spec, tasks=self._table.tasks, name=self._table.name())

    def _check_columns(self, df: DataFrame, stream: StreamSpec) -> None:
        expected, _ = event_columns(self._spec, stream)
        derived = {one.name: one for one in self._spec.table.derived}
        found = {field.name: field.dataType.simpleString() for field in df.schema if field.name != ARRIVAL}
        for name in sorted(expected.keys() | found.keys()):
            wanted, given = expected.get(name), found.get(name)
            if wanted != given:
                reason = (
                    f"stream {stream.name!r} "
                    + (
                        f"needs {name} as {wanted}"
                        if wanted
                        else f"derives {name} as {derived[name].text}"
                        if name in derived
                        else "has no such column"
                    )
                    + f", but the frame {f'has it as {given}' if given else 'lacks it'}; nothing was written"
                )
                raise ConfigError(setting="df", value=name, reason=reason)

    def _check_table(self, stream: StreamSpec | None = None) -> None:
        self._table.check_writable()
        self._table.check_fit()
        columns = self._commits.columns()
        if self._opened is None and columns:
            check_columns(self._spec, columns)
            self._opened = frozenset(columns)
        if stream is not None and self._opened is not None:
            check_change(self._spec, stream, self._opened, columns)

    def _announce(self, stream: str, query_id: str) -> None:
        known = self._commits.query_ids(stream)
        refuse_another_query(self._spec, self._spec.stream(stream), known, query_id)
        if known and query_id not in known and query_id not in self._announced:
            log.warning(
                "stream %s was written by query %s and is now written by query %s: a new checkpoint reads "
                "all sources again, which the merge makes harmless, but for equal ordering values",
                stream,
                printable(known[-1]),
                printable(query_id),
            )
            self._announced.add(query_id)
        removed = self._table.layout.removed_columns(self._spec.stream(stream), self._commits.columns())
        if removed and stream not in self._announced:
            log.warning(
                "stream %s: the spec does not name %s, which the table has: the values stay, but those of a "
                "key become null with its next event",
                stream,
                ", ".join(removed),
            )
            self._announced.add(stream)

    def _query_id(self) -> str:
        return self._table.spark.sparkContext.getLocalProperty(_QUERY_ID_PROPERTY) or DIRECT_QUERY
