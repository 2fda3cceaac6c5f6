"""What the listener and the log are told."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import sync
from asynclock.testing._faulty import Fault
from tests.unit.kit import FAST, KEY, World, faulty, in_virtual_time, our_record, until_lost

if TYPE_CHECKING:
    from asynclock.events import Event


@in_virtual_time
async def test_a_lease_reports_its_acquisition_renewals_and_release(world: World) -> None:
    """Each event has key, owner and token."""
    async with world.client() as client, client.lock("orders").hold() as lease:
        await lease.confirm()

    assert [(event.kind, event.key) for event in world.events] == [
        ("acquired", KEY), ("renewed", KEY), ("released", KEY)
    ]  # fmt: skip
    assert {(event.owner, event.fencing_token) for event in world.events} == {
        (lease.owner, lease.fencing_token)
    }


@in_virtual_time
async def test_a_loss_is_reported_once_with_its_reason(world: World) -> None:
    """The listener hears of a loss once, and why."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.put(our_record(valid_until=world.now + 12, owner="thief"))
        await until_lost(lease)
        await asyncio.sleep(5.0)

    (loss,) = [event for event in world.events if event.kind == "lost"]
    assert "taken over" in loss.detail


@in_virtual_time
async def test_a_release_that_could_not_be_confirmed_is_reported(world: World) -> None:
    """If the store stays unreachable until the clean-up gives up, an event says so."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        faulty(client).inject(Fault.REQUEST_LOST, times=10_000)
        await lease.release()
        await asyncio.sleep(30.0)

    assert world.told()[-1] == "release_unconfirmed"


async def test_a_listener_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """What a listener raises is logged; the lease goes on."""

    def fail(_: Event) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, logger="asynclock"):
        async with (
            asynclock.connect("memory://", events=fail) as client,
            client.lock("orders").hold() as lease,
        ):
            assert lease.held

    assert "ZeroDivisionError" in caplog.text


@in_virtual_time
async def test_a_loss_is_logged_as_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Without any listener, the log of ``asynclock`` warns."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        world.store.delete_now(KEY)
        await until_lost(lease)
        await asyncio.sleep(0.1)

    assert any(record.levelname == "WARNING" and "lost" in record.message for record in caplog.records)


def test_a_listener_that_exits_ends_no_renewal() -> None:
    """``sys.exit`` in an events listener is logged; other leases live on and calls are answered."""

    def listener(event: Event) -> None:
        if event.kind == "released":
            raise SystemExit(3)

    with (
        sync.connect("memory://", settings=FAST, events=listener) as talkative,
        sync.connect("memory://", settings=FAST) as quiet,
        quiet.lock("orders").hold() as lease,
    ):
        talkative.lock("orders").acquire().release()

        lease.confirm()
        assert lease.held


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt, MemoryError])
def test_a_log_handler_that_raises_harms_no_lease(error: type[BaseException]) -> None:
    """Whatever a handler raises, the listener still hears of the loss, and the lock can be taken again."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            del record
            raise error

    handler, kinds = Handler(), list[str]()
    logging.getLogger("asynclock").addHandler(handler)
    try:
        with sync.connect(
            "memory://", settings=FAST, events=lambda event: kinds.append(event.kind)
        ) as client:
            lock = client.lock("orders")
            lease = lock.acquire()
            lock.break_lock(lock.status(), force=True)
            with pytest.raises(asynclock.LeaseLostError):
                lease.confirm()
            lock.acquire(timeout=5).release()
    finally:
        logging.getLogger("asynclock").removeHandler(handler)

    assert kinds == ["acquired", "lost", "acquired", "released"]
