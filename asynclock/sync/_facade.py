"""The blocking handles. They use the same core as the async ones."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from asynclock._core.acquirers import acquirer
from asynclock._core.client import open_core
from asynclock._core.handles import (
    LeaseHandle,
    LockHandle,
    RWLockHandle,
    SemaphoreHandle,
    checked_at_least,
    checked_timeout,
    checked_within,
    warn_of_unused,
)
from asynclock._core.leading import Candidate
from asynclock._core.names import checked_name
from asynclock._core.portal import run_on, start_on
from asynclock._core.semaphore import checked_slots
from asynclock._core.ticket import read_ticket
from asynclock._core.together import (
    checked_names,
    confirm_all,
    cut_off_by_loss,
    finish_all,
    of_all,
    raise_loss,
    tie,
)
from asynclock._once import Periods, checked_job
from asynclock.errors import AcquireTimeoutError, ConfigError, LeaseLostError
from asynclock.sync._blocking import block, refuse_loop

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from types import TracebackType
    from typing import Self, Unpack

    from asynclock._core.client import Core
    from asynclock._core.engine import LockEngine
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.status import LockStatus
    from asynclock.backend import Backend
    from asynclock.clock import Clock
    from asynclock.events import Event
    from asynclock.options import BackendOptions
    from asynclock.settings import LeaseSettings

P = ParamSpec("P")
T = TypeVar("T")


def _leased(
    name: str,
    engine: LockEngine,
    acquire: Callable[[], Coroutine[Any, Any, HeldLock | None]],
    note: Callable[[HeldLock], object] = lambda _: None,
) -> Lease | None:
    """Block until ``acquire`` has ended, and return the lease of what it gives, once ``note`` knows of it."""
    here = acquirer()

    async def leased() -> Lease | None:
        # All within the call: an interrupt between its end and our return would lose the lease.
        held = await acquire()
        if held is None:
            return None
        held.body.acquired = here
        note(held)
        return Lease(held, engine.of(held))

    return block(name, lambda: run_on(engine.home(), leased), undo=_release)


async def _release(lease: Lease | None) -> None:
    if lease is not None and lease.held:
        held, engine = lease._held, lease._engine
        held.release.keep(0.0)  # no caller had it
        await engine.finish_lease(held)


def connect(
    url: str,
    *,
    settings: LeaseSettings | None = None,
    renewal: Literal["thread"] = "thread",
    events: Callable[[Event], object] | None = None,
    clock: Clock | None = None,
    holder: str | None = None,
    **backend_options: Unpack[BackendOptions],
) -> LockClient:
    """Return a client of the locks under ``url``; no I/O. See ``asynclock.connect`` for the arguments.

    Raises:
        ConfigError: The URL, an option or a setting is wrong, gevent or eventlet has monkey-patched threads
            or sockets, or ``renewal`` is not ``"thread"``: a blocked thread has no loop to renew on.
        BackendNotInstalledError: The backend's package is missing.
    """
    if renewal != "thread":
        raise ConfigError(
            setting="renewal",
            value=renewal,
            reason='must be "thread": a blocked thread has no loop to renew on',
        )
    return LockClient(
        open_core(
            url,
            settings=settings,
            renewal=renewal,
            events=events,
            clock=clock,
            holder=holder,
            options=backend_options,
        )
    )


class LockClient:
    """The locks under one URL. A context manager; see ``asynclock.LockClient``.

    Attributes:
        url: URL of the locks.
        settings: Times of the leases.
        backend: The store.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.url: str = core.url
        self.settings: LeaseSettings = core.settings
        self.backend: Backend = core.backend

    def lock(self, name: str) -> Lock:
        """Return the lock of that name; see ``asynclock.LockClient.lock``."""
        return Lock(self._core.engine(checked_name(name)))

    def once(
        self, name: str, *, every: float, wait: bool = False
    ) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
        """Decorate a function: of all callers, one runs it in each period; see ``asynclock.LockClient.once``.

        Nothing can interrupt a run whose lease is lost: the call raises at its end, and nothing is marked.
        """
        lock = self.lock(name)
        periods = Periods(self._core, name, every)
        due = partial(block, "LockClient.once", lambda: self._core.run(periods.due))

        def decorate(work: Callable[P, T]) -> Callable[P, T | None]:
            checked_job(work, coroutine=False)

            @wraps(work)
            def run(*args: P.args, **kwargs: P.kwargs) -> T | None:
                while due() is not None:
                    with ExitStack() as stack:
                        try:
                            lease = stack.enter_context(lock.hold(timeout=None if wait else 0))
                        except AcquireTimeoutError as error:
                            if error.reason is not None:
                                raise  # the store
                            if lock.status().state == "held":
                                return None
                            time.sleep(self.settings.poll_interval)
                            continue  # it was in use for a moment, or this client makes way
                        if (period := due()) is None:
                            return None
                        lease.check()  # the look may have taken long
                        result = work(*args, **kwargs)
                        done = partial(periods.note_done, period, lease)
                        block("LockClient.once", partial(self._core.run, done))
                        return result
                return None

            return run

        return decorate

    def hold_all(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> AbstractContextManager[builtins.list[Lease]]:
        """Hold several locks for the body of ``with``, all or none; see ``asynclock.LockClient.hold_all``.

        Nothing can interrupt the body: once one lock is lost, ``check()`` of every lease raises.
        """
        return _HoldAll([self.lock(name) for name in checked_names(names)], checked_timeout(timeout))

    def semaphore(self, name: str, slots: int) -> Semaphore:
        """Return the semaphore of that name; see ``asynclock.LockClient.semaphore``."""
        checked_name(f"{checked_name(name)}/slot=00")
        return Semaphore(self._core.semaphore(name, slots), name)

    def rwlock(self, name: str) -> RWLock:
        """Return the reader-writer lock of that name; see ``asynclock.LockClient.rwlock``."""
        checked_name(f"{checked_name(name)}/rw=r00")
        return RWLock(self._core.readers(name), name)

    def list(self, prefix: str = "") -> builtins.list[LockStatus]:
        """Read the locks whose name starts with ``prefix``; see ``asynclock.LockClient.list``."""
        return block("LockClient.list", lambda: self._core.run(lambda: self._core.list_all(prefix)))

    def scan(self, prefix: str = "") -> Iterator[LockStatus]:
        """Yield the locks of ``list`` as they are read; see ``asynclock.LockClient.scan``."""
        scan = self._core.scanning(prefix)
        try:
            while some := block("LockClient.scan", lambda: self._core.run(scan.read)):
                yield from some
        finally:
            if (loop := self._core.loop) is not None:
                with suppress(RuntimeError, ConfigError):  # that loop has ended
                    start_on(loop, scan.close)  # without waiting: this may be a finalizer

    def aclose(self) -> None:
        """Release every lease and close; see ``asynclock.LockClient.aclose``."""
        block("LockClient.aclose", self._core.aclose)

    close = aclose
    """The name that ``contextlib.closing`` calls."""

    def __enter__(self) -> Self:
        refuse_loop("connect", "async with")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.aclose()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LockClient cannot be pickled; connect again in the other process")

    def __repr__(self) -> str:
        return f"<sync.LockClient {self.url!r}>"


class Holdable(LockHandle):
    """What can be held; see ``asynclock.lock.Holdable``. Waiting threads form a fair queue."""

    _of = "sync."

    def __init__(self, engine: LockEngine) -> None:
        super().__init__(engine)
        # The hold of each thread that entered ``with lock``.
        self._entered: WeakKeyDictionary[threading.Thread, _Hold] = WeakKeyDictionary()

    def acquire(
        self,
        *,
        timeout: float | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        ticket: str | None = None,
    ) -> Lease:
        """Wait until the lock is ours; see ``asynclock.Lock.acquire``."""
        engine, keep, limit = self._engine, checked_at_least(at_least), checked_timeout(timeout)
        cap = engine.checked_at_most(at_most, keep)
        offer = None if ticket is None else read_ticket(ticket)

        async def acquire() -> HeldLock | None:
            held = await engine.acquire(timeout=limit, at_most=cap, ticket=offer)
            if keep > 0 and held is not None:
                held.release.keep(keep)
            return held

        lease = _leased("Lock.acquire", engine, acquire, partial(self._note, threading.current_thread()))
        assert lease is not None  # noqa: S101  only one try gives None
        return lease

    def _note(self, thread: threading.Thread, held: HeldLock) -> None:
        """Note which thread has acquired it."""

    def try_acquire(self) -> Lease | None:
        """Try one round; see ``asynclock.Lock.try_acquire``."""
        engine, note = self._engine, partial(self._note, threading.current_thread())
        return _leased("Lock.try_acquire", engine, lambda: engine.acquire(timeout=None, once=True), note)

    def hold(
        self, *, timeout: float | None = None, at_least: float = 0.0, at_most: float | None = None
    ) -> AbstractContextManager[Lease]:
        """Hold the lock for the body of ``with``.

        Nothing can interrupt the body: call ``lease.check()`` in it, or let ``lease.on_lost`` end its waits.
        If the lease was lost, the end of the body raises ``LeaseLostError``. If the body raised an exception,
        that one is raised, with the loss added as a note. If this thread already holds the lock with
        ``hold``, entering raises ``RuntimeError``, because the thread would wait for itself.
        """
        keep = checked_at_least(at_least)
        return _Hold(self, checked_timeout(timeout), keep, self._engine.checked_at_most(at_most, keep))

    def __enter__(self) -> Lease:
        hold = _Hold(self, None)
        lease = hold.__enter__()
        self._entered[threading.current_thread()] = hold
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._entered.pop(threading.current_thread(), None)
        if hold is None:
            raise RuntimeError(
                f"this thread has not entered the lock {self.name!r}; use hold() to leave it in another"
            )
        hold.__exit__(kind, error, trace)

    def status(self) -> LockStatus:
        """Read the lock once; see ``asynclock.Lock.status``."""
        return block("Lock.status", lambda: run_on(self._engine.home(), self._engine.status))

    def break_lock(self, status: LockStatus, *, force: bool = False) -> LockStatus:
        """Free another holder's lock; see ``asynclock.Lock.break_lock``."""
        engine = self._engine
        return block(
            "Lock.break_lock",
            lambda: run_on(engine.home(), lambda: engine.break_lock(status, force=force)),
        )


class Lock(Holdable):
    """A lock of a client; see ``asynclock.Lock``. Waiting threads form a fair queue.

    Attributes:
        name: Of the lock.
        key: The lock's object under the client's URL.
    """

    def leader(self) -> LockStatus:
        """Read the lock once, to tell who leads; see ``asynclock.Lock.leader``."""
        return self.status()

    def lead(
        self,
        work: Callable[[Lease], T],
        *,
        timeout: float | None = None,
        on_change: Callable[[LockStatus], object] | None = None,
    ) -> T:
        """Run ``work(lease)`` in this thread while it holds the lock, and again after each loss.

        ``work`` cannot be interrupted, so it must poll ``lease.check()``, which raises after ``step_down``,
        too. ``on_change`` is called in a thread of its own. See ``asynclock.Lock.lead``.
        """
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  few programs lead

        engine = self._engine
        with (
            ThreadPoolExecutor(1, "asynclock-on-change") as thread,  # it begins with its first call
            Candidate(engine, on_change, thread.submit),
        ):
            while True:
                lease: Lease | None = None
                try:
                    with self.hold(timeout=timeout) as lease, engine.turns.leading(lease._held):
                        return work(lease)
                except LeaseLostError as error:
                    ended = lease is not None and (lease.lost is not None or lease._held.body.ceded)
                    if not ended or engine.closed:
                        engine.note_leader(error, led=lease is not None)
                        raise
                except Exception as error:
                    engine.note_leader(error, led=lease is not None)
                    raise

    def step_down(self) -> bool:
        """End the term of this client as the leader; see ``asynclock.Lock.step_down``.

        ``lease.check()`` of the work raises from then on; until the work has ended, the lock stays held.
        """
        return self._engine.turns.step_down()


class Semaphore(SemaphoreHandle, Holdable):
    """At most ``slots`` leases at a time; see ``asynclock.Semaphore``.

    Attributes:
        name: Of the semaphore.
        key: The object with the number of slots, under the client's URL.
    """

    def resize(self, slots: int) -> None:
        """Change the number of slots, for all clients; see ``asynclock.Semaphore.resize``."""
        engine, count = self._engine, checked_slots(slots)
        block("Semaphore.resize", lambda: run_on(engine.home(), lambda: engine.resize(count)))


class _Side(Holdable):
    def acquire(self, **options: Any) -> Lease:  # noqa: ANN401  of ``Holdable``
        """Like ``Lock.acquire``, but refuse a thread that has the other side."""
        self._engine.refuse_upgrade(threading.current_thread())
        return super().acquire(**options)

    def _note(self, thread: threading.Thread, held: HeldLock) -> None:
        self._engine.note_body(thread, held)


class RWLock(RWLockHandle[Holdable]):
    """Readers share it, and a writer has it alone; see ``asynclock.RWLock``.

    Attributes:
        name: Name of the lock.
    """

    _of = "sync."
    _side = _Side


class Lease(LeaseHandle):
    """A held lock; see ``asynclock.Lease``. As a context manager it releases the lock at the end.

    Attributes:
        name: Of the lock.
        key: The lock's object under the client's URL.
        owner: The id of this acquisition.
    """

    def check(self) -> None:
        """Return if the lock is believed to be held; see ``asynclock.Lease.check`` and ``Lock.step_down``."""
        super().check()
        if (held := self._held).body.ceded:
            reason = "its leader was asked to step down"
            raise LeaseLostError(
                key=self.key, owner=self.owner, fencing_token=held.tenure.fencing_token, reason=reason
            )

    def confirm(self) -> None:
        """Check with the store that the lock is held; see ``asynclock.Lease.confirm``."""
        refuse_loop("Lease.confirm", "await")
        self.check()
        error = block("Lease.confirm", lambda: run_on(self._held.loop, self._held.renewer.renew))
        self.check()
        if error is not None:
            raise error

    def release(self) -> None:
        """Free the lock; see ``asynclock.Lease.release``."""
        refuse_loop("Lease.release", "await")
        if self._has_ended():
            return
        held, engine = self._held, self._engine
        block("Lease.release", lambda: run_on(held.loop, lambda: engine.finish_lease(held)))

    def transfer(self, *, within: float | None = None) -> str:
        """Return a ticket by which another process takes the lock over; see ``asynclock.Lease.transfer``."""
        refuse_loop("Lease.transfer", "await")
        held, engine = self._held, self._engine
        seconds = checked_within(within)
        self.check()
        ticket = block(
            "Lease.transfer",
            lambda: run_on(held.loop, lambda: engine.transfer(held, seconds)),
            undo=lambda _: run_on(held.loop, lambda: engine.withdraw(held)),
        )
        return ticket.encode()

    def __enter__(self) -> Self:
        self._held.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LeaseLostError as lost:
            if error is None:
                raise
            error.add_note(str(lost))

    def __repr__(self) -> str:
        return f"<sync.{super().__repr__()[1:]}"


class _Hold(AbstractContextManager[Lease]):
    _begun = False

    def __init__(
        self, lock: Holdable, timeout: float | None, at_least: float = 0.0, at_most: float | None = None
    ) -> None:
        self._lock = lock
        self._timeout = timeout
        self._at_least = at_least
        self._at_most = at_most
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        self._begun = True
        if self._lease is not None:
            raise RuntimeError("hold() can be entered once; call hold() again")
        refuse_loop("Lock.hold", "async with")
        acquire = partial(
            self._lock.acquire, timeout=self._timeout, at_least=self._at_least, at_most=self._at_most
        )
        self._lease = _entered(self._lock, acquire)
        return self._lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None  # noqa: S101  entered
        self._lease.__exit__(kind, error, trace)

    def __del__(self) -> None:
        if not self._begun:
            warn_of_unused(self._lock.name, "with")


def _entered(lock: Holdable, acquire: Callable[[], Lease]) -> Lease:
    """Acquire a lock for a body in this thread."""
    thread, engine = threading.current_thread(), lock._engine
    engine.refuse_nested(thread)
    lease = acquire()
    engine.note_body(thread, lease._held)
    lease._held.enter()
    return lease


class _HoldAll(AbstractContextManager[list[Lease]]):
    def __init__(self, locks: list[Lock], timeout: float | None) -> None:
        self._locks = locks
        self._timeout = timeout
        self._leases: list[Lease] = []
        self._entered = False

    def __enter__(self) -> list[Lease]:
        if self._entered:
            raise RuntimeError("hold_all() can be entered once; call hold_all() again")
        self._entered = True
        until = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            for lock in sorted(self._locks, key=lambda each: each.key):
                left = None if until is None else max(0.0, until - time.monotonic())
                self._leases.append(_entered(lock, partial(self._acquire, lock._engine, left)))
            tie(self._leases)
            block("LockClient.hold_all", lambda: confirm_all(self._leases))
        except BaseException as error:
            whole = of_all(error, self._timeout)
            self.__exit__(type(whole), whole, error.__traceback__)
            if whole is error:
                raise
            raise whole from whole.__cause__
        by_name = {lease.name: lease for lease in self._leases}
        return [by_name[lock.name] for lock in self._locks]

    def _acquire(self, engine: LockEngine, timeout: float | None) -> Lease:
        async def acquire() -> HeldLock | None:
            with cut_off_by_loss(self._leases):
                return await engine.acquire(timeout=timeout)

        lease = _leased("Lock.acquire", engine, acquire)
        assert lease is not None  # noqa: S101  only one try gives None
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block("LockClient.hold_all", lambda: finish_all(self._leases))
        raise_loss(self._leases, error)
