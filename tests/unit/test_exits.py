"""The ends of a process: return, exception, sys.exit, signals, interpreter exit and fork (rules 17, 18)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import asynclock
from asynclock import sync
from asynclock.record import LockRecord, parse_record

if TYPE_CHECKING:
    from pathlib import Path

VALIDITY = 30.0
PRELUDE = """
import asyncio, os, signal, sys, threading, time
import asynclock
from asynclock import LeaseSettings, sync
url, settings = sys.argv[1], LeaseSettings(validity=30.0)
def ready():
    # Not print: a handler that prints as well may not interrupt it.
    os.write(1, b"ready" + os.linesep.encode())
"""
SYNC_HELD = """
client = sync.connect(url, settings=settings)
lease = client.lock("orders").acquire()
"""


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    """Start a program that uses the locks in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PRELUDE + program, f"file://{folder}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return how a program ended; one that hangs is killed with all its children."""
    try:
        output, errors = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, output, errors


def run(program: str, folder: Path) -> tuple[int, str, str]:
    """Run a program to its end and return its exit code and what it printed."""
    return finish(start(program, folder))


def signalled(program: str, folder: Path, number: signal.Signals) -> tuple[int, str, str]:
    """Start a program, send it a signal once it is ready, and return how it ended."""
    process = start(program, folder)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", process.communicate()
    process.send_signal(number)
    return finish(process)


def record(folder: Path) -> LockRecord:
    """Return the record of the lock."""
    return parse_record((folder / "orders.json").read_bytes())


ENDS = {
    "return": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise ZeroDivisionError", 1),
    "in a body": ("with client.lock('other').hold():\n    sys.exit(4)", 4),
}


@pytest.mark.parametrize(("end", "code"), ENDS.values(), ids=ENDS.keys())
def test_an_exit_releases_what_is_held(tmp_path: Path, end: str, code: int) -> None:
    """A program that ends in any orderly way leaves its locks free, though it released nothing."""
    outcome, _, errors = run(SYNC_HELD + end, tmp_path)

    assert outcome == code, errors
    assert record(tmp_path).expired


def test_an_async_program_that_fails_leaves_its_lock_free(tmp_path: Path) -> None:
    """A lease taken on the host's thread is released at exit, after its own loop is gone."""
    program = """
async def main():
    client = asynclock.connect(url, settings=settings)
    await client.lock("orders").acquire()
    raise SystemExit(5)
asyncio.run(main())
"""
    outcome, _, errors = run(program, tmp_path)

    assert outcome == 5, errors
    assert record(tmp_path).expired


LOOP_ENDS = {
    "closed": "asyncio.run(main())",
    "closed in a body": "asyncio.run(asyncio.wait_for(body(), 0.2))",
    "stopped": "loop = asyncio.new_event_loop(); loop.run_until_complete(main())",
    "closed by force": """
loop = asyncio.new_event_loop()
task = loop.create_task(body())
loop.run_until_complete(asyncio.wait([task], timeout=0.2))
loop.close()
""",
}


@pytest.mark.parametrize("end", LOOP_ENDS.values(), ids=LOOP_ENDS.keys())
def test_an_exit_releases_the_leases_of_a_loop_that_has_ended(tmp_path: Path, end: str) -> None:
    """With renewal="loop" too: its loop is run once more, or another in its place."""
    program = f"""
leases = []
async def main():
    client = asynclock.connect(url, settings=settings, renewal="loop")
    leases.append(await client.lock("orders").acquire())
async def body():
    await main()
    async with leases[0]:
        await asyncio.Event().wait()
try:
    {end.strip().replace(chr(10), chr(10) + "    ")}
except TimeoutError:
    pass
"""
    outcome, _, errors = run(program, tmp_path)

    assert outcome == 0, errors
    assert record(tmp_path).expired


SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_with_handlers_installed_releases_and_then_kills(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The lock is free, and the process ends as that signal ends it."""
    program = SYNC_HELD + "asynclock.install_signal_handlers()\nready()\ntime.sleep(30)\n"
    outcome, _, errors = signalled(program, tmp_path, number)

    assert outcome == -number, errors
    assert record(tmp_path).expired


@pytest.mark.parametrize("renewal", ["thread", "loop"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_releases_the_leases_of_a_running_loop(
    tmp_path: Path, number: signal.Signals, renewal: str
) -> None:
    """Both renewal modes release when a signal comes into a running event loop."""
    program = f"""
async def main():
    client = asynclock.connect(url, settings=settings, renewal={renewal!r})
    await client.lock("orders").acquire()
    asynclock.install_signal_handlers()
    ready()
    await asyncio.sleep(30)
asyncio.run(main())
"""
    outcome, _, errors = signalled(program, tmp_path, number)

    assert outcome == -number, errors
    assert record(tmp_path).expired


def test_a_signal_chains_to_the_handler_before(tmp_path: Path) -> None:
    """What the program had installed itself runs afterwards, with the lock free."""
    program = (
        SYNC_HELD
        + """
def mine(number, frame):
    print("mine", lease.held, flush=True)
    os._exit(7)
signal.signal(signal.SIGTERM, mine)
asynclock.install_signal_handlers()
asynclock.install_signal_handlers()
ready()
time.sleep(30)
"""
    )
    outcome, output, errors = signalled(program, tmp_path, signal.SIGTERM)

    assert (outcome, output) == (7, "mine False\n"), errors
    assert record(tmp_path).expired


def test_an_ignored_signal_stays_ignored_and_releases_nothing(tmp_path: Path) -> None:
    """Under nohup a hang-up does not take the locks from a program that goes on."""
    program = (
        SYNC_HELD
        + """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
asynclock.install_signal_handlers()
ready()
time.sleep(1)
print(lease.held)
"""
    )
    outcome, output, errors = signalled(program, tmp_path, signal.SIGHUP)

    assert (outcome, output) == (0, "True\n"), errors


def test_without_handlers_a_signal_leaves_the_lock_to_expire(tmp_path: Path) -> None:
    """SIGTERM without handlers is like ``kill -9``: nothing is promised but expiry."""
    outcome, _, _ = signalled(SYNC_HELD + "ready()\ntime.sleep(30)\n", tmp_path, signal.SIGTERM)

    assert outcome == -signal.SIGTERM
    assert not record(tmp_path).expired


def test_an_interrupt_of_a_blocking_acquire_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while waiting: KeyboardInterrupt, and the waiter never gets the lock later."""
    program = """
holder = sync.connect(url, settings=settings)
client = sync.connect(url, settings=settings)
lease = holder.lock("orders").acquire()
threading.Timer(0.2, ready).start()
try:
    client.lock("orders").acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
lease.release()
time.sleep(1.5)
print(client.lock("orders").status().state)
"""
    outcome, output, errors = signalled(program, tmp_path, signal.SIGINT)

    assert (outcome, output) == (0, "interrupted\nfree\n"), errors


def test_an_interrupt_in_a_body_releases(tmp_path: Path) -> None:
    """Ctrl-C under ``with lock.hold()`` comes out of it, and the lock is free."""
    program = """
with sync.connect(url, settings=settings) as client:
    try:
        with client.lock("orders").hold():
            ready()
            time.sleep(30)
    except KeyboardInterrupt:
        print(client.lock("orders").status().state, flush=True)
"""
    outcome, output, errors = signalled(program, tmp_path, signal.SIGINT)

    assert (outcome, output) == (0, "free\n"), errors


def test_handlers_are_installed_from_the_main_thread_only() -> None:
    """Python allows it nowhere else, and the error says so."""
    errors: list[BaseException] = []

    def install() -> None:
        try:
            asynclock.install_signal_handlers()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=install)
    thread.start()
    thread.join()

    assert "main thread" in str(errors[0])


# Fork

FORKED = """
def in_child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            code = 0
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            code = 9
        sys.stdout.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def forked(work: str, tmp_path: Path) -> dict[str, object]:
    """Fork a process that holds a lease, run ``work`` in the child, and return what both saw."""
    program = (
        FORKED
        + SYNC_HELD
        + f"""
import json
def work():
{work}
code = in_child(work)
lease.confirm()
print(json.dumps({{"code": code, "held": lease.held, "state": client.lock("orders").status().state}}))
lease.release()
"""
    )
    outcome, output, errors = run(program, tmp_path)
    assert outcome == 0, output + errors
    *child, parent = output.splitlines()
    return json.loads(parent) | {"child": child}


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    """In the child the lease is lost; in the parent it lives on and is renewed."""
    work = """
    assert not lease.held and lease.remaining() == 0.0
    assert isinstance(lease.lost, asynclock.LeaseLostError), lease.lost
    assert "fork" in lease.lost.reason
