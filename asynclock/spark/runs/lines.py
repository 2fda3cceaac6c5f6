"""Lines of a run: one JSON object each, in a file of its own for every process."""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from asynclock.errors import ConfigError
from asynclock.spark.runs.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

SAMPLE_SECONDS: Final = 5.0
_SUFFIX: Final = ".jsonl"
_CLOSE_WITHIN: Final = 10.0


class RunLog:
    """Appends lines to ``<folder>/<process>-<pid>.jsonl``, from any thread.

    A separate thread writes each line with one system call. So a killed process leaves at most its last line
    incomplete, and a slow disk delays neither a renewal nor a commit. If the disk refuses lines, they are
    lost, with one warning; the run goes on.

    Args:
        folder: The folder of the run; created if it is missing.
        process: The role of this process in the run.
        sample: Gives the fields of a line ``resources``, after the first line, then every ``interval``
            seconds and before the last line.
        interval: Seconds between two samples.
        wall: The wall clock.

    Attributes:
        path: The file.

    Raises:
        ConfigError: The file cannot be written. Nothing was written.
    """

    def __init__(
        self,
        folder: Path,
        process: str,
        *,
        sample: Callable[[], Mapping[str, object]] | None = None,
        interval: float = SAMPLE_SECONDS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.path = folder / f"{process}-{os.getpid()}{_SUFFIX}"
        self._process = process
        self._sample = sample
        self._interval = interval
        self._wall = wall
        self._totals = Totals()
        self._lost = 0
        self._queue: queue.SimpleQueue[tuple[float, str, Mapping[str, object]] | None] = queue.SimpleQueue()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
            # An earlier process with this id may have been killed in the middle of a line.
            self._before = b"\n" if os.fstat(self._descriptor).st_size else b""
        except OSError as error:
            reason = f"cannot be written: {error.strerror}; the run was not started"
            raise ConfigError(setting="run", value=str(folder), reason=reason) from error
        self._thread = threading.Thread(target=self._work, name="run-log", daemon=True)
        self._thread.start()

    def add(self, kind: str, /, *, at: float | None = None, **fields: object) -> None:
        """Append a line; returns at once.

        Args:
            kind: The subject of the line.
            at: Time of the event, in epoch seconds; None: now.
            fields: Values for JSON; a value that JSON cannot have is written as text.
        """
        self._queue.put((self._wall() if at is None else at, kind, fields))

    def close(self, *, error: str | None = None) -> None:
        """Append the line ``end`` with the totals of this process, and close the file.

        Args:
            error: The reason why the run failed; None if it did not.
        """
        self.add("end", error=error)
        self._queue.put(None)
        self._thread.join(_CLOSE_WITHIN)

    def _work(self) -> None:
        self._write_item(self._queue.get())  # before the first sample: it says what the file contains
        due = time.monotonic()
        while True:
            if self._sample is not None and time.monotonic() >= due:
                due = time.monotonic() + self._interval
                self._write_sample()
            try:
                wait = None if self._sample is None else max(0.0, due - time.monotonic())
                item = self._queue.get(timeout=wait)
            except queue.Empty:
                continue
            if item is None:
                break
            self._write_item(item)
        os.close(self._descriptor)

    def _write_item(self, item: tuple[float, str, Mapping[str, object]] | None) -> None:
        assert item is not None  # noqa: S101  the last line goes before the end of the queue
        at, kind, fields = item
        if kind == "end":
            self._write_sample()
            fields = {**fields, **self._totals.summary().fields(), "lost_lines": self._lost}
        self._write(at, kind, fields)

    def _write_sample(self) -> None:
        if self._sample is None:
            return
        try:
            sample = self._sample()
        except Exception:  # lines of other kinds must go on
            log.warning("the run's resources cannot be sampled any more", exc_info=True)
            self._sample = None
        else:
            self._write(self._wall(), "resources", sample)

    def _write(self, at: float, kind: str, fields: Mapping[str, object]) -> None:
        line = {"time": utc(at), "process": self._process, "pid": os.getpid(), "kind": kind, **fields}
        self._totals.take(at, kind, line)
        text = self._before + json.dumps(line, default=str).encode() + b"\n"
        written, reason = 0, "the disk takes only a part"
        try:
            written = os.write(self._descriptor, text)
        except OSError as error:
            reason = error.strerror or str(error)
        self._before = b"" if written == len(text) else b"\n"
        if written < len(text):
            if not self._lost:
                log.warning("lines of the run are lost, because %s cannot be written: %s", self.path, reason)
            self._lost += 1


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a run.

    Attributes:
        time: When it happened, in epoch seconds.
        process: The role of the process; in a line about another process, the role of that one.
        pid: Its id; None if the line has none.
        kind: The subject of the line.
        fields: The whole object.
    """

    time: float
    process: str
    pid: int | None
    kind: str
    fields: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The process, with its id."""
        return self.process if self.pid is None else f"{self.process} {self.pid}"


def read_lines(folder: Path, *, on_unread: Callable[[Path], object] | None = None) -> Iterator[Line]:
    """Yield the lines of all files of a run, each file's in its order.

    Args:
        folder: The folder of the run, to which processes may still be appending.
        on_unread: Called for each line that is incomplete or not a line of a run.

    Raises:
        ConfigError: There is no such folder.
    """
    if not folder.is_dir():
        reason = "there is no such folder; asynclock pipeline run SPEC --run DIR writes one"
        raise ConfigError(setting="run", value=str(folder), reason=reason)
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        with path.open("rb") as file:
            for text in file:
                if not text.strip():
                    continue
                line = _parsed(text)
                if line is not None:
                    yield line
                elif on_unread is not None:
                    on_unread(path)


def utc(at: float) -> str:
    """Return epoch seconds as ISO 8601 with milliseconds, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parsed(text: bytes) -> Line | None:
    try:
        fields = json.loads(text)
        at = datetime.fromisoformat(fields["time"])
        kind, process, pid = fields["kind"], fields.get("process"), fields.get("pid")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(kind, str):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    pid = pid if isinstance(pid, int) and not isinstance(pid, bool) else None
    return Line(time=at.timestamp(), process=str(process or "?"), pid=pid, kind=kind, fields=fields)
