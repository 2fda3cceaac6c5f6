"""Remembers which task acquired a lock, and where, to warn a task that waits for itself."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

if TYPE_CHECKING:
    from asynclock._core.protocol.held import HeldLock


class Acquirer:
    """A task or thread that has acquired a lock.

    Attributes:
        parent: The nearest living acquirer among the tasks that started it, or None.
    """

    __slots__ = ("_who", "parent")

    def __init__(self, who: Any, parent: Acquirer | None) -> None:  # noqa: ANN401  a task or a thread
        self._who = ref(who)
        self.parent = parent
        node = self
        # Tasks that start each other without end must not make an endless chain.
        while (above := node.parent) is not None:
            if above.is_gone:
                node.parent = above.parent
            else:
                node = above

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        who = self._who()
        return who is None or (isinstance(who, asyncio.Future) and who.done())

    def is_of(self, who: object) -> bool:
        """Whether it is that task or thread."""
        return self._who() is who


# A task inherits the context of the task that starts it, and a call on the client's loop that of its caller.
_CURRENT: Final[ContextVar[Acquirer | None]] = ContextVar("asynclock_acquirer", default=None)


def acquirer() -> tuple[Acquirer, str]:
    """Return the running task or thread, and the line from which it has called the package."""
    try:
        who: object = asyncio.current_task() or threading.current_thread()
    except RuntimeError:  # no loop runs in this thread
        who = threading.current_thread()
    here = _CURRENT.get()
    if here is None or not here.is_of(who):
        _CURRENT.set(here := Acquirer(who, here))
    return here, _place()


def acquired_above(held: HeldLock) -> str | None:
    """Return where the caller, or a task that started it, has acquired ``held``; None if neither has."""
    here, (acquirer, place) = _CURRENT.get(), held.body.acquired
    while here is not None:
        if here is acquirer:
            return place
        here = here.parent
    return None


def _place() -> str:
    """Return file and line of the code that called the package."""
    frame = sys._getframe()  # noqa: SLF001  the documented way
    while frame.f_globals.get("__name__", "").partition(".")[0] == "asynclock" and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
