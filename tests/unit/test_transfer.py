"""``transfer``: a lock is offered to another process, which redeems the ticket once."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

import asynclock.sync
from asynclock import ConfigError, LeaseLostError, OutcomeUnknownError, TicketSpentError
from asynclock._core.record import parse_record
from asynclock._core.ticket import read_ticket
from asynclock.errors import AcquireTimeoutError
from asynclock.testing._faulty import Fault
from tests.unit.kit import ALWAYS, FAST, SETTINGS, World, faulty, in_virtual_time


@in_virtual_time
async def test_a_lock_passes_from_one_process_to_another(world: World) -> None:
    """The giver believes no more, nobody else gets the lock, and the token rises."""
    async with world.client() as giver, world.client() as receiver, world.client() as waiter:
        lease = await giver.lock("orders").acquire()
        waiting = asyncio.create_task(waiter.lock("orders").acquire())
        ticket = await lease.transfer()
        assert not lease.held
        assert lease.lost is None
        await lease.release()  # a no-op
        offer = world.record()
        assert not offer.expired
        assert offer.is_kept
        assert offer.owner not in {lease.owner, ""}
        await asyncio.sleep(5)
        before = len(world.journal)
        taken = await receiver.lock("orders").acquire(ticket=ticket)
        requests = [each.kind for each in world.journal[before:] if each.body != offer.encode()]
        assert taken.fencing_token > lease.fencing_token
        assert not waiting.done()
        assert "put_if_match" in requests
        await taken.release()
        await (await waiting).release()
    assert [each.reason for each in world.events if each.reason == "transfer"] == ["transfer"] * 2


@in_virtual_time
async def test_a_ticket_works_once(world: World) -> None:
    """The second user gets an error, also while the first still holds the lock, and after it released it."""
    async with world.client() as giver, world.client(holder="the first") as receiver:
        ticket = await (await giver.lock("orders").acquire()).transfer()
        writes = len(world.writes())
        lease = await receiver.lock("orders").acquire(ticket=ticket)
        for client in (giver, receiver):
            with pytest.raises(TicketSpentError, match="the first holds it now; nothing was written"):
                await client.lock("orders").acquire(ticket=ticket)
        await lease.release()
        with pytest.raises(TicketSpentError, match="nobody holds it now"):
            await giver.lock("orders").acquire(ticket=ticket, timeout=0)
        assert len(world.writes()) == writes + 2


@in_virtual_time
async def test_of_two_that_use_a_ticket_at_once_one_gets_the_lock(world: World) -> None:
    """The other learns that it is spent."""
    async with world.client() as giver, world.client() as one, world.client() as two:
        ticket = await (await giver.lock("orders").acquire()).transfer()
        tries = [each.lock("orders").acquire(ticket=ticket) for each in (one, two, one)]
        got = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(each).__name__ for each in got) == ["Lease"] + ["TicketSpentError"] * 2
        for each in got:
            if not isinstance(each, BaseException):
                await each.release()


@in_virtual_time
async def test_an_offer_that_nobody_takes_runs_out(world: World) -> None:
    """Others get the lock then, and the ticket is spent; it works as long as nobody has come."""
    async with world.client() as giver, world.client() as other:
        ticket = await (await giver.lock("orders").acquire()).transfer(within=3)
        with pytest.raises(AcquireTimeoutError):
            await other.lock("orders").acquire(timeout=2)
        lease = await other.lock("orders").acquire(timeout=5)
        with pytest.raises(TicketSpentError):
            await giver.lock("orders").acquire(ticket=ticket)
        late = await lease.transfer(within=1)
        await asyncio.sleep(20)
        assert (await giver.lock("orders").status()).state == "free"
        await (await giver.lock("orders").acquire(ticket=late)).release()


@in_virtual_time
async def test_a_ticket_goes_past_the_queue(world: World) -> None:
    """Others of the same client wait for the lock; they would wait until the offer has run out."""
    async with world.client() as giver, world.client() as receiver:
        lease = await giver.lock("orders").acquire()
        waiting = [asyncio.create_task(receiver.lock("orders").acquire()) for _ in range(2)]
        await asyncio.sleep(1)
        taken = await receiver.lock("orders").acquire(ticket=await lease.transfer(), timeout=1)
        assert not any(each.done() for each in waiting)
        await taken.release()
        for each in waiting:
            await (await each).release()
        assert world.record().expired


@in_virtual_time
async def test_the_giver_may_take_it_back(world: World) -> None:
    """With the ticket, though its own client is next in line."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease = await lock.acquire(at_least=5)
        again = await lock.acquire(ticket=await lease.transfer(within=1))
        assert again.fencing_token > lease.fencing_token
        await again.release()


@in_virtual_time
async def test_a_broken_offer_is_spent(world: World) -> None:
    """An operator needs force, since the offer is live."""
    async with world.client() as client:
        lock = client.lock("orders")
        ticket = await (await lock.acquire()).transfer()
        await lock.break_lock(await lock.status(), force=True)
        with pytest.raises(TicketSpentError, match="nobody"):
            await lock.acquire(ticket=ticket)


