"""LockClient and ``connect``: the locks under one URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from asynclock._core.client import Core, open_core
from asynclock._core.handles import checked_timeout
from asynclock._core.names import checked_name
from asynclock._core.portal import run_on, running_loop
from asynclock._core.together import checked_names
from asynclock._once import Periods, run_once
from asynclock._several import HoldAll
from asynclock.lock import Lock
from asynclock.sharing import RWLock, Semaphore

if TYPE_CHECKING:
    import builtins
    import random
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Any, Self, Unpack

    from asynclock._core.home import Renewal
    from asynclock._core.status import LockStatus
    from asynclock.backend import Backend
    from asynclock.clock import Clock
    from asynclock.events import Event
    from asynclock.lease import Lease
    from asynclock.options import BackendOptions
    from asynclock.settings import LeaseSettings

P = ParamSpec("P")
T = TypeVar("T")


def connect(
    url: str,
    *,
    settings: LeaseSettings | None = None,
    renewal: Renewal = "thread",
    events: Callable[[Event], object] | None = None,
    clock: Clock | None = None,
    holder: str | None = None,
    **backend_options: Unpack[BackendOptions],
) -> LockClient:
    """Return a client of the locks under ``url``; no I/O, no coroutine.

    Args:
        url: ``s3://bucket/prefix``, ``gs://``, ``az://``, ``file:///folder``, ``memory://name``, …
        settings: Times of the leases; default ``LeaseSettings()``.
        renewal: ``"thread"`` does I/O and renewal on a loop in a thread of this process, so that
            a blocked event loop does not cost the lease; usable from any loop and thread.
            ``"loop"`` keeps everything on the loop of first use.
        events: Called with each ``asynclock.events.Event``, quickly and without blocking.
        clock: This machine's clocks; for tests.
        holder: Name of the holder, visible to every reader of the bucket; default ``host:pid:program``, at
            most 256 printable characters.
        backend_options: Options of the backend: ``BackendOptions``; see ``docs/backends``.

    Raises:
        ConfigError: The URL, an option or a setting is wrong, or gevent or eventlet has monkey-patched
            threads or sockets.
        BackendNotInstalledError: The backend's package is missing.
    """
    return client_over(
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
    """The locks under one URL. An async context manager. The first use opens it.

    Attributes:
        url: URL of the locks.
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
        self._core = core = Core(
            url=url,
            backend=backend,
            settings=settings,
            renewal=renewal,
            events=events,
            clock=clock,
            holder=holder,
            rng=rng,
            reopen=reopen,
        )
        self.url: str = core.url
        self.settings: LeaseSettings = core.settings
        self.backend: Backend = core.backend

    def lock(self, name: str) -> Lock:
        """Return the lock of that name; no I/O. The same name gives the same waiting line.

        Args:
            name: 1 to 512 characters of ``[A-Za-z0-9._=-]``, in segments joined by ``/``; no
                segment may be ``.`` or ``..``, and ``.json`` at the end is refused, because it marks the
                object of a lock.

        Raises:
            ConfigError: The name breaks these rules.
        """
        return Lock(self._core.engine(checked_name(name)))

    def once(
        self, name: str, *, every: float, wait: bool = False
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T | None]]]:
        """Decorate a coroutine function so that, of all its callers, one runs it to its end in each period.

        A period begins at each multiple of ``every``, by the store's clock. A run holds the lock ``name``
        and, when it has returned, marks its period as done in the fenced object ``name.once``. A run that
        raises, or whose process dies, marks nothing: the next call in that period runs it again. Near the
        end of a period a call waits until all clocks agree on the next: for ``2 * max_clock_skew`` and a
        second or two.

        A call returns None if a run is already done in this period.

        Args:
            name: Of the lock; the same for all callers of one job.
            every: Seconds of a period, at least ``4 * max_clock_skew + 2 * resolution + 1``.
            wait: Whether a call that finds another's run under way waits for it, and takes its place if it
                fails; else it is skipped as well.

        Raises:
            ConfigError: The name is not a lock name, ``every`` is too short, or it is not given a coroutine
                function.
            LeaseLostError: By the call: the lease was lost, so the body was cancelled. Nothing was marked.
            BackendError: By the call: the store did not answer.
        """
        lock = self.lock(name)
        Periods(self._core, name, every)  # a wrong period is refused here
        return lambda work: run_once(self._core, lock, work, every=every, wait=wait)

    def hold_all(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[builtins.list[Lease]]:
        """Hold several locks for the body of ``async with``, all or none; gives their leases.

        The locks are acquired one after another, sorted by name. So callers of ``hold_all`` never wait for
        each other in a circle. This does not cover code that holds one lock and waits for another outside
        ``hold_all``. If one is not acquired in time, or fails, those before it are released. If one is lost,
        all are: the body is cancelled once, the rest is released, and the loss is raised as by ``hold``.
        Each resource is fenced by the token of its own lock.

        Args:
            names: Of the locks; the order is that of the leases.
            timeout: Seconds for all together; None waits forever, 0 tries each once.

        Raises:
            ConfigError: A name is there twice, or is not a lock name; or the timeout is negative.
        """
        return HoldAll([self.lock(name) for name in checked_names(names)], checked_timeout(timeout))

    def semaphore(self, name: str, slots: int) -> Semaphore:
        """Return the semaphore of that name; no I/O.

        The first client keeps ``slots`` in the store. An acquisition by a client that names another number
        raises ``ConfigError``.

        Args:
            name: As for ``lock``, at most 504 characters. A lock of the same name is a different lock.
            slots: How many leases there are at a time, 1 to 64.

        Raises:
            ConfigError: The name or the number is not like that, or this client uses another number.
        """
        checked_name(f"{checked_name(name)}/slot=00")
        return Semaphore(self._core.semaphore(name, slots), name)

    def rwlock(self, name: str) -> RWLock:
        """Return the reader-writer lock of that name; no I/O.

        Args:
            name: As for ``lock``, at most 506 characters. A lock of the same name is a different lock.

        Raises:
            ConfigError: The name is not like that.
        """
        checked_name(f"{checked_name(name)}/rw=r00")
        return RWLock(self._core.readers(name), name)

    async def list(self, prefix: str = "") -> builtins.list[LockStatus]:
        """Read the locks whose name starts with ``prefix``, in the order of their names.

        Raises:
            BackendError: The store could not be read.
        """
        return await self._core.run(lambda: self._core.list_all(prefix))

    async def scan(self, prefix: str = "") -> AsyncIterator[LockStatus]:
        """Yield the locks of ``list`` one by one as they are read, for more locks than fit in memory.

        Raises:
            BackendError: The store could not be read.
        """
        scan = self._core.scanning(prefix)
        try:
            while some := await self._core.run(scan.read):
                for status in some:
                    yield status
        finally:
            if (loop := self._core.loop) is not None:
                await run_on(loop, scan.close)

    async def aclose(self) -> None:
        """Release all leases, end all tasks and close the backend; a second call does nothing.

        Every caller returns only once nothing is held and the backend is closed. That takes at most ``min(2
        s, validity / 5)`` (Cloud Storage: 1.5 s at least). A lock that is not released by then frees itself
        after its validity. Closing is a loss for everyone who works under a lease of this client: bodies of
        ``hold()`` and ``async with`` are cancelled and raise ``LeaseLostError``, and ``on_lost`` is called.
        If the client's loop is closed, what it held is released through a new backend on the running loop.

        Raises:
            ConfigError: The client's loop has stopped, or is closed and there is no way to open its
                backend again; nothing was released.
        """
        await self._core.aclose()

    async def __aenter__(self) -> Self:
        running_loop()
        self._core.home()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LockClient cannot be pickled; connect again in the other process")

    def __repr__(self) -> str:
        return f"<LockClient {self.url!r}>"


def client_over(core: Core) -> LockClient:
    """Return a handle of an existing client, for the rest of the package."""
    client = LockClient.__new__(LockClient)
    client._core = core
    client.url, client.settings, client.backend = core.url, core.settings, core.backend
    return client
