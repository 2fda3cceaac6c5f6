"""A signal handler may use asynclock wherever it has interrupted asynclock: nothing waits for itself."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from asynclock import LeaseExpiredError, LeaseLostError, sync
from asynclock._core.portal import Host, _deaths
from asynclock.clock import SystemClock
from asynclock.events import Event
from asynclock.hudi._core import held_tables
from asynclock.hudi._core.paths import TablePath
from asynclock.telemetry._signals import Signals
from tests.unit.loops import SOON, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from asynclock._kinds import Kind


class Interrupted(threading.Thread):
    """Runs ``act``, and ``handle`` in the middle of it: at its step number ``at``, as a handler would.

    Python runs a handler between two bytecodes of the main thread, which goes on only once it has returned.
    Here a trace function does that, in a thread that a test can give up.
    """

    def __init__(self, act: Callable[[], object], handle: Callable[[], object], at: int) -> None:
        super().__init__(daemon=True)
        self._act, self._handle, self._at = act, handle, at
        self.steps = 0
        self.where = ""
        self.error: BaseException | None = None

    def run(self) -> None:
        """See ``threading.Thread.run``."""
        sys.settrace(self._trace)
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001  shown by the test
            self.error = error
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401  as settrace has it
        if "/asynclock/" not in frame.f_code.co_filename and frame.f_code.co_name != "start":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.steps += 1
            if self.steps == self._at:
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                self._handle()
        return self._trace


def at_each_step(
    prepare: Callable[[], Callable[[], object]], handle: Callable[[], object], *, every: int = 1
) -> int:
    """Interrupt what ``prepare`` returns at its first step, at its second, and so on; return how many."""
    at = 1
    while True:
        run = Interrupted(prepare(), handle, at)
        run.start()
        run.join(SOON)
        assert not run.is_alive(), f"it hangs after a handler ran in {run.where}"
        assert run.error is None, f"{run.error!r} after a handler ran in {run.where}"
        if run.steps < at:
            return at
        at += every


@pytest.fixture
def no_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Return what forgets the host, as in a process that has not used asynclock yet."""
    before, made = Host._current, []

    def forget() -> None:
        if Host._current is not None and Host._current is not before:
            made.append(Host._current)
        monkeypatch.setattr(Host, "_current", None)
        monkeypatch.setattr(Host, "_made", {})

    yield forget
    forget()
    for host in made:
        monkeypatch.setattr(host.loop, "is_closed", lambda: True)  # else it is run again
        host.loop.call_soon_threadsafe(host.loop.stop)
    assert eventually(lambda: all(host.loop in _deaths for host in made))
    monkeypatch.setattr(Host, "_current", before)


def test_a_handler_may_use_asynclock_while_its_thread_starts(no_host: Callable[[], None]) -> None:
    """Wherever the first call of a process is interrupted, the handler's own call works, and so does it."""
    client = sync.connect("memory://first")
    seen: list[str] = []

    def prepare() -> Callable[[], object]:
        no_host()
        return Host.get

    def handle() -> None:
        with sync.connect("memory://first") as other:
            seen.append(other.lock("orders").status().state)

    assert at_each_step(prepare, handle) > 20
    assert set(seen) == {"absent"}
    del client


def test_a_handler_may_connect_in_the_middle_of_connect() -> None:
    """Both get a client, of the same named store too."""
    numbers = iter(range(100_000))
    name = ""

    def prepare() -> Callable[[], object]:
        nonlocal name
        name = f"memory://within-{next(numbers)}"
        return lambda: sync.connect(name).lock("orders").status()

    def handle() -> None:
        with sync.connect(name) as other, other.lock("orders").hold(timeout=SOON) as lease:
            assert lease.held

    assert at_each_step(prepare, handle, every=23) > 20


def test_a_handler_may_look_at_the_metrics_in_the_middle_of_an_event() -> None:
    """The host, which waits for nobody, counts on while the thread that reads was interrupted."""
    signals = Signals(names=True)
    owners = iter(range(100_000))

    def act() -> None:
        owner = str(next(owners))
        counted = [signals.measure(_event(kind, owner)) for kind in ("acquired", "released")]
        assert [len(each) for each in counted] == [2, 2]

    def handle() -> None:
        _elsewhere(lambda: signals.measure(_event("acquired", "another")))

    assert at_each_step(lambda: act, handle) > 20


