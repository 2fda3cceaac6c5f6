"""Log sentences about a client's locks: the first at once, later ones less and less often.

A client logs them to the logger ``asynclock``: faults and losses as WARNING, waits and the end of a fault as
INFO. ``asynclock run`` prints the same sentences.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from asynclock._codes import Code, coded
from asynclock._core.sparing import BURST, COUNTED, FIRST_PAUSE, LONGEST_PAUSE, Counted, Pace
from asynclock._log import log
from asynclock._secrets import clean_message
from asynclock._text import SUFFIX, printable
from asynclock.events import LONGEST_TEXT, SILENCE, logged, logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from asynclock.clock import Clock
    from asynclock.events import Event, UnderWay

_BETWEEN_LOOKS: Final = 1.0
_STARVED: Final = 0.5
"""A look this many seconds late says nothing of silence: this process did not run, so nothing was read."""
_FORGOTTEN: Final = 2 * LONGEST_PAUSE
_MOST_LOCKS: Final = 10_000
_MOST_CAUSES: Final = 4
# Call it now: the first use reads the time zone from a file, and a loss must not wait for that.
time.localtime()


def held_by(
    *, holder: str | None, token: int | None, remaining: float | None, now: float, owner: str | None = None
) -> str:
    """Return a phrase that says who holds a lock, since when, and for how long at most.

    Args:
        holder: In the holder's own words; None: its ``owner`` is shown.
        token: Its fencing token, which is made of the store's time at the acquisition; None: not known.
        remaining: Seconds until others may take the lock over if it is not renewed; None: not known.
        now: Epoch seconds.
        owner: Id of the acquisition.
    """
    words = f"held by {printable(holder or owner or 'another')}"
    if token is not None:
        words += f" since {_clock(token / 1e6, now)} ({span(now - token / 1e6)})"
    if remaining is not None:
        words += f", for at most {span(remaining)} unless it is renewed"
    return words


class Narrator:
    """Logs what happens to the locks of one client. On the client's loop, except ``leader_failed``.

    A fault of the store is reported once for all locks that have it, with one of them by name; then again
    after 5, 10, 20 s and so on, at least every 5 minutes, while it lasts. Its end is reported once.

    Attributes:
        alert: Something has been noted whose end is news, so ``hear`` is to get every event.
        hushed: Only ``hear`` logs: a log handler may wait for a lock that another thread holds.
    """

    def __init__(self, *, url: str, clock: Clock) -> None:
        self.alert: bool = False
        self.hushed = False
        self._url = url
        self._clock = clock
        self._acquiring, self._renewing, self._silent = _Fault(), _Fault(), _Fault()
        self._waits = _Waits()
        self._looks = _Looks(self._look)
        self._counted = Counted()
        self._releasing: dict[str, float] = {}
        self._leading: dict[str, Pace] = {}

    # Events.

    def hear(self, event: Event) -> None:
        """Take an event of the client, and log the news in it."""
        now = self._clock.monotonic()
        if (act := getattr(self, f"_hear_{event.kind}", None)) is not None:
            act(event, now)
        faults = self._acquiring, self._renewing, self._silent
        self.alert = bool(self._waits or self._releasing) or any(each.is_open for each in faults)

    def _hear_acquire_failed(self, event: Event, now: float) -> None:
        self._silent.forget(event.url, now)
        if self._acquiring.note(event.url, _cause(event), now):
            which = _which(event.url, self._acquiring.locks)
            lasted = self._acquiring.lasted(now)
            what = f"the store has failed for {span(lasted)}" if lasted >= 1 else "the store failed"
            again = "" if event.limit == 0 else f"; trying again{_limit(event)}"
            self._warn(Code.ACQUIRING_FAILS, f"{which}: {what}: {event.detail}{again}", event)

    def _hear_renewal_failed(self, event: Event, now: float) -> None:
        self._silent.forget(event.url, now)
        self._renewing.detail = _reason(event.detail)
        if self._renewing.note(event.url, _cause(event), now):
            which = _which(event.url, self._renewing.locks)
            lasted = self._renewing.lasted(now)
            what = f"renewals have failed for {span(lasted)}" if lasted >= 1 else "a renewal failed"
            left = event.remaining or 0.0
            clock = _clock(event.time + left, event.time)
            end = f"unless one succeeds, the lease will be lost in {span(left)}, at {clock}"
            self._warn(Code.RENEWAL_FAILS, f"{which}: {what}: {event.detail}; {end}", event)

    def _hear_waiting(self, event: Event, now: float) -> None:
        self._answered(event, now)
        wait = None if event.limit == 0 else self._waits.of(event.url, now)  # one try waits for nothing
        if wait is None or not logger.isEnabledFor(logging.INFO) or not wait.pace.is_due(now):
            return
        if not self._counted.may_say("waits", now):
            if not wait.counted:
                wait.counted = True
                self._counted.add("waits", wait.url)
            self._say_counted_later()
            return
        wait.said = True
        if event.reason == "kept":
            holder = _kept(event)
        else:
            holder = held_by(
                holder=event.detail,
                owner=event.owner,
                token=event.fencing_token,
                remaining=event.remaining,
                now=event.time,
            )
        sentence = coded(f"waiting for {event.url}, {holder}{_limit(event)}", Code.WAITING)
        self._say(logging.INFO, sentence, event)

    def _hear_acquired(self, event: Event, now: float) -> None:
        self._answered(event, now)
        if self._waits.end(event.url, now):
            self._say(logging.INFO, f"acquired {event.url} after {span(event.duration or 0.0)}", event)

    _hear_adopted = _hear_acquired

    def _hear_not_acquired(self, event: Event, now: float) -> None:
        self._waits.end(event.url, now)
        self._acquiring.leave(event.url)

    def _hear_renewed(self, event: Event, now: float) -> None:
        self._answered(event, now)
        if (lasted := self._renewing.end(event.url, now)) is not None:
            self._say(logging.INFO, f"{event.url}: renewed again, after {span(lasted)} of failures", event)

    def _hear_lost(self, event: Event, now: float) -> None:
        detail = event.detail
        if event.url in self._renewing.locks:
            detail += f"; the last renewal failed: {self._renewing.detail}"
        self._forget(event, now)
        what = f"{event.url}: the lease was lost after {span(event.duration or 0.0)}: {detail}"
        act = "stop the work that it protects, and acquire the lock again before you go on"
        self._news("losses", f"{what}; {act}", event, now)

    def _hear_release_pending(self, event: Event, now: float) -> None:
        self._forget(event, now)
        if len(self._releasing) < _MOST_LOCKS:
            self._releasing[event.url] = now
        what = f"{event.url}: the store has not confirmed the release{_because(event)}"
        end = f"it goes on in the background, and the lock is free in {span(event.validity)} at the latest"
        self._news("releases", f"{what}; {end}", event, now)

    def _hear_released(self, event: Event, now: float) -> None:
        self._answered(event, now)
        since = self._releasing.get(event.url)
        self._forget(event, now)
        if since is not None:
            self._say(logging.INFO, f"{event.url}: released, {span(now - since)} later", event)

    def _hear_release_unconfirmed(self, event: Event, now: float) -> None:
        self._forget(event, now)
        what = f"{event.url}: the store never confirmed the release{_because(event)}"
        end = f"if it did not arrive, the lock is free in {span(event.validity)} at the latest"
        self._news("releases", f"{what}; {end}", event, now)

    def _forget(self, event: Event, now: float) -> None:
        """Forget the notes about a lease that has ended."""
        self._renewing.forget(event.url, now)
        self._releasing.pop(event.url, None)

    def _answered(self, event: Event, now: float) -> None:
        """Note that the store has answered an acquisition, a renewal or a release."""
        ends = self._acquiring.end(event.url, now), self._silent.end(event.url, now)
        if (lasted := max((each for each in ends if each is not None), default=None)) is not None:
            self._say(logging.INFO, f"{event.url}: the store answers again, after {span(lasted)}", event)

    def waits_for_itself(self, url: str, place: str) -> None:
        """Warn of a task that waits for a lock that it, or one that started it, acquired at ``place``."""
        if self._counted.may_say("waits", self._clock.monotonic()):
            text = f"{url}: a task waits for a lock that it holds itself, or the task that started it"
            act = "a lock is not re-entrant: pass the lease on to the code that needs it, or release it first"
            self._warn(Code.WAITS_FOR_ITSELF, clean_message(f"{text}; acquired at {place}; {act}"))

    # Leaders.

    def leader_failed(self, url: str, error: Exception, *, led: bool, fault: bool = True) -> None:
        """Log that ``lead`` has ended with an error, which nobody may catch. From any thread.

        Args:
            url: URL of the lock.
            error: What ``lead`` raises.
            led: The work had begun.
            fault: False: others led until the timeout.
        """
        if len(self._leading) >= _MOST_LOCKS:
            self._leading.clear()
        if self._leading.setdefault(f"{url} {type(error).__name__}", Pace()).is_due(self._clock.monotonic()):
            what = "the work of the leader failed" if led else "lead() did not become the leader"
            end = "lead() has ended, so nobody leads from here until it is called again"
            text = f"{url}: {what}: {type(error).__name__}: {error}; {end}"
            level = logging.WARNING if fault else logging.INFO
            self._say(level, coded(clean_message(text), Code.LEADER_FAILED))

    # Requests without an answer.

    def watch(self, requests: Callable[[], list[UnderWay]], due: float) -> None:
        """Note a request without an answer, and look again while there are any."""
        self._looks.watch(requests, due)

    def close(self) -> None:
        """Log what was only counted, and stop the timer."""
        self._looks.close()
        self._say_counted()

    def _look(self, requests: list[UnderWay], now: float, late: float) -> bool:
        """Say what is due now; return whether to look again soon."""
        if not self.hushed:
            self._say_counted(self._clock.monotonic())
            if late < _STARVED:
                self._look_at(requests, now)
        return bool(requests) or bool(self._counted) or self._silent.is_open

    def _look_at(self, requests: list[UnderWay], now: float) -> None:
        clock, due, longest = self._clock.monotonic(), False, 0.0
        first = ""
        for key, began, answered_from in requests:
            lock, age = self._url_of(key), now - began
            is_said = lock in self._acquiring.locks or lock in self._renewing.locks
            is_ours = not key or key.endswith(
                SUFFIX
            )  # a listing or a lock; callers of other requests get an error
            if now - answered_from >= SILENCE and is_ours and not is_said:
                self.alert = True
                due |= self._silent.note(lock, frozenset(), clock)
                if age > longest:
                    longest, first = age, lock
        if due:
            which = _which(first, self._silent.locks)
            self._warn(Code.NO_ANSWER, f"{which}: no answer from the store for {span(longest)}")
        self._silent.forget_old(clock)

    def _url_of(self, key: str) -> str:
        return printable(f"{self._url}/{key.removesuffix(SUFFIX)}", limit=LONGEST_TEXT)

    # Much at once.

    def _news(self, group: str, sentence: str, event: Event, now: float) -> None:
        """Warn about a single lock, or count it if many have the same news at once."""
        if self._counted.may_say(group, now):
            self._warn(COUNTED[group][1], sentence, event)
        else:
            self._counted.add(group, event.url)
            self._say_counted_later()

    def _say_counted_later(self) -> None:
        """Say what was counted after the first pause, or at once if the client was closed."""
        if self._looks.closed:
            self._say_counted()
        else:
            self._looks.look_in(FIRST_PAUSE)

    def _say_counted(self, now: float | None = None) -> None:
        """Say what was counted of the groups whose turn it is; None: of all."""
        for level, sentence in self._counted.sentences(now):
            self._say(level, sentence)

    def _warn(self, code: Code, sentence: str, event: Event | None = None) -> None:
        self._say(logging.WARNING, coded(sentence, code), event)

    def _say(self, level: int, sentence: str, event: Event | None = None) -> None:
        with suppress(BaseException):  # of a handler or a filter of the user
            log.log(level, sentence, extra=None if event is None else logged(event))


class _Looks:
    """Looks at the requests without an answer, once a second as long as there is a reason.

    Args:
        look: Given the requests, the loop time and how late it is: says what is due. True: look again soon.
    """

    def __init__(self, look: Callable[[list[UnderWay], float, float], bool]) -> None:
        self.closed = False
        self._look_at = look
        self._requests: Callable[[], list[UnderWay]] = list
        self._timer: asyncio.TimerHandle | None = None
        self._looked = -math.inf

    def watch(self, requests: Callable[[], list[UnderWay]], due: float) -> None:
        """Look at ``requests`` now, if that was not done just before, and again while there are any."""
        self._requests = requests
        if asyncio.get_running_loop().time() >= self._looked + _BETWEEN_LOOKS:
            self._look(due)

    def look_in(self, seconds: float) -> None:
        """Look that much later, if no look is due anyway."""
        if self._timer is None:
            with suppress(RuntimeError):  # no loop runs: ``Narrator.close`` says it
                self._set_timer(seconds)

    def close(self) -> None:
        """Stop looking."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, seconds: float) -> None:
        if not self.closed:
            loop = asyncio.get_running_loop()
            due = loop.time() + seconds
            self._timer = loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._looked = now = asyncio.get_running_loop().time()
        if self._look_at(self._requests(), now, now - due):
            self._set_timer(_BETWEEN_LOOKS)


