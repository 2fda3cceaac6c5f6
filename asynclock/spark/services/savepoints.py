"""Savepoints of the table together with the checkpoints of its streams, and the way back to one.

A checkpoint that is ahead of its table skips the events that the table has lost. So a savepoint keeps a copy
of every checkpoint next to Hudi's own savepoint. Both are made while the table is reserved, and a restore
sets both back: the streams read the dropped events again. A restore leaves a mark until it is done. While the
mark exists, streams refuse to run. A second run of the restore finishes it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from asynclock._shared.words import printable
from asynclock.errors import ConfigError
from asynclock.spark.hudi.instants import CLUSTERED, DELETES, REBUCKET, WRITES
from asynclock.spark.hudi.options import cleaning_options
from asynclock.spark.hudi.own import own_session
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.presence import refuse_missing
from asynclock.spark.results import RestoreReport
from asynclock.spark.services.work import write_client
from asynclock.spark.source.checkpoint import Checkpoint
from asynclock.spark.spec.functions import sums
from asynclock.spark.work.worker import reserved
from asynclock.spark.writer.batch_columns import commit_nothing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from pyspark.sql import SparkSession

    from asynclock.spark.hudi.instants import BatchCommit, Instant
    from asynclock.spark.hudi.restores import Restore
    from asynclock.spark.spec.model import Spec, StreamSpec
    from asynclock.spark.work.worker import Worker

log = logging.getLogger(__name__)

_BATCH: Final = re.compile("batch=([0-9]+)")
_requested: Final = attrgetter("requested")


def savepoint(spec: Spec, *, timeout: float | None = None, spark: SparkSession | None = None) -> str:
    """Keep the table and the checkpoints of its streams as they are now, and return the savepoint's instant.

    The table is reserved for the moment: running streams finish their batch first and go on afterwards. Until
    the savepoint is deleted, cleaning keeps its files, and archiving keeps all later instants.

    Args:
        spec: The table and its streams.
        timeout: Longest wait for the reservation, in seconds; None: no limit.
        spark: A session with Hudi; None: the one that runs in this process, else one is started.

    Raises:
        ConfigError: Nothing is committed yet.
        AcquireTimeoutError: The table was not reserved in time.
        UnfinishedRestoreError: A restore has been left half done.
        StrayFilesError: The table has files outside its buckets, whose rows a restore could lose.
    """
    with _reserved(spec, timeout, spark, "savepoint") as work:
        return work.keep()


def restore(
    spec: Spec, savepoint: str, *, timeout: float | None = None, spark: SparkSession | None = None
) -> RestoreReport:
    """Set the table and the checkpoints of its streams back to a savepoint.

    Later commits and savepoints are dropped. Running streams wait meanwhile, and then read the dropped events
    again; so do streams that start later. The savepoint stays.

    Args:
        spec: The table and its streams.
        savepoint: The result of ``savepoint``.
        timeout: Longest wait for the reservation, in seconds; None: no limit.
        spark: A session with Hudi; None: the one that runs in this process, else one is started.

    Raises:
        ConfigError: There is no such savepoint; a restore to another one has been left half done; a stream
            has later batches, and the spec does not name it; or a stream has a sum, and the savepoint has
            batches but no checkpoint of it. Nothing was changed.
        AcquireTimeoutError: The table was not reserved in time. Nothing was changed.
        LeaseLostError: The reservation was lost in the middle. Streams refuse to run until the restore has
            been run again.
    """
    with session_for(spec, "asynclock restore", spark=spark) as found:
        _Savepoints(Table(spec, found)).check(savepoint)  # before the streams have to wait
        with _reserved(spec, timeout, found, "restore", finishes=True) as work:
            return work.go_back(savepoint)


def delete_savepoint(
    spec: Spec, savepoint: str, *, timeout: float | None = None, spark: SparkSession | None = None
) -> None:
    """Delete a savepoint, so that cleaning and archiving go on beyond it.

    Raises:
        ConfigError: There is no such savepoint.
        AcquireTimeoutError: The table was not reserved in time.
        UnfinishedRestoreError: A restore has been left half done.
    """
    with _reserved(spec, timeout, spark, "savepoint") as work:
        work.savepoints.check(savepoint)
        work.savepoints.delete(savepoint)


class _Savepoints:
    """The savepoints of a table: Hudi's, and the checkpoints that are kept with them."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._spec = table.spec
        self._files = table.files
        self._timeline = table.timeline

    def folder(self, instant: str) -> str:
        """Return the folder of a savepoint's checkpoints."""
        return f"{self._spec.table.kept}/savepoints/{instant}"

    def streams(self, instant: str) -> list[str] | None:
        """Return the streams whose checkpoints are kept; None if the copies are not complete."""
        text = self._files.read(f"{self.folder(instant)}.json")
        return None if text is None else list(json.loads(text)["streams"])

    def note(self, instant: str, streams: list[str]) -> None:
        """Note that the copies are complete."""
        self._files.write(f"{self.folder(instant)}.json", json.dumps({"streams": streams}))

    def all(self) -> list[str]:
        """Return the instants of Hudi's savepoints whose checkpoints are kept, oldest first."""
        return [instant for instant in self._timeline.savepoints() if self.streams(instant) is not None]

    def check(self, instant: str) -> None:
        """Refuse an instant that is not a savepoint."""
        known = self.all()
        if instant in known:
            return
        what = (
            "Hudi has it, but no checkpoints were kept with it" if self._is_hudis(instant) else "it is none"
        )
        has = f"there are {', '.join(known)}" if known else "there is none"
        reason = (
            f"no savepoint of the table {self._spec.table.path} to go back to: {what}; {has}. Nothing was "
            "changed; asynclock pipeline savepoint makes one"
        )
        raise ConfigError(setting="savepoint", value=instant, reason=reason)

    def delete(self, instant: str) -> None:
        """Delete a savepoint and its copies; also if that was begun before."""
        self._files.delete(f"{self.folder(instant)}.json")
        self._files.delete(self.folder(instant))
        if self._is_hudis(instant):
            with self.client() as client:
                client.deleteSavepoint(instant)

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """Yield Hudi's write client."""
        with write_client(self._table, cleaning_options(self._spec)) as client:
            yield client

    def _is_hudis(self, instant: str) -> bool:
        return instant in self._timeline.savepoints()