@in_virtual_time
async def test_a_lost_or_released_lease_has_no_ticket(world: World) -> None:
    """Nothing is written."""
    async with world.client() as client:
        lock = client.lock("orders")
        lease = await lock.acquire()
        await lease.release()
        writes = len(world.writes())
        with pytest.raises(LeaseLostError, match="released"):
            await lease.transfer()
        assert len(world.writes()) == writes


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.OWN_412, Fault.REQUEST_LOST, Fault.UNAVAILABLE])
@in_virtual_time
async def test_a_lost_answer_is_settled(world: World, fault: Fault) -> None:
    """Of the offer, and of the redemption: by a read, and the nonce."""
    async with world.client() as giver, world.client() as receiver:
        lease = await giver.lock("orders").acquire()
        faulty(giver).inject(fault, operation="put_if_match")
        ticket = await lease.transfer()
        faulty(receiver).inject(fault, operation="put_if_match")
        taken = await receiver.lock("orders").acquire(ticket=ticket)
        assert world.record().owner == taken.owner
        await taken.release()


@in_virtual_time
async def test_without_the_stores_word_there_is_no_ticket(world: World) -> None:
    """The giver gets an error; the lock is freed once the store answers again, though the offer landed."""
    async with world.client() as giver:
        lease = await giver.lock("orders").acquire()
        faulty(giver).inject(Fault.REPLY_LOST, operation="put_if_match", times=ALWAYS)
        faulty(giver).inject(Fault.UNAVAILABLE, operation="get", times=ALWAYS)
        with pytest.raises(OutcomeUnknownError, match="there is no ticket"):
            await lease.transfer()
        assert not world.record().expired
        faulty(giver).calm()
        await asyncio.sleep(SETTINGS.validity / 2)
        assert world.record().expired


@in_virtual_time
async def test_a_cancelled_transfer_frees_the_lock(world: World) -> None:
    """Nobody has the ticket."""
    async with world.client() as giver, world.client() as other:
        for wait in (0.0, 0.005, 0.015, 0.02, 0.025):
            lease = await giver.lock("orders").acquire()
            giving = asyncio.create_task(lease.transfer())
            await asyncio.sleep(wait)
            giving.cancel()
            await asyncio.wait([giving])
            if giving.cancelled():
                await (await other.lock("orders").acquire(timeout=1)).release()


@in_virtual_time
async def test_a_ticket_of_another_lock_is_refused(world: World) -> None:
    """By the record that it names, so that two spellings of one URL do no harm; nothing is written."""
    async with world.client() as client:
        ticket = await (await client.lock("orders").acquire()).transfer()
        writes = len(world.writes())
        with pytest.raises(
            ConfigError, match=r"orders'.*the ticket is for that lock, not for .*/bills; nothing was written"
        ):
            await client.lock("bills").acquire(ticket=ticket)
        assert len(world.writes()) == writes
        other = read_ticket(ticket)._replace(lock="s3a://another/spelling").encode()
        await (await client.lock("orders").acquire(ticket=other)).release()


def packed(**fields: Any) -> str:  # noqa: ANN401
    """Return a ticket with any fields."""
    whole = {"v": 1, "lock": "x", "offer": "00000000-0000-4000-8000-000000000000"} | fields
    return base64.urlsafe_b64encode(json.dumps(whole).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "wrong",
    ["", "x", "!", "a b", "A" * 5000, packed(v=2), packed(v=True), packed(v=None), packed(lock=3), "W10",
     packed(offer="o"), packed(more=1), "bnVsbA", packed()[:-3], packed() + "\n", 7, b"W10", "é"],
)  # fmt: skip
def test_what_is_no_ticket_is_refused(wrong: Any) -> None:  # noqa: ANN401
    """One short sentence, without I/O."""
    with pytest.raises(ConfigError) as raised:
        read_ticket(wrong)
    assert "is no ticket" in str(raised.value)
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), 8 * 86_400, "3"])
def test_an_offer_lasts_for_a_time_that_a_record_can_promise(wrong: Any) -> None:  # noqa: ANN401
    """Else nothing is written, and the lease goes on."""
    with asynclock.sync.connect("memory://") as client, client.lock("orders").hold() as lease:
        with pytest.raises(ConfigError, match="within"):
            lease.transfer(within=wrong)
        assert lease.held


def test_a_thread_hands_over_to_another_client() -> None:
    """The blocking twins."""
    connect = asynclock.sync.connect
    with connect("memory://tickets", settings=FAST) as one, connect("memory://tickets", settings=FAST) as two:
        with one.lock("orders").hold() as lease:
            ticket = lease.transfer()
        with two.lock("orders").acquire(ticket=ticket) as taken:
            assert taken.fencing_token > lease.fencing_token
        with pytest.raises(TicketSpentError):
            two.lock("orders").acquire(ticket=ticket)


@in_virtual_time
async def test_an_offer_is_a_record_of_the_format_that_hudi_reads(world: World) -> None:
    """Live until its time is up, by Hudi's three fields."""
    async with world.client() as giver:
        await (await giver.lock("orders").acquire()).transfer(within=60)
        offer = parse_record(world.record().encode())
        assert offer.valid_until_ms / 1000 >= world.now + 60
        assert not offer.expired
