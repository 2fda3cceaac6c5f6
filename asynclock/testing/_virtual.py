"""Virtual time for asyncio: a loop that never sleeps and repeats itself bit for bit.

``VirtualLoop(seed)`` runs coroutines unchanged. When nothing is ready it sets its clock to the
next timer instead of waiting. Programs of their own (a client, a server, a network) are
``Process`` objects on one loop: each can be paused, suspended or killed as a whole, at any
await. Callbacks of one process keep their order, as asyncio promises; which process goes next
is drawn from the seed.
"""

# ruff: noqa: ANN401, S311  asyncio's signatures; seeded on purpose
from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from asynclock.testing._tasks import dispose, forget_error, running

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator

    from asynclock.testing._clocks import VirtualClock

T = TypeVar("T")
_TASKS_KEPT: Final = 64


class DeadlockError(RuntimeError):
    """Every task waits for something that no timer and no other task will ever bring."""


class Handle(asyncio.TimerHandle):
    """A callback of one process, ready or scheduled."""

    __slots__ = ("_slept", "process")
    _repr = _source_traceback = None
    _scheduled = True

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        process: Process,
        context: Context | None,
    ) -> None:
        # Not the parent's constructor: it asks the loop for debug mode and costs twice as much.
        self._when = when
        self._callback = callback
        self._args = args
        self.process: Process = process
        self._slept = process.slept
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._loop = process.loop

    @property
    def callback(self) -> Callable[..., object] | None:
        """What runs; None if it was cancelled."""
        return self._callback

    def run(self) -> None:
        """Run the callback."""
        self._context.run(self._callback, *self._args)

    def delayed(self) -> bool:
        """Put it off by what its machine has slept since, as timers count its monotonic clock; False if 0."""
        slept, self._slept = self.process.slept - self._slept, self.process.slept
        self._when += slept
        return slept > 0

    def cancel(self) -> None:
        """Drop the callback; it will not run."""
        self._cancelled = True
        self._callback = None  # type: ignore[assignment]
        self._args = ()


