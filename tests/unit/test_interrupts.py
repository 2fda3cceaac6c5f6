"""Ctrl-C in a blocking call: nothing is left running, and no lock is left behind."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import pytest

from asynclock import sync
from asynclock._core.portal import block_on
from tests.unit.loops import SOON, eventually

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def test_an_interrupt_before_the_start_starts_nothing(
    host: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C while the other loop is being called, nothing runs there."""
    ran = []

    async def run() -> None:
        ran.append(True)

    def interrupted(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "call_soon_threadsafe", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        block_on(host, run)

    assert time.monotonic() < began + SOON
    assert not ran


def _struck(call: Callable[[], T], point: int) -> T | None:
    """Call, interrupted at that one of the instants at which Python looks for signals."""
    left = point

    def strike(_: object, event: str, __: object) -> None:
        nonlocal left
        if event in {"call", "c_return"}:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    result = None
    with contextlib.suppress(KeyboardInterrupt):
        sys.setprofile(strike)
        result = call()
        sys.setprofile(None)
    return result


def test_an_interrupt_at_any_point_takes_a_late_result_back(host: asyncio.AbstractEventLoop) -> None:
    """Wherever Ctrl-C strikes a blocking call, between its end and its return too, its result is undone."""
    made: list[str] = []
    undone: list[str] = []

    async def make() -> str:
        made.append("lease")
        return "lease"

    async def undo(result: str) -> None:
        undone.append(result)

    def call() -> str:
        return block_on(host, make, undo)

    point, late = 0, set()
    while _struck(call, point) is None:
        assert undone == made, point
        late.add(bool(made))
        made.clear()
        undone.clear()
        point += 1

    assert late == {False, True}, "interrupts struck before the end of the call and after it"
    assert (made, undone) == (["lease"], []), "the last one was not interrupted"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT be a KeyboardInterrupt, however these tests were begun."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_waiting_for_a_lock() -> None:
    """Ctrl-C does not wait until the lock is free, and leaves the line."""
    main = threading.main_thread().ident
    interrupt = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    with sync.connect("memory://") as client, client.lock("orders").hold() as lease:
        began = time.monotonic()
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            client.lock("orders").acquire(timeout=2 * SOON)
        assert time.monotonic() < began + SOON
        lease.release()
        with client.lock("orders").hold(timeout=0):
            pass


KINDS: Final[dict[str, Callable[[sync.LockClient], Any]]] = {
    "lock": lambda client: client.lock("orders"),
    "semaphore": lambda client: client.semaphore("orders", 1),
    "reader": lambda client: client.rwlock("orders").read,
    "writer": lambda client: client.rwlock("orders").write,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["acquire", "try_acquire"])
def test_an_interrupt_at_any_point_leaves_no_lock_behind(kind: str, method: str) -> None:
    """Wherever Ctrl-C strikes a blocking acquisition, nobody holds the lock afterwards."""
    with sync.connect("memory://struck") as client, sync.connect("memory://struck") as other:
        acquire = getattr(KINDS[kind](client), method)
        acquire().release()
        written = set()
        point, before = 0, {each.name: each.version for each in other.list()}
        while (lease := _struck(acquire, point)) is None:
            assert eventually(lambda: all(each.state == "free" for each in other.list())), point
            after = {each.name: each.version for each in other.list()}
            written.add(after != before)
            point, before = point + 1, after
        lease.release()
        assert written == {False, True}, "interrupts struck before the write and after it"
