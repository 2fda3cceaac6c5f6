"""Acquiring a lock: one try, timeouts, lost and late answers, and what the store refuses (rules 2, 7, 13)."""

from __future__ import annotations

import asyncio
import re
import uuid
from dataclasses import replace
from itertools import pairwise

import pytest

from asynclock import (
    AccessDeniedError,
    AcquireTimeoutError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    RecordCorruptError,
    UnsupportedBackendError,
    Written,
)
from asynclock.testing._faulty import Fault
from tests.unit.kit import ALWAYS, KEY, STEADY, TIMING, World, faulty, in_virtual_time, our_record, unopened


@in_virtual_time
async def test_uncontended_requests_are_as_few_as_documented(world: World) -> None:
    """Acquire takes two requests the first time and one after; renew one; release one."""
    async with world.client() as client:
        lock = client.lock("orders")
        counts = []
        for _ in range(2):
            lease = await lock.acquire()
            counts.append(len(world.journal))
            await lease.confirm()
            counts.append(len(world.journal))
            await lease.release()
            counts.append(len(world.journal))

    assert counts == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("profile", [replace(STEADY, dates=False)], ids=["no Dates"])
@in_virtual_time
async def test_a_client_that_wrote_last_acquires_without_a_look_without_dates_too(world: World) -> None:
    """The version of its own last release is enough to acquire in one request (rule 13)."""
    async with world.client() as client:
        for _ in range(2):
            await (await client.lock("orders").acquire()).release()

        assert [each.kind for each in world.journal] == ["get", "put_if_absent", *["put_if_match"] * 3]


@in_virtual_time
async def test_every_attempt_has_a_nonce_of_its_own(world: World) -> None:
    """No two writes carry the same nonce, whatever they are for."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, operation="put_if_match", nth=3, times=3)
        for _ in range(3):
            async with client.lock("orders").hold():
                await asyncio.sleep(3.0)

    nonces = [each.body.partition(b'"nonce":')[2][:34] for each in world.writes() if each.body]
    assert len(nonces) > 9
    assert len(set(nonces)) == len(nonces)


def test_an_owner_is_a_random_uuid(world: World) -> None:
    """As Hudi's are: version 4, in the form of RFC 9562."""
    issuer = world.client()._core._objects.issuer
    owners = {issuer.fresh_owner() for _ in range(100)}

    assert len(owners) == 100
    for owner in owners:
        assert uuid.UUID(owner).version == 4
        assert uuid.UUID(owner).variant == uuid.RFC_4122
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", owner)


@pytest.mark.parametrize("remembers", [False, True])
@in_virtual_time
async def test_try_acquire_is_one_look(
    world: World, monkeypatch: pytest.MonkeyPatch, *, remembers: bool
) -> None:
    """However often others are faster, one try looks once, or twice where its memory was out of date."""
    client = world.client()
    world.put(our_record(valid_until=world.now, expired=True))
    if remembers:
        await (await client.lock("orders").acquire()).release()
    replace = faulty(client).put_if_match
    tries = 0

    async def beaten(key: str, body: bytes, version: str) -> Written:
        nonlocal tries
        tries += 1
        assert tries < 5
        world.put(our_record(valid_until=world.now, expired=True, nonce=f"{tries:032x}"))
        return await replace(key, body, version)

    monkeypatch.setattr(faulty(client), "put_if_match", beaten)

    assert await client.lock("orders").try_acquire() is None
    assert tries == 1 + remembers
    await client.aclose()


@in_virtual_time
async def test_a_refused_write_of_try_acquire_is_raised(world: World) -> None:
    """A 409 that changed nothing does not say that somebody holds the lock, so the result is not None."""
    async with world.client() as client:
        faulty(client).inject(Fault.CONFLICT, operation="put_if_absent")

        with pytest.raises(BackendError, match="409"):
            await client.lock("orders").try_acquire()


