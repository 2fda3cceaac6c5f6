"""``table_lock`` as Hudi's provider is tested upstream, and where ours is stricter.

Each case of Hudi's ``StorageBasedLockProviderTestBase`` and ``TestStorageBasedLockProvider`` that has a
meaning here, in our words; the table in ``docs/howto/hudi.md`` sets them side by side.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import time
from typing import TYPE_CHECKING, Final

import pytest

from asynclock import hudi
from asynclock._core.record import LockRecord, parse_record
from asynclock.backend import Absent
from asynclock.errors import (
    AcquireTimeoutError,
    ConfigError,
    LeaseLostError,
    RecordCorruptError,
)
from asynclock.hudi._core.held_tables import held_here, refuse_if_held
from asynclock.sync import hudi as blocking
from asynclock.testing._proxy import TapProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.hudi.conftest import Table
    from tests.laboratory.servers import Server

LOCK_KEY: Final = ".hoodie/.locks/table_lock.json"


@pytest.fixture
async def lock(table: Table) -> AsyncIterator[hudi.TableLock]:
    """The lock of the test's table."""
    made = hudi.table_lock(table.base, table.options)
    yield made
    await made.aclose()


@pytest.fixture
async def other(table: Table) -> AsyncIterator[hudi.TableLock]:
    """Another holder of the same table."""
    made = hudi.table_lock(table.base, table.options)
    yield made
    await made.aclose()


async def test_a_free_lock_is_ours_at_once(lock: hudi.TableLock, table: Table) -> None:
    """Locked, the file names us and a time to come."""
    assert await lock.try_lock()
    record = parse_record(await table.lock_file())

    assert not record.expired
    assert record.valid_until_ms > time.time() * 1000
    assert lock.lease is not None
    assert record.owner == lock.lease.owner


async def test_unlocked_it_can_be_locked_again(lock: hudi.TableLock, table: Table) -> None:
    """Unlocking flips ``expired`` and nothing else of Hudi's, and never deletes."""
    assert await lock.try_lock(3)
    before = parse_record(await table.lock_file())
    await lock.unlock()
    after = parse_record(await table.lock_file())

    assert (after.expired, after.owner, after.valid_until_ms) == (True, before.owner, before.valid_until_ms)
    assert lock.lease is None
    assert await lock.try_lock(1)


async def test_no_time_is_no_try(lock: hudi.TableLock, table: Table) -> None:
    """A wait of 0 does not even look, as Hudi's."""
    assert not await lock.try_lock(0)
    assert isinstance(await table.backend.get(LOCK_KEY), Absent)


async def test_a_lock_held_by_another_is_refused_until_it_is_free(
    lock: hudi.TableLock, other: hudi.TableLock
) -> None:
    """One holder at a time."""
    assert await lock.try_lock()
    assert not await other.try_lock()
    assert not await other.try_lock(0.3)
    await lock.unlock()
    assert await other.try_lock(5)


async def test_locked_again_it_is_ours_without_a_request(table: Table, minio: Server) -> None:
    """Re-entrant without a counter: one unlock frees it, a second does nothing."""
    async with TapProxy(upstream=minio.endpoint, seed=2) as proxy:
        lock = hudi.table_lock(
            table.base, table.options | {"asynclock.endpoint_url": proxy.url, "asynclock.verify": "false"}
        )
        assert await lock.try_lock()
        before = len(proxy.journal)
        assert await lock.try_lock()
        assert len(proxy.journal) == before
        await lock.unlock()
        await lock.unlock()
        assert parse_record(await table.lock_file()).expired
        await lock.aclose()


async def test_unlocking_what_is_not_locked_does_nothing(lock: hudi.TableLock, table: Table) -> None:
    """No lock, no write."""
    await lock.unlock()
    assert not await lock.renew_lock()
    assert isinstance(await table.backend.get(LOCK_KEY), Absent)


async def test_a_hundred_turns_one_after_the_other(lock: hudi.TableLock) -> None:
    """Lock and unlock hold no state that wears out."""
    owners = set()
    for _ in range(100):
        assert await lock.try_lock()
        assert lock.lease is not None
        owners.add(lock.lease.owner)
        await lock.unlock()
    assert len(owners) == 100


async def test_ten_holders_never_hold_at_once(table: Table) -> None:
    """A plain list guarded by the lock is never changed by two."""
    inside: list[int] = []
    turns = [0] * 10

    async def contend(number: int) -> None:
        lock = hudi.table_lock(table.base, table.options)
        while sum(turns) < 50:
            if await lock.try_lock():
                inside.append(number)
                await asyncio.sleep(0)
                assert inside == [number]
                inside.clear()
                turns[number] += 1
                await lock.unlock()
            await asyncio.sleep(0.005)
        await lock.aclose()

    async with asyncio.TaskGroup() as contenders:
        for number in range(10):
            contenders.create_task(contend(number))
    assert inside == []


