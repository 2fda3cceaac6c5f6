"""The contract of every backend, as a pytest class for your own backend.

::

    class TestMyBackend(BackendContract):
        @pytest.fixture
        async def backend(self) -> AsyncIterator[Backend]:
            backend = open_backend("mystore://bucket/prefix")
            yield backend
            await backend.aclose()

Needs pytest and pytest-asyncio in auto mode. ``key`` and ``clock`` may be overridden too. Each
test uses keys of its own, and paces its writes by the backend's ``min_write_interval``.
"""

from __future__ import annotations

import asyncio
import pickle
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from asynclock.backend import MAX_BODY, Absent, Backend, Stored, Written
from asynclock.clock import SystemClock
from asynclock.errors import BackendError, PreconditionFailedError

if TYPE_CHECKING:
    from asynclock.clock import Clock

RACERS: Final = 32
_SLACK: Final = 5.0
"""Seconds a request of the contract may take, for comparing Dates with this machine's clock."""


class BackendContract:
    """Tests of one backend; a subclass brings the fixture ``backend``."""

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the backend under test."""
        raise NotImplementedError(f"{type(self).__name__} must bring a fixture named backend")

    @pytest.fixture
    def key(self) -> str:
        """Return a key that nothing else uses."""
        return f"contract-{uuid.uuid4()}/lock.json"

    @pytest.fixture
    def clock(self) -> Clock:
        """Return this machine's clocks."""
        return SystemClock()

    async def test_it_says_what_it_is(self, backend: Backend) -> None:
        """Name, clock resolution and write interval are given, so that the lock can reckon with them."""
        assert isinstance(backend, Backend)
        assert backend.name
        assert 0 <= backend.clock_resolution <= 1
        assert 0 <= backend.min_write_interval < 60  # noqa: PLR2004  a minute is too long for pacing

    async def test_a_missing_object_reads_as_absent(self, backend: Backend, key: str) -> None:
        """Reading a missing object gives ``Absent``, neither None nor an error."""
        assert isinstance(await backend.get(key), Absent)

    async def test_a_created_object_is_read_back(self, backend: Backend, key: str) -> None:
        """A new object is readable at once, with the version that the write returned."""
        written = await backend.put_if_absent(key, b"first")

        stored = await backend.get(key)

        assert isinstance(stored, Stored)
        assert (stored.body, stored.version) == (b"first", written.version)

    async def test_create_refuses_an_existing_object(self, backend: Backend, key: str) -> None:
        """A second creation is refused and changes nothing."""
        await backend.put_if_absent(key, b"first")
        await _pace(backend)

        with pytest.raises(PreconditionFailedError):
            await backend.put_if_absent(key, b"second")

        assert await _body(backend, key) == b"first"

    async def test_replace_needs_the_present_version(self, backend: Backend, key: str) -> None:
        """A write over the version just read succeeds and makes a new version."""
        first = await backend.put_if_absent(key, b"first")
        await _pace(backend)

        second = await backend.put_if_match(key, b"second", first.version)

        stored = await backend.get(key)
        assert isinstance(stored, Stored)
        assert (stored.body, stored.version) == (b"second", second.version)
        assert second.version != first.version

    async def test_replace_refuses_an_old_version(self, backend: Backend, key: str) -> None:
        """A write over a version that is gone is refused and changes nothing."""
        first = await backend.put_if_absent(key, b"first")
        await _pace(backend)
        await backend.put_if_match(key, b"second", first.version)
        await _pace(backend)

        with pytest.raises(PreconditionFailedError):
            await backend.put_if_match(key, b"third", first.version)

        assert await _body(backend, key) == b"second"

    async def test_replace_refuses_a_foreign_version(self, backend: Backend, key: str) -> None:
        """A version of another object is not a version of this one."""
        other = await backend.put_if_absent(f"{key}.other.json", b"other")
        await backend.put_if_absent(key, b"first")
        await _pace(backend)

        with pytest.raises(PreconditionFailedError):
            await backend.put_if_match(key, b"second", other.version)

        assert await _body(backend, key) == b"first"

    async def test_replace_never_creates(self, backend: Backend, key: str) -> None:
        """A write over a version of a deleted object is refused, and the object stays away."""
        written = await backend.put_if_absent(key, b"first")
        await backend.delete(key)
        await _pace(backend)

        with pytest.raises(PreconditionFailedError):
            await backend.put_if_match(key, b"second", written.version)

        assert isinstance(await backend.get(key), Absent)

    async def test_of_many_creators_one_wins(self, backend: Backend, key: str) -> None:
        """Of 32 creations at once one succeeds, and its body is the one that stays."""
        bodies = [f"racer {number}".encode() for number in range(RACERS)]

        outcomes = await asyncio.gather(
            *(backend.put_if_absent(key, body) for body in bodies), return_exceptions=True
        )

        await _assert_one_winner(backend, key, bodies, outcomes)

    async def test_of_many_replacers_one_wins(self, backend: Backend, key: str) -> None:
        """Of 32 writes over one version one succeeds, and its body is the one that stays."""
        base = (await backend.put_if_absent(key, b"base")).version
        await _pace(backend)
        bodies = [f"racer {number}".encode() for number in range(RACERS)]

        outcomes = await asyncio.gather(
            *(backend.put_if_match(key, body, base) for body in bodies), return_exceptions=True
        )

        await _assert_one_winner(backend, key, bodies, outcomes)

    async def test_a_refusal_names_what_was_refused(self, backend: Backend, key: str) -> None:
        """The error says which backend, operation and key, and survives pickling."""
        await backend.put_if_absent(key, b"first")
        await _pace(backend)

        with pytest.raises(PreconditionFailedError) as caught:
            await backend.put_if_absent(key, b"second")

        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):  # noqa: S301  our own bytes
            assert (error.backend, error.operation, error.key) == (backend.name, "put_if_absent", key)

    @pytest.mark.parametrize(
        "body", [b"", b"\x00\xff\r\n--\r\n", b"x" * MAX_BODY], ids=["empty", "bytes", "full"]
    )
    async def test_bodies_come_back_unchanged(self, backend: Backend, key: str, body: bytes) -> None:
        """Any bytes up to 64 KiB are stored as they are."""
        await backend.put_if_absent(key, body)

        assert await _body(backend, key) == body

    async def test_a_long_object_is_cut(self, backend: Backend, key: str) -> None:
        """Of an object over 64 KiB, the first 64 KiB and one byte are read."""
        await backend.put(key, b"x" * (4 * MAX_BODY))

        assert len(await _body(backend, key)) == MAX_BODY + 1

    async def test_times_are_those_of_now(self, backend: Backend, key: str, clock: Clock) -> None:
        """The times in an answer are epoch seconds by the store's clock, rounded down by its resolution."""
        before = clock.wall()
        missing = await backend.get(key)
        written = await backend.put_if_absent(key, b"first")
        stored = await backend.get(key)
        after = clock.wall()

        assert isinstance(stored, Stored)
        for time in (
            missing.server_time,
            written.server_time,
            stored.server_time,
            stored.last_modified,
        ):
            assert time is None or before - backend.clock_resolution - _SLACK <= time <= after + _SLACK

    async def test_dates_are_sent_as_the_backend_says(self, backend: Backend, key: str) -> None:
        """With ``sends_dates`` every answer has a Date, that of a missing object too; without it none has."""
        missing = await backend.get(key)
        created = await backend.put_if_absent(key, b"first")
        stored = await backend.get(key)
        await _pace(backend)
        replaced = await backend.put_if_match(key, b"second", created.version)

        dates = [answer.server_time for answer in (missing, created, stored, replaced)]
        assert [date is not None for date in dates] == [backend.sends_dates] * 4

    async def test_keys_are_told_apart(self, backend: Backend, key: str) -> None:
        """Keys that differ in case, separators or escapes are different objects."""
        stem = key.removesuffix(".json")
        keys = [f"{stem}{end}.json" for end in ("a/b", "A/b", "a.b", "a=b", "a-b", "a_b")]
        for each in keys:
            await backend.put_if_absent(each, each.encode())

        assert [await _body(backend, each) for each in keys] == [each.encode() for each in keys]

    async def test_listing_gives_what_is_under_a_prefix(self, backend: Backend, key: str) -> None:
        """A listing has the objects under the prefix in key order, with their sizes, and no others."""
        folder = key.rpartition("/")[0]
        for name in ("b.json", "a.json", "c/d.json"):
            await backend.put_if_absent(f"{folder}/{name}", name.encode())
        await backend.put_if_absent(f"{folder}2/e.json", b"elsewhere")

        entries = [entry async for entry in backend.list(f"{folder}/")]

        names = ("a.json", "b.json", "c/d.json")
        assert [(e.key, e.size) for e in entries] == [(f"{folder}/{n}", len(n)) for n in names]

    async def test_listing_an_empty_prefix_gives_nothing(self, backend: Backend, key: str) -> None:
        """A prefix without objects is an empty listing, not an error."""
        assert [entry async for entry in backend.list(key)] == []

    async def test_put_overwrites(self, backend: Backend, key: str) -> None:
        """The write without a condition replaces an existing object."""
        await backend.put(key, b"first")
        await _pace(backend)
        written = await backend.put(key, b"second")

        stored = await backend.get(key)
        assert isinstance(stored, Stored)
        assert (stored.body, stored.version) == (b"second", written.version)

    async def test_delete_removes(self, backend: Backend, key: str) -> None:
        """A deleted object is gone, and deleting it again is not an error."""
        await backend.put(key, b"first")

        await backend.delete(key)
        await backend.delete(key)

        assert isinstance(await backend.get(key), Absent)

    async def test_a_cancelled_call_leaves_the_backend_usable(self, backend: Backend, key: str) -> None:
        """After a cancelled write the next calls work; the write itself may have landed."""
        write = asyncio.ensure_future(backend.put_if_absent(key, b"first"))
        await asyncio.sleep(0)
        write.cancel()
        await asyncio.wait([write])
        await _pace(backend)

        await backend.put(key, b"second")

        assert await _body(backend, key) == b"second"

    async def test_closing_twice_is_closing_once(self, backend: Backend, key: str) -> None:
        """A backend may be closed again."""
        await backend.get(key)

        await backend.aclose()
        await backend.aclose()


async def _body(backend: Backend, key: str) -> bytes:
    stored = await backend.get(key)
    return stored.body if isinstance(stored, Stored) else b""


async def _pace(backend: Backend) -> None:
    await asyncio.sleep(backend.min_write_interval)


async def _assert_one_winner(
    backend: Backend, key: str, bodies: list[bytes], outcomes: list[Written | BaseException]
) -> None:
    winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
    strange = [o for o in outcomes if not isinstance(o, Written | BackendError)]
    assert strange == []
    assert len(winners) == 1
    stored = await backend.get(key)
    won = outcomes[winners[0]]
    assert isinstance(stored, Stored)
    assert isinstance(won, Written)
    assert (stored.body, stored.version) == (bodies[winners[0]], won.version)
