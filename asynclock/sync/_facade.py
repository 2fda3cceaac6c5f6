"""Blocking twins of the public classes, each a thin wrapper of the async one."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import asynclock
import asynclock.client
import asynclock.lease
import asynclock.lock
from asynclock._patched import refuse_patched
from asynclock.errors import ConfigError, LeaseLostError
from asynclock.lock import checked_at_least, checked_timeout, warn_of_unused
from asynclock.portal import Host, block_on, start_on

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Coroutine, Iterator
    from types import TracebackType
    from typing import Self, Unpack

    from asynclock.backend import Backend
    from asynclock.clock import Clock
    from asynclock.events import Event
    from asynclock.fencing import FencedValue
    from asynclock.options import BackendOptions
    from asynclock.probing import ProbeReport
    from asynclock.settings import LeaseSettings
    from asynclock.status import LockStatus

T = TypeVar("T")
_ENDS: Final = frozenset({"Lease.release", "LockClient.aclose"})
"""What is tried all the same once threads are patched: the host may have begun before."""


def block(
    name: str,
    start: Callable[[], Coroutine[Any, Any, T]],
    undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
) -> T:
    """Run a coroutine on the host's loop and wait for its end.

    Args:
        name: Name of the caller, for errors.
        start: Makes the coroutine.
        undo: Undoes a result that arrives after an interrupt, when no caller is left to take it.

    Raises:
        RuntimeError: This thread runs an event loop, which waiting would block.
        ConfigError: gevent or eventlet has patched threads or sockets.
    """
    refuse_loop(name, "await")
    if name not in _ENDS:
        refuse_patched()  # perhaps since the client was made
    return block_on(Host.get().loop, start, undo)


def refuse_loop(name: str, word: str) -> None:
    """Refuse to block a running event loop.

    Args:
        name: Name of the caller.
        word: What stands before the async call: ``await`` or ``async with``.

    Raises:
        RuntimeError: This thread runs an event loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"asynclock.sync.{name} would block the event loop running in this thread; "
        f"use: {word} asynclock.{name}"
    )


async def _release(lease: Lease | None) -> None:
    if lease is not None and lease.held:
        lease.twin.keep(0.0)  # nobody had it
        await lease.twin.release()


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
    """Return a client of the locks under ``url``; no I/O. For the arguments see ``asynclock.connect``.

    Raises:
        ConfigError: The URL, an option or a setting is wrong, gevent or eventlet has monkey-patched threads
            or sockets, or ``renewal`` is not ``"thread"``: a thread that blocks has no loop to renew on.
        BackendNotInstalledError: The backend's package is missing.
    """
    if renewal != "thread":
        raise ConfigError(
            setting="renewal", value=renewal, reason='must be "thread": a thread that blocks has no loop'
        )
    return LockClient(
        asynclock.client.connect(
            url,
            settings=settings,
            renewal=renewal,
            events=events,
            clock=clock,
            holder=holder,
            **backend_options,
        )
    )


def probe(url: str, *, also: str | None = None, **backend_options: Unpack[BackendOptions]) -> ProbeReport:
    """Test whether ``url`` is safe for locks; see ``asynclock.probe``."""
    return block("probe", lambda: asynclock.probe(url, also=also, **backend_options))


