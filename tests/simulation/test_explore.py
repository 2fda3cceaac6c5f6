"""Small scopes, explored exhaustively."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import BackendError, BackendUnavailableError
from asynclock.testing._faulty import Fault
from tests.laboratory import programs
from tests.laboratory.checker import Invariant
from tests.laboratory.explore import Bench
from tests.laboratory.interleavings import interleavings
from tests.laboratory.names import NAME
from tests.laboratory.programs import PROGRAMS, alone, cancellations, single_faults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asynclock.lease import Lease

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(
    ("clients", "cycles", "preemptions", "lags", "dead_holder"),
    [
        (2, 1, None, 1, False),
        (2, 1, None, 2, True),
        (2, 2, None, 0, False),
        (2, 2, None, 0, True),
        (3, 1, 3, 0, False),
        (3, 1, 3, 0, True),
        (3, 1, 1, 1, False),
    ],
)
def test_every_interleaving(  # noqa: PLR0917  the parameters of the scope
    clients: int,
    cycles: int,
    preemptions: int | None,
    lags: int,
    dead_holder: bool,  # noqa: FBT001  likewise
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One client holds the lock at a time and all get it, in every order in which they can get it."""
    holders: defaultdict[Bench, list[int]] = defaultdict(list)
    hold = Bench.hold

    async def noted(bench: Bench, index: int, lease: Lease, work: Awaitable[object]) -> None:
        holders[bench].append(index)
        await hold(bench, index, lease, work)

    monkeypatch.setattr(Bench, "hold", noted)

    found = interleavings(clients, cycles=cycles, preemptions=preemptions, lags=lags, dead_holder=dead_holder)

    assert found.failures == []
    assert {tuple(order) for order in holders.values()} == set(permutations([*range(clients)] * cycles))


@pytest.mark.parametrize("operation", ["put_if_absent", "put_if_match"])
@pytest.mark.parametrize("fault", [None, Fault.REPLY_LOST, Fault.LATE, Fault.OWN_412])
@pytest.mark.parametrize("name", PROGRAMS)
def test_cancellation_at_every_await(name: str, fault: Fault | None, operation: str) -> None:
    """Cancelled at any await, once or twice, nothing is left behind and CancelledError is kept."""
    found = cancellations(name, fault=fault, operation=operation)

    assert found.failures == []


AWAITS = 4


@pytest.mark.parametrize("careless_at", range(AWAITS))
def test_a_cancellation_swallowed_at_any_await_is_found(
    monkeypatch: pytest.MonkeyPatch, careless_at: int
) -> None:
    """A program that is wrong at one of its awaits only does not pass."""

    async def careless(_: Bench) -> None:
        for step in range(AWAITS):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if step != careless_at:
                    raise

    monkeypatch.setitem(PROGRAMS, "careless", careless)

    assert cancellations("careless", second=False).violated == {Invariant.NO_ERROR}


@pytest.mark.parametrize("careless_at", range(AWAITS))
def test_a_second_cancellation_swallowed_at_any_await_is_found(
    monkeypatch: pytest.MonkeyPatch, careless_at: int
) -> None:
    """A program that is wrong at one await of its clean-up is found by the second cancellation only."""

    async def careless(_: Bench) -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            for step in range(AWAITS):
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    if step == careless_at:
                        return
                    raise
            raise

    monkeypatch.setitem(PROGRAMS, "careless", careless)

    assert cancellations("careless", second=False).failures == []
    assert cancellations("careless").violated == {Invariant.NO_ERROR}


async def swallowing(bench: Bench) -> None:
    """Tell of a cancelled acquisition as the store's error."""
    try:
        await alone(bench)
    except asyncio.CancelledError as error:
        raise BackendUnavailableError(
            backend="any", operation="get", key="any", detail="cancelled", written="no"
        ) from error


async def ignoring(bench: Bench) -> None:
    """Be done in spite of a cancellation."""
    with suppress(asyncio.CancelledError):
        await alone(bench)


@pytest.mark.parametrize("program", [swallowing, ignoring])
def test_a_swallowed_cancellation_is_found(
    monkeypatch: pytest.MonkeyPatch, program: Callable[[Bench], Awaitable[None]]
) -> None:
    """Neither an error of the store nor an orderly end passes for the CancelledError."""
    monkeypatch.setitem(PROGRAMS, "careless", program)

    found = cancellations("careless", second=False)

    assert found.violated == {Invariant.NO_ERROR}
    assert "swallowed" in found.failures[0]


async def giving(bench: Bench) -> None:
    """Renew, and release, while another coroutine of the same client waits in line."""
    lock = bench.clients[0].lock(NAME)
    giver = await lock.acquire()
    receiving: list[asyncio.Task[None]] = []

    async def receive() -> None:
        lease = await lock.acquire()
        await bench.hold(0, lease, asyncio.sleep(0.01))

    async def work() -> None:
        receiving.append(asyncio.get_running_loop().create_task(receive()))
        with suppress(BackendError):  # where the store does not tell
            await giver.confirm()
        await asyncio.sleep(0.01)

    cut: asyncio.CancelledError | None = None
    try:
        await bench.hold(0, giver, work())
    finally:
        while not all(task.done() for task in receiving):  # their end is not ours to cut short
            try:
                await asyncio.wait(receiving)
            except asyncio.CancelledError as error:
                cut = error
    if cut is not None:
        raise cut


@pytest.mark.parametrize("operation", ["put_if_absent", "put_if_match"])
@pytest.mark.parametrize("fault", [None, Fault.REPLY_LOST, Fault.LATE, Fault.OWN_412])
def test_a_giver_cancelled_at_every_await(
    monkeypatch: pytest.MonkeyPatch, fault: Fault | None, operation: str
) -> None:
    """Cancelling who hands the lock on costs the receiver nothing: it has its turn, and frees the lock."""
    monkeypatch.setitem(PROGRAMS, "giving", giving)

    found = cancellations("giving", fault=fault, operation=operation)

    assert found.failures == []


def test_every_fault_on_every_request() -> None:
    """Whichever request one fault or two hit, the lock is had soon, kept, and free in the end."""
    found = single_faults()

    assert found.failures == []


def test_a_mistake_after_any_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that always fails is found with every kind of fault, and on each of its requests."""

    async def failing(bench: Bench) -> None:
        with suppress(Exception):
            await alone(bench)
        raise ZeroDivisionError

    monkeypatch.setattr(programs, "PROGRAMS", {"failing": failing})

    found = single_faults()

    runs = {failure.partition(":")[0] for failure in found.failures}
    assert {f"failing, {fault} on request 1, 1 in a row" for fault in Fault} <= runs
    for nth in range(1, 5):  # a look, and the writes that acquire, renew and release
        assert f"failing, {Fault.UNAVAILABLE} on request {nth}, 2 in a row" in runs
