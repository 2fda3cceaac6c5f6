"""FaultyBackend: each fault does what its name says, to the request it was injected for."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from asynclock.backend import Absent, Backend, Stored
from asynclock.backends._memory import MemoryBackend
from asynclock.errors import (
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.testing import Fault, FaultyBackend, run_virtual

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KEY = "orders.json"


@pytest.fixture
def inner() -> MemoryBackend:
    """Return the store behind the faults."""
    return MemoryBackend()


@pytest.fixture
def faulty(inner: MemoryBackend) -> FaultyBackend:
    """Return a backend that fails when told to."""
    return FaultyBackend(inner, seed=1)


def test_it_is_a_backend(faulty: FaultyBackend) -> None:
    """It can be put wherever a backend is wanted."""
    assert isinstance(faulty, Backend)


@pytest.mark.parametrize(
    ("fault", "error", "written"),
    [
        (Fault.REPLY_LOST, OutcomeUnknownError, True),
        (Fault.REQUEST_LOST, OutcomeUnknownError, False),
        (Fault.CONFLICT, OutcomeUnknownError, False),
        (Fault.OWN_412, PreconditionFailedError, True),
        (Fault.REFUSED, PreconditionFailedError, False),
        (Fault.THROTTLED, BackendUnavailableError, False),
        (Fault.UNAVAILABLE, OutcomeUnknownError, False),
        (Fault.BLOCKED, UnsupportedBackendError, True),
    ],
)
async def test_a_spoiled_write_fails_as_named(
    faulty: FaultyBackend,
    inner: MemoryBackend,
    fault: Fault,
    error: type[Exception],
    written: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    """The caller gets the error, and the store has or has not been written."""
    faulty.inject(fault, operation="put_if_absent")

    with pytest.raises(error):
        await faulty.put_if_absent(KEY, b"new")

    assert isinstance(await inner.get(KEY), Stored) is written
    assert faulty.applied == {fault: 1}


def test_a_late_write_lands_after_its_error(inner: MemoryBackend) -> None:
    """The caller learns that the outcome is unknown; the zombie lands later."""

    async def main() -> list[bool]:
        faulty = FaultyBackend(inner)
        faulty.delay = (5.0, 5.0)
        faulty.inject(Fault.LATE)
        with pytest.raises(OutcomeUnknownError):
            await faulty.put_if_absent(KEY, b"new")
        seen = [isinstance(await inner.get(KEY), Stored)]
        await asyncio.sleep(6)
        return [*seen, isinstance(await inner.get(KEY), Stored)]

    assert run_virtual(main()) == [False, True]


def test_a_duplicate_is_delivered_twice(inner: MemoryBackend) -> None:
    """The caller gets the first answer; the copy reaches the store later and is refused there."""

    async def main() -> int:
        behind = FaultyBackend(inner)
        faulty = FaultyBackend(behind)
        faulty.inject(Fault.DUPLICATE)
        await faulty.put_if_absent(KEY, b"new")
        await faulty.aclose()
        return len(behind.journal)

    assert run_virtual(main()) == 2


def test_a_slow_answer_comes_late(inner: MemoryBackend) -> None:
    """The request is applied at once, its answer comes after the delay."""

    async def main() -> float:
        faulty = FaultyBackend(inner)
        faulty.delay = (3.0, 3.0)
        faulty.inject(Fault.SLOW, operation="get")
        await faulty.get(KEY)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 3.0


@pytest.mark.parametrize(
    ("fault", "off"), [(Fault.STALE_DATE, -45.0), (Fault.CLOCK_AHEAD, 45.0), (Fault.NO_DATE, None)]
)
async def test_dates_are_spoiled(
    faulty: FaultyBackend, inner: MemoryBackend, fault: Fault, off: float | None
) -> None:
    """The answer's Date is wrong or missing, the rest of it is right."""
    written = await inner.put_if_absent(KEY, b"old")
    faulty.date_error = (45.0, 45.0)
    faulty.inject(fault, operation="get")

    spoiled, right = await faulty.get(KEY), await faulty.get(KEY)

    assert isinstance(spoiled, Stored)
    assert isinstance(right, Stored)
    assert spoiled.version == written.version
    assert right.server_time is not None
    if off is None:
        assert spoiled.server_time is None
    else:
        assert spoiled.server_time == pytest.approx(right.server_time + off, abs=5.0)


async def test_a_body_is_garbled_in_the_answer_only(faulty: FaultyBackend, inner: MemoryBackend) -> None:
    """The bytes read are wrong, the object is whole."""
    await inner.put_if_absent(KEY, b"old")
    faulty.inject(Fault.CORRUPT)

    spoiled, right = await faulty.get(KEY), await faulty.get(KEY)

    assert isinstance(spoiled, Stored)
    assert isinstance(right, Stored)
    assert spoiled.body != b"old"
    assert right.body == b"old"


async def test_the_object_is_deleted_under_a_write(faulty: FaultyBackend, inner: MemoryBackend) -> None:
    """Somebody deletes the object first, so that a conditional write is refused."""
    written = await inner.put_if_absent(KEY, b"old")
    faulty.inject(Fault.DELETED)

    with pytest.raises(PreconditionFailedError):
        await faulty.put_if_match(KEY, b"new", written.version)

    assert isinstance(await inner.get(KEY), Absent)


async def test_nth_and_times_choose_the_requests(faulty: FaultyBackend) -> None:
    """A fault hits the nth matching request and as many after it as asked."""
    faulty.inject(Fault.THROTTLED, operation="get", nth=2, times=2)

    outcomes = [await _fails(lambda: faulty.get(KEY)) for _ in range(5)]

    assert outcomes == [False, True, True, False, False]


async def test_the_journal_tells_every_call(faulty: FaultyBackend) -> None:
    """Each call is there with what was done to it and how it ended."""
    faulty.inject(Fault.REQUEST_LOST, operation="put_if_absent")
    await faulty.get(KEY)
    await _fails(lambda: faulty.put_if_absent(KEY, b"new"))
    await faulty.put_if_absent(KEY, b"new")

    assert [(call.operation, call.fault, call.outcome) for call in faulty.journal] == [
        ("get", None, "missing"),
        ("put_if_absent", Fault.REQUEST_LOST, "OutcomeUnknownError"),
        ("put_if_absent", None, "ok"),
    ]


async def test_a_storm_is_seeded_and_ends(inner: MemoryBackend) -> None:
    """The same seed spoils the same requests; calm ends it."""
    runs = []
    for _ in range(2):
        faulty = FaultyBackend(inner, seed=4)
        faulty.storm({Fault.THROTTLED: 0.3})
        get = partial(faulty.get, KEY)
        runs.append([await _fails(get) for _ in range(50)])
        faulty.calm()
        assert not await _fails(get)

    assert runs[0] == runs[1]
    assert 5 < sum(runs[0]) < 25


@pytest.mark.parametrize(
    "arguments",
    [
        {"operation": "get"},
        {"operation": "list"},
        {"nth": 0},
        {"times": 0},
    ],
)
def test_nonsense_is_refused(faulty: FaultyBackend, arguments: dict[str, object]) -> None:
    """A fault that cannot be applied as asked is an error at once, not silence later."""
    with pytest.raises(ConfigError):
        faulty.inject(Fault.LATE, **arguments)  # type: ignore[arg-type]


async def _fails(call: Callable[[], Awaitable[object]]) -> bool:
    try:
        await call()
    except (BackendUnavailableError, OutcomeUnknownError):
        return True
    return False