class LockClient:
    """The locks under one URL. A context manager; see ``asynclock.LockClient``.

    Attributes:
        url: Where the locks are.
        settings: Times of the leases.
        backend: The store.
        twin: The wrapped ``asynclock.LockClient``; for the rest of the package.
    """

    def __init__(self, client: asynclock.client.LockClient) -> None:
        self.twin = client
        self.url: str = client.url
        self.settings: LeaseSettings = client.settings
        self.backend: Backend = client.backend

    def lock(self, name: str) -> Lock:
        """Return the lock of that name; see ``asynclock.LockClient.lock``."""
        return Lock(self.twin.lock(name))

    def list(self, prefix: str = "") -> builtins.list[LockStatus]:
        """Read the locks whose name starts with ``prefix``; see ``asynclock.LockClient.list``."""
        return block("LockClient.list", lambda: self.twin.list(prefix))

    def scan(self, prefix: str = "") -> Iterator[LockStatus]:
        """Yield what ``list`` returns, as it is read; see ``asynclock.LockClient.scan``."""
        scan = self.twin.scanning(prefix)
        try:
            while some := block("LockClient.scan", lambda: self.twin.run(scan.read)):
                yield from some
        finally:
            if (loop := self.twin.loop) is not None:
                with suppress(RuntimeError, ConfigError):  # that loop has ended
                    start_on(loop, scan.close)  # without waiting: this may be a finalizer

    def aclose(self) -> None:
        """Release every lease and close; see ``asynclock.LockClient.aclose``."""
        block("LockClient.aclose", self.twin.aclose)

    close = aclose
    """What ``contextlib.closing`` calls."""

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


class Lock:
    """A lock of a client; see ``asynclock.Lock``. Waiting threads form a fair queue.

    Attributes:
        twin: The wrapped ``asynclock.Lock``; for the rest of the package.
    """

    def __init__(self, lock: asynclock.lock.Lock) -> None:
        self.twin = lock
        self.name: str = lock.name
        self.key: str = lock.key
        # By thread that entered ``with lock``.
        self._entered: WeakKeyDictionary[threading.Thread, _Hold] = WeakKeyDictionary()

    def acquire(self, *, timeout: float | None = None, at_least: float = 0.0) -> Lease:
        """Wait until the lock is ours; see ``asynclock.Lock.acquire``."""

        async def acquire() -> Lease:
            # Wrapped inside the call: an interrupt between its end and our return would lose the lease.
            return Lease(await self.twin.acquire(timeout=timeout, at_least=at_least))

        return block("Lock.acquire", acquire, undo=_release)

    def try_acquire(self) -> Lease | None:
        """Try one round; see ``asynclock.Lock.try_acquire``."""

        async def try_acquire() -> Lease | None:
            lease = await self.twin.try_acquire()
            return None if lease is None else Lease(lease)

        return block("Lock.try_acquire", try_acquire, undo=_release)

    def hold(self, *, timeout: float | None = None, at_least: float = 0.0) -> AbstractContextManager[Lease]:
        """Hold the lock for the body of ``with``.

        Nothing can interrupt the body: call ``lease.check()`` in it, or let ``lease.on_lost`` stop
        what it waits for. If the lease was lost, the end of the body raises ``LeaseLostError``. If the
        body raised an exception, that one is raised, with the loss added as a note. A thread that holds
        the lock so already would wait for itself: entering raises ``RuntimeError``.
        """
        return _Hold(self, checked_timeout(timeout), checked_at_least(at_least))

    def __enter__(self) -> Lease:
        hold = _Hold(self, None, 0.0)
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
        return block("Lock.status", self.twin.status)

    def break_lock(self, status: LockStatus, *, force: bool = False) -> LockStatus:
        """Free another holder's lock by hand; see ``asynclock.Lock.break_lock``."""
        return block("Lock.break_lock", lambda: self.twin.break_lock(status, force=force))

    def lead(self, work: Callable[[Lease], T], *, timeout: float | None = None) -> T:
        """Run ``work(lease)`` in this thread while holding the lock, and once more after each loss.

        ``work`` cannot be interrupted, so it must poll ``lease.check()``. See ``asynclock.Lock.lead``.
        """
        while True:
            lease: Lease | None = None
            try:
                with self.hold(timeout=timeout) as lease:
                    return work(lease)
            except LeaseLostError as error:
                if lease is None or lease.lost is None or self.twin.closed:
                    self.twin.note_leader(error, lease)
                    raise
            except Exception as error:
                self.twin.note_leader(error, lease)
                raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Lock cannot be pickled; connect again in the other process")

    def __repr__(self) -> str:
        return f"<sync.{repr(self.twin)[1:]}"


