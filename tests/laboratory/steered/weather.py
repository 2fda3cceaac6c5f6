"""A simulated store that cannot be reached at times, in one of several ways."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn

from asynclock.errors import (
    AccessDeniedError,
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
)
from asynclock.testing._store import SimulatedBackend
from tests.laboratory.names import KEY

if TYPE_CHECKING:
    from random import Random

    from asynclock.testing._store import SimulatedStore
    from asynclock.testing._virtual import Process

GOOD: Final = "steered"
"""Place of a store that counts as tried out."""


class Sky:
    """Whether the store can be reached, and what is seen of it if not."""

    def __init__(self, trouble: str, rng: Random) -> None:
        self.trouble: str = trouble
        self.down: bool = False
        self._rng = rng
        self._silent: list[tuple[str, asyncio.Future[BaseException], Process]] = []

    def clear(self) -> None:
        """Let requests through again; those without an answer fail."""
        self.down = False
        for kind, answer, process in self._silent:
            if not answer.done():
                process.loop.call_later_as(process, 0.0, answer.set_result, self._lost(kind))
        self._silent.clear()

    def stops(self, kind: str) -> bool:
        """Whether a request does not get through."""
        return self.down and not (self.trouble == "refused" and kind == "get")

    def fail(self, kind: str, answer: asyncio.Future[BaseException], process: Process) -> None:
        """Have a request fail, or get no answer."""
        if answer.done():
            return
        about: dict[str, Any] = {"backend": "simulated", "operation": kind, "key": KEY}
        if self.trouble == "silent" and self.down:
            self._silent.append((kind, answer, process))
        elif self.trouble == "denied":
            answer.set_result(AccessDeniedError(**about, detail="403"))
        elif self.trouble == "refused":
            answer.set_result(PreconditionFailedError(**about, detail="412"))
        elif self.trouble == "config":
            answer.set_result(ConfigError(setting="token", value="", reason="it has expired"))
        else:
            answer.set_result(self._lost(kind))

    def _lost(self, kind: str) -> BaseException:
        unclear = BackendUnavailableError if kind == "get" else OutcomeUnknownError
        about: dict[str, Any] = {"backend": "simulated", "operation": kind, "key": KEY}
        return self._rng.choice(
            (
                unclear(**about, detail="lost"),
                BackendUnavailableError(**about, detail="503"),
                RuntimeError("a bug below the backend"),
                asyncio.CancelledError(),
            )
        )


class WeatherBackend(SimulatedBackend):
    """The store under the weather."""

    def __init__(self, store: SimulatedStore, process: Process, sky: Sky, place: str | None) -> None:
        super().__init__(store, process)
        self.verify: bool = place is not None
        self._sky = sky
        self._place = place

    async def place(self) -> str | None:
        """Return what tells this store from others, or None."""
        if self._place == "slow":
            await asyncio.sleep(1.5)
        elif self._place == "fails":
            self._place = "slow"
            raise BackendUnavailableError(backend="simulated", operation="place", key="", detail="503")
        return GOOD if self._place == GOOD else None

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one version."""
        found = self._store._objects.get(key)
        if found is None or found.version != version:
            raise PreconditionFailedError(backend="simulated", operation="delete", key=key, detail="412")
        self._store.delete_now(key)

    def _send(self, kind: str, key: str, body: bytes | None, base: str | None) -> Any:  # noqa: ANN401  an answer
        if not self._sky.stops(kind):
            return super()._send(kind, key, body, base)
        return self._stopped(kind)

    async def _stopped(self, kind: str) -> NoReturn:
        answer: asyncio.Future[BaseException] = self._store.loop.create_future()
        # In its process, as it must not go on once that was killed.
        self._store.loop.call_later_as(self._process, 0.02, self._sky.fail, kind, answer, self._process)
        raise await answer  # here, since coverage does not see what is thrown in
