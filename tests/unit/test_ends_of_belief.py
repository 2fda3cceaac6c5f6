"""The table of what ends belief: each row is brought about, and does what it says."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseLostError
from asynclock._core.protocol.belief import End
from tests.unit.kit import World, clock_of, in_virtual_time, our_record

if TYPE_CHECKING:
    from asynclock import Lease, LockClient


async def bring_about(by: End, world: World, client: LockClient, lease: Lease) -> None:
    """End belief in one of the ways there are."""
    held = lease._held
    if by is End.RELEASE:
        await lease.release()
    elif by is End.LET_GO:
        held.release.let_go("a signal told its process to end")
    elif by is End.WITH_ANOTHER:
        held.belief.end(End.WITH_ANOTHER, "'other', which was held with it, was lost")
    elif by is End.LOOP_DIED:
        client._core.lose_all("its loop has died")
    elif by is End.DEADLINE:
        clock_of(client).step(60.0)
    elif by is End.TAKEN_OVER:
        world.put(our_record(valid_until=world.now + 10.0))
    elif by is End.FORK:
        client._core.abandon("this is a forked child")
    else:
        assert by is End.AT_MOST, "acquire() was told so"


@in_virtual_time
@pytest.mark.parametrize("by", End, ids=lambda by: by.name.lower())
async def test_each_end_reports_and_frees_as_the_table_says(world: World, by: End) -> None:
    """The event, the error of the holder, and whether the record is free before and after its body leaves."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire(at_most=2.0 if by is End.AT_MOST else None)
        acquired = world.record()
        await bring_about(by, world, client, lease)
        await asyncio.sleep(2.5)

        assert not lease.held
        assert type(lease.lost) is (type(None) if by.error is None else by.error)
        ends = [kind for kind in world.told() if kind in {"released", "lost", "release_unconfirmed"}]
        assert ends[:1] == ([] if by.reports is None else [by.reports])
        assert world.record().expired == (by.freed == "at once")

        with suppress(LeaseLostError):
            await lease.release()
        await asyncio.sleep(0.5)
        assert world.record().expired == (by.freed in {"at once", "once its body has left"})
        assert (world.record().owner == acquired.owner) == (by is not End.TAKEN_OVER)


@in_virtual_time
@pytest.mark.parametrize("by", [each for each in End if each.is_decided], ids=lambda by: by.name.lower())
async def test_what_is_decided_after_the_deadline_comes_too_late(world: World, by: End) -> None:
    """The lease has expired, whatever its holder wants of it."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        clock_of(client).step(60.0)

        assert not lease._held.belief.end(by, "too late")
        assert type(lease.lost) is End.DEADLINE.error


@in_virtual_time
@pytest.mark.parametrize("second", [End.LET_GO, End.TAKEN_OVER, End.FORK], ids=lambda by: by.name.lower())
async def test_the_first_end_counts(world: World, second: End) -> None:
    """What comes after a loss changes nothing."""
    async with world.client() as client:
        lease = await client.lock("orders").acquire()
        assert lease._held.belief.end(End.WITH_ANOTHER, "the first")
        assert not lease._held.belief.end(second, "the second")

        assert lease.lost is not None
        assert lease.lost.reason == "the first"
