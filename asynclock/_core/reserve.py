"""A reserve thread, so that a callback runs even if no more threads can be started."""

from __future__ import annotations

import _thread
import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


class Reserve:
    """Runs each call on its own thread, or on a reserve thread if no new one can be started.

    Args:
        name: Name of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.forget()

    def forget(self) -> None:
        """Start over: the parent's threads do not run in a forked child."""
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._preparing = threading.Lock()
        self._ready = False

    def prepare(self) -> bool:
        """Start the reserve thread; return False if that is not possible."""
        if not self._ready and self._preparing.acquire(blocking=False):
            try:
                self._ready = self._start(self._work)
            finally:
                self._preparing.release()
        return self._ready

    def run(self, call: Callable[[], object]) -> None:
        """Run ``call``, which must not raise, on another thread, or on this one if there is none."""
        if self._start(call):
            return
        if self.prepare():
            self._calls.put(call)
        else:
            call()

    def _start(self, call: Callable[[], object]) -> bool:
        try:
            # Not threading.Thread here: it takes locks of its own, which an interrupted thread may hold.
            _thread.start_new_thread(self._begin, (call,))
        except (RuntimeError, MemoryError):  # no more threads; or the interpreter ends
            return False
        return True

    def _begin(self, call: Callable[[], object]) -> None:
        try:
            threading.Thread(target=call, name=self._name, daemon=True).start()
        except (RuntimeError, MemoryError):
            call()

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            call()
            del call  # it may keep a lease


on_lost: Final = Reserve("asynclock-on-lost")
os.register_at_fork(after_in_child=on_lost.forget)
