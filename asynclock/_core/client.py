"""One client: its backend, the engines of its locks, its loop, and their end at an exit."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from asynclock._core import shutdown
from asynclock._core.engine import Engines, LockEngine
from asynclock._core.home import Home
from asynclock._core.inflight import InFlight
from asynclock._core.mutex import Mutex
from asynclock._core.names import is_name
from asynclock._core.narration import Narrator
from asynclock._core.patched import refuse_patched
from asynclock._core.portal import run_on, runs, uninterrupted
from asynclock._core.protocol.belief import End
from asynclock._core.protocol.body import CLOSED
from asynclock._core.protocol.objects import LockObjects
from asynclock._core.protocol.schedule import Schedule
from asynclock._core.protocol.timing import Timing
from asynclock._core.readwrite import READERS, Readers
from asynclock._core.semaphore import SEMAPHORE, SemaphoreEngine, checked_slots
from asynclock._secrets import clean_url
from asynclock._text import SUFFIX
from asynclock.backends import open_backend
from asynclock.backends._url import split_url
from asynclock.clock import SystemClock
from asynclock.errors import AsyncLockError, ConfigError
from asynclock.events import Events
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping

    from asynclock._core.home import Renewal
    from asynclock._core.protocol.tenure import Tenure
    from asynclock._core.status import LockStatus
    from asynclock.backend import Backend
    from asynclock.clock import Clock
    from asynclock.events import Event

T = TypeVar("T")
MAX_HOLDER: Final = 256
_LISTED_AT_ONCE: Final = 16


def open_core(
    url: str,
    *,
    settings: LeaseSettings | None,
    renewal: Renewal,
    events: Callable[[Event], object] | None,
    clock: Clock | None,
    holder: str | None,
    options: Mapping[str, Any],
) -> Core:
    """Return the core of a client of the locks under ``url``; see ``asynclock.connect``."""
    return Core(
        url=url,
        backend=open_backend(url, **options),
        settings=settings,
        renewal=renewal,
        events=events,
        clock=clock,
        holder=holder,
        reopen=lambda: open_backend(url, **options),
    )


class Core:
    """One client of the locks under a URL, below the handles of ``asynclock`` and ``asynclock.sync``.

    Attributes:
        url: Where the locks are.
        settings: Times of the leases.
        backend: The store.
    """

    def __init__(
        self,
        *,
        url: str,
        backend: Backend,
        settings: LeaseSettings | None = None,
        renewal: Renewal = "thread",
        events: Callable[[Event], object] | None = None,
        clock: Clock | None = None,
        holder: str | None = None,
        rng: random.Random | None = None,
        reopen: Callable[[], Backend] | None = None,
    ) -> None:
        if settings is not None and not isinstance(settings, LeaseSettings):
            raise ConfigError(setting="settings", value=settings, reason="must be a LeaseSettings")
        split_url(url)
        refuse_patched()
        self.url: str = url.rstrip("/") if not url.endswith("://") else url
        self._home = Home(self.url, renewal)
        self.settings: LeaseSettings = settings or LeaseSettings()
        self.backend = backend
        clock = clock or SystemClock()
        self._narrator = Narrator(url=clean_url(self.url), clock=clock)
        self._objects = LockObjects(
            backend=backend,
            clock=clock,
            timing=Timing(
                self.settings,
                resolution=backend.clock_resolution,
                write_interval=backend.min_write_interval,
            ),
            rng=rng or _system_random(),
            events=Events(
                events,
                url=self.url,
                validity=self.settings.validity,
                clock=clock,
                narrator=self._narrator,
            ),
            holder=_checked_holder(holder),
            in_flight=InFlight(self),
        )
        self._home.prepare()
        self._reopen = reopen
        self._schedule = Schedule(self._objects)
        self._engines = Engines(self._new_engine, self._home.time)
        self._abandoned = False
        self._closing: asyncio.Task[None] | None = None
        self._closing_elsewhere = Mutex()
        shutdown.register(self)

    def engine(self, name: str) -> LockEngine:
        """Return the engine that all handles of the lock of that name share."""
        return self._engines.get(name)

    def _new_engine(self, name: str) -> LockEngine:
        return self._kind_of(name)(
            name=name,
            url=f"{self.url}/{name}",
            objects=self._objects,
            schedule=self._schedule,
            home=self._home.get,
        )

    def _kind_of(self, name: str) -> type[LockEngine]:
        """Return the kind of engine that a name asks for: a lock, or one that is made of several."""
        if name.endswith(f"/{READERS}"):
            return Readers
        return SemaphoreEngine if name.endswith(f"/{SEMAPHORE}") else LockEngine

    def readers(self, name: str) -> Readers:
        """Return the engine that all handles of the reader-writer lock of that name share."""
        engine = self.engine(f"{name}/{READERS}")
        assert isinstance(engine, Readers)  # noqa: S101  by its name
        return engine

    def semaphore(self, name: str, slots: int) -> SemaphoreEngine:
        """Return the engine that all handles of the semaphore of that name share.

        Raises:
            ConfigError: It is not a number of slots, or this client uses another.
        """
        checked_slots(slots)
        engine = self.engine(f"{name}/{SEMAPHORE}")
        assert isinstance(engine, SemaphoreEngine)  # noqa: S101  by its name
        engine.ask(slots)
        return engine

    async def list_all(self, prefix: str) -> list[LockStatus]:
        """Read the locks whose name starts with ``prefix``; on the client's loop."""
        scan, found = self.scanning(prefix), []
        while some := await scan.read():
            found += some
        return found

    def scanning(self, prefix: str) -> Scan:
        """Return a listing that can be continued."""
        return Scan(self._names(prefix), self._engines)

    async def _names(self, prefix: str) -> AsyncGenerator[str, None]:
        async for entry in self._objects.list(prefix):
            if self._home.ended is not None:
                raise self._home.error()
            if entry.key.endswith(SUFFIX) and is_name(name := entry.key.removesuffix(SUFFIX)):
                yield name

    def monotonic(self) -> float:
        """Return the seconds of this machine's monotonic clock."""
        return self._objects.clock.monotonic()

    def note_update(self, key: str, tenure: Tenure, began: float) -> None:
        """Report that a fenced object was changed, by writes that were sent after ``began``."""
        owner, token, duration = tenure.owner, tenure.fencing_token, self.monotonic() - began
        self._objects.events.emit("updated", key, owner, token, duration=duration)

    async def aclose(self) -> None:
        """See ``asynclock.LockClient.aclose``."""
        if self._abandoned:
            return
        loop = self._home.loop
        if loop is not None and not runs(loop):
            if self._home.ended is None and not loop.is_closed():
                raise self._unreleased_error("stopped; run it again to close the client on it")
            await run_on(asyncio.get_running_loop(), self._close_elsewhere)
            return
        self._home.ended = "it was closed"
        if loop is not None:
            await run_on(loop, self._close)

    async def _close_elsewhere(self) -> None:
        with uninterrupted():
            async with self._closing_elsewhere:
                if self._reopen is None and any(held.belief.end_if_due() > 0 for held in self._schedule.held):
                    raise self._unreleased_error("closed, and its backend cannot be opened on another")
                self._objects.in_flight.closed = self._objects.in_flight.closed or ConfigError(
                    setting="client", value=self.url, reason="it was closed; connect again"
                )
                await self.release_elsewhere(closing=True)
                self._schedule.close()
                self._narrator.close()
                self._home.ended = self._home.ended or "it was closed"

    def _unreleased_error(self, state: str) -> ConfigError:
        return ConfigError(
            setting="client",
            value=self.url,
            reason=f"nothing was released: the event loop that this client belongs to is {state}; "
            "its locks free themselves after their validity, or at the exit of the interpreter",
        )

    async def _close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close_once())
        with uninterrupted():
            await asyncio.wait([self._closing])
        self._closing.result()

    async def _close_once(self) -> None:
        error = self._home.error()
        self._objects.in_flight.close(error)
        await self._let_go_of_all(CLOSED, closing=True)
        self._schedule.close()
        self._objects.close(error)
        await self._objects.in_flight.cut_off()
        await self.backend.aclose()
        self._narrator.close()

    async def release_all(self, *, loss: str | None = None, quietly: bool = False) -> None:
        """Release every lock within the exit bound and block new acquisitions for twice that long.

        Runs on the client's loop.

        Args:
            loss: Why, reported to the holders as a loss; None: they let go themselves.
            quietly: Hold events back until ``report``.
        """
        if quietly:
            self._objects.events.hold_back()
        await self._let_go_of_all(loss)
        for each in self._objects.in_flight.unfreed:
            if loss is None:
                each.give_up("the process ended")
            else:
                each.note_pending()

    async def _let_go_of_all(self, loss: str | None, *, closing: bool = False) -> None:
        """Release every lock within the exit bound; ``closing``: if nobody uses it, this is not a loss."""
        now = asyncio.get_running_loop().time()
        self._engines.stand_back(now + 2 * self.exit_bound)
        self._objects.in_flight.hurry()
        going_on = True
        while going_on:
            for held in self._schedule.held:  # again: a write that was in flight may acquire another
                held.release.let_go(None if closing and not held.body.in_use else loss)
            going_on = await self._objects.in_flight.progress(now + self.exit_bound)

    async def report(self) -> None:
        """Pass on the events that ``release_all`` has held back. Runs on the client's loop."""
        self._objects.events.catch_up()

    async def release_elsewhere(self, *, closing: bool = False) -> None:
        """Release every lock through another backend, on the running loop: the client's own is closed.

        And what was being freed when that loop was closed.

        Args:
            closing: It is a loss to those who use a lock.
        """
        locks = self._schedule.held
        renewed = {held.release for held in locks}
        unfreed = [each for each in self._objects.in_flight.unfreed if each not in renewed]
        if self._reopen is None or not (locks or unfreed):
            return
        backend = self._reopen()
        try:
            objects = self._objects.through(backend)
            releases = [
                held.release.free_through(objects, CLOSED if closing and held.body.in_use else None)
                for held in locks
            ]
            releases += [each.free_through(objects) for each in unfreed]
            await asyncio.gather(*releases, return_exceptions=True)
        finally:
            await backend.aclose()

    @property
    def objects(self) -> LockObjects:
        """How it reads and writes, and what it knows of the store's time."""
        return self._objects

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that everything runs on; None before first use and after the end."""
        return self._home.loop if self._home.ended is None else None

    @property
    def exit_bound(self) -> float:
        """Seconds that an exit may take to release (rule 18)."""
        return self._objects.timing.exit_bound

    def lose_all(self, reason: str) -> None:
        """End all leases, and report their losses from this thread: nobody runs the loop any more."""
        self._home.ended, self._abandoned = reason, True
        for held in self._schedule.held:
            held.belief.end(End.LOOP_DIED, reason)
            held.ending.report_loss()

    def abandon(self, reason: str) -> None:
        """Hold nothing any more and leave the sockets alone: this is a forked child."""
        self._home.ended, self._abandoned = reason, True
        for held in self._schedule.held:
            held.belief.end(End.FORK, reason)

    async def request(self, operation: str, key: str, call: Coroutine[Any, Any, T]) -> T:
        """Await one call of the backend within the request timeout; for the client's loop.

        Raises:
            BackendError: It failed, or took too long.
        """
        return await self._objects.request(operation, key, call)

    def run(self, start: Callable[[], Coroutine[Any, Any, T]]) -> Coroutine[Any, Any, T]:
        """Run a coroutine on the client's loop, from any other."""
        return run_on(self.home(), start)

    def home(self) -> asyncio.AbstractEventLoop:
        """Return the loop that everything runs on; the first use decides.

        Raises:
            ConfigError: The client was closed, or belongs to another loop.
        """
        return self._home.get()