async def test_closing_frees_the_lock(lock: hudi.TableLock, other: hudi.TableLock) -> None:
    """Closed while held it is released, unlocking then does nothing; it opens again when used."""
    assert await lock.try_lock()
    await lock.aclose()
    await lock.unlock()
    assert await other.try_lock()
    assert not await lock.try_lock()


async def test_closed_while_waiting_it_stops_waiting_and_says_so(
    lock: hudi.TableLock, other: hudi.TableLock, table: Table
) -> None:
    """The wait ends with an error at once, and the holder's file stays as it was."""
    assert await lock.try_lock()
    waiting = asyncio.create_task(other.try_lock(20))
    await asyncio.sleep(0.2)  # it waits for the lock, or on a busy machine for its store to open
    await other.aclose()

    with pytest.raises(ConfigError, match="it was closed"):
        await asyncio.wait_for(waiting, 5)
    assert lock.lease is not None
    assert parse_record(await table.lock_file()).owner == lock.lease.owner


async def test_a_cancelled_wait_leaves_nothing_behind(
    lock: hudi.TableLock, other: hudi.TableLock, table: Table
) -> None:
    """As an interrupted Java thread: it stops, and does not acquire later."""
    assert await lock.try_lock()
    waiting = asyncio.create_task(other.try_lock(20))
    await asyncio.sleep(0.2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await lock.unlock()

    await asyncio.sleep(0.5)  # longer than it waits between two looks
    assert parse_record(await table.lock_file()).expired
    assert await other.try_lock()


async def test_after_a_loss_it_can_be_locked_again(lock: hudi.TableLock, table: Table) -> None:
    """What is remembered of the lost lease does not stand in the way; the new one has its own owner."""
    assert await lock.try_lock()
    assert lock.lease is not None
    before = lock.lease.owner
    await table.backend.put(LOCK_KEY, LockRecord(expired=True, valid_until_ms=1, owner="x").encode())
    assert not await lock.renew_lock()

    assert await lock.try_lock()
    assert lock.lease.owner != before


async def test_a_holder_that_nobody_remembers_is_renewed_until_it_is_closed(
    lock: hudi.TableLock, other: hudi.TableLock
) -> None:
    """Renewal belongs to the process, not to the task that acquired it."""
    await asyncio.create_task(lock.try_lock())
    gc.collect()
    await asyncio.sleep(1.5)
    assert not await other.try_lock()


async def test_a_valid_file_of_unknown_owner_is_held(lock: hudi.TableLock, table: Table) -> None:
    """Only time and ``expired`` free a lock; the owner is not compared."""
    ahead = round(time.time() * 1000) + 30_000
    await table.backend.put(LOCK_KEY, LockRecord(expired=False, valid_until_ms=ahead, owner="x").encode())

    assert not await lock.try_lock()


async def test_a_file_marked_expired_is_free_whatever_its_time(lock: hudi.TableLock, table: Table) -> None:
    """``expired`` wins over a time to come."""
    ahead = round(time.time() * 1000) + 30_000
    await table.backend.put(LOCK_KEY, LockRecord(expired=True, valid_until_ms=ahead, owner="x").encode())

    assert await lock.try_lock()


async def test_renewed_it_is_valid_for_longer(lock: hudi.TableLock, table: Table) -> None:
    """A renewal moves ``validUntil`` and keeps the owner."""
    assert await lock.try_lock()
    before = parse_record(await table.lock_file())
    await asyncio.sleep(0.05)
    assert await lock.renew_lock()
    after = parse_record(await table.lock_file())

    assert after.owner == before.owner
    assert after.valid_until_ms >= before.valid_until_ms
    assert after.nonce != before.nonce


async def test_a_renewal_that_meets_another_holder_is_no_renewal(lock: hudi.TableLock, table: Table) -> None:
    """Lost is lost: not renewed, unlock says so and writes nothing."""
    assert await lock.try_lock()
    theirs = LockRecord(expired=False, valid_until_ms=round(time.time() * 1000) + 9_000, owner="x").encode()
    await table.backend.put(LOCK_KEY, theirs)

    assert not await lock.renew_lock()
    with pytest.raises(LeaseLostError):
        await lock.unlock()
    assert await table.lock_file() == theirs


async def test_entered_again_it_is_the_same_lease_until_the_last_exit(
    table: Table, other: hudi.TableLock
) -> None:
    """``async with`` counts, so an inner block does not free the outer one's lock."""
    lock = hudi.table_lock(table.base, table.options)
    async with lock as outer:
        async with lock as inner:
            assert inner is outer
        assert outer.held
        assert not await other.try_lock()
    assert not outer.held
    assert await other.try_lock()


async def test_entered_after_try_lock_it_stays_locked_at_the_exit(lock: hudi.TableLock) -> None:
    """What ``try_lock`` acquired, ``unlock`` releases."""
    assert await lock.try_lock()
    async with lock as lease:
        pass
    assert lease.held
    await lock.unlock()


async def test_a_lost_lease_cancels_the_body(table: Table) -> None:
    """A copy of the table's files stops when others may write again."""
    theirs = LockRecord(expired=False, valid_until_ms=round(time.time() * 1000) + 9_000, owner="x")

    async def copy() -> None:
        async with hudi.table_lock(table.base, table.options):
            await table.backend.put(LOCK_KEY, theirs.encode())
            await asyncio.sleep(20)

    with pytest.raises(LeaseLostError):
        await copy()


async def test_waiting_ends_with_the_timeout_and_says_who_holds(lock: hudi.TableLock, table: Table) -> None:
    """``hoodie.write.lock.wait_time_ms`` is the wait of ``async with``; an argument wins."""
    assert await lock.try_lock()
    for waiter in (
        hudi.table_lock(table.base, table.options | {"hoodie.write.lock.wait_time_ms": "200"}),
        hudi.table_lock(table.base, table.options, timeout=0.2),
    ):
        with pytest.raises(AcquireTimeoutError, match=r"0\.2 s; last seen held"):
            async with waiter:
                pytest.fail("two holders")


async def test_the_token_is_given_only_when_asked_for(table: Table) -> None:
    """It may cost a wait after a Hudi writer, so reading it unasked is an error."""
    async with hudi.table_lock(table.base, table.options) as lease:
        with pytest.raises(ConfigError, match="fencing=True"):
            lease.fencing_token  # noqa: B018  the reading is what is tested
    async with hudi.table_lock(table.base, table.options, fencing=True) as lease:
        assert lease.fencing_token > 0


async def test_the_process_knows_what_it_holds(table: Table) -> None:
    """Under any spelling of the base path, and only while it holds."""
    spelt = table.base.replace("s3://", "s3a://") + "/"
    refuse_if_held(spelt)
    async with hudi.table_lock(table.base, table.options):
        assert held_here(spelt)
        assert not held_here(table.base + "-other")
        assert not held_here("file:///data/orders")
        with pytest.raises(ConfigError, match="block each other"):
            refuse_if_held(spelt)
    assert not held_here(spelt)


async def test_a_holder_that_may_overrun_is_warned_of(
    lock: hudi.TableLock, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """On a table of version 8 a Hudi holder may go on after a loss; on 9, or if it is ours, no word."""
    theirs = LockRecord(expired=False, valid_until_ms=round(time.time() * 1000) + 9_000, owner="x").encode()
    await table.backend.put(LOCK_KEY, theirs)
    assert (await lock.status()).warning is None
    await table.backend.put(".hoodie/hoodie.properties", b"hoodie.table.version=8\n")

    with caplog.at_level(logging.WARNING, "asynclock"):
        status = await lock.status()

    assert status.warning is not None
    assert "version 8" in status.warning
    assert status.warning in caplog.text
    assert (status.state, status.owner, status.since_ms) == ("held", "x", None)


async def test_a_corrupt_file_is_shown_and_never_overwritten(lock: hudi.TableLock, table: Table) -> None:
    """Neither held nor free: somebody has to look."""
    await table.backend.put(LOCK_KEY, b"{")

    assert (await lock.status()).state == "corrupt"
    with pytest.raises(RecordCorruptError):
        await lock.try_lock()
    assert await table.lock_file() == b"{"


def test_the_blocking_twin_does_the_same(minio: Server) -> None:
    """With, try, renew, status and unlock from a plain thread."""
    import asyncio as loops  # noqa: PLC0415  the twin is tested without a loop

    from asynclock.backends import open_backend  # noqa: PLC0415  likewise
    from tests.hudi.conftest import lock_options  # noqa: PLC0415  likewise

    base, options = f"{minio.url}/blocking", lock_options(minio)

    async def make() -> None:
        backend = open_backend(base, **minio.options)
        await backend.put(".hoodie/hoodie.properties", b"hoodie.table.version=9\n")
        await backend.aclose()

    loops.run(make())
    lock, other = (blocking.table_lock(base, options) for _ in range(2))
    with lock as lease:
        assert lease.held
        with lock as again:
            assert again.owner == lease.owner
        assert not other.try_lock()
        assert other.status().owner == lease.owner
    assert other.try_lock()
    assert other.renew_lock()
    other.unlock()
    other.close()
    blocking.audit_enable(base, options)
    assert blocking.audit_status(base, options).enabled
    assert blocking.audit_validate(base, options).result == "PASSED"
    assert blocking.audit_cleanup(base, options, dry_run=True).files == ()
    blocking.audit_disable(base, options)
    for each in (lock, hudi.table_lock(base, options)):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(each)
