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
    "waiting",
    "acquire_failed",
    "acquired",
    "adopted",
    "renewed",
    "renewal_failed",
    "lost",
    "released",
    "release_unconfirmed",
    "reaped",
]
_WARN: Final = frozenset({"lost", "renewal_failed", "release_unconfirmed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to one lock.

    Attributes:
        kind: What happened. ``waiting``: an acquisition found that another holds the lock.
            ``acquire_failed``: it got no answer from the store, and tries again.
        key: Key of the lock object.
        owner: Owner id of the acquisition; of ``waiting``: of the holder's.
        fencing_token: Its token, in microseconds; None where it has none.
        detail: Printable explanation; may be empty. Of ``waiting``: the holder, in its own words.
        remaining: Of ``waiting``: seconds until others may take the lock over if it is not renewed; None
            if unknown.
    """

    kind: Kind
    key: str
    owner: str
    fencing_token: int | None
    detail: str = ""
    remaining: float | None = None


class Events:
    """Passes events to the log ``asynclock`` and to one listener of the user.

    Args:
        listener: Called on the lease's loop, so it must be quick and must not block. Exceptions that it
            raises, ``SystemExit`` included, are logged and have no other effect.
    """

    def __init__(self, listener: Callable[[Event], object] | None = None) -> None:
        self._listener = listener

    def emit(
        self,
        kind: Kind,
        key: str,
        owner: str,
        fencing_token: int | None = None,
        detail: str = "",
        *,
        remaining: float | None = None,
    ) -> None:
        """Log one event and pass it to the listener."""
        level = logging.WARNING if kind in _WARN else logging.DEBUG
        if logger.isEnabledFor(level):
            shown = printable(owner), fencing_token, printable(detail)
            logger.log(level, "%s %s owner=%s token=%s %s", kind, key, *shown)
        if self._listener is not None:
            event = Event(
                kind=kind,
                key=key,
                owner=owner,
                fencing_token=fencing_token,
                detail=printable(detail),
                remaining=remaining,
            )
            try:
                self._listener(event)
            except BaseException:
                logger.exception("the events listener failed on %s", kind)
