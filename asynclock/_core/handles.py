"""The local part of the handles of ``asynclock`` and ``asynclock.sync``, which needs no loop."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Generic, NoReturn, TypeVar

from asynclock._codes import Code, coded
from asynclock._core.protocol.belief import Phase
from asynclock._core.reserve import on_lost as callbacks
from asynclock.errors import ConfigError
from asynclock.events import logger
from asynclock.settings import MAX_VALIDITY, MIN_VALIDITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._core.engine import LockEngine
    from asynclock._core.protocol.held import HeldLock
    from asynclock._core.readwrite import Readers
    from asynclock._core.semaphore import SemaphoreEngine
    from asynclock.errors import LeaseLostError

H = TypeVar("H", bound="LockHandle")


class LeaseHandle:
    """A lease as its holder sees it, without I/O.

    Args:
        held: The held lock.
        engine: Of that lock.
        of: Another handle of the same lease, which releases the lock when it is dropped.

    Attributes:
        name: Of the lock.
        key: The lock's object under the client's URL.
        owner: The id of this acquisition.
    """

    def __init__(self, held: HeldLock, engine: LockEngine, *, of: LeaseHandle | None = None) -> None:
        self._of = of
        self.name: str = engine.name
        self.key: str = held.tenure.key
        self.owner: str = held.tenure.owner
        self._held = held
        self._engine = engine

    @property
    def fencing_token(self) -> int:
        """The token, in microseconds: rises with every acquisition, kept through renewals.

        Raises:
            ConfigError: The lock was taken without ``fencing=True`` (``asynclock.hudi`` only).
        """
        if not self._engine.fencing:
            reason = (
                "the token is known only with table_lock(..., fencing=True), which waits up "
                "to 2 * max_clock_skew + 2 s after a Hudi writer"
            )
            raise ConfigError(setting="fencing", value=False, reason=reason)
        return self._held.tenure.fencing_token

    @property
    def held(self) -> bool:
        """Whether the lease is still believed to be held; local, no I/O."""
        return self._held.belief.end_if_due() > 0

    @property
    def lost(self) -> LeaseLostError | None:
        """Why the lease was lost, or None."""
        self._held.belief.end_if_due()  # the first look after the deadline makes the loss final
        return self._held.belief.lost

    @property
    def slot(self) -> int | None:
        """The number of the semaphore's slot that is held, from 0; None for a lease on a lock."""
        return self._engine.slot

    @property
    def valid_until_ms(self) -> int:
        """The ``validUntil`` written last, in epoch ms; no I/O."""
        return self._held.tenure.head.record.valid_until_ms

    def remaining(self) -> float:
        """Return seconds until we stop believing; 0.0 once lost or released."""
        return self._held.belief.end_if_due()

    def check(self) -> None:
        """Return if the lock is believed to be held; local, no I/O.

        Raises:
            LeaseLostError: It was lost, or released.
        """
        self._held.belief.check()

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
                    logger.exception(coded(f"an on_lost callback of {loss.key} failed", Code.CALLBACK_FAILED))

        callbacks.prepare()
        self._held.on_lost(lambda loss: callbacks.run(lambda: run(loss)))

    def _has_ended(self) -> bool:
        """Whether it was released already, so that a release is a no-op; needs no loop, for a forked child.

        Raises:
            LeaseLostError: It was lost.
        """
        if self.lost is not None:
            self._held.release.note_left()
            self.check()
        return self._held.belief.phase is not Phase.HELD

    def __del__(self) -> None:
        if self._of is None and self._held.belief.phase is Phase.HELD:
            self._engine.finish_later(self._held)  # first: the warning may raise
            text = f"the lease on {self.name!r} was dropped before it was released; it is released now"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Lease cannot be pickled: another process does not hold it; pass its fencing_token")

    def __repr__(self) -> str:
        state = "held" if self.held else "lost" if self._held.belief.lost else "released"
        return f"<Lease {self.name!r} {state} owner={self.owner}>"


class LockHandle:
    """A lock of a client."""

    _kind: ClassVar[str] = "Lock"
    _of: ClassVar[str] = ""

    def __init__(self, engine: LockEngine) -> None:
        self.name: str = engine.name
        self.key: str = engine.key
        self._engine = engine

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Lock cannot be pickled; connect again in the other process")

    def __repr__(self) -> str:
        return f"<{self._of}{self._kind} {self._engine.url!r}>"


class SemaphoreHandle(LockHandle):
    """A semaphore of a client."""

    _kind = "Semaphore"
    _engine: SemaphoreEngine

    def __init__(self, engine: SemaphoreEngine, name: str) -> None:
        super().__init__(engine)
        self.name: str = name
        self.key: str = engine.size_key

    @property
    def slots(self) -> int:
        """The number of slots: as last read from the store, before that the number asked for; no I/O."""
        return self._engine.slots


class RWLockHandle(Generic[H]):
    """A reader-writer lock of a client."""

    _of: ClassVar[str] = ""
    _side: Callable[[LockEngine], H]

    def __init__(self, readers: Readers, name: str) -> None:
        self.name: str = name
        self._sides = self._side(readers), self._side(readers.writer)

    @property
    def read(self) -> H:
        """The readers' side. Its ``status`` is that of the writer, if one has it, else of a free slot."""
        return self._sides[0]

    @property
    def write(self) -> H:
        """The writer's side. Its ``status`` is that of the writer, if one has it, else of a reader."""
        return self._sides[1]

    def __repr__(self) -> str:
        return f"<{self._of}RWLock {self.name!r}>"


def checked_timeout(timeout: float | None) -> float | None:
    """Return ``timeout``, or raise ConfigError if it is negative or no number."""
    if timeout is None or (isinstance(timeout, int | float) and timeout >= 0):
        return timeout
    raise ConfigError(setting="timeout", value=timeout, reason="must be seconds, 0 or more, or None")


def checked_at_least(seconds: float) -> float:
    """Return ``seconds``.

    Raises:
        ConfigError: It is negative, longer than a record can promise, or not a number.
    """
    if isinstance(seconds, int | float) and 0 <= seconds <= MAX_VALIDITY:
        return seconds
    reason = "must be seconds, 0 to 7 days (604800 s)"
    raise ConfigError(setting="at_least", value=seconds, reason=reason)


def checked_within(seconds: float | None) -> float | None:
    """Return for how many seconds a release keeps a lock for a ticket.

    Raises:
        ConfigError: No record can promise that.
    """
    if seconds is None or (isinstance(seconds, int | float) and MIN_VALIDITY <= seconds <= MAX_VALIDITY):
        return seconds
    reason = "must be seconds, 0.1 to 7 days (604800 s), or None"
    raise ConfigError(setting="within", value=seconds, reason=reason)


def warn_of_unused(name: str, statement: str) -> None:
    """Warn of a ``hold()`` whose result was dropped; for ``__del__``."""
    text = (
        f"hold() of the lock {name!r} was never entered, so nothing was locked; write: {statement} ...hold()"
    )
    warnings.warn(text, ResourceWarning, stacklevel=3)
