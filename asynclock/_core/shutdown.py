"""Ends leases when the process exits, gets a signal or forks (rules 17 and 18)."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import os
import signal
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import ref

from asynclock._core.portal import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future
    from types import FrameType

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_SIGNALLED: Final = "a signal told its process to end"
_REPORT_BOUND: Final = 0.1
"""Least seconds for the events after a signal."""
_FORKED: Final = "this is a forked child, the lease is the parent's"


class Releasing(Protocol):
    """The part of a client that an exit uses."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The client's loop, or None."""
        ...

    @property
    def exit_bound(self) -> float:
        """Seconds that an exit may take to release."""
        ...

    async def release_all(self, *, loss: str | None = None, quietly: bool = False) -> None:
        """Release every lease within the bound, on the client's loop.

        Args:
            loss: If given, leases are reported as lost for this reason.
            quietly: Hold events back until ``report``.
        """
        ...

    async def report(self) -> None:
        """Pass on the events that were held back, on the client's loop."""
        ...

    async def release_elsewhere(self) -> None:
        """Release every lease within the bound, on another loop, because the client's is closed."""
        ...

    def lose_all(self, reason: str) -> None:
        """End every lease, and report the losses from this thread: its loop has died."""
        ...

    def abandon(self, reason: str) -> None:
        """Give up every lease without writing: this is a forked child."""
        ...


_clients: Final[dict[ref[Releasing], None]] = {}
"""Not a ``WeakSet``, which cannot be read while another or an interrupted thread adds to it."""


def register(client: Releasing) -> None:
    """Release the leases of ``client`` when this process ends, and give them up in a forked child."""
    _clients[ref(client, _forget)] = None


def _forget(gone: ref[Releasing]) -> None:
    _clients.pop(gone, None)


def _living() -> list[Releasing]:
    return [client for each in list(_clients) if (client := each()) is not None]


def _lose_all_on(loop: asyncio.AbstractEventLoop, reason: str) -> None:
    """End the leases of the clients of a loop that nobody will run again."""
    for client in _living():
        if client.loop is loop:
            client.lose_all(reason)


Host.on_death = _lose_all_on


def install_signal_handlers() -> None:
    """Release all leases on SIGTERM, SIGHUP and SIGINT, then run the previous handler.

    Every lease is lost at once, because the process may survive the signal; the releases take at
    most ``min(2 s, validity / 5)``, and events report all this after them. Without these handlers,
    a signal that ends the process leaves its locks to expire. Leases of ``renewal="loop"`` clients
    are released on their loop, which must be running; the previous handler runs after that. A signal
    that is ignored (``nohup``) stays ignored and releases nothing. If the program that embeds this Python has
    set a handler, that one stays too, with a ``RuntimeWarning``: Python cannot call it.

    Raises:
        RuntimeError: Not called from the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("install_signal_handlers() must be called from the main thread")
    for number in _SIGNALS:
        previous = signal.getsignal(number)
        if previous is None:
            what = f"{number.name} has a handler that Python cannot call, set by the program around it"
            act = "it stays, and releases no lease: release them before, or let them expire"
            warnings.warn(f"{what}; {act}", RuntimeWarning, stacklevel=2)
        elif previous is not signal.SIG_IGN and not isinstance(previous, _Handler):
            signal.signal(number, _Handler(previous))


class _Handler:
    """A signal handler that releases every lease and then calls the previous handler."""

    def __init__(self, previous: Callable[[int, FrameType | None], Any] | int) -> None:
        self._previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        global _signalled_at
        here = _running_loop()
        _signalled_at = time.monotonic()
        try:
            _wait(_start(lambda client: client.release_all(loss=_SIGNALLED, quietly=True), apart_from=here))
        finally:
            # After all releases: this thread may hold the lock of the log handler that it was interrupted in.
            _wait(_start(lambda client: client.report(), apart_from=here), least=_REPORT_BOUND)
        if here is None or not (ours := [client for client in _living() if client.loop is here]):
            self._chain(number, frame)
            return

        async def release_then_chain() -> None:
            releases = (client.release_all(loss=_SIGNALLED) for client in ours)
            await asyncio.gather(*releases, return_exceptions=True)
            self._chain(number, None)

        def start() -> None:
            task = here.create_task(release_then_chain())
            _kept.add(task)
            task.add_done_callback(_kept.discard)

        # Not create_task here: this runs inside the loop's select, which then goes on waiting.
        here.call_soon_threadsafe(start)

    def _chain(self, number: int, frame: FrameType | None) -> None:
        if callable(self._previous):
            self._previous(number, frame)
        elif self._previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


_kept: Final[set[asyncio.Task[None]]] = set()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _start(
    what: Callable[[Releasing], Coroutine[Any, Any, None]],
    *,
    apart_from: asyncio.AbstractEventLoop | None = None,
) -> list[tuple[Future[None], float]]:
    """Start a call of all clients whose loop is running, but not of those on one loop, the caller's own."""
    started = []
    for client in _living():
        loop = client.loop
        if loop is not None and loop.is_running() and loop is not apart_from:
            call = what(client)
            try:
                started.append((asyncio.run_coroutine_threadsafe(call, loop), client.exit_bound))
            except RuntimeError:  # the loop was closed in the meantime
                call.close()
    return started


_signalled_at = -math.inf
"""When the last signal arrived; nothing is acquired for twice the exit bound after it."""


def _wait(started: list[tuple[Future[None], float]], *, least: float = 0.0) -> None:
    began = time.monotonic()
    if started and began - _signalled_at < 2 * max(bound for _, bound in started):
        began = _signalled_at  # after a KeyboardInterrupt the bound runs from the signal, not again from here
    for future, bound in started:
        with contextlib.suppress(Exception):
            future.result(max(least, began + bound - time.monotonic()))


@atexit.register
def _release_at_exit() -> None:
    elsewhere = _start(lambda client: client.release_all())
    for client in _living():
        loop = client.loop
        if loop is None or loop.is_running():
            continue
        # Its loop has stopped with leases held: run it once more, or another one if it is closed.
        with contextlib.suppress(Exception):
            if loop.is_closed():
                asyncio.run(client.release_elsewhere())
            else:
                loop.run_until_complete(client.release_all())
    _wait(elsewhere)


def _after_fork_in_child() -> None:
    _kept.clear()
    for client in _living():
        client.abandon(_FORKED)


os.register_at_fork(after_in_child=_after_fork_in_child)
