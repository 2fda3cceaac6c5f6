"""``probe``: test a store before you trust a lock to it.

On a store that ignores conditions, every write succeeds, so everyone seems to hold every lock. The
probe writes a few test objects under the URL, races itself for them and deletes them. If it may not
delete, it reports what it has left; lists of locks skip those objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock._core.defects import Defect
from asynclock._core.names import PROBE
from asynclock._core.patched import refuse_patched
from asynclock._core.portal import running_loop
from asynclock._text import SUFFIX
from asynclock.backend import Absent, Stored, Written
from asynclock.backends import open_backend
from asynclock.backends._url import AZURE, split_url
from asynclock.clock import SystemClock
from asynclock.errors import (
    AccessDeniedError,
    AsyncLockError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Unpack

    from asynclock.backend import Backend
    from asynclock.clock import Clock
    from asynclock.options import BackendOptions

RACERS: Final = 32
_ROUNDS: Final = 3
_REWRITES: Final = 4
_CONDITIONAL: Final = frozenset({"put_if_absent", "put_if_match"})
_EXPLAINS: Final = {
    Defect.NO_CONDITIONS: {
        Defect.CREATES_TWICE,
        Defect.REPLACES_ANY,
        Defect.CREATES_BY_REPLACING,
        Defect.NOT_ATOMIC,
    },
    Defect.CREATES_TWICE: {Defect.NOT_ATOMIC},
    Defect.REPLACES_ANY: {Defect.NOT_ATOMIC, Defect.CREATES_BY_REPLACING},
}
"""By a defect: those that are its effects, or part of it."""
_UNAVAILABLE: Final = (AccessDeniedError, BackendUnavailableError, OutcomeUnknownError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        check: What was checked, in a few words.
        safe: Whether a lock may rely on it.
        detail: What was seen, and what follows from it.
        defect: What is wrong with the store, if it is known by name; its ``remedy`` says what to do.
    """

    check: str
    safe: bool
    detail: str
    defect: Defect | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What a probe found.

    Attributes:
        url: The store that was probed.
        backend: Name of its backend.
        safe: Whether every finding is safe, so that locks may be kept here.
        findings: The results of the checks, in order.
        clock_offset: Seconds by which the store's clock is ahead of this machine's, at least;
            None without Dates, 0.0 within the resolution.
        left: Keys of test objects that could not be deleted and may still exist. No lock needs
            them, or the right to delete; remove them at any time.
        unavailable: Why nothing could be tested: the store did not answer, or denied access. None: it
            was tested.
    """

    url: str
    backend: str
    safe: bool
    findings: tuple[Finding, ...]
    clock_offset: float | None
    left: tuple[str, ...] = ()
    unavailable: str | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the store is not safe; empty if it is."""
        return tuple(f"{found.check}: {found.detail}" for found in self.findings if not found.safe)

    @property
    def defects(self) -> tuple[Defect, ...]:
        """What is wrong with the store, by name: what explains the most first; empty if nothing is known."""
        found = dict.fromkeys(each.defect for each in self.findings if each.defect is not None)
        if found.keys() >= {Defect.CREATES_TWICE, Defect.REPLACES_ANY}:
            found = {Defect.NO_CONDITIONS: None} | found
        for cause, effects in _EXPLAINS.items():
            if cause in found:
                found = {each: None for each in found if each not in effects}
        return tuple(found)


async def probe(
    url: str, *, also: str | None = None, **backend_options: Unpack[BackendOptions]
) -> ProbeReport:
    """Test whether ``url`` is safe for locks: conditions, races, reads, Dates.

    Writes a dozen objects named ``.asynclock-probe-…`` there and deletes them; those that it could
    not delete are in ``ProbeReport.left``.

    Args:
        url: Where the locks will be.
        also: Another address of the same store, such as ``https://node-2:9000`` or another URL of the same
            locks: the two are raced, since nodes may keep conditions for themselves only.
        backend_options: Options of the backend: ``BackendOptions``; see ``docs/backends``.

    Raises:
        ConfigError: The URL or an option is wrong, or gevent or eventlet has monkey-patched threads or
            sockets; nothing was written.
        BackendNotInstalledError: The backend's package is missing.
    """
    running_loop()
    refuse_patched()
    backend = open_backend(url, **backend_options)
    other = None if also is None else _open_other(url, also, dict(backend_options))
    try:
        return await probe_backend(backend, url=url, also=other)
    finally:
        await backend.aclose()
        if other is not None:
            await other.aclose()


