"""Events of leases, sent to the log and to a listener of the user."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from asynclock._codes import Code, coded
from asynclock._kinds import NEWS
from asynclock._log import log
from asynclock._secrets import clean_url
from asynclock._text import SUFFIX, printable
from asynclock.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock._kinds import Kind
    from asynclock.clock import Clock


logger: Final = logging.getLogger("asynclock")
LONGEST_TEXT: Final = 2048
"""Characters of a key, a URL or an explanation in an event; a lock's name has 512 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to one lock. All its texts are printable ASCII without secrets.

    Attributes:
        kind: What happened. ``waiting``: an acquisition found that another holds the lock.
            ``acquire_failed``: it got no answer from the store, and tries again. ``not_acquired``: it has
            ended without the lock. ``acquired``: a call has the lock now. ``adopted``: the
            same, by a write whose answer was lost. ``stalled``:
            this process did not run for a while although it held the lock. ``release_pending``: the caller
            has left without the store's word, and the release goes on in the background until ``released``,
            ``release_unconfirmed`` or ``lost`` ends it. ``reaped``: a write that could
            still have landed after the end of its acquisition or lease was made harmless. ``updated``: a
            fenced object was changed under its lease.
        key: Key of the lock object; of ``updated``: of the fenced object.
        owner: Owner id of the acquisition; of ``waiting``: of the holder's; empty if there was none yet.
        fencing_token: Its token, in microseconds; None if it has none.
        detail: Explanation for people; may be empty. Of ``waiting``: the holder, in its own words. Of
            ``release_pending``: what the store has said so far.
        reason: One of few words, or the name of an error's class; may be empty. Of ``waiting``: ``kept`` (by
            ``at_least``, after its holder has ended). Of ``acquired``: ``takeover``
            (the holder before neither released nor renewed it) or ``handover`` (from another waiter of this
            client). Of ``renewed`` and ``released``: ``read_back`` (the answer was lost; reading showed that
            the write had landed). Of ``released``: ``handover``. Of both ends of a ticket: ``transfer``.
            Of ``not_acquired``: after one try ``held`` (others hold it) or ``makes_way`` (this client leaves
            it to others, or its process may be ending), or the error. Of failures and ``lost``: the error.
        duration: Seconds. Of ``acquired``, ``adopted`` and ``not_acquired``: since the call. Of ``renewed``
            and ``renewal_failed``: since the renewal began. Of ``lost``, ``released``, ``release_pending``
            and ``release_unconfirmed``: how long the lock was held. Of ``stalled``: how long the process did
            not run. Of ``updated``: since it began; its write was sent after that. Else None.
        remaining: Seconds. Of ``waiting``: until others may take the lock over if it is not renewed. Of
            ``renewed`` and ``renewal_failed``: what was left of the lease when the answer came. Else, or if
            unknown, None.
        limit: Seconds. Of ``waiting`` and ``acquire_failed``: until the call gives up; 0: it tries only once.
            Else, or if it never gives up, None.
        since_end: Seconds. Of ``lost``, ``released``, ``release_pending`` and ``release_unconfirmed``: since
            the holder stopped believing that it holds the lock. Else None.
        age: Seconds. Of ``acquired``, ``adopted`` and ``renewed``: since the write that acquired the lock was
            sent; ``duration`` says so of the ends. Else None.
        time: When it happened, in epoch seconds by this machine's wall clock.
        url: URL of the lock.
        validity: Seconds that this client's leases last without a renewal.
    """

    kind: Kind
    key: str
    owner: str
    fencing_token: int | None
    detail: str = ""
    reason: str = ""
    duration: float | None = None
    remaining: float | None = None
    limit: float | None = None
    since_end: float | None = None
    age: float | None = None
    time: float = field(default=0.0, compare=False)
    url: str = ""
    validity: float = 0.0

    @property
    def name(self) -> str:
        """Name of the lock."""
        return self.key.removesuffix(SUFFIX)

    def fields(self) -> dict[str, str | int | float]:
        """Return what is known, by the names that logs and traces have it under."""
        named = {
            "asynclock.event": self.kind,
            "asynclock.lock.name": self.name,
            "asynclock.lock.url": self.url,
            "asynclock.owner": self.owner,
            "asynclock.fencing_token": self.fencing_token,
            "asynclock.reason": self.reason,
            "asynclock.detail": self.detail,
            "asynclock.duration": self.duration,
            "asynclock.remaining": self.remaining,
            "asynclock.limit": self.limit,
            "asynclock.since_end": self.since_end,
            "asynclock.age": self.age,
            "asynclock.time": self.time,
        }
        return {name: value for name, value in named.items() if value is not None and value != ""}


SILENCE: Final = 2.0
"""Seconds without an answer of the store after which a narrator says so."""


class UnderWay(NamedTuple):
    """A request under way: its key, the loop times at which it began and from which an answer may come."""

    key: str
    began: float
    answered_from: float


class Narrates(Protocol):
    """What says in sentences what the events mean.

    Attributes:
        alert: It is to hear all events, else only those that are news at any time.
        hushed: It must not log on its own account.
    """

    alert: bool
    hushed: bool

    def hear(self, event: Event) -> None:
        """Take an event."""
        ...

    def watch(self, requests: Callable[[], list[UnderWay]], due: float) -> None:
        """Take note of a request without an answer, and look again as long as there are such.

        Args:
            requests: Returns all requests under way.
            due: The loop time at which this was to be called.
        """
        ...

    def waits_for_itself(self, url: str, place: str) -> None:
        """Warn of a task that waits for a lock of its own."""
        ...

    def leader_failed(self, url: str, error: Exception, *, led: bool, fault: bool = True) -> None:
        """Say that ``lead`` has ended with an error."""
        ...

    def close(self) -> None:
        """End."""
        ...


class Events:
    """Passes events to the log ``asynclock``, to a narrator and to one listener of the user.

    Args:
        listener: Called on the lease's loop, so it must be quick and must not block. Exceptions that it
            raises, ``SystemExit`` included, are logged and have no other effect.
        url: URL of the client.
        validity: Of the client's leases.
        clock: Of the client.
        narrator: Logs what the events mean.
    """

    def __init__(
        self,
        listener: Callable[[Event], object] | None = None,
        *,
        url: str = "",
        validity: float = 0.0,
        clock: Clock | None = None,
        narrator: Narrates | None = None,
    ) -> None:
        self.narrator = narrator
        self._listener = listener
        self.url: str = clean_url(url)
        self._validity = validity
        self._clock = clock or SystemClock()
        self._holds_back = False
        self._held_back: list[Event] = []

    def emit(
        self,
        kind: Kind,
        key: str,
        owner: str,
        fencing_token: int | None = None,
        detail: str = "",
        *,
        reason: str = "",
        duration: float | None = None,
        remaining: float | None = None,
        limit: float | None = None,
        since_end: float | None = None,
        age: float | None = None,
        only_said: bool = False,
    ) -> None:
        """Log one event and pass it on; nothing that goes wrong there is raised.

        With ``only_said`` it goes to the narrator alone.
        """
        try:
            if (only_said or self._listener is None) and not (
                self._is_news(kind) or logger.isEnabledFor(logging.DEBUG)
            ):
                return
            name = key.removesuffix(SUFFIX)
            event = Event(
                kind=kind,
                key=printable(key, limit=LONGEST_TEXT),
                owner=printable(owner),
                fencing_token=fencing_token,
                detail=printable(detail, limit=LONGEST_TEXT),
                reason=printable(reason),
                duration=duration,
                remaining=remaining,
                limit=limit,
                since_end=since_end,
                age=age,
                time=self._clock.wall(),
                url=printable(f"{self.url}/{name}", limit=LONGEST_TEXT),
                validity=self._validity,
            )
            if only_said:
                if self.narrator is not None and self._is_news(kind) and not self._holds_back:
                    self.narrator.hear(event)
            elif self._holds_back:
                self._held_back.append(event)
            else:
                self._pass_on(event)
        except BaseException:  # noqa: BLE001, S110  also an interrupt: locks end and are renewed all the same
            pass

    def watch(self, requests: Callable[[], list[UnderWay]], due: float) -> None:
        """Take note of a request that got no answer for ``SILENCE``; see ``Narrates.watch``."""
        if self.narrator is not None and logger.isEnabledFor(logging.WARNING):
            self.narrator.watch(requests, due)

    def hold_back(self) -> None:
        """Keep events until ``catch_up``: a log may wait for a lock that nobody gives back yet."""
        self._holds_back = True
        if self.narrator is not None:
            self.narrator.hushed = True

    def catch_up(self) -> None:
        """Pass on what was held back."""
        self._holds_back = False
        if self.narrator is not None:
            self.narrator.hushed = False
        events, self._held_back = self._held_back, []
        for event in events:
            self._pass_on(event)

    def _pass_on(self, event: Event) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            shown = event.kind, event.name, event.owner, event.fencing_token, event.detail
            with suppress(BaseException):  # of a handler or a filter of the user
                log.debug("%s %s owner=%s token=%s %s", *shown, extra=logged(event))
        if self.narrator is not None and self._is_news(event.kind):
            with suppress(BaseException):  # as above
                self.narrator.hear(event)
        if self._listener is not None:
            pass_on(event, self._listener)

    def _is_news(self, kind: Kind) -> bool:
        narrator = self.narrator
        if narrator is None or narrator.alert:
            return narrator is not None
        return kind in NEWS and logger.isEnabledFor(NEWS[kind])


def logged(event: Event) -> dict[str, str | int | float]:
    """Return the extra fields of a log record on an event: also its process, by OpenTelemetry's names.

    A lock may be of one machine or process.
    """
    return event.fields() | {"host.name": printable(socket.gethostname()), "process.pid": os.getpid()}


def pass_on(event: Event, listener: Callable[[Event], object]) -> None:
    """Call a listener; what it raises is logged."""
    try:
        listener(event)
    except BaseException:  # noqa: BLE001  the user's, and logged
        with suppress(BaseException):  # of a handler or a filter of the user
            log.exception(coded(f"the events listener failed on {event.kind}", Code.CALLBACK_FAILED))
