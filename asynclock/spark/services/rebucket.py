"""Give a splice table another number of buckets: a copy with the new number takes its place.

Hudi binds a table with non-blocking writers to its number of buckets. So the rows are copied into a table of
its own next to it, while streams go on. Then the table is reserved, the rows that differ are copied again
until none does, and the two tables change places. docs/concepts/pipeline/rebucket.md has the argument.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import AsyncLockError, ConfigError
from asynclock.spark import hoodie
from asynclock.spark.faults import causes, sentence
from asynclock.spark.hudi.carried import write_carried
from asynclock.spark.hudi.changed import statements
from asynclock.spark.hudi.columns import floats_among, is_behind
from asynclock.spark.hudi.instants import REBUCKET, BatchCommit
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.options import write_options
from asynclock.spark.hudi.own import own_session
from asynclock.spark.hudi.rebuckets import Rebucket, move, unfinished
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.stored import stored_rows
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.presence import refuse_missing
from asynclock.spark.results import RebucketReport
from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.load import misplaced
from asynclock.spark.spec.model import RECORD_KEY
from asynclock.spark.work.worker import Worker, reserved
from asynclock.spark.writer.sql_text import nullable, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from asynclock import sync
    from asynclock.spark.hudi.columns import Stored
    from asynclock.spark.spec.model import Spec

log = logging.getLogger(__name__)

REBUCKET_LOCK: Final = "rebucket/table"
"""The lock of one rebucket at a time; no work on the table, so a reservation does not wait for it."""
_DIGEST: Final = "_asynclock_digest"
_COPIED: Final = "_asynclock_copied"
_ROUNDS: Final = 3
_BULK: Final = {
    hoodie.DATASOURCE_WRITE_OPERATION: "bulk_insert",
    # It writes a filter of the keys into each file, whatever the table says: then the smallest one.
    hoodie.BLOOM_INDEX_FILTER_TYPE: "SIMPLE",
    hoodie.INDEX_BLOOM_NUM_ENTRIES: "1",
}
_GONE: Final = "java.io.FileNotFoundException"


def rebucket(
    spec: Spec, buckets: int, *, timeout: float | None = None, spark: SparkSession | None = None
) -> RebucketReport:
    """Give the table of the spec another number of buckets, and return what was done.

    Streams and services go on while the rows are copied. They wait while the copy catches up, is compared
    with the table, and takes its place. Afterwards they are refused until ``buckets`` in the spec is the new
    number. If the process is killed, at any moment, run it again. Everyone else is refused a table that is
    being exchanged until then.

    Args:
        spec: The table, with its old number of buckets or the new one.
        buckets: The new number, per partition.
        timeout: Longest wait for work in flight, in seconds; None: no limit. With a number it also waits that
            long for another rebucket or for the lease of a killed one; otherwise that is an error at once.
        spark: A session with Hudi and the merger; None: the one that runs in this process, else one is
            started.

    Raises:
        ConfigError: ``buckets`` is not a number from 1 on, or the table has as many; or another rebucket was
            cut off and comes first. Nothing was changed.
        SpecError: The table is a plain one, there is no table, or it is not the one of the spec. Nothing was
            changed.
        AcquireTimeoutError: Another rebucket is running, or the table was not reserved in time. Nothing was
            changed.
        UnfinishedRebucketError: It failed, for example because the disk is full. ``reason`` says what is
            left.
        LeaseLostError: A lease was lost in the middle; run it again.
    """
    if isinstance(buckets, bool) or not isinstance(buckets, int) or buckets < 1:
        raise ConfigError(setting="buckets", value=buckets, reason="must be a whole number, 1 or more")
    layout_of(spec).refuse_rebucket()
    with (
        session_for(spec, "asynclock rebucket", spark=spark) as found,
        spec.locks.connect() as client,
    ):
        Table(spec, found).refuse_other_locks()  # before a lock is taken
        with client.lock(REBUCKET_LOCK).hold(timeout=timeout or 0.0) as lease:
            return _Work(spec, own_session(found), buckets, lease).run(timeout)


class _Work:
    """One rebucket; the caller holds its lock."""

    def __init__(self, spec: Spec, spark: SparkSession, buckets: int, lease: sync.Lease) -> None:
        self._spec = spec
        self._spark = spark
        self._buckets = buckets
        self._lease = lease
        self._id = str(uuid.uuid4())
        self._writes = 0
        self._worker = Worker(Table(spec, spark), lease, "rebucket")
        self._mark = Table(spec, spark).rebucket_mark
        self._started = time.monotonic()

    def run(self, timeout: float | None) -> RebucketReport:
        begun = self._mark.found()
        if begun is not None and begun.is_moving:
            if begun.buckets != self._buckets:
                reason = (
                    f"a rebucket into {begun.buckets} buckets has been cut off; finish that one first: "
                    f"--buckets {begun.buckets}. Nothing was changed"
                )
                raise ConfigError(setting="buckets", value=self._buckets, reason=reason)
            table = Table(self._spec, self._spark)
            with reserved(table, "rebucket", timeout=timeout, finishes=True) as worker:
                at = time.monotonic()
                self._exchange(begun, worker)
                return self._report(begun, None, 0, at)
        table = self._checked()
        rebucket = self._plan(table, begun)
        try:
            return self._copy_and_exchange(rebucket, table, timeout)
        except (Py4JError, PySparkException, OSError, AsyncLockError) as error:
            now = self._mark.found()
            if now is not None and now.is_moving:
                if isinstance(error, AsyncLockError):
                    raise
                reason = f"{sentence(error)}; its files are between two places"
            else:
                self._lease.check()
                table.files.delete(rebucket.copy)
                self._mark.remove() if begun is None or begun.stage == "copying" else self._mark.put(begun)
                if isinstance(error, AsyncLockError):
                    raise
                reason = f"{sentence(error)}; the table is unchanged, and the copy was removed"
            raise unfinished(self._spec, rebucket, reason) from error

    def _checked(self) -> Table:
        """Return the table, as its present number of buckets has it."""
        table = Table(self._spec, self._spark)
        table.restore_mark.refuse()
        refuse_missing(table)
        newest = table.commits.newest()
        if newest is None:
            reason = (
                "nothing is committed to the table yet; nothing was changed. Set buckets in the spec, and "
                "the first batch makes the table so"
            )
            raise misplaced(self._spec, ("table", "path"), self._spec.table.path, reason)
        if newest.buckets == self._buckets:
            reason = f"the table has {newest.buckets} buckets already; nothing was changed"
            if self._spec.table.buckets != newest.buckets:
                reason += f". Set buckets = {newest.buckets} in {self._spec.path}"
            raise ConfigError(setting="buckets", value=self._buckets, reason=reason)
        if self._spec.table.buckets == self._buckets:  # the spec is ahead
            table = Table(_with(self._spec, self._spec.table.path, newest.buckets), self._spark)
        table.check_writable()
        table.check_fit()
        table.refuse_cut_files()
        return table

    def _plan(self, table: Table, begun: Rebucket | None) -> Rebucket:
        """Choose the places of both tables, and remove a copy that an interrupted call has left."""
        self._lease.check()
        if begun is not None and begun.stage == "copying":
            table.files.delete(begun.copy)
        # New names for each call: a job of an interrupted one may still write to its own copy.
        path, now = table.path.rstrip("/"), dt.datetime.now(dt.UTC)
        before, at = table.spec.table.buckets, f"{now:%Y%m%d%H%M%S%f}"
        planned = Rebucket(
            stage="copying",
            before=before,
            buckets=self._buckets,
            copy=f"{path}-copy-{at}",
            old=f"{path}-{before}-buckets-{at}",
        )
        self._mark.put(planned)
        return planned

    def _copy_and_exchange(self, rebucket: Rebucket, table: Table, timeout: float | None) -> RebucketReport:
        copied = self._copy_meanwhile(rebucket, table)
        with reserved(Table(table.spec, self._spark), "rebucket", timeout=timeout) as worker:
            at = time.monotonic()
            old = Table(table.spec, self._spark)
            old.check_writable()
            if not copied:
                self._copy(rebucket, old)
            new = Table(_with(self._spec, rebucket.copy, self._buckets), self._spark)
            caught_up, keys = self._catch_up(old, new)
            carry(old, new)
            new.guard()
            worker.lease.check()
            self._exchange(rebucket, worker)
            return self._report(rebucket, keys, caught_up, at)

    def _copy_meanwhile(self, rebucket: Rebucket, table: Table) -> bool:
        """Copy the rows while others write; return False if cleaning has taken files away meanwhile."""
        try:
            with self._worker.piece():
                self._copy(rebucket, table)
        except (Py4JError, PySparkException) as error:
            if not any(_GONE in f"{one.getClass().getName()} {one.getMessage()}" for one in causes(error)):
                raise
            log.warning("the table was cleaned while it was copied: it is copied again while streams wait")
            self._lease.check()
            table.files.delete(rebucket.copy)
            return False
        return True

    def _copy(self, rebucket: Rebucket, old: Table) -> None:
        """Write all rows of the table into a new one."""
        old.commits.refresh()
        new = Table(_with(self._spec, rebucket.copy, self._buckets), self._spark)
        columns = old.commits.columns()
        self._write(new, old, _rows(old, columns), _BULK)
        new.guard()

    def _catch_up(self, old: Table, new: Table) -> tuple[int, int]:
        """Copy rows until both tables are equal; return how many, and the number of rows."""
        copied = 0
        for _ in range(_ROUNDS):
            old.commits.refresh()
            new.commits.refresh()
            columns = old.commits.columns()
            theirs, mine = _rows(old, columns), _rows(new, columns)
            keys = [RECORD_KEY, *self._spec.table.partition_by]
            digests = theirs.select(*keys, _digest(columns).alias(_DIGEST))
            others = mine.select(*keys, _digest(columns).alias(_COPIED))
            differing = digests.join(others, keys, "full_outer").where(
                ~F.col(_DIGEST).eqNullSafe(F.col(_COPIED))
            )
            differing = differing.localCheckpoint()
            count = differing.count()
            if not count and not is_behind(new.commits.columns(), columns):
                return copied, theirs.count()
            copied += count
            self._lease.check()
            # A merge with the earlier copy could bring back what a delete has removed since.
            gone = differing.where(F.col(_COPIED).isNotNull()).select(*keys)
            if not gone.isEmpty():
                rows = mine.join(gone, keys, "left_semi").localCheckpoint()
                self._write(new, old, rows, {hoodie.DATASOURCE_WRITE_OPERATION: "delete"})
            rows = theirs.join(differing.where(F.col(_DIGEST).isNotNull()).select(*keys), keys, "left_semi")
            self._write(new, old, rows, {})
        reason = f"the copy differs from the table in {count} rows, after {_ROUNDS} comparisons"
        raise OSError(reason)

    def _write(self, new: Table, old: Table, rows: DataFrame, more: Mapping[str, str]) -> None:
        spec, first = new.spec, old.commits.newest()
        assert first is not None  # noqa: S101  checked before
        columns = old.commits.columns()
        commit = BatchCommit(
            requested="",
            completed="",
            stream=REBUCKET,
            query_id=self._id,
            batch_id=self._writes,
            fencing_token=self._lease.fencing_token,
            owner=self._lease.owner,
            buckets=spec.table.buckets,
            key=spec.table.key,
            table_id=first.table_id,
            floats=tuple(sorted(floats_among(columns))),
            locks=spec.locks.url,
            view=dict(old.commits.view_names()),
        )
        self._writes += 1
        properties = old.timeline.properties()
        zone = hoodie.TABLE_TIMELINE_TIMEZONE
        options = write_options(spec, tasks=old.tasks, name=old.name()) | {
            # A new table would be in UTC, whatever the zone of this one.
            **({zone: properties[zone]} if zone in properties else {}),
            **commit.metadata(),
            **more,
        }
        frame = rows.selectExpr(*(nullable(quoted(name), name) for name in rows.columns))
        self._lease.check()
        frame.write.format("hudi").options(**options).mode("append").save(new.path)

    def _exchange(self, rebucket: Rebucket, worker: Worker) -> None:
        """Put the copy in the place of the table. Each step may be repeated."""

        def check() -> None:
            self._lease.check()
            worker.lease.check()

        files = Table(self._spec, self._spark).files
        path = self._spec.table.path.rstrip("/")
        if rebucket.stage != "in":
            rebucket = self._noted(rebucket, "away", check)
            move(files, path, rebucket.old, check)
        rebucket = self._noted(rebucket, "in", check)
        move(files, rebucket.copy, path, check)
        self._noted(rebucket, "done", check)
        log.info("the table %s has %d buckets", path, rebucket.buckets)

    def _noted(self, rebucket: Rebucket, stage: Any, check: Any) -> Rebucket:  # noqa: ANN401
        check()
        moved = dataclasses.replace(rebucket, stage=stage)
        self._mark.put(moved)
        return moved

    def _report(
        self, rebucket: Rebucket, keys: int | None, caught_up: int, reserved_at: float
    ) -> RebucketReport:
        now = time.monotonic()
        return RebucketReport(
            keys=keys,
            before=rebucket.before,
            buckets=rebucket.buckets,
            caught_up=caught_up,
            old=rebucket.old,
            seconds=now - self._started,
            reserved_seconds=now - reserved_at,
        )


def carry(source: Table, target: Table) -> None:
    """Write the commits of a table, and those that it carries itself, into the metadata of its copy.

    Args:
        source: The table, which nobody writes meanwhile.
        target: The copy.
    """
    buckets = target.spec.table.buckets  # one of them may be the newest commit, which says the number
    lines: list[dict[str, object]] = [
        {
            "requested": one.requested,
            "completed": one.completed,
            "metadata": dataclasses.replace(one, buckets=buckets).metadata(),
        }
        for one in source.timeline.commits
    ]
    if newest := source.timeline.newest_completion():
        lines += (
            {
                "requested": one.requested,
                "completed": one.completed,
                "statement": {"sets": one.sets, "removes": one.removes},
            }
            for one in statements(source, newest)
        )
    write_carried(target.files, target.path, lines)


def _with(spec: Spec, path: str, buckets: int) -> Spec:
    return dataclasses.replace(spec, table=dataclasses.replace(spec.table, path=path, buckets=buckets))


def _rows(table: Table, columns: Mapping[str, Stored]) -> DataFrame:
    """Return the stored rows with the record key and these columns, in their stored types."""
    stored = stored_rows(table)
    present = set(stored.columns)
    cells = [
        (F.col(quoted(name)) if name in present else F.lit(None)).cast(sql_type(one.kind)).alias(name)
        for name, one in columns.items()
    ]
    return stored.select(RECORD_KEY, *cells)


def _digest(columns: Mapping[str, Stored]) -> Any:  # noqa: ANN401  a Column
    # Spark's hash passes over nulls, so each column also says whether it is null.
    return F.xxhash64(*(one for name in columns for one in (F.col(quoted(name)), F.isnull(quoted(name)))))
