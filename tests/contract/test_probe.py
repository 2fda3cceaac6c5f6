"""The probe trusts the stores that keep their word, and no other."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock._core.probing import probe, probe_backend
from asynclock.backend import Absent, Stored, Written
from asynclock.backends._memory import MemoryBackend
from asynclock.testing._proxy import TapProxy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.laboratory.servers import Server


class IgnoresIfMatch(MemoryBackend):
    """Writes over any version."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:  # noqa: ARG002
        """Write."""
        return await self.put(key, body)


class IgnoresIfNoneMatch(MemoryBackend):
    """Creates what exists."""

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Write."""
        return await self.put(key, body)


class ChecksThenWrites(MemoryBackend):
    """Checks the condition, and writes a moment later."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Write after a look."""
        stored = await self.get(key)
        await asyncio.sleep(0)
        if isinstance(stored, Absent):
            return await super().put_if_match(key, body, version)
        return await super().put_if_match(
            key, body, (await self._now(key)) if stored.version == version else ""
        )

    async def _now(self, key: str) -> str:
        stored = await self.get(key)
        assert isinstance(stored, Stored)
        return stored.version


class AnswersYesToLosers(MemoryBackend):
    """Tells those that lost a race over a present version that they won."""

    def __init__(self) -> None:
        super().__init__()
        self._at_once = 0

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Write, or pretend to where others write at the same time."""
        self._at_once += 1
        await asyncio.sleep(0)
        racing = self._at_once > 1
        try:
            return await super().put_if_match(key, body, version)
        except asynclock.PreconditionFailedError:
            if racing:
                return Written("pretended", None)
            raise
        finally:
            self._at_once -= 1


class ReadsStale(MemoryBackend):
    """Shows the write before the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[str, Stored | Absent] = {}

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Write, and remember what was there."""
        before = await super().get(key)
        written = await super().put_if_match(key, body, version)
        self._before[key] = before
        return written

    async def get(self, key: str) -> Stored | Absent:
        """Read what was there before."""
        return self._before.pop(key, None) or await super().get(key)


class CachesReads(MemoryBackend):
    """Answers a second read from a cache."""

    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[str, Stored] = {}

    async def get(self, key: str) -> Stored | Absent:
        """Read once."""
        if key not in self._cache:
            stored = await super().get(key)
            if isinstance(stored, Absent):
                return stored
            self._cache[key] = stored
        return self._cache[key]


class DropsTheBody(MemoryBackend):
    """Stores empty objects."""

    async def put_if_absent(self, key: str, body: bytes) -> Written:  # noqa: ARG002
        """Write nothing."""
        return await super().put_if_absent(key, b"")


class WrongClock(MemoryBackend):
    """Is an hour ahead."""

    async def get(self, key: str) -> Stored | Absent:
        """Read with another time."""
        stored = await super().get(key)
        ahead = 3600.0
        assert stored.server_time is not None
        stored = replace(stored, server_time=stored.server_time + ahead)
        if isinstance(stored, Absent) or stored.last_modified is None:
            return stored
        return replace(stored, last_modified=stored.last_modified + ahead)


class DatesObjectsOnly(MemoryBackend):
    """Sends no Date in the answer that an object is missing."""

    async def get(self, key: str) -> Stored | Absent:
        """Read, and drop the Date where there is nothing."""
        found = await super().get(key)
        return Absent(None) if isinstance(found, Absent) else found


class HashesBodies(MemoryBackend):
    """Makes its versions of the body, so that the same bytes have the same version again."""

    def _version(self, body: bytes) -> str:
        return hashlib.sha256(body).hexdigest()

    async def get(self, key: str) -> Stored | Absent:
        """Read with the hash for a version."""
        stored = await super().get(key)
        if isinstance(stored, Absent):
            return stored
        return replace(stored, version=self._version(stored.body))

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create with the hash for a version."""
        return replace(await super().put_if_absent(key, body), version=self._version(body))

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace where the hash is the same."""
        stored = await super().get(key)
        same = isinstance(stored, Stored) and self._version(stored.body) == version
        real = stored.version if same else "none"
        return replace(await super().put_if_match(key, body, real), version=self._version(body))


class HashesWeakly(HashesBodies):
    """Makes its versions of the body's length, so that other bodies have the same."""

    def _version(self, body: bytes) -> str:
        return super()._version(str(len(body)).encode())


class SaysThatItHashes(HashesBodies):
    """Has versions like S3, which says so."""

    versions_may_repeat = True


class CreatesByReplacing(MemoryBackend):
    """Takes If-Match on a missing object for a creation."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace, or create."""
        if isinstance(await self.get(key), Absent):
            return await self.put(key, body)
        return await super().put_if_match(key, body, version)


class ChecksThenCreates(MemoryBackend):
    """Looks whether there is an object, and creates it a moment later."""

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create after a look."""
        found = await self.get(key)
        await asyncio.sleep(0)
        return await (self.put(key, body) if isinstance(found, Absent) else super().put_if_absent(key, body))


class KeepsAnothersBody(MemoryBackend):
    """Writes what the losers of a race sent, whom it refuses."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Write, also where the write is refused, under the version of the winner."""
        try:
            return await super().put_if_match(key, body, version)
        except asynclock.PreconditionFailedError:
            if body.startswith(b"racer"):
                self._store.objects[key] = replace(self._store.objects[key], body=body)
            raise


class RefusesAndWrites(MemoryBackend):
    """Refuses a write over an old version, and writes it."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Write in any case."""
        try:
            return await super().put_if_match(key, body, version)
        except asynclock.PreconditionFailedError:
            if isinstance(await self.get(key), Stored):
                await self.put(key, body)
            raise


