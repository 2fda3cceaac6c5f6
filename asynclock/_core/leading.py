"""Leadership on one lock: candidates see who leads, and a leader can be asked to step down (rule 26)."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import TYPE_CHECKING

from asynclock._codes import Code, coded
from asynclock._log import log
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from asynclock._core.engine import LockEngine
    from asynclock._core.status import LockStatus

    OnChange = Callable[[LockStatus], object] | None


class Candidate:
    """One call of ``lead``. It reports each change of the leader that a look at the lock shows.

    Args:
        engine: Of the lock.
        on_change: The user's callback, or None.
        deliver: Runs a call on the user's side, after those before it, without waiting for it.

    Raises:
        ConfigError: ``on_change`` is not a plain function.
    """

    def __init__(
        self,
        engine: LockEngine,
        on_change: OnChange,
        deliver: Callable[[Callable[[], object]], object],
    ) -> None:
        if on_change is not None and (not callable(on_change) or inspect.iscoroutinefunction(on_change)):
            reason = "must be a function that takes a LockStatus, and not a coroutine function"
            raise ConfigError(setting="on_change", value=on_change, reason=reason)
        self._engine = engine
        self._on_change = on_change
        self._deliver = deliver
        self._over = False
        self._unwatch: Callable[[], object] = lambda: None
        self._leader: str | None = None
        self._newest = (-1, False)

    def __enter__(self) -> Self:
        if self._on_change is not None:
            self._unwatch = self._engine.inspection.watch(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._unwatch()

    def _look(self, status: LockStatus) -> None:
        """Take in what a look shows, on the client's loop; a change of the leader is passed on."""
        leader = status.owner if status.state == "held" and not status.kept else None
        if leader == self._leader:
            return
        if status.fencing_token is not None:
            # A term ends once: an answer that was on its way for longer must not bring back an older one.
            order = status.fencing_token, leader is None
            if order < self._newest:
                return
            self._newest = order
        self._leader = leader
        with suppress(RuntimeError):  # the user's loop or interpreter ends
            self._deliver(lambda: self._tell(status))

    def _tell(self, status: LockStatus) -> None:
        if self._over or self._on_change is None:
            return
        try:
            self._on_change(status)
        except Exception:  # noqa: BLE001  the user's, and logged
            log.exception(coded(f"on_change of {status.url} failed", Code.CALLBACK_FAILED))
