"""A thread in reserve: a callback runs also where no thread can be started any more."""

from __future__ import annotations

import _thread
import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


class Reserve:
    """Runs each call on a thread of its own; the calls for which none can be started, on one in reserve.

    Args:
        name: Of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.forget()

    def forget(self) -> None:
        """Begin again: the threads of the parent do not run in a forked child."""
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._preparing = threading.Lock()
        self._ready = False

    def prepare(self) -> bool:
        """Have the reserve wait from now on; False if it cannot be started."""
        if not self._ready and self._preparing.acquire(blocking=False):
            try:
                self._ready = self._start(self._work)
            finally:
                self._preparing.release()
        return self._ready

    def run(self, call: Callable[[], object]) -> None:
        """Run ``call``, which must not raise, on a thread; in this one, if there is no other."""
        if self._start(call):
            return
        if self.prepare():
            self._calls.put(call)
        else:
            call()

    def _start(self, call: Callable[[], object]) -> bool:
        try:
            # Not threading.Thread here: it takes locks of its own, in which a signal handler may have come.
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
