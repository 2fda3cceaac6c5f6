"""Several kinds of work in parallel, each in a thread of its own, until a signal or their end."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

log = logging.getLogger(__name__)

_WAKE_SECONDS: Final = 0.2


def side_by_side(work: Mapping[str, Callable[[], object]]) -> None:
    """Call each function in a thread of its own, under that name, and return when all have ended."""
    threads = [threading.Thread(target=target, name=name) for name, target in work.items()]
    for thread in threads:
        thread.start()
    # Join in short steps, because a signal handler runs only between two of them.
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(_WAKE_SECONDS)


@contextlib.contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Make SIGINT and SIGTERM set ``stop``; has no effect outside the main thread.

    A handler that was set by the program that this Python is embedded in stays, and a warning in the log
    says so: Python could not put it back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _frame: Any) -> None:  # noqa: ANN401  as signal wants it
        log.info("%s: each stream finishes its batch", signal.Signals(number).name)
        stop.set()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in [each for each, handler in before.items() if handler is None]:
        log.warning("%s has a handler that is not Python's: it stays, and stops no stream", number.name)
        del before[number]
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