def test_a_handler_may_ask_for_held_tables_in_the_middle_of_that() -> None:
    """And so may the host, which notes a lock meanwhile."""
    table = TablePath.parse("s3a://bucket/orders")

    def note() -> None:
        held_tables.add(table, _Held())  # type: ignore[arg-type]

    at_each_step(lambda: lambda: held_tables.held_here("s3a://bucket/orders"), lambda: _elsewhere(note))
    assert not held_tables.held_here("s3a://bucket/orders")


class _Believed:
    """As much of a belief as is asked for."""

    def remaining(self) -> float:
        """See ``Belief.remaining``."""
        return 1.0


class _Held:
    """As much of a held lock as is asked for."""

    def __init__(self) -> None:
        self.belief = _Believed()


def _event(kind: Kind, owner: str) -> Event:
    return Event(kind=kind, key="orders.json", owner=owner, fencing_token=1, duration=1.0)


def _elsewhere(call: Callable[[], object]) -> None:
    """Run a call in another thread, and wait for it, as a handler waits for the host."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive()


def test_a_handler_shares_the_waiting_line_that_it_has_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where other names are forgotten in the same step."""
    monkeypatch.setattr("asynclock._core.engine.KEPT", 2)
    numbers = iter(range(1_000_000))
    with sync.connect("memory://") as client:

        def prepare() -> Callable[[], object]:
            found.clear()
            for _ in range(4):
                client.lock(f"order/{next(numbers)}")
            return handle

        def handle() -> None:
            found.append(client.lock(f"orders/{len(places)}"))
            for _ in range(2):
                client.lock(f"order/{next(numbers)}")
            if len(found) == 2:
                assert found[0]._engine is found[1]._engine
                places.append(0)

        found: list[sync.Lock] = []
        places: list[int] = []
        at_each_step(prepare, handle)
        assert len(places) > 50


class _Shifted(SystemClock):
    """A machine whose wall clock can be set forward."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.wall = lambda: time.time() + self.ahead  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("ends", ["its look", "its release"])
def test_a_handler_may_look_at_the_lease_that_is_being_lost(ends: str) -> None:
    """Its own look, another thread's and the host's wait for nobody, and the loss is reported once."""
    numbers = iter(range(100_000))
    told: list[LeaseLostError] = []
    lease: sync.Lease
    with sync.connect("memory://", clock=(clock := _Shifted())) as client:

        def prepare() -> Callable[[], object]:
            nonlocal lease
            clock.ahead = 0.0
            told.clear()
            lease = client.lock(f"orders/{next(numbers)}").acquire()
            lease.on_lost(told.append)
            clock.ahead = 1000.0
            return act

        def act() -> None:
            if ends == "its look":
                assert not lease.held
            else:
                with pytest.raises(LeaseLostError):
                    lease.release()
            assert isinstance(lease.lost, LeaseExpiredError)
            assert eventually(lambda: bool(told))
            assert told == [lease.lost]

        def handle() -> None:
            assert client.lock("others").status().state == "absent"
            _elsewhere(lease.remaining)
            assert not lease.held
            assert isinstance(lease.lost, LeaseExpiredError)

        assert at_each_step(prepare, handle, every=3) > 60


class _Records(logging.Handler):
    """Keeps the sentences that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        self.said.append(f"{record.levelname} {record.funcName} {record.getMessage()}")


def test_a_handler_may_use_asynclock_in_the_middle_of_a_log_call() -> None:
    """The lock of a log handler, held by who was interrupted, stops no renewal; what was said comes after."""
    records, logger = _Records(), logging.getLogger("asynclock")
    logger.addHandler(records)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    done: list[str] = []

    def act() -> None:
        with sync.connect("memory://logged") as client, records.lock:  # type: ignore[union-attr]
            client.lock("orders").acquire().release()
            with client.lock("orders").hold() as lease:
                lease.confirm()
            done.append("acted")

    try:
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        thread.join(SOON)
        assert done == ["acted"]
        assert eventually(lambda: len(records.said) == 5)
        with sync.connect("memory://logged") as client, client.lock("orders").hold():
            pass
        assert eventually(lambda: len(records.said) == 7)
    finally:
        logger.removeHandler(records)
        logger.setLevel(before)

    assert [said.split()[2] for said in records.said] == [
        "acquired", "released", "acquired", "renewed", "released", "acquired", "released"
    ]  # fmt: skip
    assert {said.split()[1] for said in records.said} == {"_pass_on"}
