# ruff: noqa: S101  pytest asserts
"""The contract of a lock on every backend, as a pytest class for your own backend.

::

    class TestMyLocks(LockContract):
        @pytest.fixture
        async def backend(self) -> AsyncIterator[Backend]:
            backend = open_backend("mystore://bucket/prefix")
            yield backend
            await backend.aclose()

Needs pytest and pytest-asyncio in auto mode. What the store itself cannot be made to send (a lost
answer, a late write, 409) comes from a ``FaultyBackend`` around it, so that nothing is skipped.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import pytest

from asynclock._core.record import parse_record
from asynclock._text import SUFFIX
from asynclock.backend import Stored
from asynclock.client import LockClient
from asynclock.clock import SystemClock
from asynclock.errors import AcquireTimeoutError, LeaseExpiredError, LeaseLostError, RecordCorruptError
from asynclock.settings import LeaseSettings
from asynclock.testing._faulty import Fault, FaultyBackend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asynclock.backend import Backend
    from asynclock.clock import Clock
    from asynclock.lock import Lock

CONTENDERS: Final = 8
PATIENCE: Final = 60.0
"""Seconds that a contender waits; a store of one write a second needs most of it."""


class LockContract:
    """Tests of the lock on one backend; a subclass brings the fixture ``backend``.

    Attributes:
        settings: Of the clients; a subclass may choose others for its store.
    """

    settings: LeaseSettings = LeaseSettings(validity=20.0, max_clock_skew=1.0, poll_interval=0.2)

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the backend under test."""
        raise NotImplementedError(f"{type(self).__name__} must bring a fixture named backend")

    @pytest.fixture
    def key(self) -> str:
        """Return a lock object's key that nothing else uses."""
        return f"contract-{uuid.uuid4()}{SUFFIX}"

    @pytest.fixture
    def clock(self) -> Clock:
        """Return this machine's clocks."""
        return SystemClock()

    @pytest.fixture
    def faulty(self, backend: Backend) -> FaultyBackend:
        """Return the backend under test, which fails when told to."""
        return FaultyBackend(backend)

    @pytest.fixture
    async def locks(self, faulty: FaultyBackend, key: str, clock: Clock) -> AsyncIterator[list[Lock]]:
        """Return the same lock as several clients see it; the first one's requests can be spoiled."""
        async with AsyncExitStack() as stack:
            clients = [self._client(faulty, clock, f"client-{index}") for index in range(CONTENDERS)]
            # The backend is the fixture's to close.
            stack.push_async_callback(_close_all, clients)
            yield [client.lock(key.removesuffix(SUFFIX)) for client in clients]

    def _client(
        self, backend: Backend, clock: Clock, holder: str, settings: LeaseSettings | None = None
    ) -> LockClient:
        shared = _Shared(backend)
        return LockClient(
            url="contract://",
            backend=shared,
            settings=settings or self.settings,
            clock=clock,
            renewal="loop",
            holder=holder,
        )

    async def test_a_free_lock_is_acquired_and_released(
        self, locks: list[Lock], backend: Backend, key: str
    ) -> None:
        """Acquired, the object says who holds it; released, it stays and says expired."""
        async with locks[0].hold(timeout=PATIENCE) as lease:
            assert lease.held
            assert 0 < lease.remaining() <= self.settings.validity
            stored = await backend.get(key)
            assert isinstance(stored, Stored)
            record = parse_record(stored.body)
            assert (record.owner, record.expired) == (lease.owner, False)
            assert record.epoch == lease.fencing_token

        assert lease.remaining() == 0
        stored = await backend.get(key)
        assert isinstance(stored, Stored)
        assert parse_record(stored.body).expired

    async def test_a_held_lock_is_refused(self, locks: list[Lock]) -> None:
        """While one client holds the lock, another gets None or a timeout that names the holder."""
        async with locks[0].hold(timeout=PATIENCE):
            assert await locks[1].try_acquire() is None
            with pytest.raises(AcquireTimeoutError, match="client-0"):
                await locks[1].acquire(timeout=1.0)

    async def test_contenders_take_turns(self, locks: list[Lock]) -> None:
        """Of several clients only one is inside at a time, all get in, and tokens rise."""
        inside = 0
        tokens: list[int] = []

        async def turn(lock: Lock) -> None:
            nonlocal inside
            async with lock.hold(timeout=PATIENCE) as lease:
                inside += 1
                assert inside == 1
                tokens.append(lease.fencing_token)
                await asyncio.sleep(0.01)
                inside -= 1

        await asyncio.gather(*(turn(lock) for lock in locks))

        assert tokens == sorted(set(tokens))
        assert len(tokens) == CONTENDERS

    async def test_confirm_renews(self, locks: list[Lock], backend: Backend, key: str) -> None:
        """Confirming writes once and keeps owner and token."""
        async with locks[0].hold(timeout=PATIENCE) as lease:
            before = await backend.get(key)
            await asyncio.sleep(backend.min_write_interval)
            await lease.confirm()
            after = await backend.get(key)

            assert isinstance(before, Stored)
            assert isinstance(after, Stored)
            assert before.version != after.version
            assert parse_record(after.body).owner == lease.owner
            assert parse_record(after.body).epoch == lease.fencing_token

    @pytest.mark.parametrize(
        "fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST, Fault.OWN_412, Fault.CONFLICT, Fault.THROTTLED]
    )
    @pytest.mark.parametrize("nth", [1, 2, 3])
    async def test_one_spoiled_write_is_got_over(  # noqa: PLR0917  fixtures
        self, locks: list[Lock], faulty: FaultyBackend, backend: Backend, key: str, fault: Fault, nth: int
    ) -> None:
        """Whichever write is spoiled, the lock is acquired, kept and free in the end."""
        faulty.inject(fault, operation="put_if_absent" if nth == 1 else "put_if_match", nth=max(1, nth - 1))

        async with locks[0].hold(timeout=PATIENCE) as lease:
            for _ in range(20):
                if faulty.applied[fault]:
                    break
                try:
                    await lease.confirm()
                except Exception:  # noqa: BLE001  a spoiled confirmation may fail; the lease must not
                    assert lease.held
            assert lease.held

        stored = await backend.get(key)
        assert isinstance(stored, Stored)
        assert parse_record(stored.body).expired

    async def test_a_late_write_leaves_no_lock_behind(
        self, locks: list[Lock], faulty: FaultyBackend, backend: Backend, key: str
    ) -> None:
        """A write that lands after its acquisition was given up is freed again."""
        faulty.delay = (0.5, 0.5)
        faulty.inject(Fault.LATE, operation="put_if_absent", times=50)
        with pytest.raises((AcquireTimeoutError, TimeoutError)):
            async with asyncio.timeout(0.2):
                await locks[0].acquire()
        faulty.calm()

        async with locks[1].hold(timeout=PATIENCE) as lease:
            assert lease.held

        stored = await backend.get(key)
        assert isinstance(stored, Stored)
        assert parse_record(stored.body).expired

    async def test_a_cancelled_acquisition_leaves_no_lock_behind(self, locks: list[Lock]) -> None:
        """Cancelled while its write is under way, an acquisition frees what it got."""
        task = asyncio.create_task(locks[0].acquire())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        lease = await locks[1].acquire(timeout=PATIENCE)
        await lease.release()

    async def test_one_look_frees_the_lock_of_a_dead_holder(
        self, faulty: FaultyBackend, backend: Backend, key: str, clock: Clock
    ) -> None:
        """The store's own times tell a newcomer at once that the holder has long been dead."""
        skew, resolution = self.settings.max_clock_skew, backend.clock_resolution
        validity = max(skew + resolution, 10 * backend.min_write_interval, 1.0)
        settings = LeaseSettings(validity=validity, max_clock_skew=skew, poll_interval=0.1)
        name = key.removesuffix(SUFFIX)
        holder, heir = (self._client(each, clock, "either", settings) for each in (faulty, backend))
        async with holder, heir:
            lease = await holder.lock(name).acquire(timeout=PATIENCE)
            faulty.storm({Fault.REQUEST_LOST: 1.0})
            await asyncio.sleep(settings.takeover_bound(resolution))

            other = await heir.lock(name).try_acquire()

            assert isinstance(lease.lost, LeaseExpiredError)
            assert other is not None
            assert other.fencing_token > lease.fencing_token

    async def test_a_deleted_object_ends_the_lease(
        self, locks: list[Lock], backend: Backend, key: str
    ) -> None:
        """The holder of a lock whose object is deleted loses it at the next write."""
        lease = await locks[0].acquire(timeout=PATIENCE)
        await backend.delete(key)

        with pytest.raises(LeaseLostError):
            await lease.confirm()

        assert not lease.held

    async def test_a_corrupt_object_is_neither_held_nor_free(
        self, locks: list[Lock], backend: Backend, key: str
    ) -> None:
        """A foreign object under the lock's key is reported and left as it is."""
        await backend.put_if_absent(key, b"not a lock")

        with pytest.raises(RecordCorruptError):
            await locks[0].acquire(timeout=1.0)

        stored = await backend.get(key)
        assert isinstance(stored, Stored)
        assert stored.body == b"not a lock"

    async def test_a_broken_lock_is_lost_and_free(self, locks: list[Lock], backend: Backend) -> None:
        """Broken by an operator, a live lock is lost to its holder and can be acquired."""
        lease = await locks[0].acquire(timeout=PATIENCE)
        await asyncio.sleep(backend.min_write_interval)
        await locks[1].break_lock(await locks[1].status(), force=True)

        with pytest.raises(LeaseLostError):
            await lease.confirm()
        async with locks[1].hold(timeout=PATIENCE) as other:
            assert other.fencing_token > lease.fencing_token


class _Shared:
    """A backend that several clients share: closing one of them must not close it."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.name = inner.name
        self.clock_resolution = inner.clock_resolution
        self.min_write_interval = inner.min_write_interval
        self.sends_dates = inner.sends_dates
        self.versions_may_repeat = inner.versions_may_repeat
        self.get = inner.get
        self.put_if_absent = inner.put_if_absent
        self.put_if_match = inner.put_if_match
        self.list = inner.list
        self.put = inner.put
        self.delete = inner.delete

    async def aclose(self) -> None:
        """Leave the backend open."""


async def _close_all(clients: list[LockClient]) -> None:
    for client in clients:
        await client.aclose()