@in_virtual_time
async def test_try_acquire_reads_the_lock_when_its_memory_is_out_of_date(world: World) -> None:
    """A lock that another client has used and released since is acquired by one try."""
    mine, other = world.client().lock("orders"), world.client().lock("orders")
    for lock in (mine, other):
        await (await lock.acquire()).release()

    lease = await mine.try_acquire()

    assert lease is not None
    await lease.release()


@in_virtual_time
async def test_acquire_with_timeout_0_gets_a_free_lock(world: World) -> None:
    """A lock that another client has used and released since is acquired."""
    mine, other = world.client().lock("orders"), world.client().lock("orders")
    for lock in (mine, other):
        await (await lock.acquire()).release()

    lease = await mine.acquire(timeout=0)

    assert lease.held
    await lease.release()


@in_virtual_time
async def test_acquire_with_timeout_0_on_an_unreachable_store_is_a_timeout(world: World) -> None:
    """The failure of the store is the cause of the timeout."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, operation="get")

        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=0)

        assert isinstance(caught.value.__cause__, BackendError)


@in_virtual_time
async def test_acquire_with_timeout_0_raises_a_corrupt_record(world: World) -> None:
    """What waiting would not change is raised as it is, whatever the timeout."""
    world.put(b"{}")
    async with world.client() as client:
        with pytest.raises(RecordCorruptError):
            await client.lock("orders").acquire(timeout=0)


@in_virtual_time
async def test_a_timeout_shorter_than_a_round_trip_gets_a_free_lock(world: World) -> None:
    """The requests of an acquisition may outlast its timeout: cut off, they could still land later."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire(timeout=0.005)

        assert lease.held
        await lease.release()


@in_virtual_time
async def test_a_timeout_names_the_present_holder(world: World) -> None:
    """The status in the error is the other client's lease, not the client's own earlier one."""
    async with world.client() as client, world.client() as other:
        await (await client.lock("orders").acquire()).release()
        lease = await other.lock("orders").acquire()

        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=0.5)

        assert caught.value.status is not None
        assert caught.value.status.owner == lease.owner
        await lease.release()


@in_virtual_time
async def test_a_timeout_names_the_failure_of_the_store(world: World) -> None:
    """The last failure of the store is the cause of the timeout."""
    async with world.client() as client:
        faulty(client).inject(Fault.UNAVAILABLE, times=ALWAYS)
        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=2.0)

        assert isinstance(caught.value.__cause__, BackendError)
        assert caught.value.status is None
        faulty(client).calm()


@in_virtual_time
async def test_without_any_usable_date_a_timeout_says_why(world: World) -> None:
    """Nobody is left to guess that a proxy strips the Date header off."""
    async with world.client() as client:
        faulty(client).inject(Fault.NO_DATE, times=1000)
        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=3)

    assert "Date" in str(caught.value.__cause__)
    assert not world.writes()


@in_virtual_time
async def test_a_denied_write_is_raised_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without permission to write, waiting would not help, and there is nothing to free."""
    client = world.client()
    tries = 0

    async def refuse(key: str, _: bytes) -> Written:
        nonlocal tries
        tries += 1
        raise AccessDeniedError(backend="store", operation="put_if_absent", key=key, detail="403")

    monkeypatch.setattr(faulty(client), "put_if_absent", refuse)
    began = world.now

    with pytest.raises(AccessDeniedError):
        await client.lock("orders").acquire(timeout=60)

    assert world.now - began < 1
    await asyncio.sleep(5)
    assert tries == 1


@in_virtual_time
async def test_a_refusal_that_may_stand_is_raised_and_freed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway may refuse what the store has written: it is raised at once, and no lock stays behind."""
    client = world.client()
    write, refused = faulty(client).put_if_absent, 0

    async def written_all_the_same(key: str, body: bytes) -> Written:
        nonlocal refused
        written = await write(key, body)
        refused += 1
        if refused == 1:
            raise UnsupportedBackendError(
                backend="store", operation="put_if_absent", key=key, detail="418", written="unknown"
            )
        return written

    monkeypatch.setattr(faulty(client), "put_if_absent", written_all_the_same)
    began = world.now

    with pytest.raises(UnsupportedBackendError, match="it may have been written"):
        await client.lock("orders").acquire()

    assert world.now - began < 1
    await asyncio.sleep(5)
    assert (await client.lock("orders").status()).state == "free"


