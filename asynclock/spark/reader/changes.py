"""The rows that changed since an earlier read: whole merged rows, by the completion time of their commits.

The keys come from the files of these commits, data and deletes alike, and the rows from a snapshot. Commits
count by their completion time. So a commit that was requested earlier and took longer is not missed, and each
batch is seen whole or not at all.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.errors import ConfigError
from asynclock.spark.errors import ChangesLostError
from asynclock.spark.hudi.changed import ChangedFiles, changed_files
from asynclock.spark.hudi.instants import CLUSTERED, COMPACTED, DELTA_COMMIT, RESTORE
from asynclock.spark.hudi.table import Table
from asynclock.spark.hudi.time_travel import in_digits
from asynclock.spark.jvm import classes
from asynclock.spark.reader.presence import unread
from asynclock.spark.reader.snapshot import NOT_YET, pinned_snapshot, snapshot
from asynclock.spark.source.files import frame_of
from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.keys import record_key
from asynclock.spark.spec.model import RECORD_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, SparkSession

    from asynclock.spark.hudi.instants import Instant
    from asynclock.spark.spec.model import Spec

DELETED: Final = "_deleted"
_INSTANT: Final = re.compile(r"\d{14}(\d{3})?")
_FEW: Final = 100_000
"""Keys that are sent to every task, so that the table need not be shuffled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """The rows of the keys that changed in a range of completion times.

    Attributes:
        frame: The rows as they are at ``until``, under the names of the view; ``_deleted`` is true if the
            view no longer shows the key; then only its key columns have values. The frame stays the same
            while others write, compact and clean.
        until: The newest completion time of the commits in it. Pass it to the next call as ``since``.
    """

    frame: DataFrame
    until: str


def changes(
    spec: Spec, spark: SparkSession, *, since: str | None = None, until: str | None = None
) -> Changes:
    """Return the rows of the keys that changed in commits that completed after ``since``.

    A key counts as changed if a commit wrote it, even if its row is the same as before. With ``since`` the
    changed rows are computed in the call, and the executors keep them for as long as the frame is in use.
    Without it the frame is the whole table, which is read when the frame is.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi and the merger.
        since: The ``until`` of an earlier call, or another completion time of an instant; exclusive. None:
            from the start, so that all rows of the view are returned. In digits, or as
            ``2026-11-22T20:45:39.123``.
        until: Leave out commits that completed later, and show the rows as of that time; None: leave out
        none.

    Raises:
        ConfigError: ``since`` or ``until`` is not an instant, or is later than all commits; ``until`` is
            before ``since``; or Hudi cannot show the table as of ``until``.
        ChangesLostError: The changes since then can no longer be known. Start again without ``since``.
        SpecError: There is no such table, it is another one, nothing is committed to it yet, or the spec
            would rename a column of the view.
    """
    table = Table(spec, spark)
    timeline = table.timeline
    since, until = since and in_digits(since, timeline), until and in_digits(until, timeline)
    _check_instants(since, until)
    commits = _row_times(spec, timeline.instants())  # before the snapshot, so that it has all of them
    stored, pinned = pinned_snapshot(table)
    table.commits.refresh()
    table.check_names()
    _refuse_future(pinned, since=since, until=until)
    if not commits:
        raise unread(spec, NOT_YET)
    commits = [time for time in commits if until is None or time <= until]
    if not commits:
        reason = "what was committed by then is archived, so the table cannot be shown as of it"
        raise ConfigError(setting="until", value=until, reason=reason)
    end = max(commits)
    if until is not None and until < pinned:
        try:
            stored = snapshot(table, as_of=end)
        except ConfigError as error:
            raise ConfigError(setting="until", value=until, reason=error.reason) from error
    view = table.layout.shown(stored)
    if since is None:
        return Changes(frame=view.withColumn(DELETED, F.lit(False)), until=end)
    end = max(since, end)  # an instant that changed no row may have completed since the newest commit
    rows = _ChangedRows(table, since, end).of(view)
    _refuse_restored(spec, since, restores=timeline.instants())  # one that has begun meanwhile
    return Changes(frame=rows, until=end)