class Process:
    """A program of its own on a ``VirtualLoop``: what it starts belongs to it.

    Attributes:
        name: For traces.
        loop: The loop it runs on.
        clock: Its machine's clocks; ``suspend`` stops their monotonic one.
        alive: False after ``kill``: none of its callbacks will ever run again.
        paused: Its callbacks wait, as after SIGSTOP or under a blocked event loop.
        slept: Seconds that its machine was suspended in all; timers are late by them.
        ready: The callbacks that it runs next.
    """

    __slots__ = ("_tasks", "_wakes_at", "alive", "clock", "loop", "name", "paused", "ready", "slept")

    def __init__(self, loop: VirtualLoop, name: str, clock: VirtualClock | None = None) -> None:
        self.loop: VirtualLoop = loop
        self.name: str = name
        self.clock: VirtualClock | None = clock
        self.alive: bool = True
        self.paused: bool = False
        self.slept: float = 0.0
        self._wakes_at = 0.0
        self.ready: deque[Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run ``coroutine`` as a task of this process."""
        with self.loop.running_as(self):
            return self.loop.create_task(coroutine, name=name, context=Context())

    def pause(self) -> None:
        """Stop running its callbacks; time goes on, and so do its clocks (SIGSTOP)."""
        if self.alive and not self.paused:
            self.paused = True
            if self.ready:
                self.loop.runnable.remove(self)

    def resume(self) -> None:
        """Run its callbacks again, those that came due meanwhile included (SIGCONT); not while it sleeps."""
        if self.alive and self.paused and self.loop.time() >= self._wakes_at:
            self.paused = False
            if self.ready:
                self.loop.runnable.append(self)

    def suspend(self, seconds: float) -> None:
        """Sleep for ``seconds`` more, with the monotonic clock standing still and timers late."""
        self.slept += seconds
        if self.clock is not None:
            self.clock.suspend(seconds)
        self.pause()
        self._wakes_at = max(self.loop.time(), self._wakes_at) + seconds
        with self.loop.running_as(self.loop.world):
            self.loop.call_at(self._wakes_at, self.resume)

    def kill(self) -> None:
        """End it at once: no ``finally``, no ``except``, no callback runs (SIGKILL)."""
        if self.alive:
            self.end()
            for task in self._tasks:
                forget_error(task)  # nobody is left to ask

    def end(self) -> None:
        """Run none of its callbacks any more, and keep its tasks."""
        if self.alive:
            self.alive = False
            if self.ready and not self.paused:
                self.loop.runnable.remove(self)
            self.ready.clear()

    def push(self, handle: Handle) -> None:
        """Run a callback after those that are ready."""
        if self.alive:
            if not self.ready and not self.paused:
                self.loop.runnable.append(self)
            self.ready.append(handle)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return its tasks that are not done."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return list(self._tasks)

    def timers(self) -> list[Handle]:
        """Return its timers that are neither cancelled nor due."""
        return [handle for handle in self.loop.timers() if handle.process is self]

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Take a task that was started in its name."""
        if len(self._tasks) >= _TASKS_KEPT:
            self._tasks = [old for old in self._tasks if not old.done()]
        self._tasks.append(task)

    def dispose_tasks(self) -> None:
        """Drop its tasks, which never run again."""
        while self._tasks:
            dispose(self._tasks.pop())

    def __repr__(self) -> str:
        state = "paused" if self.paused else "alive" if self.alive else "dead"
        return f"<Process {self.name} {state}>"


class VirtualLoop(asyncio.BaseEventLoop):
    """A seeded asyncio loop in virtual time: no real sleep, no thread, no socket.

    Args:
        seed: The same seed and the same program give the same run.
        start: First value of ``time()``, in seconds.

    Attributes:
        now: The virtual time; read it, never set it.
        world: The process that everything else belongs to; never pause it.
        current_process: The process whose callback is running.
        runnable: The processes that have callbacks ready and are not paused.
        on_step: Called after every callback with the process that it belonged to.
        on_idle: Called when nothing is ready, before time goes on; True if it has made
            something ready.
    """

    def __init__(self, seed: int, *, start: float = 0.0) -> None:
        self._spinning = False
        super().__init__()
        self.now: float = start
        self._random = random.Random(seed).random
        self.runnable: list[Process] = []
        self._heap: list[tuple[float, int, Handle]] = []
        self._count = 0
        self._halted = False
        self.world: Process = Process(self, "world")
        self.current_process: Process = self.world
        self._processes = [self.world]
        self.on_step: Callable[[Process], object] | None = None
        self.on_idle: Callable[[], bool] | None = None

    def process(self, name: str, clock: VirtualClock | None = None) -> Process:
        """Return a new process that shares this loop and its time."""
        process = Process(self, name, clock)
        self._processes.append(process)
        return process

    @contextmanager
    def running_as(self, process: Process) -> Iterator[None]:
        """Let what is started inside belong to ``process``."""
        before, self.current_process = self.current_process, process
        try:
            yield
        finally:
            self.current_process = before

    def time(self) -> float:
        """Return the virtual time, in seconds; it is the true time of the simulation."""
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run ``callback`` after those that its process has ready."""
        handle = Handle(self.now, callback, args, self.current_process, context)
        self.current_process.push(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run ``callback`` when ``time()`` has reached ``when``."""
        return self._schedule(Handle(when, callback, args, self.current_process, context))

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run ``callback`` ``delay`` seconds from now."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_later_as(
        self, process: Process, delay: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Run ``callback`` as part of ``process``, ``delay`` seconds from now."""
        return self._schedule(Handle(self.now + delay, callback, args, process, _EMPTY))

    def _schedule(self, handle: Handle) -> Handle:
        self._count += 1
        heapq.heappush(self._heap, (handle.when(), self._count, handle))
        return handle

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a task of the current process."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=str(name or "task"), context=context)
        self.current_process.adopt(task)
        return task

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]
        """Refuse: a thread would break the reproduction of a run.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("a virtual loop has no threads: keep the program on the loop")

    def run_forever(self) -> None:
        """Run until ``stop``.

        Raises:
            DeadlockError: Nothing is ready and no timer is set.
        """
        if self._spinning:
            raise RuntimeError("this loop is already running")
        self._halted = False
        self._spinning = True
        try:
            with running(self):
                self._spin()
        finally:
            self._spinning = False
            self.current_process = self.world

    def stop(self) -> None:
        """End ``run_forever`` after the callback that is running."""
        self._halted = True

    def is_running(self) -> bool:
        """Whether ``run_forever`` is in progress."""
        return self._spinning

    def close(self) -> None:
        """Forget all processes, their timers and their unfinished tasks."""
        if self.is_closed():
            return
        for process in self._processes:
            process.end()
        self._heap.clear()
        with running(self):  # a cleanup may start a task, which is dropped in turn
            for process in self._processes:
                self.current_process = process
                process.dispose_tasks()
        self._processes.clear()
        super().close()

    def _spin(self) -> None:
        runnable = self.runnable
        draw = self._random
        while not self._halted:
            if not runnable:
                if self.on_idle is None or not self.on_idle():
                    self._advance()
                continue
            last = len(runnable) - 1
            index = int(draw() * (last + 1)) if last else 0
            process = runnable[index]
            handle = process.ready.popleft()
            if not process.ready:
                runnable[index] = runnable[last]
                runnable.pop()
            if handle.cancelled():
                continue
            self.current_process = process
            try:
                handle.run()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001  asyncio hands these to the exception handler
                self.call_exception_handler(
                    {"message": f"callback of {process.name} failed", "exception": error}
                )
            if self.on_step is not None:
                self.on_step(process)

    def _advance(self) -> None:
        """Set the clock to the next timer and make everything due at it ready."""
        heap = self._heap
        while heap and heap[0][2].cancelled():
            heapq.heappop(heap)
        if not heap:
            raise DeadlockError("nothing is ready and no timer is set: every task waits forever")
        self.now = max(self.now, heap[0][0])
        while heap and heap[0][0] <= self.now:
            handle = heapq.heappop(heap)[2]
            if handle.cancelled() or not handle.process.alive:
                continue
            if handle.delayed():
                self._schedule(handle)
            else:
                handle.process.push(handle)

    def timers(self) -> list[Handle]:
        """Return the timers that are neither cancelled nor due."""
        return [handle for _, _, handle in self._heap if not handle.cancelled()]


_EMPTY: Final = Context()
"""For callbacks that read no context variable: a fresh copy for each would cost more than the call."""


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run ``main`` in virtual time and return its result.

    Args:
        main: The program.
        seed: Chooses between processes that are ready at the same instant.

    Raises:
        DeadlockError: ``main`` waits for something that will never happen.
    """
    loop = VirtualLoop(seed)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