@contextlib.contextmanager
def _reserved(
    spec: Spec, timeout: float | None, spark: SparkSession | None, name: str, *, finishes: bool = False
) -> Iterator[_Work]:
    with (
        session_for(spec, f"asynclock {name}", spark=spark) as found,
        reserved(Table(spec, found), name, timeout=timeout, finishes=finishes) as worker,
    ):
        yield _Work(Table(spec, own_session(found)), worker)


class _Work:
    """Work on the savepoints of a table that is reserved for it."""

    def __init__(self, table: Table, worker: Worker) -> None:
        self.worker = worker
        self.savepoints = _Savepoints(table)
        self._table = table
        self._spec = table.spec
        self._lease = worker.lease
        self._files = table.files
        self._timeline = table.timeline

    def keep(self) -> str:
        """Make a savepoint."""
        refuse_missing(self._table)
        self._table.check_writable()
        instant = self._last_commit()
        there = [one.name for one in self._spec.streams if self._files.exists(one.checkpoint)]
        kept = self.savepoints.streams(instant) if instant in self._timeline.savepoints() else None
        if kept is not None and set(there) <= set(kept):
            return instant
        streams = list(kept or [])
        for stream in self._spec.streams:
            self._lease.check()
            if stream.name in there and stream.name not in streams:
                copy = f"{self.savepoints.folder(instant)}/{stream.name}"
                self._files.delete(copy)
                self._files.copy(stream.checkpoint, copy)
                streams.append(stream.name)
        if unknown := self._unknown(self._timeline.commits, known=streams):
            log.warning(
                "the savepoint %s has no checkpoint of %s, which the spec does not name: after a restore "
                "they read all their files or records again. Make it with a spec that names all streams",
                instant,
                unknown,
            )
        self.savepoints.note(instant, streams)
        self._lease.check()
        if instant not in self._timeline.savepoints():
            with self.savepoints.client() as client:
                client.savepoint(instant, "asynclock", "with the checkpoints of the streams")
        return instant

    def _last_commit(self) -> str:
        """Return the commit that was requested last and has completed last.

        Hudi's restore drops what completed after the commit of the savepoint, and its savepoint keeps the
        files of what was requested before. If no commit is the last by both, an empty one is made.
        """
        done = self._done()
        commits = [one for one in done if one.action in WRITES]
        if not commits:
            reason = "nothing is committed to the table yet, so there is nothing to keep"
            raise ConfigError(setting="path", value=self._spec.table.path, reason=reason)
        last = max(commits, key=_requested)
        if last.completed != max(str(one.completed) for one in done):
            self._lease.check()
            self._table.commits.refresh()
            commit_nothing(self._table)
            last = max(self._done(), key=_requested)
        return last.requested

    def _done(self) -> list[Instant]:
        """Return all that has changed the files of the table."""
        changes = {*WRITES, CLUSTERED}
        return [
            one for one in self._timeline.instants() if one.action in changes and one.completed is not None
        ]

    def go_back(self, savepoint: str) -> RestoreReport:
        """Set table and checkpoints back; each step may be repeated."""
        mark = self._table.restore_mark
        if (begun := mark.found()) is not None:
            self._refuse_another_restore(begun, savepoint)
        self.savepoints.check(savepoint)
        commits = self._timeline.commits
        dropped = [commit for commit in commits if commit.requested > savepoint]
        kept = self.savepoints.streams(savepoint) or []
        stay = [commit for commit in commits if commit.requested <= savepoint]
        if begun is None:
            self._refuse_lost_events(dropped)
            self._refuse_double_sums(stay, kept)
        self._lease.check()
        mark.put(savepoint)
        for later in self._timeline.savepoints():
            if later > savepoint:  # Hudi rolls back no commit that has a savepoint
                self.savepoints.delete(later)
        with self.savepoints.client() as client:
            client.restoreToSavepoint(savepoint)
        for stream in self._spec.streams:
            self._lease.check()
            copy = f"{self.savepoints.folder(savepoint)}/{stream.name}"
            self._set_back(stream, copy, stay, is_kept=stream.name in kept)
        self._lease.check()
        mark.remove()
        log.info("the table %s is at the savepoint %s", self._spec.table.path, savepoint)
        return RestoreReport(
            savepoint=savepoint,
            dropped=len(dropped),
            undone_deletes=tuple(commit.query_id for commit in dropped if commit.stream == DELETES),
        )

    def _refuse_another_restore(self, begun: Restore, savepoint: str) -> None:
        """Refuse to finish a restore that has begun in another way than it began."""
        finish = f"finish it: asynclock pipeline restore {begun.spec} {begun.savepoint}. Nothing was changed"
        if begun.savepoint != savepoint:
            reason = f"a restore to {begun.savepoint} has been left half done; {finish}"
            raise ConfigError(setting="savepoint", value=savepoint, reason=reason)
        if missing := sorted(set(begun.streams) - set(self._names())):
            reason = (
                f"this restore has begun with a spec that also names {', '.join(missing)}, whose checkpoints "
                f"must be set back too; {finish}"
            )
            raise ConfigError(setting="streams", value=self._names(), reason=reason)

    def _refuse_lost_events(self, dropped: list[BatchCommit]) -> None:
        """Refuse to drop batches of a stream without its checkpoint, for the stream would then skip them."""
        if unknown := self._unknown(dropped):
            reason = (
                f"after it the table has batches of {unknown}, which {self._spec.path} does not name: their "
                "checkpoints would stay ahead of the table, and those events would never be read again. "
                "Nothing was changed; restore with a spec that names all streams of the table"
            )
            raise ConfigError(setting="streams", value=self._names(), reason=reason)

    def _refuse_double_sums(self, stay: list[BatchCommit], kept: list[str]) -> None:
        """Refuse to let a stream with a sum read again what the savepoint has of it."""
        for stream in self._spec.streams:
            if (names := sums(stream.merge)) and stream.name not in kept:
                if not any(commit.stream == stream.name and commit.offset for commit in stay):
                    continue
                reason = (
                    f"the savepoint has batches of stream {stream.name} but no checkpoint of it, since its "
                    f"spec did not name the stream: {', '.join(names)} would count events twice. Nothing "
                    "was changed; choose a savepoint that was made with a spec that names all streams"
                )
                raise ConfigError(setting="streams", value=stream.name, reason=reason)

    def _unknown(self, commits: list[BatchCommit], known: Iterable[str] = ()) -> str:
        """Return the streams that have read a source for such commits, and that the spec does not name."""
        found = {commit.stream for commit in commits if commit.offset}  # a direct write has no checkpoint
        return ", ".join(map(printable, sorted(found.difference(known, self._names(), {DELETES, REBUCKET}))))

    def _names(self) -> list[str]:
        return [stream.name for stream in self._spec.streams]

    def _set_back(self, stream: StreamSpec, copy: str, stay: list[BatchCommit], *, is_kept: bool) -> None:
        """Set the checkpoint of one stream back; a stream without one then reads all files again."""
        self._files.delete(stream.checkpoint)
        if not is_kept:
            return
        self._files.copy(copy, stream.checkpoint)
        # Batches that are read again quarantine their bad rows again, perhaps under other batch numbers.
        done = [int(name) for name in self._files.names(f"{stream.checkpoint}/commits") if name.isdigit()]
        query_id = Checkpoint(self._spec, stream, self._table.spark).query_id()
        # The table may have a batch that its checkpoint does not: it is skipped, not read again.
        done += [one.batch_id for one in stay if (one.stream, one.query_id) == (stream.name, query_id)]
        aside = f"{stream.quarantine}/query={query_id}"
        for name in self._files.names(aside):
            if (batch := _BATCH.fullmatch(name)) and int(batch[1]) > max(done, default=-1):
                self._files.delete(f"{aside}/{name}")