class RefusesAndCreates(MemoryBackend):
    """Refuses a second creation, and writes it."""

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Write in any case."""
        try:
            return await super().put_if_absent(key, body)
        except asynclock.PreconditionFailedError:
            await self.put(key, body)
            raise


class NeverReplaces(MemoryBackend):
    """Keeps objects as they are, as a bucket with a retention policy does."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:  # noqa: ARG002
        """Refuse."""
        return await super().put_if_match(key, body, "none")


class RefusesRacers(MemoryBackend):
    """Throttles everybody where many write at once."""

    def __init__(self) -> None:
        super().__init__()
        self._at_once = 0

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create where nobody else does."""
        self._at_once += 1
        await asyncio.sleep(0)
        racing = self._at_once > 1
        await asyncio.sleep(0)
        self._at_once -= 1
        if racing:
            raise asynclock.BackendUnavailableError(
                backend=self.name, operation="put_if_absent", key=key, detail="503 SlowDown", written="no"
            )
        return await super().put_if_absent(key, body)


class DatesApart(MemoryBackend):
    """Has nodes whose clocks differ: one dates the answers, another the objects."""

    async def get(self, key: str) -> Stored | Absent:
        """Read with another time for the object."""
        stored = await super().get(key)
        if isinstance(stored, Absent) or stored.last_modified is None:
            return stored
        return replace(stored, last_modified=stored.last_modified - 600.0)


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (IgnoresIfMatch, "ignores If-Match"),
        (IgnoresIfNoneMatch, "ignores If-None-Match"),
        (ChecksThenWrites, "racers were told that they won"),
        (AnswersYesToLosers, "racers were told that they won"),
        (ReadsStale, "stale or cached"),
        (CachesReads, "stale or cached"),
        (DropsTheBody, "drops or changes bodies"),
        (WrongClock, "differ by 3600 s"),
        (DatesObjectsOnly, "carry no Date"),
        (HashesBodies, "the same bytes have the same version again"),
        (HashesWeakly, "two different bodies have the same version"),
        (CreatesByReplacing, "missing object was accepted"),
        (ChecksThenCreates, "racers were told that they won"),
        (KeepsAnothersBody, "not the one of the racer that was told it won"),
        (RefusesAndWrites, "a refused write was written"),
        (RefusesAndCreates, "a refused creation was written"),
        (NeverReplaces, "a lease could not renew"),
        (RefusesRacers, "no racer was told that it won"),
        (DatesApart, "Date and Last-Modified of one store disagree"),
    ],
)
async def test_a_broken_store_is_refused(store: type[MemoryBackend], reason: str) -> None:
    """A store that breaks its word is not safe, and the report says how."""
    report = await probe_backend(store(), url="memory://broken")

    assert not report.safe
    assert any(reason in text for text in report.reasons), report.reasons


async def test_a_store_without_dates_is_trusted_and_told_of() -> None:
    """Where the backend says so, locks are safe and a dead holder's is had later; the report tells."""

    class Dateless(MemoryBackend):
        sends_dates = False

        async def get(self, key: str) -> Stored | Absent:
            stored = await super().get(key)
            return replace(stored, server_time=None)

    report = await probe_backend(Dateless(), url="memory://dateless")

    assert report.reasons == ()
    assert report.clock_offset is None
    assert "no usable Date" in report.findings[-1].detail


async def test_a_race_whose_winner_got_no_answer_is_run_again() -> None:
    """A lost answer says nothing about the store; it is not called unsafe for it."""

    class LosesAnAnswer(MemoryBackend):
        lost = 0

        async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
            written = await super().put_if_match(key, body, version)
            if body.startswith(b"racer") and not self.lost:
                self.lost += 1
                raise asynclock.OutcomeUnknownError(
                    backend=self.name, operation="put_if_match", key=key, detail="timed out"
                )
            return written

    store = LosesAnAnswer()
    report = await probe_backend(store, url="memory://lossy")

    assert store.lost == 1
    assert report.reasons == ()


async def test_versions_that_are_known_to_repeat_are_trusted() -> None:
    """A backend that says its versions are hashes, as that of S3 does, is safe; the report tells of it."""
    report = await probe_backend(SaysThatItHashes(), url="memory://hashes")

    assert report.reasons == ()
    assert any("hash of the body" in found.detail for found in report.findings)


async def test_a_real_server_is_trusted(any_store: Server) -> None:
    """Each server that the tests rely on keeps its word, by the same probe."""
    report = await probe(f"{any_store.url}/probe", **any_store.options)

    assert report.reasons == ()
    assert report.safe


@pytest.mark.parametrize("scheme", ["memory", "file"])
async def test_a_local_store_is_trusted_and_left_clean(scheme: str, tmp_path: Path) -> None:
    """The stores without a server pass, and nothing of the probe stays, hidden files included."""
    report = await probe("memory://" if scheme == "memory" else f"file://{tmp_path}/locks")

    assert report.reasons == ()
    assert await asyncio.to_thread(lambda: [p for p in tmp_path.rglob("*") if p.is_file()]) == []


async def test_a_store_that_wants_fewer_writes_of_one_object_names_the_option(minio: Server) -> None:
    """With one write a second, as Cloud Storage takes of one object, the report says what to set."""
    async with TapProxy(minio.endpoint, writes_every=60.0) as proxy:
        report = await probe(f"{minio.url}/paced", **minio.through(proxy.url))

    assert not report.safe
    assert (
        "429: it accepts fewer writes per second to one object; set min_write_interval=1" in report.reasons[0]
    )


async def test_an_unreachable_store_is_not_safe() -> None:
    """Where nothing answers, the report says so instead of raising."""
    report = await probe("gs://bucket", endpoint_url="http://127.0.0.1:1")

    assert not report.safe
    assert "cannot connect" in report.reasons[0]