def _open_other(url: str, also: str, options: dict[str, object]) -> Backend:
    """Return the backend of a store at another of its addresses."""
    if not also.lower().startswith(("http://", "https://")):
        return open_backend(also, **options)
    name = "account_url" if split_url(url).scheme in AZURE else "endpoint_url"
    if options.get("connection_string") is not None:
        raise ConfigError(
            setting="also", value=also, reason="needs account_url in place of connection_string"
        )
    return open_backend(url, **{**options, name: also})


async def probe_backend(
    backend: Backend, *, url: str, clock: Clock | None = None, also: Backend | None = None
) -> ProbeReport:
    """Probe a backend that is open already, or two of one store; see ``probe``."""
    split_url(url)
    trial = _Trial(backend, clock or SystemClock(), also)
    try:
        await trial.run()
    finally:
        await trial.clean()
    return ProbeReport(
        url=url,
        backend=backend.name,
        safe=all(found.safe for found in trial.findings),
        findings=tuple(trial.findings),
        clock_offset=trial.clock_offset,
        left=tuple(trial.left),
        unavailable=trial.unavailable,
    )


class _Refuted(Exception):  # noqa: N818  says that a check failed, never leaves this module
    """The store broke a rule."""

    def __init__(self, defect: Defect | None, seen: str) -> None:
        super().__init__(seen)
        self.defect = defect