class _Wait:
    """A wait for a lock that others hold."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pace = Pace()
        self.ended = -math.inf
        self.said = self.counted = False


class _Waits:
    """The waits for locks that others hold, and those that have just ended: a lock may be in demand."""

    def __init__(self) -> None:
        self._by_url: dict[str, _Wait] = {}
        self._past: deque[_Wait] = deque(maxlen=BURST)

    def __bool__(self) -> bool:
        return bool(self._by_url)

    def of(self, url: str, now: float) -> _Wait | None:
        """Return the wait for a lock, a new one if none runs; a wait that has just ended continues."""
        if (wait := self._by_url.get(url)) is not None or len(self._by_url) >= _MOST_LOCKS:
            return wait
        wait = next((each for each in self._past if each.url == url), None)
        if wait is None or now - wait.ended > FIRST_PAUSE:
            wait = _Wait(url)
        wait.said = False
        self._by_url[url] = wait
        return wait

    def end(self, url: str, now: float) -> bool:
        """End the wait for a lock; return True if it was reported."""
        if (wait := self._by_url.pop(url, None)) is None:
            return False
        wait.ended = now
        self._past.append(wait)
        return wait.said


class _Fault:
    """One kind of fault of a client, for any number of locks and reasons.

    Attributes:
        locks: URLs of the locks that have it; a dict keeps their order.
        detail: The last reason.
    """

    def __init__(self) -> None:
        self.locks: dict[str, None] = {}
        self.detail = ""
        self._pace = Pace()
        self._causes: list[frozenset[str]] = []
        self._said = False
        self._began = self._failed = self._ended = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether its end is still to come, or to be reported."""
        return self._said or bool(self.locks)

    def note(self, lock: str, cause: frozenset[str], now: float) -> bool:
        """Note a failure; return whether to report it. The caller then must."""
        if now - self._failed > _FORGOTTEN:
            self.locks.clear()
            self._said, self._ended = False, -math.inf
        if not self.is_open:
            self._began = now
            if now - self._ended > FIRST_PAUSE:  # else it only seemed to have ended
                self._pace = Pace()
                self._causes.clear()
        self._failed = now
        if len(self.locks) < _MOST_LOCKS:
            self.locks[lock] = None
        new = len(self._causes) < _MOST_CAUSES and not any(_are_alike(cause, each) for each in self._causes)
        if new:
            self._causes.append(cause)
        due = self._pace.is_due(now) or new
        self._said |= due
        return due

    def lasted(self, now: float) -> float:
        """Return seconds since it began."""
        return now - self._began

    def end(self, lock: str, now: float) -> float | None:
        """Note that a lock is well; if that ends what was said, return how many seconds it lasted."""
        known = lock in self.locks
        self.locks.pop(lock, None)
        if self.locks or not (known or self._said):
            return None
        said, self._said, self._ended = self._said, False, now
        return now - self._began if said else None

    def leave(self, lock: str) -> None:
        """Note that nobody waits for a lock any more. Others will show whether the fault has ended."""
        self.locks.pop(lock, None)

    def forget(self, lock: str, now: float) -> None:
        """Note that a lock does not have this fault any more, but another."""
        if lock in self.locks:
            del self.locks[lock]
            if not self.locks:
                self._said, self._ended = False, now

    def forget_old(self, now: float) -> None:
        """Forget it if nothing was noted for the first pause: the callers got their errors."""
        if now - self._failed > FIRST_PAUSE:
            self.locks.clear()
            self._said, self._ended = False, now


