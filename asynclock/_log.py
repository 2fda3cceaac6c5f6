"""The log ``asynclock``, written to without waiting for anybody.

A signal handler may interrupt the main thread in a log call, while it holds the lock of a log handler, and
then call asynclock. Asynclock's own thread serves that call and renews all leases. If it waited for the lock,
neither would ever continue. So if a log handler is busy, another thread waits instead.
"""

from __future__ import annotations

import _thread
import logging
import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

_MOST_WAITING: Final = 10_000


class Log:
    """Logs like a ``logging.Logger``, with its name, levels, filters and handlers.

    Args:
        logger: That logger.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.forget()

    def forget(self) -> None:
        """Start over: the parent's thread does not run in a forked child."""
        self._waiting: deque[logging.LogRecord] = deque(maxlen=_MOST_WAITING)
        self._may_start = [True]

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  as logging has it
        """See ``logging.Logger``."""
        return self._logger.isEnabledFor(level)

    def debug(self, text: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """See ``logging.Logger``."""
        self._log(logging.DEBUG, text, args, extra)

    def info(self, text: str, *args: object) -> None:
        """See ``logging.Logger``."""
        self._log(logging.INFO, text, args)

    def warning(self, text: str, *args: object) -> None:
        """See ``logging.Logger``."""
        self._log(logging.WARNING, text, args)

    def critical(self, text: str, *args: object) -> None:
        """See ``logging.Logger``."""
        self._log(logging.CRITICAL, text, args)

    def exception(self, text: str, *args: object) -> None:
        """See ``logging.Logger``."""
        self._log(logging.ERROR, text, args, error=sys.exc_info())

    def log(self, level: int, text: str, *args: object, extra: Mapping[str, object] | None = None) -> None:
        """See ``logging.Logger``."""
        self._log(level, text, args, extra)

    def _log(
        self,
        level: int,
        text: str,
        args: tuple[object, ...],
        extra: Mapping[str, object] | None = None,
        error: Any = None,  # noqa: ANN401  as sys.exc_info has it
    ) -> None:
        logger = self._logger
        if not logger.isEnabledFor(level):
            return
        path, line, function, _ = logger.findCaller(stacklevel=3)
        record = logger.makeRecord(logger.name, level, path, line, text, args, error, function, extra)
        if threading.get_ident() == threading.main_thread().ident:
            logger.handle(record)  # it can take again what it holds
        elif self._waiting or not self._handled_now(record):
            self._handle_later(record)

    def _handled_now(self, record: logging.LogRecord) -> bool:
        """Handle a record unless a log handler is busy; return whether that was done."""
        taken: list[Any] = []
        try:
            for lock in self._locks():
                if not lock.acquire(blocking=False):
                    return False
                taken.append(lock)
            self._logger.handle(record)
        finally:
            for lock in taken:
                lock.release()
        return True

    def _locks(self) -> list[Any]:
        handlers: list[logging.Handler] = []
        logger: logging.Logger | None = self._logger
        while logger is not None:
            handlers += logger.handlers
            logger = logger.parent if logger.propagate else None
        if not handlers and logging.lastResort is not None:
            handlers.append(logging.lastResort)
        locks: list[AbstractContextManager[object] | None] = [each.lock for each in handlers]
        return [lock for lock in locks if lock is not None]

    def _handle_later(self, record: logging.LogRecord) -> None:
        self._waiting.append(record)
        try:
            self._may_start.pop()
        except IndexError:
            return  # a thread is working on them
        try:
            _thread.start_new_thread(self._handle_waiting, ())
        except (RuntimeError, MemoryError):  # no more threads: the next record tries again
            self._may_start.append(True)

    def _handle_waiting(self) -> None:
        while True:
            while self._waiting:
                try:
                    self._logger.handle(self._waiting[0])
                finally:
                    self._waiting.popleft()
            self._may_start.append(True)
            if not self._waiting:
                return
            try:
                self._may_start.pop()
            except IndexError:
                return  # another thread has begun


log: Final = Log(logging.getLogger("asynclock"))
os.register_at_fork(after_in_child=log.forget)
