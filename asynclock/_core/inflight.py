"""The work of one client that must not be cut off (rules 16 and 18)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakSet

from asynclock._core.portal import cancel_once, current_task, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from asynclock.errors import ConfigError

T = TypeVar("T")


class Unfreed(Protocol):
    """A record that may look like a held lock in the store although nobody holds it, and is being freed."""

    async def free_through(self, objects: Any, loss: str | None = None) -> None:  # noqa: ANN401  their class is of a higher layer
        """Free it by requests of other ``LockObjects``, on the running loop, within the exit bound."""
        ...

    def note_pending(self) -> None:
        """Report that no caller waits for it any more."""
        ...

    def give_up(self, reason: str) -> None:
        """Report that the attempt to free it ends without an answer of the store."""
        ...


class InFlight:
    """Work that must finish before its client may end: writes, releases, clean-up, hand-overs.

    An acquisition counts only while one of its writes may be in the store, or once the client is closed.
    Otherwise it may be cut off.
    """

    def __init__(self, client: object = None) -> None:
        self._client = client  # stays alive while anything is under way or held: an exit looks for clients
        self.closed: ConfigError | None = None
        """The error of new acquisitions after the client was closed; None while it is open."""
        # Dicts, not sets: they keep the order of their start.
        self._work: dict[asyncio.Future[Any], None] = {}
        self._acquisitions: dict[asyncio.Task[Any], bool] = {}  # whether a write of each may stand
        self._unfreed: dict[Unfreed, None] = {}
        self._progress = asyncio.Event()
        self._pauses: WeakSet[asyncio.Future[None]] = WeakSet()

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a background task on the running loop."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self.add(task)
        return task

    def add(self, future: asyncio.Future[Any]) -> None:
        """Count ``future`` as work until it is done."""
        self._work[future] = None
        future.add_done_callback(self._finish)

    def _finish(self, future: asyncio.Future[Any]) -> None:
        self._work.pop(future, None)
        self._progress.set()

    @property
    def unfreed(self) -> list[Unfreed]:
        """Locks that are being freed in the background, or were when their event loop ended."""
        return list(self._unfreed)

    def note_unfreed(self, lock: Unfreed) -> None:
        """Note that ``lock`` is being freed in the background, so that an exit finds it."""
        self._unfreed[lock] = None
        _owing[self] = None

    def note_freed(self, lock: Unfreed) -> None:
        """Note that the freeing of ``lock`` has ended."""
        self._unfreed.pop(lock, None)
        if not self._unfreed:
            _owing.pop(self, None)

    @contextlib.contextmanager
    def protect(self, at_most: float | None = None) -> Iterator[None]:
        """Count the running task as work, and delay its cancellation to the end of the body.

        Args:
            at_most: See ``uninterrupted``.
        """
        if (task := current_task()) in self._work:
            yield  # it is inside another body, or has no caller who could cancel it
            return
        self._work[task] = None
        try:
            with uninterrupted(at_most, task):
                yield
        finally:
            self._finish(task)
            del task  # an error keeps this frame, which would keep the task

    @contextlib.contextmanager
    def until_closed(self) -> Iterator[None]:
        """Cancel the running task, which acquires or breaks a lock, when the client is closed.

        Raises:
            ConfigError: It was closed, before the body or during it.
        """
        if self.closed is not None:
            raise self.closed
        task = current_task()
        if task in self._acquisitions:
            yield  # it is inside another body, which raises that
            return
        self._acquisitions[task] = False
        try:
            yield
        except asyncio.CancelledError as error:
            if self.closed is not None:
                raise self.closed from error
            raise
        finally:
            self._acquisitions.pop(task, None)
            self._progress.set()
            del task  # an error keeps this frame, which would keep the task

    def note(self, *, stands: bool) -> None:
        """Note whether a write of the running acquisition may stand without a held lock that will free it."""
        self._acquisitions[current_task()] = stands
        self._progress.set()

    @property
    def pending(self) -> list[asyncio.Future[Any]]:
        """Unfinished work."""
        acquisitions = [
            task for task, stands in self._acquisitions.items() if stands or self.closed is not None
        ]
        return [each for each in (*self._work, *acquisitions) if not each.done()]

    async def progress(self, until: float) -> bool:
        """Wait until some work has ended; False once none is left, or at loop time ``until``."""
        if not self.pending or asyncio.get_running_loop().time() >= until:
            return False
        self._progress.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._progress.wait()
        await asyncio.sleep(0)  # tasks that waited for that work run first
        return True

    async def pause(self, seconds: float) -> bool:
        """Wait before something is tried again; True if ``hurry`` has cut that short."""
        hurried = asyncio.get_running_loop().create_future()
        self._pauses.add(hurried)
        await asyncio.wait([hurried], timeout=seconds)
        return hurried.done()

    def hurry(self) -> None:
        """End all pauses before retries, because the client or its process is about to end."""
        for each in list(self._pauses):
            if not each.done():
                each.set_result(None)

    def close(self, error: ConfigError) -> None:
        """Cancel all acquisitions and let no other begin."""
        self.closed = error
        for task in list(self._acquisitions):
            cancel_once(task)

    async def cut_off(self) -> None:
        """Cancel unfinished work, and wait for its end."""
        while left := [each for each in self.pending if isinstance(each, asyncio.Task)]:
            for task in left:
                task.cancel()
            await asyncio.wait(left)


_owing: Final[dict[InFlight, None]] = {}
"""Keeps clients that still free something alive: their loop may have ended, and an exit frees it then."""
