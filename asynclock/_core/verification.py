"""Tests a store before a client holds its first lock there, and remembers a good verdict for a day.

At the address of a cloud provider, a client relies on the provider's promises. At any other address it
cannot, so four writes of an object of our own show whether conditions work at all. ``probe`` tests far more;
this finds the defects that would let two clients believe, or no client ever acquire.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from asynclock._core.defects import Defect
from asynclock._core.names import PROBE
from asynclock._log import log
from asynclock._text import SUFFIX
from asynclock.backend import Absent, Stored, Written
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    PreconditionFailedError,
    UnsupportedBackendError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Protocol

    from asynclock.backend import Backend

    T = TypeVar("T")

    class Send(Protocol):
        """Awaits one call of the backend within a time."""

        async def __call__(self, operation: str, key: str, call: Coroutine[Any, Any, T]) -> T:
            """Return its result, or raise BackendError."""
            ...


DAY: Final = 86_400.0
"""A good verdict is remembered for this many seconds. A bad one is not, so a repaired store works at once."""
_PAUSE: Final = 1.0
"""Seconds before a write that the store was too busy for is sent again."""
_FILE: Final = "verified-"
_verified: Final[dict[str, float]] = {}
"""By the place of a store: the monotonic time of a good verdict of this process."""


class Refuted(Exception):  # noqa: N818  says that a store was found out
    """The store has a defect.

    Attributes:
        defect: Which.
        seen: What was seen.
    """

    def __init__(self, defect: Defect, seen: str) -> None:
        super().__init__(defect, seen)
        self.defect: Defect = defect
        self.seen: str = seen


async def verify(backend: Backend, send: Send, *, place: str, key: str, url: str) -> None:
    """Return once a store is known to keep its conditions, from a test now or within the last day.

    If permissions forbid writing the test object, the store counts as untested, and is used.

    Args:
        backend: The store.
        send: How it is asked.
        place: What tells the store from others; it is kept as a hash only.
        key: Key of a lock's object; that of the trial is next to it, under a name that no lock can have.
        url: Where the locks are, for the error.

    Raises:
        UnsupportedBackendError: It does not keep them; the error names the defect and the remedy.
        BackendError: It did not answer well enough to tell; try again.
    """
    if is_verified(place):
        return
    age = await _apart(_age, place)
    if age is not None and 0 <= age < DAY:
        _verified[place] = time.monotonic() - age
        return
    trial = _Trial(backend, send, f"{key.rpartition('/')[0]}/".removeprefix("/"))
    try:
        await trial.run()
    except Refuted as found:
        raise UnsupportedBackendError(
            backend=backend.name,
            operation="verify",
            key=key,
            detail=f"{found.defect}: {found.seen}; {found.defect.remedy}; run: asynclock doctor {url} "
            "(verify=False leaves this test out)",
        ) from None
    except (AccessDeniedError, UnsupportedBackendError) as refused:
        log.info("%s: could not test before the first lock whether conditions are kept: %s", url, refused)
    else:
        await _apart(_remember, place)
    finally:
        await trial.clean()
    _verified[place] = time.monotonic()


def is_verified(place: str) -> bool:
    """Whether this process has found a store good within the last day."""
    since = _verified.get(place)
    return since is not None and time.monotonic() - since < DAY


def forget(place: str | None = None) -> None:
    """Forget what this process knows of a store, or of all; what other processes know stays."""
    if place is None:
        _verified.clear()
    else:
        _verified.pop(place, None)


class _Trial:
    def __init__(self, backend: Backend, send: Send, folder: str) -> None:
        self._backend = backend
        self._send = send
        self._key = f"{folder}{PROBE}{uuid.uuid4()}-0{SUFFIX}"
        self._may_exist = False

    async def run(self) -> None:
        """Create and replace one object, each time by two writers of which one may win."""
        await self._create()
        first = await self._present()
        await asyncio.sleep(self._backend.min_write_interval)
        await self._replace(first)

    async def clean(self) -> None:
        """Delete the object; without the right to do so it stays, and no lock is in its way."""
        if self._may_exist:
            try:
                await self._send("delete", self._key, self._backend.delete(self._key))
            except (BackendError, ConfigError) as error:
                log.info("the object %s of a trial was left: %s", self._key, error)

    async def _create(self) -> None:
        bodies, self._may_exist = (b"created 1", b"created 2"), True
        backend, key = self._backend, self._key
        won = await self._race(bodies, lambda body: backend.put_if_absent(key, body), "put_if_absent", None)
        if won is None:
            if await self._accepts(self._other(None)):
                raise Refuted(
                    Defect.INVERTED, "creating a missing object is refused, replacing it is accepted"
                )
            raise Refuted(Defect.REFUSES_SHOWN, "creating an object is refused, though reads show none")
        if len(won) > 1:
            try:
                await self._write("put_if_absent", backend.put_if_absent(key, b"created 3"))
            except PreconditionFailedError:
                raise Refuted(Defect.NOT_ATOMIC, "two creations at a time were accepted") from None
            if await self._accepts(self._other("1")):
                raise Refuted(Defect.NO_CONDITIONS, "writes that must be refused are accepted")
            raise Refuted(Defect.CREATES_TWICE, "an object that exists is created again")
        shown = await self._present()
        body, version = next(iter(won.items()))
        if shown.body != body:
            if shown.body in bodies:
                raise Refuted(Defect.WRITES_REFUSED, "a creation that was refused has been written")
            raise Refuted(Defect.BODY_CHANGED, "the body read is not the one written")
        if version is not None and shown.version != version:
            seen = f"the answer to a write says {version}, the read after it {shown.version}"
            raise Refuted(Defect.VERSION_CHANGED, seen)

    async def _replace(self, first: Stored) -> None:
        bodies, version = (b"replaced 1", b"replaced 2"), first.version
        backend, key = self._backend, self._key
        try:
            won = await self._race(
                bodies, lambda body: backend.put_if_match(key, body, version), "put_if_match", first
            )
        except UnsupportedBackendError as error:
            raise Refuted(Defect.UNSUPPORTED, f"replacing an object fails: {error.detail}") from None
        if won is None:
            if await self._accepts(self._other(version)):
                raise Refuted(Defect.INVERTED, "the version shown is refused, and another one accepted")
            again = await self._present()
            if again.version != version:
                seen = f"two reads of one object show the versions {version} and {again.version}"
                raise Refuted(Defect.VERSION_CHANGED, seen)
            kind = Defect.VERSION_CHANGED if version.startswith("W/") else Defect.REFUSES_SHOWN
            raise Refuted(kind, f"replacing the version that reads show, {version}, is refused")
        if len(won) > 1:
            await asyncio.sleep(backend.min_write_interval)
            if await self._accepts(version):
                raise Refuted(Defect.REPLACES_ANY, "a version that is no longer there is replaced")
            raise Refuted(Defect.NOT_ATOMIC, "two replacements of one version at a time were accepted")
        shown = await self._present()
        if shown.body not in won:
            if shown.body == first.body:
                raise Refuted(Defect.STALE_READS, "a read shows what was there before the last write")
            raise Refuted(Defect.WRITES_REFUSED, "a replacement that was refused has been written")

    async def _race(
        self,
        bodies: tuple[bytes, bytes],
        put: Callable[[bytes], Coroutine[Any, Any, Written]],
        operation: str,
        base: Stored | None,
    ) -> dict[bytes, str | None] | None:
        """Write both bodies at a time; return the accepted ones with their versions.

        None: both are refused, though reads go on showing the base.
        """
        outcomes = await asyncio.gather(
            *(self._send(operation, self._key, put(body)) for body in bodies), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, BackendError):
                raise outcome
        won: dict[bytes, str | None] = {
            body: outcome.version
            for body, outcome in zip(bodies, outcomes, strict=True)
            if isinstance(outcome, Written)
        }
        if not won:
            for outcome in outcomes:
                if isinstance(outcome, AccessDeniedError | UnsupportedBackendError):
                    raise outcome
            return await self._read_back(bodies, put, operation, base)
        for body, outcome in zip(bodies, outcomes, strict=True):
            if isinstance(outcome, BackendError) and not isinstance(outcome, PreconditionFailedError):
                # Whether it looks at the condition is not known yet.
                with contextlib.suppress(BackendError):
                    won[body] = (await self._later(operation, lambda body=body: put(body))).version  # type: ignore[misc]
        return won

    async def _read_back(
        self,
        bodies: tuple[bytes, bytes],
        put: Callable[[bytes], Coroutine[Any, Any, Written]],
        operation: str,
        base: Stored | None,
    ) -> dict[bytes, str | None] | None:
        """Find out who has won if no answer says so, and let one writer try alone if nobody has."""
        found = await self._get()
        if isinstance(found, Stored) and found.body in bodies:
            return {found.body: None}
        if (found.body if isinstance(found, Stored) else None) != (base.body if base else None):
            raise Refuted(Defect.STALE_READS, "a read shows what nobody has written")
        await asyncio.sleep(max(_PAUSE, self._backend.min_write_interval))
        try:
            return {bodies[0]: (await self._write(operation, put(bodies[0]))).version}
        except PreconditionFailedError:
            found = await self._get()
            return {found.body: None} if isinstance(found, Stored) and found.body in bodies else None

    async def _later(self, operation: str, put: Callable[[], Coroutine[Any, Any, Written]]) -> Written:
        """Write alone, once more if the store was too busy."""
        await asyncio.sleep(max(_PAUSE, self._backend.min_write_interval))
        with contextlib.suppress(BackendUnavailableError):
            return await self._write(operation, put())
        await asyncio.sleep(max(_PAUSE, self._backend.min_write_interval))
        return await self._write(operation, put())

    async def _accepts(self, version: str) -> bool:
        """Whether a replacement of a version that is not there is accepted."""
        with contextlib.suppress(BackendError):
            await self._write("put_if_match", self._backend.put_if_match(self._key, b"another", version))
            return True
        return False

    def _other(self, version: str | None) -> str:
        """Return a version that the object does not have."""
        if self._backend.name == "gcs":
            return "1" if version is None else str(int(version) + 1 if version.isdecimal() else 1)
        return '"00000000000000000000000000000000"'

    async def _write(self, operation: str, call: Coroutine[Any, Any, Written]) -> Written:
        return await self._send(operation, self._key, call)

    async def _get(self) -> Stored | Absent:
        return await self._send("get", self._key, self._backend.get(self._key))

    async def _present(self) -> Stored:
        found = await self._get()
        if isinstance(found, Absent):
            raise Refuted(Defect.STALE_READS, "an object just written is not found")
        return found


# Across processes: an empty file for each store, whose time is that of the verdict. A hash names it, so that
# it tells nobody where locks are. It is made in one step, so that any number of processes may do so.


async def _apart(function: Callable[[str], T], place: str) -> T | None:
    """Call a function that may block; None if no thread can be started or no file opened."""
    with contextlib.suppress(OSError, RuntimeError):
        return await asyncio.to_thread(function, place)
    return None


def _folder() -> Path:
    named = os.environ.get("ASYNCLOCK_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asynclock"


def _file_of(place: str) -> Path:
    return _folder() / (_FILE + hashlib.sha256(place.encode()).hexdigest())


def _age(place: str) -> float:
    return time.time() - _file_of(place).stat().st_mtime


def _remember(place: str) -> None:
    file = _file_of(place)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in file.parent.glob(f"{_FILE}*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > DAY:
                old.unlink()
    file.touch(mode=0o600)
    os.utime(file)