class _ChangedRows:
    """The rows that changed in a range of completion times."""

    def __init__(self, table: Table, since: str, until: str) -> None:
        self._layout = table.layout
        self._spec = table.spec
        self._spark = table.spark
        self._since = since
        self._files = changed_files(table, since, until)
        self._refuse(self._files)

    def of(self, view: DataFrame) -> DataFrame:
        """Return the changed rows of the view, and the keys that it no longer shows."""
        if not self._files.files:
            return view.withColumn(DELETED, F.lit(False)).where(F.lit(False))
        changed = self._keys()
        few = changed.count() <= _FEW
        keyed = self._touched(view).withColumn(RECORD_KEY, F.expr(record_key(self._spec.table)))
        rows = keyed.join(F.broadcast(changed) if few else changed, RECORD_KEY, "left_semi")
        rows = rows.localCheckpoint()
        gone = changed.join(rows.select(RECORD_KEY), RECORD_KEY, "left_anti")
        alive = rows.drop(RECORD_KEY).withColumn(DELETED, F.lit(False))
        return alive.unionByName(gone.select(*self._deleted(view)).withColumn(DELETED, F.lit(True)))

    def _touched(self, view: DataFrame) -> DataFrame:
        """Leave out the partitions without a changed file, so that their files are not read."""
        partitions = [file.partition for file in self._files.files]
        table = self._spec.table
        for place, name in enumerate(table.partition_by):
            if not self._layout.one_partition and name not in table.key:
                continue  # another partition may have a row of the same key, which is then not deleted
            kind = self._spec.shared_type(name)
            values = {partition[place] for partition in partitions}
            view = view.where(
                F.col(name).isin([F.lit(value).cast(sql_type(kind)) for value in sorted(values)])
            )
        return view

    def _keys(self) -> DataFrame:
        """Return the record keys that changed, each once, already read."""
        files = [(file.path, file.role, file.group) for file in self._files.files]
        tasks = min(len(files), 4 * self._spark.sparkContext.defaultParallelism)
        frame = frame_of(self._spark, files, "path string, role string, file_group string").repartition(tasks)
        java: Any = classes(self._spark).io.asynclock.rows.ChangedKeys
        read = DataFrame(java.read(frame._jdf, list(self._files.commits)), self._spark)  # noqa: SLF001
        found = read.distinct().localCheckpoint()
        if (missing := found.where("role = 'missing'").first()) is not None:
            self._lost(f"the file {missing[0]}, which a commit since then wrote, is cleaned away")
        roles = {role: found.where(F.col("role") == role) for role in ("before", "after")}
        deleted = roles["before"].join(roles["after"], ["key", "file_group"], "left_anti")
        keys = found.where(F.col("role").isin("log", "base")).select("key").union(deleted.select("key"))
        # Some of Hudi's key generators put the name of the field before a value, which has no colon itself.
        plain = F.regexp_replace("key", f"^{RECORD_KEY}:", "")
        return keys.select(plain.alias(RECORD_KEY)).distinct().localCheckpoint()

    def _deleted(self, view: DataFrame) -> Iterator[Column]:
        """Yield the columns of a deleted key: those of the key, decoded, and nulls."""
        key = self._spec.table.key
        for name, kind in view.dtypes:
            if name in key:
                text = F.url_decode(F.split(RECORD_KEY, "[|]").getItem(key.index(name)))
                yield text.cast(sql_type(kind)).alias(name)
            else:
                yield F.lit(None).cast(sql_type(kind)).alias(name)

    def _refuse(self, files: ChangedFiles) -> None:
        if files.restored or files.restoring:
            _lost_by_restore(self._spec, self._since, under_way=files.restoring)
        if not files.reached:
            self._lost("the timeline has no commit from then or before, so the table may be another one")
        if files.replaced is not None:
            self._lost(f"the commit {files.replaced} has replaced whole files")
        if files.missing is not None:
            self._lost(f"the file {files.missing}, which was there then, is cleaned away")

    def _lost(self, reason: str) -> None:
        raise ChangesLostError(path=self._spec.table.path, since=self._since, reason=reason)


def _check_instants(since: str | None, until: str | None) -> None:
    for setting, value in (("since", since), ("until", until)):
        if value is not None and not _is_instant(value):
            reason = (
                "this is no instant time; give the until of an earlier call, or a completion time of the "
                "timeline, as 20240501120000000"
            )
            raise ConfigError(setting=setting, value=value, reason=reason)
    if since is not None and until is not None and until < since:
        reason = f"this is before since, {since}; exchange them, or leave until out"
        raise ConfigError(setting="until", value=until, reason=reason)


def _is_instant(text: object) -> bool:
    if not isinstance(text, str) or not text.isascii() or not _INSTANT.fullmatch(text):
        return False
    try:
        dt.datetime.strptime(text[:14], "%Y%m%d%H%M%S")  # noqa: DTZ007  only whether there is such a time
    except ValueError:
        return False
    return True


def _refuse_future(newest: str, **given: str | None) -> None:
    for setting, value in given.items():
        if value is not None and value > newest:
            reason = (
                f"this lies in the future: the newest completion time of the table is {newest}; take that "
                "or an earlier one"
            )
            raise ConfigError(setting=setting, value=value, reason=reason)


def _row_times(spec: Spec, instants: list[Instant]) -> list[str]:
    """Return the completion times of the instants that may have changed rows.

    They complete one after the other, under Hudi's commit lock, so that none appears before another.
    """
    wanted = {DELTA_COMMIT if spec.table.type == "mor" else COMPACTED, CLUSTERED, RESTORE}
    return [one.completed for one in instants if one.completed and one.action in wanted]


def _refuse_restored(spec: Spec, since: str, *, restores: list[Instant]) -> None:
    for one in restores:
        if one.action == RESTORE and (one.completed is None or one.completed > since):
            _lost_by_restore(spec, since, under_way=one.completed is None)


def _lost_by_restore(spec: Spec, since: str, *, under_way: bool) -> None:
    what = "is under way, and takes" if under_way else "has taken"
    reason = f"a restore {what} commits off the timeline, and what they wrote is not known any more"
    raise ChangesLostError(path=spec.table.path, since=since, reason=reason)
