"""``asynclock.sync``: the same names without ``await``, served by the host thread."""

# ruff: noqa: PT012, SIM117  a loss is raised by the end of a body with several statements

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

import pytest

import asynclock
from asynclock import (
    ConfigError,
    LeaseExpiredError,
    LeaseLostError,
    LeaseSettings,
    LeaseTakenOverError,
    hudi,
    sync,
)
from asynclock._core.portal import Host
from asynclock.errors import AcquireTimeoutError
from asynclock.sync import hudi as sync_hudi
from tests.unit.kit import our_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

FAST = LeaseSettings(validity=1.0, safety_margin=0.1, max_clock_skew=0.0, poll_interval=0.05)
TWINS = ["LockClient", "Lock", "Semaphore", "RWLock", "Lease", "FencedObject"]


def public(kind: type) -> dict[str, object]:
    """Return the public members of a class, its context manager included."""
    return {name: member for name, member in inspect.getmembers_static(kind) if not name.startswith("_")}


def shape(function: object) -> list[tuple[object, ...]]:
    """Return name, kind and default of each parameter."""
    assert callable(function)
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def test_every_public_name_has_a_blocking_twin() -> None:
    """What ``asynclock`` exports, ``asynclock.sync`` exports too."""
    names = {name for name in dir(asynclock) if not name.startswith("_")}
    names -= {name for name in names if inspect.ismodule(getattr(asynclock, name))}
    names -= {"TYPE_CHECKING"}

    assert names <= set(dir(sync))


@pytest.mark.parametrize("name", TWINS)
def test_a_blocking_class_has_the_same_members(name: str) -> None:
    """Methods and properties are the same ones; ``close`` comes on top, for ``contextlib.closing``."""
    ours, theirs = public(getattr(sync, name)), public(getattr(asynclock, name))

    assert set(ours) - {"close"} == set(theirs)
    for member, thing in theirs.items():
        assert isinstance(ours[member], property) == isinstance(thing, property), member


@pytest.mark.parametrize("name", TWINS)
def test_blocking_methods_have_the_same_parameters(name: str) -> None:
    """Same names, kinds and defaults; nothing to be awaited."""
    for member, thing in public(getattr(asynclock, name)).items():
        if not inspect.isfunction(thing):
            continue
        twin = inspect.getattr_static(getattr(sync, name), member)
        assert shape(twin) == shape(thing), member
        assert not inspect.iscoroutinefunction(twin)


@pytest.mark.parametrize("name", ["connect", "probe"])
def test_a_function_has_the_same_parameters(name: str) -> None:
    """The functions take the same arguments in both faces."""
    assert shape(getattr(sync, name)) == shape(getattr(asynclock, name))


def exported(module: ModuleType) -> dict[str, object]:
    """Return what a module of Hudi's lock offers, without its submodules."""
    names = getattr(module, "__all__", vars(module))
    return {
        name: getattr(module, name)
        for name in names
        if not name.startswith("_") and not inspect.ismodule(getattr(module, name))
    }


def test_hudis_lock_has_the_same_names_in_both_faces() -> None:
    """``asynclock.sync.hudi`` offers what ``asynclock.hudi`` does."""
    assert set(exported(sync_hudi)) == set(exported(hudi))


@pytest.mark.parametrize("name", [name for name, thing in exported(hudi).items() if inspect.isroutine(thing)])
def test_a_function_of_hudis_lock_has_the_same_parameters(name: str) -> None:
    """Same names, kinds, defaults and result; nothing to be awaited."""
    theirs, ours = getattr(hudi, name), getattr(sync_hudi, name)

    assert shape(ours) == shape(theirs)
    assert ours.__annotations__ == theirs.__annotations__
    assert not inspect.iscoroutinefunction(ours)


def test_hudis_blocking_lock_has_the_same_members() -> None:
    """Methods and properties with the same parameters; ``close`` comes on top."""
    ours, theirs = public(sync_hudi.TableLock), public(hudi.TableLock)

    for_the_blocking_one = {"enter", "leave"}
    assert set(ours) - {"close"} == set(theirs) - for_the_blocking_one
    for member in ours.keys() - {"close"}:
        thing = theirs[member]
        assert isinstance(ours[member], property) == isinstance(thing, property), member
        if inspect.isfunction(thing):
            assert shape(ours[member]) == shape(thing), member
            assert not inspect.iscoroutinefunction(ours[member])


