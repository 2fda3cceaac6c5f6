"""The demo's pipeline: two writers, a standby and the table services; one writer is killed as it writes."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from asynclock.spark import load_spec
from examples.demo_children import ENDED, Child, DemoError, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from asynclock.spark.spec.model import Spec
    from examples.demo_place import Place
    from examples.demo_screen import Screen
    from examples.demo_table import Instant

VICTIM: Final = "departures"
WRITER: Final = "departures writer"
STANDBY: Final = "departures standby"
OTHER_WRITER: Final = "arrivals and registry writer"
SERVICES: Final = "table services"
VALIDATION: Final = "validation"

# Batches of the writer, of eight: the kill comes after the first number at the earliest, and at the second
# the writer waits until the standby watches its lease.
EARLIEST_KILL: Final = 2
PAUSE: Final = 4
_LOOK_SECONDS: Final = 0.1
# A small batch takes some 100 ms from its first log file to its commit.
_HUNT_SECONDS: Final = 0.002
_PATIENCE_SECONDS: Final = 300.0


@dataclass(kw_only=True)
class Kill:
    """The kill of a writer and its consequences; times are in seconds after the kill."""

    instant: str
    log_files: list[str]
    owner: str | None
    """Owner of the stream's lease, as the lock file had it."""
    at: float
    """On the monotonic clock."""
    takeover: float | None = None
    first_commit: float | None = None
    rollback: Instant | None = None


@dataclass(kw_only=True)
class Work:
    """What one driver has reported about one stream."""

    driver: str
    stream: str
    batches: int = 0
    rows: int = 0
    report: Mapping[str, Any] = field(default_factory=dict)
    """Its ``StreamReport``; empty for a killed one."""


