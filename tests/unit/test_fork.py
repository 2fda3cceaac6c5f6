"""Fork: a child holds nothing, and the parent's locks are not touched (rule 17)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from asynclock import sync
from tests.unit.programs import SYNC_HELD, run

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_child_may_release_what_its_parent_has_released(tmp_path: Path) -> None:
    """A second release does nothing, in a fork too, where nobody runs the lease's loop."""
    program = FORKED + SYNC_HELD + "lease.release()\nprint(in_child(lease.release))\n"

    outcome, output, errors = run(program, tmp_path)

    assert (outcome, output) == (0, "0\n"), errors


def test_on_lost_in_a_child_comes_at_once(tmp_path: Path) -> None:
    """The callback does not wait for the parent's thread, which the child does not have."""
    work = """
    called = threading.Event()
    lease.on_lost(lambda loss: called.set())
    assert called.wait(5)
"""
    assert forked(work, tmp_path) == {"code": 0, "held": True, "state": "held", "child": []}


def test_a_callback_of_the_parent_is_not_called_in_the_child(tmp_path: Path) -> None:
    """It would cancel the jobs of a parent that still holds the lock."""
    program = (
        FORKED
        + SYNC_HELD
        + """
import time
lease.on_lost(lambda loss: print("called", flush=True))
def work():
    assert not lease.held
    time.sleep(0.2)  # a callback has a thread of its own
print(in_child(work))
lease.release()
"""
    )

    outcome, output, errors = run(program, tmp_path)

    assert (outcome, output) == (0, "0\n"), errors


def test_a_child_that_leaves_the_body_of_hold_gets_the_loss(tmp_path: Path) -> None:
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