class Scan:
    """A listing of locks, a few at a time; on the client's loop, for the rest of the package."""

    def __init__(self, names: AsyncGenerator[str, None], engines: Engines) -> None:
        self._names = names
        self._engines = engines

    def engine(self, name: str) -> LockEngine:
        """Return an engine for one read."""
        return self._engines.look(name)

    async def names(self) -> list[str]:
        """Return the next names, as many as are to be read at once; empty at the end."""
        names: list[str] = []
        async for name in self._names:
            names.append(name)
            if len(names) == _LISTED_AT_ONCE:
                break
        return names

    async def read(self) -> list[LockStatus]:
        """Read the next locks; empty at the end."""
        names = await self.names()
        found: dict[str, LockStatus] = {}
        errors: list[AsyncLockError] = []

        async def read(name: str) -> None:
            try:
                engine = self.engine(name)
                found[name] = await engine.status()
                if engine.observes:
                    self._engines.keep(engine)
            except AsyncLockError as error:
                errors.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(read, name)
        if errors:
            raise errors[0]
        return [found[name] for name in names]

    async def close(self) -> None:
        """End the listing."""
        await self._names.aclose()


def _system_random() -> random.Random:
    from random import SystemRandom  # noqa: PLC0415  with its hashes a twentieth of ``import asynclock``

    return SystemRandom()


def default_holder() -> str:
    """Return ``host:pid:program`` of this process."""
    started = sys.argv[0] if sys.argv and sys.argv[0] else sys.executable
    program = started.rstrip(os.sep).rpartition(os.sep)[2]  # pathlib would come along with every import
    plain = f"{socket.gethostname()}:{os.getpid()}:{program}"
    return "".join(each if each.isprintable() else "?" for each in plain)[:MAX_HOLDER]


def _checked_holder(holder: str | None) -> str:
    if holder is None:
        return default_holder()
    if not isinstance(holder, str) or not holder.isprintable() or not 0 < len(holder) <= MAX_HOLDER:
        raise ConfigError(setting="holder", value=holder, reason="must be 1 to 256 printable characters")
    return holder
