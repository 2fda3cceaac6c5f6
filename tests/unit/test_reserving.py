"""A job waits for quiet: what ends that wait, and what does not, without a table."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from asynclock import BackendError, BackendUnavailableError, LeaseLostError, LeaseSettings, sync
from asynclock._core.protocol.belief import End
from asynclock.errors import AccessDeniedError
from asynclock.spark.errors import TableBusyError
from asynclock.spark.work.register import REGISTER
from asynclock.spark.work.reservation import Gate, Reservation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.backend import Absent, Stored

SETTINGS = LeaseSettings(validity=10.0, max_clock_skew=0.0, poll_interval=0.05)


class Locks:
    """The locks of a table, in memory. A client fails to read the register as long as ``errors`` has one.

    Attributes:
        settings: Times of the leases.
        errors: What the next reads raise; the last one stays if ``lasting``.
        lasting: Whether it does.
    """

    def __init__(self, url: str) -> None:
        self.settings = SETTINGS
        self.errors: list[BackendError] = []
        self.lasting = False
        self._url = url

    def connect(self, *, holder: str | None = None) -> sync.LockClient:
        """Return a client."""
        client = sync.connect(self._url, settings=SETTINGS, holder=holder)
        read = client.backend.get

        async def get(key: str) -> Stored | Absent:
            if key == REGISTER and self.errors:
                raise self.errors[0] if self.lasting else self.errors.pop()
            return await read(key)

        client.backend.get = get  # type: ignore[method-assign]
        return client


@pytest.fixture
def locks(request: pytest.FixtureRequest) -> Locks:
    """The locks of a table of this test alone."""
    return Locks(f"memory://{request.node.name}")


@pytest.fixture
def reservation(locks: Locks) -> Iterator[Reservation]:
    """A job's way to reserve the table, on whose timeline nothing is in flight."""
    table: Any = SimpleNamespace(
        spec=spec_of(locks),
        refuse_other_locks=lambda: None,
        timeline=SimpleNamespace(beating=lambda _: []),
    )
    with Reservation(table) as found:
        yield found


def spec_of(locks: Locks) -> Any:  # noqa: ANN401  what stands for a spec
    """Return a spec with those locks."""
    return SimpleNamespace(table=SimpleNamespace(path="the table"), locks=locks)


def down() -> BackendError:
    """Return the error of a store that does not answer."""
    return BackendUnavailableError(backend="memory", operation="get", key=REGISTER, detail="503")


def test_a_store_that_fails_for_a_moment_is_asked_again(
    locks: Locks, reservation: Reservation, caplog: pytest.LogCaptureFixture
) -> None:
    """The reservation is not given up for one answer that did not come; the log says why it waits."""
    caplog.set_level("INFO", "asynclock")
    locks.errors = [down(), down()]
    with reservation.held(timeout=10.0) as lease:
        assert lease.held
    (said,) = (text for text in caplog.messages if text.startswith("the reservation waits"))
    assert "an answer of the store of the locks: memory: get 'reservation/register' failed: 503" in said


def test_a_store_that_goes_on_failing_ends_the_wait_at_its_timeout(
    locks: Locks, reservation: Reservation
) -> None:
    """The error says what was waited for."""
    locks.errors, locks.lasting = [down()], True
    with pytest.raises(TableBusyError, match=r"an answer of the store of the locks: .*503"):
        reservation.held(timeout=0.2).__enter__()
    assert reservation.lock.status().state == "free"


def test_a_store_that_refuses_is_an_error_at_once(locks: Locks, reservation: Reservation) -> None:
    """No waiting helps."""
    locks.errors = [AccessDeniedError(backend="memory", operation="get", key=REGISTER, detail="403")]
    with pytest.raises(AccessDeniedError):
        reservation.held(timeout=10.0).__enter__()


def test_a_reservation_that_is_lost_during_the_look_is_none(
    reservation: Reservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the look finds nothing in flight."""

    def look(*_: object, **__: object) -> dict[str, str]:
        held = reservation.lock._engine.turns.held
        assert held is not None
        held.belief.end(End.WITH_ANOTHER, "it was lost")
        return {}

    monkeypatch.setattr(reservation, "in_flight", look)
    with pytest.raises(LeaseLostError, match="reservation/table"):
        reservation.held().__enter__()


def test_a_worker_makes_way_and_is_waited_for_again(locks: Locks, reservation: Reservation) -> None:
    """In threads: it parks, goes on at the end of the reservation, and counts as work from then on."""
    with locks.connect() as client, client.lock("stream/a").hold() as lease:
        gate = Gate(spec_of(locks), client, lease, "stream a")
        assert gate.wait() == 0.0
        with pytest.raises(TableBusyError, match="stream/a, held by"):
            reservation.held(timeout=0.1).__enter__()
        with reservation.lock.hold() as reserved:
            worker = threading.Thread(target=gate.wait)
            worker.start()
            reservation.await_quiet(reserved)
            assert gate.reserved() is not None
        worker.join()
        assert list(reservation.in_flight()) == ["stream/a"]
