"""True time, machines whose clocks disagree with it, and the event loops of processes on them."""

from __future__ import annotations

import asyncio
import heapq
import math
from asyncio import events
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

EPOCH: Final = 1_700_000_000.0
"""True time at the beginning of every history."""
ROUNDING: Final = 1e-6
"""Timers fire later by this: what rounding takes away must not make them fire early, again and again."""


class OutOfEventsError(Exception):
    """A history took more events than it may: something spins."""


class World:
    """True time, and what happens next.

    Args:
        most_events: How many events a history may take.
    """

    def __init__(self, *, most_events: int = 400_000) -> None:
        self.now = EPOCH
        self.trace: list[str] = []
        self.events = 0
        self.before_step: Callable[[ProcessLoop], object] = lambda _: None
        self._most = most_events
        self._heap: list[tuple[float, int, ProcessLoop | None, Any]] = []
        self._count = 0

    def tell(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now - EPOCH:14.4f}  {who:<10} {what}")

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Call ``call`` at true time ``when``."""
        self.push(when, None, call)

    def push(self, when: float, loop: ProcessLoop | None, what: Any) -> None:  # noqa: ANN401  a handle or a callable
        """Put an event of ``loop``, or of the world, at true time ``when``."""
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, loop, what))

    def forget(self, loop: ProcessLoop) -> None:
        """Drop every event of a loop."""
        self._heap = [event for event in self._heap if event[2] is not loop]
        heapq.heapify(self._heap)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen that happens up to true time ``until``, or until ``done()``.

        Raises:
            OutOfEventsError: More happened than a history may take.
        """
        while self._heap and self._heap[0][0] <= until and not done():
            when, _, loop, what = heapq.heappop(self._heap)
            self.now = when
            self.events += 1
            if self.events > self._most:
                raise OutOfEventsError
            if loop is None:
                what()
            else:
                loop.step(what)
        self.now = max(self.now, until) if not done() else self.now


class Machine:
    """The clocks of one machine (the ``Clock`` of a client), as functions of true time.

    Args:
        world: Has the true time.
        rate: Seconds that its counters count in a true second.
        wall_error: By how much its wall clock is ahead.
        grain: Its clocks are cut down to multiples of this; 0: not at all.
        origin: What its counters show at the beginning.
    """

    def __init__(
        self, world: World, *, rate: float, wall_error: float = 0.0, grain: float = 0.0, origin: float = 0.0
    ) -> None:
        self.world = world
        self.rate = rate
        self.wall_error = wall_error
        self._grain = grain
        self._origin = origin
        self._slept = 0.0
        self.asleep_until = -math.inf
        """Up to this true time the machine is suspended, and with it the monotonic clock."""

    def monotonic(self) -> float:
        """Return the counter that stands still while the machine is suspended."""
        return self._cut(self.fine())

    def boot(self) -> float:
        """Return the counter that goes on while the machine is suspended."""
        return self._cut(self._origin + self.rate * (self.world.now - EPOCH))

    def wall(self) -> float:
        """Return the time of day as this machine has it."""
        return self._cut(self.world.now + self.wall_error)

    def fine(self) -> float:
        """Return the monotonic counter uncut, as an event loop sees it."""
        slept = self._slept - max(0.0, self.asleep_until - self.world.now)
        return self._origin + self.rate * (self.world.now - EPOCH - slept)

    def true_time_of(self, monotonic: float) -> float:
        """Return when the monotonic counter will show that, if the machine is not suspended again."""
        return EPOCH + (monotonic - self._origin) / self.rate + self._slept + ROUNDING

    def suspend(self, seconds: float) -> None:
        """Suspend the machine from now on."""
        if self.asleep_until <= self.world.now:
            self._slept += seconds
            self.asleep_until = self.world.now + seconds

    def _cut(self, value: float) -> float:
        return math.floor(value / self._grain) * self._grain if self._grain else value


class ProcessLoop(asyncio.AbstractEventLoop):
    """An event loop whose callbacks are events of the world.

    Args:
        world: Where its events are.
        machine: Its clock.
        name: For the trace.
    """

    def __init__(self, world: World, machine: Machine, name: str) -> None:
        self.world = world
        self.machine = machine
        self.name = name
        self.dead = False
        """Its process was killed: nothing runs any more, and nobody learns of it."""
        self.stopped_until = -math.inf
        """Up to this true time its process is stopped (SIGSTOP)."""
        self.complaints: list[str] = []
        self._closed = False

    def step(self, handle: asyncio.Handle) -> None:
        """Run one callback, or put it off while its process stands still."""
        if self.dead or self._closed or handle.cancelled():
            return
        ready = max(self.stopped_until, self.machine.asleep_until)
        if isinstance(handle, asyncio.TimerHandle):
            ready = max(ready, self.machine.true_time_of(handle.when()))
        if ready > self.world.now + ROUNDING / 2:
            self.world.push(ready, self, handle)
            return
        self.world.before_step(self)
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # noqa: ANN401
        """Run a callback next; from other threads too: there are none here."""
        handle = asyncio.Handle(callback, args, self, context)
        return self._add(self.world.now, handle)

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Any,  # noqa: ANN401
        *args: Any,  # noqa: ANN401
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after ``delay`` seconds of the monotonic clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Any,  # noqa: ANN401
        *args: Any,  # noqa: ANN401
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a time of the monotonic clock."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._add(self.machine.true_time_of(when), handle)
        return handle

    def _add(self, when: float, handle: Any) -> Any:  # noqa: ANN401  a handle in, the same out
        if self.dead:
            return handle
        if self._closed:
            raise RuntimeError("Event loop is closed")
        self.world.push(when, self, handle)
        return handle

    def time(self) -> float:
        """Return the monotonic clock."""
        return self.machine.fine()

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:  # noqa: ANN401
        """Return a task of this loop."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def is_running(self) -> bool:
        """Whether callbacks are run."""
        return not self.dead and not self._closed

    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Close it by force: what waits in it is dropped as it is."""
        self._closed = True
        self.world.forget(self)

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nobody caught."""
        error = context.get("exception")
        self.complaints.append(f"{context.get('message')}: {error!r}")
