"""Events of leases, sent to the log and to a listener of the user."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from asynclock._text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

logger: Final = logging.getLogger("asynclock")

Kind = Literal[
    "acquired", "adopted", "renewed", "renewal_failed", "lost", "released", "release_unconfirmed", "reaped"
]
_WARN: Final = frozenset({"lost", "renewal_failed", "release_unconfirmed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to one lock.

    Attributes:
        kind: What happened.
        key: Key of the lock object.
        owner: Owner id of the acquisition.
        fencing_token: Its token.
        detail: Printable explanation; may be empty.
    """

    kind: Kind
    key: str
    owner: str
    fencing_token: int
    detail: str = ""


class Events:
    """Passes events to the log ``asynclock`` and to one listener of the user.

    Args:
        listener: Called on the lease's loop, so it must be quick and must not block. Exceptions that it
            raises, ``SystemExit`` included, are logged and have no other effect.
    """

    def __init__(self, listener: Callable[[Event], object] | None = None) -> None:
        self._listener = listener

    def emit(self, kind: Kind, key: str, owner: str, fencing_token: int, detail: str = "") -> None:
        """Log one event and pass it to the listener."""
        level = logging.WARNING if kind in _WARN else logging.DEBUG
        if logger.isEnabledFor(level):
            logger.log(
                level, "%s %s owner=%s token=%d %s", kind, key, owner, fencing_token, printable(detail)
            )
        if self._listener is not None:
            event = Event(
                kind=kind, key=key, owner=owner, fencing_token=fencing_token, detail=printable(detail)
            )
            try:
                self._listener(event)
            except BaseException:
                logger.exception("the events listener failed on %s", kind)
