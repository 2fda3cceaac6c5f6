"""How work gets past a reservation: it goes on only when no job can count it as parked, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from threading import Event
from typing import TYPE_CHECKING

import pytest

from asynclock import AcquireTimeoutError, BackendError, LeaseLostError
from asynclock._core.protocol.belief import End
from asynclock.spark.work.passage import Passage
from asynclock.spark.work.register import PARKED, REGISTER, RESERVATION_LOCK, Register
from asynclock.testing import Fault
from tests.unit.kit import ALWAYS, SETTINGS, World, faulty, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock import Lease, LockClient

NAME = "stream/a"


class Table:
    """A worker and a job with a table, each with a client of its own.

    Attributes:
        worker: The client of the worker.
        job: That of the job.
        parking: Those under which the worker has parked, in order.
        spoil: Called with each of them before its first request.
        reservation: The lease of the job, if it has reserved the table.
    """

    def __init__(self, world: World) -> None:
        self.worker = world.client()
        self.job = world.client()
        self.parking: list[LockClient] = []
        self.spoil: Callable[[LockClient], object] = lambda _: None
        self.reservation: Lease | None = None
        self._world = world

    def passage(self, lease: Lease) -> Passage:
        """Return that of a worker who has ``lease``."""
        return Passage(self.worker, lease, self._park, "a worker")

    def _park(self, holder: str) -> LockClient:
        client = self._world.client(holder=holder)
        self.parking.append(client)
        self.spoil(client)
        return client

    async def sees_at_work(self) -> bool:
        """Whether a job that looks now would wait for the worker."""
        return NAME in await Register(self.job._core).at_work()

    async def until_parked(self) -> None:
        """Wait until no job would wait for the worker."""
        while await self.sees_at_work():  # noqa: ASYNC110  a look is what finds it out
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        """Close all."""
        await self.worker.aclose()
        await self.job.aclose()


def never_releases(client: LockClient) -> None:
    """Fail every write over a record, so that neither a release nor a renewal gets through."""
    faulty(client).inject(Fault.UNAVAILABLE, operation="put_if_match", times=ALWAYS)


def parks_late(client: LockClient) -> None:
    """Have the write that parks arrive long after its answer was given up, and no other write arrive."""
    faulty(client).delay = (6.0, 6.0)
    faulty(client).inject(Fault.LATE, operation="put_if_absent")
    faulty(client).inject(Fault.UNAVAILABLE, operation="put_if_absent", times=ALWAYS)
    never_releases(client)


@pytest.mark.parametrize("spoil", [never_releases, parks_late])
@in_virtual_time
async def test_a_worker_goes_on_only_when_no_job_counts_it_as_parked(
    world: World, spoil: Callable[[LockClient], object]
) -> None:
    """Whatever becomes of the release of the second lease, and of a write of it that is late."""
    table = Table(world)
    table.spoil = spoil
    async with table.worker.lock(NAME).hold() as lease:
        async with table.job.lock(RESERVATION_LOCK).hold():
            passing = asyncio.ensure_future(table.passage(lease).passed(Event()))
            await asyncio.sleep(3.0)
            assert not passing.done()
        waited = await passing

        assert waited >= 3.0
        for _ in range(40):  # for two lifetimes of the second lease
            assert await table.sees_at_work()
            await asyncio.sleep(SETTINGS.validity / 20)
        assert lease.held
    await table.close()


@in_virtual_time
async def test_a_release_that_fails_for_a_moment_is_not_waited_out(world: World) -> None:
    """The client that parks is open until its record is written over, and goes on releasing it."""
    table = Table(world)
    async with table.worker.lock(NAME).hold() as lease:
        async with table.job.lock(RESERVATION_LOCK).hold():
            passing = asyncio.ensure_future(table.passage(lease).passed(Event()))
            await table.until_parked()
            never_releases(table.parking[0])
        ended = world.now
        await asyncio.sleep(3.0)
        assert not passing.done()
        faulty(table.parking[0]).calm()
        await passing
        assert world.now - ended < SETTINGS.validity / 2
    await table.close()


@in_virtual_time
async def test_a_worker_that_gave_up_is_not_parked_in_its_next_wait(world: World) -> None:
    """The first wait ends at its timeout with a second lease that nobody has released."""
    table = Table(world)
    table.spoil = never_releases
    async with table.worker.lock(NAME).hold() as lease:
        passage = table.passage(lease)
        async with table.job.lock(RESERVATION_LOCK).hold():
            with pytest.raises(
                AcquireTimeoutError, match=r"reservation/table.* not acquired within 2 s.*held"
            ):
                await passage.passed(Event(), timeout=2.0)
            assert not await table.sees_at_work()
        await passage.passed(Event())
        assert await table.sees_at_work()
    await table.close()


@in_virtual_time
async def test_a_wait_costs_what_parking_does_and_a_look_each_poll(world: World) -> None:
    """Nothing else is read or written, and nothing at all if the table is not reserved."""
    table = Table(world)
    async with table.worker.lock(NAME).hold() as lease:
        passage = table.passage(lease)
        assert await passage.passed(Event()) == 0.0
        began = len(world.journal)
        assert await passage.passed(Event()) == 0.0
        assert [each.key for each in world.journal[began:]] == ["reservation/table.json"]

        async with table.job.lock(RESERVATION_LOCK).hold():
            began = len(world.journal)
            passing = asyncio.ensure_future(passage.passed(Event()))
            await asyncio.sleep(0.2)
        await passing
        key = f"{PARKED}{NAME}.json"
        seen = [(each.kind, each.key) for each in world.journal[began:] if each.key.startswith("parked")]
        assert seen == [
            ("get", key),
            ("put_if_absent", key),
            ("put_if_match", key),  # released
            ("get", key),
            ("put_if_match", key),  # held by the worker's own client
            ("put_if_match", key),
        ]
    await table.close()


class Hindrance:
    """What keeps the work from its begin; here, that no look succeeds."""

    says = "a worker waits: simulated: get 'reservation/register' failed"

    async def begin(self, table: Table) -> None:
        """Make it so, before the work looks."""
        faulty(table.worker).inject(Fault.UNAVAILABLE, operation="get", times=ALWAYS)

    async def go_on(self, table: Table) -> None:
        """Make it so, while the work waits."""


class Unwritable(Hindrance):
    """No name enters the register."""

    says = "a worker waits: simulated: put_if_absent 'reservation/register' failed"

    async def begin(self, table: Table) -> None:
        """Refuse to create it."""
        faulty(table.worker).inject(Fault.REFUSED, operation="put_if_absent", times=ALWAYS)


class Reserved(Hindrance):
    """The table is reserved."""

    says = "a worker waits: the table is reserved, held by"

    async def begin(self, table: Table) -> None:
        """Reserve it."""
        table.reservation = await table.job.lock(RESERVATION_LOCK).acquire()


class LeftParked(Reserved):
    """The table is not reserved any more, but the second lease is still held."""

    says = "waiting for sim://store/parked/stream/a, held by"

    async def begin(self, table: Table) -> None:
        """Reserve it, and let no release of the second lease through."""
        table.spoil = never_releases
        await super().begin(table)

    async def go_on(self, table: Table) -> None:
        """End the reservation."""
        await table.until_parked()
        assert table.reservation is not None
        await table.reservation.release()


@pytest.mark.parametrize("hindrance", [Hindrance, Unwritable, Reserved, LeftParked])
@pytest.mark.parametrize("end", ["stop", "loss", "timeout"])
@in_virtual_time
async def test_each_wait_says_what_it_waits_for_and_heeds_what_ends_it(
    world: World, caplog: pytest.LogCaptureFixture, hindrance: type[Hindrance], end: str
) -> None:
    """A stop, the loss of the lease, and the timeout, whatever the work waits for."""
    caplog.set_level(logging.INFO, "asynclock")
    table, stop, loop = Table(world), Event(), asyncio.get_running_loop()
    lease = await table.worker.lock(NAME).acquire()
    await hindrance().begin(table)
    began = loop.time()
    timeout = 5.0 if end == "timeout" else None
    passing = asyncio.ensure_future(table.passage(lease).passed(stop, timeout=timeout))
    await hindrance().go_on(table)
    await asyncio.sleep(began + 3.0 - loop.time())
    assert not passing.done()
    assert any(hindrance.says in message for message in caplog.messages), caplog.messages

    if end == "stop":
        stop.set()
        await passing
    elif end == "loss":
        lease._held.belief.end(End.WITH_ANOTHER, "it was lost")
        with pytest.raises(LeaseLostError, match=NAME):
            await passing
    else:
        with pytest.raises(AcquireTimeoutError, match="not acquired within 5 s"):
            await passing
    # A client that is closed waits for at most two seconds.
    assert loop.time() - began <= (8.0 if end == "timeout" else 6.0)
    assert not any("a worker goes on" in message for message in caplog.messages)
    await table.close()


@in_virtual_time
async def test_an_answer_that_does_not_come_is_not_waited_for_after_a_stop(world: World) -> None:
    """A look may take a request timeout; the stop does not."""
    table, stop, loop = Table(world), Event(), asyncio.get_running_loop()
    faulty(table.worker).delay = (100.0, 100.0)
    async with table.worker.lock(NAME).hold() as lease:
        faulty(table.worker).inject(Fault.SLOW, operation="get", times=ALWAYS)
        passing = asyncio.ensure_future(table.passage(lease).passed(stop))
        await asyncio.sleep(0.6)
        began = loop.time()
        stop.set()
        await passing
        assert loop.time() - began <= 0.5
    await table.close()


@in_virtual_time
async def test_a_store_that_fails_for_a_while_is_asked_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The work begins once it answers, and nothing was parked."""
    table = Table(world)
    async with table.worker.lock(NAME).hold() as lease:
        faulty(table.worker).inject(Fault.UNAVAILABLE, operation="get", times=4)
        assert await table.passage(lease).passed(Event()) == 0.0
    assert sum("a worker waits: " in message for message in caplog.messages) == 1
    assert not table.parking
    await table.close()


@in_virtual_time
async def test_a_register_that_refuses_what_it_shows_is_an_error_of_the_store(world: World) -> None:
    """A refusal after which nothing has changed is no other worker's; the name was not entered."""
    async with world.client() as client:
        faulty(client).inject(Fault.REFUSED, operation="put_if_absent", times=ALWAYS)
        with pytest.raises(BackendError, match=f"put_if_absent '{REGISTER}' failed"):
            await Register(client._core).announce(NAME)