class _Trial:
    def __init__(self, backend: Backend, clock: Clock, other: Backend | None) -> None:
        self._backend = backend
        self._other = other
        self._clock = clock
        self._stem = f"{PROBE}{uuid.uuid4()}"
        self._keys: list[str] = []
        self.left: list[str] = []
        self.findings: list[Finding] = []
        self.clock_offset: float | None = None
        self.unavailable: str | None = None
        self._undecided = 0

    async def run(self) -> None:
        checks: tuple[tuple[str, Callable[[], Awaitable[str]]], ...] = (
            ("read back", self._reads_back),
            ("create only if absent", self._creates_once),
            ("replace only if unchanged", self._replaces_once),
            ("never create by replacing", self._never_creates),
            ("read the latest write", self._reads_latest),
            ("versions tell writes apart", self._versions_differ),
            ("one of many creators wins", self._race_to_create),
            ("one of many replacers wins", self._race_to_replace),
            ("create again what was deleted", self._creates_again),
            ("clock", self._tells_time),
        )
        if self._other is not None:
            other = self._other
            checks += (
                ("both addresses keep one condition", lambda: self._agree(other)),
                ("one winner at both addresses", lambda: self._race_both(other)),
            )
        for name, check in checks:
            try:
                found = Finding(check=name, safe=True, detail=await check())
            except _Refuted as refuted:
                found = Finding(check=name, safe=False, detail=str(refuted), defect=refuted.defect)
            except AsyncLockError as error:
                defect = None if name == "read back" else self._defect(error)
                found = Finding(check=name, safe=False, detail=str(error), defect=defect)
                if name == "read back" and isinstance(error, _UNAVAILABLE):
                    self.unavailable = str(error)
            self.findings.append(found)
            if name == "read back" and not found.safe:
                return  # every other check needs this

    def _defect(self, error: AsyncLockError) -> Defect | None:
        """Return what an error of a later check says of a store that has been read and written."""
        if isinstance(error, UnsupportedBackendError) and error.operation in _CONDITIONAL:
            return Defect.UNSUPPORTED
        busy = isinstance(error, BackendUnavailableError) and "429" in error.detail
        return Defect.ONE_WRITE_A_SECOND if busy and self._backend.min_write_interval < 1 else None

    async def clean(self) -> None:
        for key in self._keys:
            try:
                await self._backend.delete(key)
            except BackendError:
                # Locks do not need the right to delete.
                if await self._may_be_there(key):
                    self.left.append(key)

    async def _may_be_there(self, key: str) -> bool:
        with contextlib.suppress(BackendError):
            return isinstance(await self._backend.get(key), Stored)
        return True

    async def _reads_back(self) -> str:
        key = self._name()
        await self._missing(key)
        self._keys.append(key)  # from here on it may exist
        try:
            written = await self._backend.put_if_absent(key, b"first")
        except PreconditionFailedError:
            if await self._replaces_another(key):
                raise _Refuted(
                    Defect.INVERTED, "creating a missing object is refused, replacing it is accepted"
                ) from None
            raise _Refuted(
                Defect.REFUSES_SHOWN, "creating an object is refused, though reads show none"
            ) from None
        stored = await self._present(key)
        if stored.body != b"first":
            raise _Refuted(
                Defect.BODY_CHANGED, "the body read is not the one written; the store drops or changes bodies"
            )
        if stored.version != written.version:
            raise _Refuted(Defect.VERSION_CHANGED, "the version read is not the one that the write returned")
        return "what was written is read at once"

    async def _creates_once(self) -> str:
        key = self._key()
        await self._backend.put_if_absent(key, b"first")
        await self._pace()
        with contextlib.suppress(PreconditionFailedError):
            await self._backend.put_if_absent(key, b"second")
            raise _Refuted(
                Defect.CREATES_TWICE, "a second creation was accepted; the store ignores If-None-Match"
            )
        if (await self._present(key)).body != b"first":
            raise _Refuted(Defect.WRITES_REFUSED, "a refused creation was written anyway")
        return "a second creation is refused"

    async def _replaces_once(self) -> str:
        key = self._key()
        first = await self._backend.put_if_absent(key, b"first")
        await self._pace()
        try:
            await self._backend.put_if_match(key, b"second", first.version)
        except PreconditionFailedError:
            if await self._replaces_another(key):
                raise _Refuted(
                    Defect.INVERTED, "a write over the present version was refused, one over another accepted"
                ) from None
            raise _Refuted(
                Defect.REFUSES_SHOWN, "a write over the present version was refused; a lease could not renew"
            ) from None
        await self._pace()
        with contextlib.suppress(PreconditionFailedError):
            await self._backend.put_if_match(key, b"third", first.version)
            raise _Refuted(
                Defect.REPLACES_ANY, "a write over an old version was accepted; the store ignores If-Match"
            )
        body = (await self._present(key)).body
        if body == b"first":
            raise _Refuted(Defect.STALE_READS, "a read after a write showed an older object")
        if body != b"second":
            raise _Refuted(Defect.WRITES_REFUSED, "a refused write was written anyway")
        return "a write over an old version is refused"

    async def _never_creates(self) -> str:
        key, other = self._key(), self._key()
        version = (await self._backend.put_if_absent(other, b"other")).version
        with contextlib.suppress(PreconditionFailedError):
            await self._backend.put_if_match(key, b"second", version)
            raise _Refuted(
                Defect.CREATES_BY_REPLACING, "a write over a version of a missing object was accepted"
            )
        await self._missing(key)
        return "a write over a missing object is refused"

    async def _reads_latest(self) -> str:
        key = self._key()
        version = (await self._backend.put_if_absent(key, b"0")).version
        for number in range(1, _REWRITES + 1):
            await self._present(key)  # fills a cache, if there is one
            await self._pace()
            body = str(number).encode()
            version = (await self._backend.put_if_match(key, body, version)).version
            stored = await self._present(key)
            if stored.body != body or stored.version != version:
                raise _Refuted(
                    Defect.STALE_READS,
                    "a read after a write showed an older object; reads are stale or cached",
                )
        return "every read shows the latest write"

    async def _versions_differ(self) -> str:
        key = self._key()
        seen = [(await self._backend.put_if_absent(key, b"aaaa")).version]
        for body in (b"bbbb", b"aaaa"):
            await self._pace()
            seen.append((await self._backend.put_if_match(key, body, seen[-1])).version)
        if seen[0] == seen[1] or seen[1] == seen[2]:
            raise _Refuted(
                Defect.VERSIONS_REPEAT,
                "two different bodies have the same version; a lost race could not be seen",
            )
        if seen[0] != seen[2]:
            return "every write makes a new version"
        if not self._backend.versions_may_repeat:
            raise _Refuted(
                Defect.VERSIONS_REPEAT,
                "the same bytes have the same version again; a write that comes late could undo a newer one",
            )
        return "a version is a hash of the body, as this kind of store says; each lock write has a nonce"

    async def _creates_again(self) -> str:
        key = self._key()
        await self._backend.put_if_absent(key, b"first")
        await self._pace()
        try:
            await self._backend.delete(key)
        except BackendError as error:
            return (
                f"not tested, since the object could not be deleted ({error.detail}); delete no lock's object"
            )
        if isinstance(await self._backend.get(key), Stored):
            return "not tested, since a deleted object is still there; delete no lock's object"
        await self._pace()
        try:
            await self._backend.put_if_absent(key, b"second")
        except PreconditionFailedError:
            raise _Refuted(
                Defect.DELETE_MARKER,
                "a deleted object reads as missing and cannot be created; a delete marker refuses that",
            ) from None
        return "a deleted object can be created"

    async def _replaces_another(self, key: str) -> bool:
        """Whether a replacement of a version that is not there is accepted."""
        other = self._key()
        with contextlib.suppress(BackendError):
            version = (await self._backend.put_if_absent(other, b"other")).version
            await self._pace()
            await self._backend.put_if_match(key, b"another", version)
            return True
        for version in ('"0"', "1"):  # an inverted store creates nothing
            with contextlib.suppress(BackendError):
                await self._backend.put_if_match(key, b"another", version)
                return True
        return False

    async def _agree(self, other: Backend) -> str:
        """Check that what one address has written binds the other."""
        key = self._key()
        first = await self._backend.put_if_absent(key, b"first")
        found = await other.get(key)
        if isinstance(found, Absent) or found.body != b"first":
            seen = "the other address does not show what this one has written; is it the same store?"
            raise _Refuted(Defect.NODES_APART, seen)
        await self._pace()
        with contextlib.suppress(PreconditionFailedError):
            await other.put_if_absent(key, b"second")
            raise _Refuted(Defect.NODES_APART, "the other address creates what this one has created")
        await self._pace()
        try:
            await other.put_if_match(key, b"second", found.version)
        except PreconditionFailedError:
            seen = "the other address refuses the version that it shows of an object written here"
            raise _Refuted(Defect.NODES_APART, seen) from None
        await self._pace()
        with contextlib.suppress(PreconditionFailedError):
            await self._backend.put_if_match(key, b"third", first.version)
            raise _Refuted(Defect.NODES_APART, "this address replaces a version that the other has replaced")
        return "each address keeps the conditions of what the other has written"

    async def _race_both(self, other: Backend) -> str:
        """Race for objects, half of the writers by each address."""
        both = self._backend, other
        decided = 0
        try:
            while decided < _ROUNDS:
                key = self._key()
                turn = itertools.cycle(both)
                decided += await self._race(
                    key,
                    lambda body, key=key, turn=turn: next(turn).put_if_absent(key, body),  # type: ignore[misc]
                )
                key = self._key()  # another, since a version may be a hash of the racer's body
                base = (await self._backend.put_if_absent(key, b"base")).version
                await self._pace()
                await self._race(
                    key,
                    lambda body, key=key, base=base, turn=turn: next(turn).put_if_match(key, body, base),  # type: ignore[misc]
                )
        except _Refuted as refuted:
            raise _Refuted(Defect.NODES_APART, str(refuted)) from None
        return f"{2 * _ROUNDS} races of {RACERS}, half of them by each address, one winner each"

    async def _race_to_create(self) -> str:
        decided = 0
        while decided < _ROUNDS:
            key = self._key()
            decided += await self._race(key, lambda body, key=key: self._backend.put_if_absent(key, body))  # type: ignore[misc]
        return f"{_ROUNDS} races of {RACERS}, one winner each"

    async def _race_to_replace(self) -> str:
        decided = 0
        while decided < _ROUNDS:
            key = self._key()
            base = (await self._backend.put_if_absent(key, b"base")).version
            await self._pace()
            decided += await self._race(
                key,
                lambda body, key=key, base=base: self._backend.put_if_match(key, body, base),  # type: ignore[misc]
            )
        return f"{_ROUNDS} races of {RACERS}, one winner each"

    async def _race(self, key: str, write: Callable[[bytes], Awaitable[Written]]) -> bool:
        """Race once; return whether that says anything: the answer of the winner may be lost."""
        bodies = [f"racer {number:02}".encode() for number in range(RACERS)]
        start = asyncio.Event()

        async def run(body: bytes) -> Written:
            await start.wait()
            return await write(body)

        racers = [asyncio.ensure_future(run(body)) for body in bodies]
        await asyncio.sleep(0)
        start.set()
        outcomes = await asyncio.gather(*racers, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, BackendError):
                raise outcome
        winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
        if len(winners) > 1:
            raise _Refuted(Defect.NOT_ATOMIC, f"{len(winners)} of {RACERS} racers were told that they won")
        if not winners:
            unanswered = [outcome for outcome in outcomes if isinstance(outcome, _UNAVAILABLE)]
            if unanswered and self._undecided < _ROUNDS:
                self._undecided += 1
                return False
            shown = (unanswered or outcomes)[0]
            raise _Refuted(None, f"no racer was told that it won; one of them: {shown}")
        body = (await self._present(key)).body
        if body not in bodies:
            raise _Refuted(Defect.STALE_READS, "a read after a race shows what was there before it")
        if body != bodies[winners[0]]:
            raise _Refuted(
                Defect.WRITES_REFUSED,
                "the body that stayed is not the one of the racer that was told it won",
            )
        return True

    async def _tells_time(self) -> str:
        key, skew = self._key(), LeaseSettings().max_clock_skew
        before = self._clock.wall()
        missing = await self._missing(key)
        await self._backend.put_if_absent(key, b"first")
        stored = await self._present(key)
        after = self._clock.wall()
        if self._backend.sends_dates and None in {missing.server_time, stored.server_time}:
            raise _Refuted(
                Defect.NO_DATES, "answers carry no Date, which new locks are made from; what strips it off?"
            )
        if stored.server_time is None:
            return "answers have no usable Date; a dead holder's lock is freed after a full observation only"
        ahead = max(0.0, stored.server_time - after)
        behind = max(0.0, before - stored.server_time - self._backend.clock_resolution)
        self.clock_offset = ahead - behind
        if abs(self.clock_offset) > skew:
            raise _Refuted(
                Defect.WRONG_CLOCK,
                f"the store's clock and this machine's differ by {abs(self.clock_offset):.0f} s; "
                "one of the two is wrong, put it right",
            )
        if stored.last_modified is None:
            return "answers have no Last-Modified; a dead holder's lock is freed by observation only"
        if (
            abs(stored.last_modified - stored.server_time)
            > skew + self._backend.clock_resolution + after - before
        ):
            raise _Refuted(Defect.WRONG_CLOCK, "Date and Last-Modified of one store disagree")
        return "the store's clock agrees with this machine's"

    async def _present(self, key: str) -> Stored:
        stored = await self._backend.get(key)
        if isinstance(stored, Absent):
            raise _Refuted(
                Defect.STALE_READS, "an object just written is not found; reads are stale or cached"
            )
        return stored

    async def _missing(self, key: str) -> Absent:
        found = await self._backend.get(key)
        if isinstance(found, Stored):
            raise _Refuted(Defect.STALE_READS, "an object that was never written is found")
        return found

    async def _pace(self) -> None:
        await asyncio.sleep(self._backend.min_write_interval)

    def _key(self) -> str:
        self._keys.append(self._name())
        return self._keys[-1]

    def _name(self) -> str:
        return f"{self._stem}-{len(self._keys)}{SUFFIX}"
