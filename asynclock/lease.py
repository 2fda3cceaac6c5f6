"""Lease: the handle on a held lock."""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from asynclock._mutex import Mutex
from asynclock._reserve import on_lost as callbacks
from asynclock.errors import ConfigError, LeaseLostError
from asynclock.events import logger
from asynclock.portal import run_on, start_on
from asynclock.protocol.held import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Self

    from asynclock.protocol.held import HeldLock


class Lease:
    """A held lock. Also an async context manager that releases it.

    ``held``, ``remaining`` and ``check`` are local and may be called from any thread. A lease
    bounds mutual exclusion by time and clocks; only ``fencing_token``, checked by the resource,
    closes the rest (see ``FencedObject``). ``owner`` is the id of this acquisition.
    """

    def __init__(
        self,
        held: HeldLock,
        *,
        name: str,
        loop: asyncio.AbstractEventLoop,
        release: Callable[[HeldLock], Coroutine[Any, Any, bool]],
        fencing: bool = True,
    ) -> None:
        self.name = name
        self.key: str = held.key
        self.owner: str = held.owner
        self._held = held
        self._loop = loop
        self._end = release
        self._fencing = fencing
        self.updating: Mutex = Mutex()  # held by one update of a ``FencedObject`` at a time

    @property
    def fencing_token(self) -> int:
        """The token, in microseconds: rises with every acquisition, kept through renewals.

        Raises:
            ConfigError: The lock was taken without ``fencing=True`` (``asynclock.hudi`` only).
        """
        if not self._fencing:
            reason = (
                "the token is known only with table_lock(..., fencing=True), which waits up "
                "to 2 * max_clock_skew + 2 s after a Hudi writer"
            )
            raise ConfigError(setting="fencing", value=False, reason=reason)
        return self._held.fencing_token

    @property
    def held(self) -> bool:
        """Whether we still believe to hold the lock; local, no I/O."""
        return self._held.remaining() > 0

    @property
    def lost(self) -> LeaseLostError | None:
        """Why the lease was lost, or None."""
        self._held.remaining()  # the first look after the deadline makes the loss final
        return self._held.lost

    @property
    def valid_until_ms(self) -> int:
        """The ``validUntil`` written last, in epoch ms; no I/O. For the rest of the package."""
        return self._held.head.record.valid_until_ms

    @property
    def released(self) -> bool:
        """Whether the store has confirmed its release; for the rest of the package."""
        return self._held.confirmed

    def remaining(self) -> float:
        """Return seconds until we stop believing; 0.0 once lost or released."""
        return self._held.remaining()

    def keep(self, seconds: float) -> None:
        """Have the release leave the lock held until ``seconds`` from now; for the rest of the package."""
        self._held.keep(seconds)

    def check(self) -> None:
        """Return if the lock is believed to be held; local, no I/O.

        Raises:
            LeaseLostError: It was lost, or released.
        """
        if self._held.remaining() > 0:
            return
        if (lost := self._held.lost) is not None:
            raise lost.with_traceback(None)
        token = self._held.fencing_token
        raise LeaseLostError(key=self.key, owner=self.owner, fencing_token=token, reason="it was released")

    async def confirm(self) -> None:
        """Make sure that the store agrees, by one conditional write; joins a renewal under way.

        Raises:
            LeaseLostError: The lease is lost, or was released.
            BackendError: The store did not say; the lease lasts until its deadline.
        """
        self.check()
        error = await run_on(self._loop, self._held.renew)
        self.check()
        if error is not None:
            raise error

    async def release(self) -> None:
        """Free the lock: one conditional write that keeps the token; twice is a no-op.

        If another coroutine or thread of this client waits, the lock is handed over to it instead:
        its acquisition is that one write, under a new token. If the store does not confirm it within
        ``min(2 s, validity / 5)`` (Cloud Storage: 1.5 s at least), this returns, and the release goes on in
        the background, which the event ``release_pending`` tells; the lock frees itself after its validity
        at the latest. A cancellation makes it no longer.

        Raises:
            LeaseLostError: It was lost before; nothing was written.
            LeaseTakenOverError: The lock had been taken over, broken or deleted; nothing was written.
        """
        if self.lost is not None:
            self.check()  # here, since in a forked child nobody runs the lease's loop
        if self._held.phase is not Phase.HELD:
            return  # here, for the same reason
        await run_on(self._loop, self._release)

    async def _release(self) -> None:
        await self._end(self._held)
        if self._held.lost is not None:
            self.check()

    def on_lost(self, callback: Callable[[LeaseLostError], object]) -> None:
        """Call ``callback(loss)`` once when the lease is lost, at once if it has been.

        It runs on a thread of its own, so it may block; what it raises is logged. If the process can
        start no thread then, it runs after the callbacks that came before it.
        """

        def run(loss: LeaseLostError) -> None:
            try:
                callback(loss)
            except BaseException:  # noqa: BLE001  the user's: logged, and nobody is there to catch it
                with suppress(BaseException):  # of a handler or a filter of the user
                    logger.exception("an on_lost callback of %s failed", loss.key)

        callbacks.prepare()
        self._held.on_lost(lambda loss: callbacks.run(lambda: run(loss)))

    def watch(self, callback: Callable[[LeaseLostError], object]) -> None:
        """Like ``on_lost``, but in the thread that finds the loss: it must neither block nor raise."""
        self._held.on_lost(callback)

    def enter(self) -> None:
        """Release the lease when the running loop, which runs its body, is closed by force."""
        self.note_body()
        self._held.body_loop = asyncio.get_running_loop()

    def note_body(self) -> None:
        """Note that a body works under it, so that the end of its client is a loss.

        Raises:
            LeaseLostError: The client was closed meanwhile.
        """
        self._held.note_body()

    def let_go(self) -> None:
        """Release in the background; from any thread, and from finalizers."""
        held, end = self._held, self._end  # not this lease, which may be collected
        with suppress(RuntimeError, ConfigError):  # that loop is closed: the lock frees itself, or at exit
            start_on(self._loop, lambda: end(held))

    def __del__(self) -> None:
        if self._held.phase is Phase.HELD:
            self.let_go()  # first: the warning may raise
            text = f"the lease on {self.name!r} was dropped before it was released; it is released now"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    async def __aenter__(self) -> Self:
        self.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(error)

    async def leave(self, error: BaseException | None) -> None:
        """Release at the end of a body, for ``__aexit__``; its ``error`` gets a loss as a note."""
        if _was_dropped(error):
            self.let_go()
            return
        try:
            await self.release()
        except LeaseLostError as lost:
            if error is None:
                raise
            error.add_note(str(lost))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Lease cannot be pickled: another process does not hold it; pass its fencing_token")

    def __repr__(self) -> str:
        state = "held" if self.held else "lost" if self._held.lost else "released"
        return f"<Lease {self.name!r} {state} owner={self.owner}>"


def _was_dropped(error: BaseException | None) -> bool:
    """Whether a body is left because its coroutine is closed and cannot await; an async generator can."""
    if not isinstance(error, GeneratorExit):
        return False
    body = sys._getframe(3)  # noqa: SLF001  the documented way; it called __aexit__, and that leave
    return not body.f_code.co_flags & inspect.CO_ASYNC_GENERATOR