def test_a_blocking_client_has_no_loop_of_its_own() -> None:
    """``renewal="loop"`` makes no sense here, and is refused."""
    with pytest.raises(ConfigError, match='"thread"') as caught:
        sync.connect("memory://", renewal="loop")  # type: ignore[arg-type]

    assert caught.value.setting == "renewal"


def test_the_whole_path_without_await() -> None:
    """Acquire, look, confirm, release, list: all blocking."""
    with sync.connect("memory://") as client:
        lock = client.lock("orders")
        lease = lock.acquire(timeout=5)
        lease.check()
        lease.confirm()
        assert lease.held
        assert 0 < lease.remaining() <= 300
        assert lock.try_acquire() is None
        assert lock.status().owner == lease.owner
        assert [status.name for status in client.list()] == ["orders"]
        lease.release()
        lease.release()
        assert (lease.held, lease.lost) == (False, None)
        with lock.hold() as again:
            assert again.fencing_token > lease.fencing_token
        assert lock.status().state == "free"


def test_an_exception_of_the_body_releases() -> None:
    """The body's exception comes out, the lock is free."""
    with sync.connect("memory://") as client:
        with pytest.raises(ZeroDivisionError), client.lock("orders").hold():
            raise ZeroDivisionError
        assert client.lock("orders").status().state == "free"


def test_a_timeout_is_an_error_with_the_holder() -> None:
    """The error of a wait that took too long names the holder."""
    with sync.connect("memory://", holder="host:1:job") as client, client.lock("orders").hold():
        with pytest.raises(AcquireTimeoutError, match="host:1:job"):
            client.lock("orders").acquire(timeout=0.1)