class Lease:
    """A held lock; see ``asynclock.Lease``. As a context manager it releases the lock at the end.

    Attributes:
        twin: The wrapped ``asynclock.Lease``; for the rest of the package.
    """

    def __init__(self, lease: asynclock.lease.Lease) -> None:
        self.twin = lease
        self.name: str = lease.name
        self.key: str = lease.key
        self.owner: str = lease.owner

    @property
    def fencing_token(self) -> int:
        """The token; see ``asynclock.Lease.fencing_token``."""
        return self.twin.fencing_token

    @property
    def held(self) -> bool:
        """Whether this lease is still believed to hold the lock; no I/O."""
        return self.twin.held

    @property
    def lost(self) -> LeaseLostError | None:
        """Why the lease was lost, or None."""
        return self.twin.lost

    def remaining(self) -> float:
        """Return the seconds until the lease is no longer believed; 0.0 once lost or released."""
        return self.twin.remaining()

    def check(self) -> None:
        """Raise ``LeaseLostError`` unless the lock is believed to be held; no I/O."""
        self.twin.check()

    def confirm(self) -> None:
        """Check with the store that the lock is held; see ``asynclock.Lease.confirm``."""
        block("Lease.confirm", self.twin.confirm)

    def release(self) -> None:
        """Free the lock; see ``asynclock.Lease.release``."""
        block("Lease.release", self.twin.release)

    def on_lost(self, callback: Callable[[LeaseLostError], object]) -> None:
        """Call ``callback(loss)`` once, on its own thread; see ``asynclock.Lease.on_lost``."""
        self.twin.on_lost(callback)

    def __enter__(self) -> Self:
        self.twin.note_body()
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

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Lease cannot be pickled: another process does not hold it; pass its fencing_token")

    def __repr__(self) -> str:
        return f"<sync.{repr(self.twin)[1:]}"


class _Hold(AbstractContextManager[Lease]):
    _begun = False

    def __init__(self, lock: Lock, timeout: float | None, at_least: float) -> None:
        self._lock = lock
        self._timeout = timeout
        self._at_least = at_least
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        self._begun = True
        if self._lease is not None:
            raise RuntimeError("hold() can be entered once; call hold() again")
        refuse_loop("Lock.hold", "async with")
        thread = threading.current_thread()
        self._lock.twin.refuse_nested(thread)
        self._lease = self._lock.acquire(timeout=self._timeout, at_least=self._at_least)
        self._lock.twin.note_body(thread, self._lease.twin)
        self._lease.twin.note_body()
        return self._lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None  # noqa: S101  entered
        self._lease.__exit__(kind, error, trace)

    def __del__(self) -> None:
        if not self._begun:
            warn_of_unused(self._lock.name, "with")


class FencedObject:
    """An object that refuses the writes of an older holder; see ``asynclock.FencedObject``."""

    def __init__(self, client: LockClient, key: str) -> None:
        self._object = asynclock.FencedObject(client.twin, key)
        self.key: str = key

    def read(self) -> FencedValue | None:
        """Return what is stored; see ``asynclock.FencedObject.read``."""
        return block("FencedObject.read", self._object.read)

    def write(self, body: bytes, *, lease: Lease) -> FencedValue:
        """Replace the body; see ``asynclock.FencedObject.write``."""
        return block(
            "FencedObject.write",
            lambda: self._object.write(body, lease=lease.twin),
        )

    def update(self, change: Callable[[bytes | None], bytes], *, lease: Lease) -> FencedValue:
        """Replace the body by ``change(body)``; see ``asynclock.FencedObject.update``."""
        return block(
            "FencedObject.update",
            lambda: self._object.update(change, lease=lease.twin),
        )