def span(seconds: float) -> str:
    """Return a length of time in the largest precise enough unit: ``0.4 s``, ``90 s``, ``43 min``."""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds:.1f} s"
    for length, unit in ((60, "s"), (60, "min"), (24, "h")):
        if seconds < 2 * length:
            return f"{seconds:.0f} {unit}"
        seconds /= length
    return f"{seconds:.0f} days"


def _clock(at: float, now: float) -> str:
    """Return a time of day, with its date if that is another day."""
    here, today = time.localtime(at), time.localtime(now)
    same_day = here[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", here)


def _kept(event: Event) -> str:
    """Return until when ``at_least`` keeps a lock whose holder has ended."""
    left = event.remaining
    until = "" if left is None else f" until {_clock(event.time + left, event.time)} ({span(left)})"
    return f"kept{until}, nobody works under it"


def _limit(event: Event) -> str:
    return "" if event.limit is None else f", waiting at most {span(event.limit)}"


def _because(event: Event) -> str:
    return f" ({_reason(event.detail)})" if event.detail else ""


def _which(url: str, locks: Sized) -> str:
    others = len(locks) - 1
    return f"{url} and {others:,} other lock{'s' if others > 1 else ''}" if others > 0 else url


def _cause(event: Event) -> frozenset[str]:
    """Return the words of a failure's reason that do not depend on the request or the time."""
    return frozenset(
        word for word in _reason(event.detail).split() if not any(each.isdigit() for each in word)
    )


def _are_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two reasons are one: two thirds of their words, or more, are in both."""
    return 3 * len(one & other) >= 2 * len(one | other)


def _reason(detail: str) -> str:
    """Return the reason in an error of the store, without operation, key and what was written."""
    reason = detail.partition(" failed: ")[2] or detail
    for written in ("nothing was written", "it may have been written"):
        reason = reason.replace(f"; {written}", "")
    return reason