CALLS: dict[str, Callable[[SimpleNamespace], object]] = {
    "Lock.acquire": lambda held: held.lock.acquire(),
    "Lock.try_acquire": lambda held: held.lock.try_acquire(),
    "Lock.status": lambda held: held.lock.status(),
    "Lock.break_lock": lambda held: held.lock.break_lock(None),
    "Lease.confirm": lambda held: held.lease.confirm(),
    "Lease.release": lambda held: held.lease.release(),
    "Semaphore.resize": lambda held: held.client.semaphore("s", 2).resize(3),
    "LockClient.list": lambda held: held.client.list(),
    "LockClient.aclose": lambda held: held.client.aclose(),
    "FencedObject.read": lambda held: sync.FencedObject(held.client, "pointer").read(),
    "hudi.TableLock.try_lock": lambda _: sync_hudi.table_lock("s3://bucket/table").try_lock(),
    "hudi.TableLock.renew_lock": lambda _: sync_hudi.table_lock("s3://bucket/table").renew_lock(),
    "hudi.TableLock.unlock": lambda _: sync_hudi.table_lock("s3://bucket/table").unlock(),
    "hudi.TableLock.status": lambda _: sync_hudi.table_lock("s3://bucket/table").status(),
    "hudi.TableLock.aclose": lambda _: sync_hudi.table_lock("s3://bucket/table").aclose(),
    "hudi.audit_enable": lambda _: sync_hudi.audit_enable("s3://bucket/table"),
    "hudi.audit_disable": lambda _: sync_hudi.audit_disable("s3://bucket/table"),
    "hudi.audit_status": lambda _: sync_hudi.audit_status("s3://bucket/table"),
    "hudi.audit_validate": lambda _: sync_hudi.audit_validate("s3://bucket/table"),
    "hudi.audit_cleanup": lambda _: sync_hudi.audit_cleanup("s3://bucket/table"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_under_a_running_loop_names_the_async_one(name: str) -> None:
    """Blocking a loop would be a deadlock in waiting: RuntimeError, with what to await instead."""
    client = sync.connect("memory://")
    held = SimpleNamespace(client=client, lock=client.lock("orders"), lease=client.lock("orders").acquire())

    async def main() -> None:
        with pytest.raises(RuntimeError) as caught:
            CALLS[name](held)
        assert f"await asynclock.{name}" in str(caught.value)

    asyncio.run(main())
    assert held.lease.held
    client.aclose()


def test_a_with_under_a_running_loop_names_its_own_call() -> None:
    """Not a call that the statement makes: what to write in its place is said."""
    client = sync.connect("memory://")

    async def main() -> None:
        with (
            pytest.raises(RuntimeError, match=r"sync\.connect would .* async with asynclock\.connect$"),
            client,
        ):
            client.lock("orders").acquire()
        for statement in (client.lock("orders").hold(), client.lock("orders")):
            with (
                pytest.raises(RuntimeError, match=r"Lock\.hold would .* async with asynclock\.Lock\.hold$"),
                statement,
            ):
                raise AssertionError

    asyncio.run(main())
    client.aclose()


def test_a_blocking_semaphore_lets_in_as_many_as_it_has_slots() -> None:
    """In threads as in coroutines; its number can be changed, and two numbers are refused."""
    with sync.connect("memory://", settings=FAST) as client:
        semaphore = client.semaphore("exports", 2)
        with semaphore as first, semaphore.hold() as second:
            assert {first.slot, second.slot} == {0, 1}
            assert semaphore.try_acquire() is None
            semaphore.resize(3)
            with semaphore.hold(timeout=1.0) as third:
                assert (third.slot, semaphore.slots) == (2, 3)
            assert repr(semaphore) == "<sync.Semaphore 'memory:///exports'>"
        with pytest.raises(ConfigError, match="has 3 slots"):
            client.semaphore("exports", 9)
        with pytest.raises(ConfigError, match="1 to 64"):
            semaphore.resize(0)


def test_a_blocking_reader_writer_lock_has_both_sides() -> None:
    """Readers in threads share it, and a thread that reads may not ask to write."""
    with sync.connect("memory://", settings=FAST) as client:
        rw = client.rwlock("prices")
        with rw.read.hold():
            with pytest.raises(RuntimeError, match="reads 'prices', so its write would wait for itself"):
                rw.write.acquire()
            assert rw.write.try_acquire() is None
        with rw.write as lease:
            assert rw.read.status().owner == lease.owner
        assert repr(rw) == "<sync.RWLock 'prices'>"


def test_a_side_got_by_one_try_counts_too() -> None:
    """A thread that has it would wait for itself on the other side."""
    with sync.connect("memory://", settings=FAST) as client:
        rw = client.rwlock("prices")
        for has, asked in ((rw.read, rw.write), (rw.write, rw.read)):
            with has.try_acquire(), pytest.raises(RuntimeError, match="would wait for itself"):
                asked.acquire(timeout=5.0)
            with asked:
                pass


def test_a_loss_is_raised_at_the_end_of_the_body() -> None:
    """Nothing can interrupt a blocking body: a loss is raised once the body has ended."""
    with sync.connect("memory://", settings=FAST) as client, pytest.raises(LeaseTakenOverError):
        with client.lock("orders").hold() as lease:
            steal(client)
            wait_for(lambda: not lease.held)


def test_an_exception_of_the_body_wins_over_a_loss() -> None:
    """It comes out with the loss as a note."""
    with sync.connect("memory://", settings=FAST) as client, pytest.raises(ZeroDivisionError) as caught:
        with client.lock("orders").hold() as lease:
            steal(client)
            wait_for(lambda: not lease.held)
            raise ZeroDivisionError

    assert "lost" in caught.value.__notes__[0]


def test_on_lost_interrupts_what_the_body_waits_for() -> None:
    """The callback runs on its own thread while the body blocks."""
    stopped = threading.Event()
    with sync.connect("memory://", settings=FAST) as client, pytest.raises(LeaseLostError):
        with client.lock("orders").hold() as lease:
            lease.on_lost(lambda _: stopped.set())
            steal(client)
            assert stopped.wait(5)


def test_lead_runs_in_this_thread_and_again_after_a_loss() -> None:
    """The work polls ``lease.check()``; its value is what ``lead`` returns."""
    threads: list[threading.Thread] = []
    with sync.connect("memory://", settings=FAST) as client:

        def work(lease: sync.Lease) -> str:
            threads.append(threading.current_thread())
            if len(threads) == 1:
                steal(client, expired=True)
                wait_for(lambda: not lease.held)
                lease.check()
            return "done"

        assert client.lock("orders").lead(work) == "done"

    assert threads == [threading.current_thread()] * 2


def test_a_blocked_thread_keeps_its_lease() -> None:
    """Renewals run on the host's thread while the caller sleeps for twice the validity."""
    with sync.connect("memory://", settings=FAST) as client, client.lock("orders").hold() as lease:
        time.sleep(2.0)
        lease.check()
        lease.confirm()


def test_one_host_thread_serves_all_clients(tmp_path: Path) -> None:
    """Clients share one daemon thread named asynclock-host."""
    with sync.connect("memory://") as one, sync.connect(f"file://{tmp_path}") as two:
        with one.lock("a").hold(), two.lock("b").hold():
            hosts = [thread for thread in threading.enumerate() if thread.name == "asynclock-host"]

    assert len(hosts) == 1
    assert hosts[0].daemon


def test_async_and_blocking_clients_exclude_each_other() -> None:
    """Both faces are one lock."""

    async def attempt() -> bool:
        async with asynclock.connect("memory://two-faces") as client:
            return await client.lock("orders").try_acquire() is not None

    with sync.connect("memory://two-faces") as client, client.lock("orders").hold():
        assert not asyncio.run(attempt())


def test_one_client_serves_many_loops() -> None:
    """With ``renewal="thread"`` a client may be used from one loop after the other, and from threads."""
    client = asynclock.connect("memory://")

    async def use() -> int:
        async with client.lock("orders").hold() as lease:
            return lease.fencing_token

    tokens = [asyncio.run(use()) for _ in range(2)]
    thread = threading.Thread(target=lambda: tokens.append(asyncio.run(use())))
    thread.start()
    thread.join()
    asyncio.run(client.aclose())

    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3


def test_a_client_on_the_callers_loop_belongs_to_that_loop() -> None:
    """With ``renewal="loop"`` the error of a second loop says to connect there."""
    client = asynclock.connect("memory://", renewal="loop")

    async def use() -> None:
        async with client.lock("orders").hold():
            pass

    asyncio.run(use())
    with pytest.raises(ConfigError, match="another event loop"):
        asyncio.run(use())
    asyncio.run(client.aclose())


@pytest.mark.parametrize("sent", [True, False], ids=["after the loop was told", "before"])
def test_an_interrupt_while_a_call_is_sent_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, *, sent: bool
) -> None:
    """Most interrupts come while the host's loop is being woken: what was started then is taken back."""
    loop = Host.get().loop
    wake = loop.call_soon_threadsafe

    def interrupted(begin: Callable[[], object]) -> NoReturn:
        monkeypatch.undo()
        if sent:
            wake(begin)
        raise KeyboardInterrupt

    with sync.connect("memory://") as client:
        lock = client.lock("orders")
        monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire(at_least=60)
        assert lock.status().state in {"absent", "free"}
        with lock.hold(timeout=5) as lease:
            assert lease.held


def test_a_store_is_probed_without_await() -> None:
    """The report is the same as the awaited one."""
    assert sync.probe("memory://").safe


def test_fenced_objects_work_without_await() -> None:
    """Write, read and update under a blocking lease."""
    with sync.connect("memory://") as client, client.lock("orders").hold() as lease:
        pointer = sync.FencedObject(client, "pointer")
        assert pointer.read() is None
        pointer.write(b"1", lease=lease)
        value = pointer.update(lambda body: (body or b"") + b"2", lease=lease)

        assert value == pointer.read()
        assert value.body == b"12"


def steal(client: sync.LockClient, *, expired: bool = False) -> None:
    """Overwrite the lock by another hand."""
    body = our_record(valid_until=time.time() + 1, expired=expired, epoch=int(time.time() * 1e6))

    async def put() -> None:
        await client.backend.put("orders.json", body)

    asyncio.run(put())


def wait_for(condition: object) -> None:
    """Poll for what another thread brings about."""
    until = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_body_that_hangs_is_told_at_its_end() -> None:
    """``at_most`` ends the lease under a thread: ``check`` and the end of the body raise."""
    with sync.connect("memory://", settings=FAST) as client:
        lock = client.lock("orders")
        with pytest.raises(LeaseExpiredError, match=r"at_most=0\.2 s"):
            with lock.hold(at_most=0.2) as lease:
                ended = threading.Event()
                lease.on_lost(lambda _: ended.set())
                assert ended.wait(5.0)
                with pytest.raises(LeaseExpiredError):
                    lease.check()
        began = time.monotonic()
        with lock.hold(timeout=5.0):
            assert time.monotonic() - began < FAST.validity