class PipelineRun:
    """Runs the pipeline of a spec over files that are there; a context that leaves no process behind.

    Args:
        spec: Path of the drivers' spec, in the folder of this run.
        sources: Path of the spec whose sources are files of this machine.
        place: Where the table is and the drivers run.
        totals: Rows of each stream.
        screen: Where progress is shown.

    Attributes:
        kill: The killed process, and the consequences.
        table: The table on disk.
        work: By driver and stream.
        validated: What the validation found.
        seconds: From the first session that was ready to the last commit.
    """

    def __init__(
        self, spec: Path, sources: Path, place: Place, totals: Mapping[str, int], screen: Screen
    ) -> None:
        self.spec: Spec = load_spec(spec)
        self.table = place.table(self.spec)
        self._sources = sources
        self.work: dict[tuple[str, str], Work] = {}
        self.validated: Mapping[str, Any] = {}
        self.seconds = 0.0
        self._path = spec
        self._totals = totals
        self._screen = screen
        self._inbox: queue.Queue[Message] = queue.Queue()
        self._children: dict[str, Child] = {}
        self._locks = self.spec.locks.connect()
        self._victim_lock = self._locks.lock(f"stream/{VICTIM}")
        self._kill: Kill | None = None
        self._started: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.kill()
        self._locks.close()

    @property
    def kill(self) -> Kill:
        """The kill, once it has happened."""
        assert self._kill is not None  # noqa: S101  only read after play()
        return self._kill

    @property
    def rows(self) -> int:
        """Rows committed by all drivers."""
        return sum(work.rows for work in self.work.values())

    @property
    def takeover_bound(self) -> float:
        """Seconds from a kill until a waiter has the lease at the latest, and two round trips."""
        return self.spec.locks.settings.takeover_bound(self._locks.backend.clock_resolution)

    def play(self) -> None:
        """Feed every stream, kill a writer meanwhile, compact at the end and validate.

        Raises:
            DemoError: A process failed, the writer could not be caught in the middle of a write, or the
                instant that was killed completed.
        """
        self._start(WRITER, "feed", VICTIM, "--pause-after", str(PAUSE))
        self._start(OTHER_WRITER, "feed", *(name for name in self._totals if name != VICTIM))
        self._screen.open_bars(self._totals)
        # The others have nothing to do before; they would only take the cores of the writers.
        self._until(lambda: bool(self.work))
        self._screen.say("the first commit is there; a standby and the table services start")
        self._start(STANDBY, "standby", VICTIM)
        self._start(SERVICES, "services")
        self._until(lambda: self._victim_lock.status().state == "held")
        # Only now: else it might be the first to have the lease.
        self._children[STANDBY].tell("go")
        self._until(self._ripe)
        self._kill_writer()
        self._start(VALIDATION, "validate")
        feeds = [self._children[name] for name in (STANDBY, OTHER_WRITER)]
        self._until(lambda: self.kill.rollback is not None and all(feed.ended for feed in feeds))
        self._screen.close_bars()
        self._screen.say("every file is committed; the services compact once more and end")
        self._children[SERVICES].terminate()
        self._until(lambda: self._children[SERVICES].ended)
        self._screen.say("comparing the table with the oracle")
        self._children[VALIDATION].tell("go")
        self._until(lambda: self._children[VALIDATION].ended)

    def _start(self, name: str, role: str, *words: str) -> None:
        arguments = [role, str(self._path), *words, "--sources", str(self._sources)]
        child = Child(name, arguments, folder=self._path.parent, inbox=self._inbox)
        self._children[name] = child
        self._screen.say(f"{name}: process {child.pid} started")

    def _ripe(self) -> bool:
        """Whether the standby watches the lease, and the writer has committed enough."""
        writer = self.work.get((WRITER, VICTIM))
        return self._children[STANDBY].watches and writer is not None and writer.batches >= EARLIEST_KILL

    def _kill_writer(self) -> None:
        writer = self._children[WRITER]
        owner = self._victim_lock.status().owner
        self._until(lambda: self.table.is_half_written(writer.instant), pause=_HUNT_SECONDS)
        at = writer.kill()
        instant = writer.instant
        left = self.table.log_files(instant)
        if self.table.is_completed(instant):
            raise DemoError(
                f"the writer was killed too late: {instant} is complete, with the log files {left}"
            )
        self._kill = Kill(instant=instant, log_files=left, owner=owner, at=at)
        self._screen.say(
            f"kill -9 of the {WRITER} in the middle of a write: instant {instant} is in flight, "
            f"log files so far: {len(left)}"
        )

    def _until(self, condition: Callable[[], bool], *, pause: float = _LOOK_SECONDS) -> None:
        """Process the messages of the children until the condition holds."""
        heard = time.monotonic()
        while not condition():
            try:
                message = self._inbox.get(timeout=pause)
            except queue.Empty:
                if time.monotonic() - heard > _PATIENCE_SECONDS:
                    raise DemoError(
                        f"no process has sent a message for {_PATIENCE_SECONDS:.0f} s; their logs are in "
                        f"{self._children[WRITER].log.parent}"
                    ) from None
            else:
                heard = time.monotonic()
                self._take(message)
            self.table.look()
            if self._kill is not None:
                self._follow(self._kill)

    def _follow(self, kill: Kill) -> None:
        """See whether the lease has been taken over and the killed instant rolled back."""
        if kill.takeover is None:
            status = self._victim_lock.status()
            if status.owner != kill.owner:
                kill.takeover = time.monotonic() - kill.at
                self._screen.say(
                    f"{STANDBY}: has the lease, {kill.takeover:.1f} s after the kill, "
                    f"token {status.fencing_token}"
                )
        if kill.rollback is None:
            kill.rollback = self.table.rollback_of(kill.instant)
            if kill.rollback is not None:
                self._screen.say(
                    f"the timeline shows {kill.instant} rolled back by {kill.rollback.requested}"
                )
        if self.table.is_completed(kill.instant):
            raise DemoError(f"the killed instant {kill.instant} has completed")

    def _take(self, message: Message) -> None:
        child, fields = message.child, message.fields
        match message.event:
            case "ready":
                child.ready = True
                self._started = self._started or time.monotonic()
                self._screen.say(f"{child.name}: {'warm' if child.name == STANDBY else 'ready'}")
            case "watches":
                child.watches = True
                self._screen.say(f"{child.name}: watches the lease of the writer")
                self._children[WRITER].tell("go")
            case "instant":
                child.instant = fields["instant"]
            case "batch":
                self._count(child, fields)
            case "service":
                self._screen.say(f"{child.name}: {fields['sentence']}")
            case "stream":
                self._work(child, fields["stream"]).report = fields
            case "validated":
                self.validated = fields
            case "failed":
                raise DemoError(f"the {child.name} failed: {fields['reason']}\nIts log is {child.log}")
            case "done":
                child.done = True
            case _:
                assert message.event == ENDED, message  # noqa: S101  no other is sent
                child.ended = True
                self._check_end(child, fields["code"])

    def _check_end(self, child: Child, code: int) -> None:
        if child.name == WRITER:
            if self._kill is None:
                why = "finished before it could be killed in the middle of a write" if child.done else "died"
                raise DemoError(f"the {child.name} {why}; its log {child.log} ends:\n{child.tail()}")
        elif code != 0 or not child.done:
            raise DemoError(f"the {child.name} ended with {code}; its log {child.log} ends:\n{child.tail()}")

    def _count(self, child: Child, batch: Mapping[str, Any]) -> None:
        work = self._work(child, batch["stream"])
        work.batches += 1
        work.rows += batch["rows"]
        now = time.monotonic()
        self.seconds = now - (self._started or now)
        done = f"batch {batch['batch_id']}, {batch['rows']:,} rows in {batch['seconds']:.1f} s"
        self._screen.advance(work.stream, batch["rows"], f"{child.name}: {work.stream} {done}")
        kill = self._kill
        if child.name == STANDBY and kill is not None and kill.first_commit is None:
            kill.first_commit = now - kill.at
            self._screen.say(f"{child.name}: first commit {kill.first_commit:.1f} s after the kill")

    def _work(self, child: Child, stream: str) -> Work:
        return self.work.setdefault((child.name, stream), Work(driver=child.name, stream=stream))