@in_virtual_time
async def test_an_unavailable_store_that_stays_so_is_raised_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that is not trusted is no outage: ``transient`` says whether waiting helps."""
    client = world.client()

    async def refuse(key: str) -> None:
        raise BackendUnavailableError(
            backend="store", operation="get", key=key, detail="not trusted", transient=False
        )

    monkeypatch.setattr(faulty(client), "get", refuse)
    began = world.now

    with pytest.raises(BackendUnavailableError):
        await client.lock("orders").acquire()

    assert world.now - began < 1


@pytest.mark.parametrize("timeout", [0, 60])
@in_virtual_time
async def test_a_denied_read_is_raised_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    """A missing permission is not reported as a timeout, with much time or none."""
    client = world.client()

    async def refuse(key: str) -> None:
        raise AccessDeniedError(backend="store", operation="get", key=key, detail="403")

    monkeypatch.setattr(faulty(client), "get", refuse)
    began = world.now

    with pytest.raises(AccessDeniedError):
        await client.lock("orders").acquire(timeout=timeout)

    assert world.now - began < 1


@in_virtual_time
async def test_a_corrupt_object_is_never_overwritten(world: World) -> None:
    """Corrupt is neither held nor free: the error names object and version, nothing is written."""
    version = world.put(b'{"expired":true}')
    async with world.client() as client:
        with pytest.raises(RecordCorruptError, match="break_lock") as caught:
            await client.lock("orders").acquire(timeout=5)
        with pytest.raises(RecordCorruptError):
            await client.lock("orders").try_acquire()

    assert (caught.value.key, caught.value.version) == (KEY, version)
    assert world.store.body(KEY) == b'{"expired":true}'


@in_virtual_time
async def test_a_backend_that_cannot_be_opened_fails_the_acquisition_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A credential profile that does not exist is reported at once, not retried until the timeout."""
    async with world.client() as client:
        monkeypatch.setattr(client.backend, "get", unopened)
        with pytest.raises(ConfigError, match="profile"):
            _held = await client.lock("orders").acquire()
        assert world.loop.time() == 0.0


@in_virtual_time
async def test_a_throttled_store_is_waited_for(world: World) -> None:
    """429 and 503 delay an acquisition; they do not end it."""
    async with world.client() as client:
        faulty(client).inject(Fault.THROTTLED, times=3)
        faulty(client).inject(Fault.UNAVAILABLE, nth=4, times=2)
        lease = await client.lock("orders").acquire(timeout=30.0)

        assert lease.held


@in_virtual_time
async def test_a_store_that_never_answers_does_not_hang_an_acquire(world: World) -> None:
    """A cut network ends an acquisition at its timeout, give or take a request."""
    async with world.client() as client:
        world.store.cut_off.add(world.loop.world)
        began = world.loop.time()
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=3.0)
        world.store.cut_off.clear()

        assert world.loop.time() - began <= 3.0 + 2.0


@in_virtual_time
async def test_a_write_that_changed_nothing_is_not_repeated_at_once(world: World) -> None:
    """Between two writes on the same base a quarter of the poll interval passes, and a round trip."""
    async with world.client() as client:
        faulty(client).storm({Fault.CONFLICT: 1.0})
        with pytest.raises(AcquireTimeoutError):
            await client.lock("orders").acquire(timeout=3)
        sent = [each.at for each in faulty(client).journal if each.operation == "put_if_absent"]
        faulty(client).calm()

    pauses = [later - earlier for earlier, later in pairwise(sent)]
    assert len(pauses) > 10
    assert min(pauses[:-1]) >= TIMING.poll_interval / 4
    assert max(pauses) < TIMING.poll_interval / 2