"""
    assert forked(work, tmp_path) == {"code": 0, "held": True, "state": "held", "child": []}


@pytest.mark.parametrize("call", ["lease.release()", "lease.confirm()", "lease.check()"])
def test_a_lease_of_the_parent_is_refused_in_the_child(tmp_path: Path, call: str) -> None:
    """Each call on it is a LeaseLostError at once; none hangs, none writes."""
    work = f"""
    try:
        {call}
    except asynclock.LeaseLostError as error:
        assert "fork" in str(error)
    else:
        raise AssertionError("no error")
"""
    assert forked(work, tmp_path) == {"code": 0, "held": True, "state": "held", "child": []}


def test_a_client_of_the_parent_says_connect_again(tmp_path: Path) -> None:
    """The child's calls on the parent's client are ConfigErrors with the remedy."""
    work = """
    for call in (client.lock("other").try_acquire, client.list, client.lock("orders").status):
        try:
            call()
        except asynclock.ConfigError as error:
            assert "connect again" in str(error)
        else:
            raise AssertionError("no error")
    client.close()
"""
    assert forked(work, tmp_path) == {"code": 0, "held": True, "state": "held", "child": []}


def test_a_child_can_connect_anew(tmp_path: Path) -> None:
    """A new client works in the child, on a host thread of its own, and sees the parent's lock."""
    work = """
    with sync.connect(url, settings=settings) as mine:
        assert mine.lock("orders").try_acquire() is None
        with mine.lock("child").hold(timeout=5) as own:
            assert own.held
"""
    assert forked(work, tmp_path) == {"code": 0, "held": True, "state": "held", "child": []}


def test_on_lost_in_a_child_comes_at_once(tmp_path: Path) -> None:
    """The callback does not wait for the parent's thread, which the child does not have."""
    work = """
    called = threading.Event()
    lease.on_lost(lambda loss: called.set())
    assert called.wait(5)
"""
    assert forked(work, tmp_path) == {"code": 0, "held": True, "state": "held", "child": []}


def test_a_child_that_leaves_the_body_of_hold_is_told(tmp_path: Path) -> None:
    """A fork inside ``with lock.hold()``: the child's exit from the body raises, the parent's frees."""
    program = (
        FORKED
        + """
client = sync.connect(url, settings=settings)
try:
    with client.lock("orders").hold():
        pid = os.fork()
except asynclock.LeaseLostError as error:
    assert pid == 0
    os._exit(0 if "fork" in str(error) else 8)
if pid == 0:
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), client.lock("orders").status().state)
"""
    )
    outcome, output, errors = run(program, tmp_path)

    assert (outcome, output) == (0, "0 free\n"), errors


def test_a_child_ends_without_touching_the_parents_locks(tmp_path: Path) -> None:
    """The child's interpreter exit releases nothing of the parent."""
    program = (
        SYNC_HELD
        + """
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(client.lock("orders").status().state, lease.held)
"""
    )
    outcome, output, errors = run(program, tmp_path)

    assert (outcome, output) == (0, "held True\n"), errors


def test_a_fork_of_a_coroutine_loses_its_lease(tmp_path: Path) -> None:
    """In async code too, the child's release is a LeaseLostError and does not hang."""
    program = """
async def main():
    async with asynclock.connect(url, settings=settings) as client:
        try:
            async with client.lock("orders").hold():
                pid = os.fork()
        except asynclock.LeaseLostError:
            os._exit(0 if pid == 0 else 9)
        if pid == 0:
            os._exit(8)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), (await client.lock("orders").status()).state)
asyncio.run(main())
"""
    outcome, output, errors = run(program, tmp_path)

    assert (outcome, output) == (0, "0 free\n"), errors


def test_this_process_survives_its_own_fork_hooks() -> None:
    """Forking with leases held in this process leaves them held."""
    with sync.connect("memory://") as client, client.lock("orders").hold() as lease:
        child = subprocess.run([sys.executable, "-c", ""], check=False)

        assert child.returncode == 0
        lease.confirm()
