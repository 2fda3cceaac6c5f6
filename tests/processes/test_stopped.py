"""Real processes that are stopped, forked, pickled or ended while they hold a lock."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseSettings, sync

if TYPE_CHECKING:
    from pathlib import Path

SHORT = LeaseSettings(validity=2.0, safety_margin=0.5, max_clock_skew=0.2, poll_interval=0.1)
LONG = LeaseSettings(validity=60.0, max_clock_skew=0.2, poll_interval=0.1)
HEAD = """
import asyncio, os, signal, sys, threading, time
import asynclock
from asynclock import LeaseSettings, connect, install_signal_handlers, sync
SHORT = LeaseSettings(validity=2.0, safety_margin=0.5, max_clock_skew=0.2, poll_interval=0.1)
LONG = LeaseSettings(validity=60.0, max_clock_skew=0.2, poll_interval=0.1)
url = sys.argv[1]
def say(word):
    print(word, flush=True)
"""
GONE_WITHIN = 2.0
"""Seconds from its last word, which comes before the exit or the signal, until a process is gone."""
TEARDOWN = 1.0
"""Seconds on top where the store never answers and the releases have used all of ``GONE_WITHIN``."""

Run = "Callable[[str], subprocess.Popen[str]]"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a folder of its own."""
    return tmp_path.as_uri()


@pytest.fixture
def run(url: str) -> Run:
    """Start a program with the URL of the locks as its argument."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HEAD + textwrap.dedent(program), url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """Return the next word that the program says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ended(process: subprocess.Popen[str], within: float = GONE_WITHIN) -> int:
    """Return the exit status of a process that has said its last word."""
    try:
        return process.wait(within)
    except subprocess.TimeoutExpired:
        pytest.fail(f"not gone within {within} s")


def free_within(url: str, seconds: float, settings: LeaseSettings = LONG) -> bool:
    """Whether the lock can be had within ``seconds``."""
    with sync.connect(url, settings=settings) as client:
        try:
            client.lock("job").acquire(timeout=seconds).release()
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("renewal", ["thread", "loop"])
def test_stopped_past_the_deadline_nobody_runs_believing(run: Run, renewal: str) -> None:
    """After SIGSTOP past the deadline and SIGCONT the first thing user code sees is the loss."""
    process = run(f"""
        async def main():
            async with connect(url, settings=SHORT, renewal={renewal!r}) as client:
                lease = await client.lock("job").acquire()
                say("held")
                before = time.monotonic()
                while True:
                    held, now = lease.held, time.monotonic()
                    if now - before > 2.0:
                        say("believes" if held else "lost")
                        break
                    before = now
                    await asyncio.sleep(0.01)
        asyncio.run(main())
    """)
    assert said(process) == "held"
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(process.pid, signal.SIGCONT)

    assert said(process) == "lost"


EXITS = {
    "return": ("", 0),
    "exception": ("raise ValueError('on purpose')", 1),
    "sys.exit": ("sys.exit(7)", 7),
    "sigterm": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", -signal.SIGTERM),
    "sigint": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(30)", -signal.SIGINT),
    "sighup": ("os.kill(os.getpid(), signal.SIGHUP); time.sleep(30)", -signal.SIGHUP),
}


@pytest.mark.parametrize("how", EXITS)
def test_the_lock_is_released_at_exit(run: Run, url: str, how: str) -> None:
    """However a program with signal handlers installed ends, its lock is free and it is gone soon."""
    ending, status = EXITS[how]
    process = run(f"""
        install_signal_handlers()
        client = sync.connect(url, settings=LONG)
        lease = client.lock("job").acquire()
        say("held")
        {ending}
    """)
    assert said(process) == "held"

    assert ended(process) == status
    assert free_within(url, 5.0)


@pytest.mark.parametrize("how", ["return", "exception", "sys.exit", "sigterm", "sighup", "sigint"])
def test_a_store_that_never_answers_keeps_no_process_alive(run: Run, how: str) -> None:
    """The releases at exit get their 2 s and no more: then the process goes, and the lock expires."""
    ending, status = EXITS[how]
    process = run(f"""
        from asynclock.backends import open_backend
        from asynclock.testing import Fault, FaultyBackend
        install_signal_handlers()
        backend = FaultyBackend(open_backend(url))
        backend.delay = (3600.0, 3600.0)
        client = asynclock.LockClient(url=url, backend=backend, settings=LONG)
        lease = asyncio.run(client.lock("job").acquire())
        backend.storm({{Fault.SLOW: 1.0}})
        say("held")
        {ending}
    """)
    assert said(process) == "held"

    assert ended(process, GONE_WITHIN + TEARDOWN) == status


def test_the_lock_is_released_when_the_loop_is_closed(run: Run, url: str) -> None:
    """A lease of the loop thread outlives the caller's closed loop and is released at exit."""
    process = run("""
        client = connect(url, settings=LONG)
        async def main():
            await client.lock("job").acquire()
        asyncio.run(main())
        say("held")
    """)
    assert said(process) == "held"

    assert ended(process) == 0
    assert free_within(url, 5.0)


def test_a_body_that_fails_releases(run: Run, url: str) -> None:
    """An exception in ``hold`` releases the lock on its way out."""
    process = run("""
        async def main():
            async with connect(url, settings=LONG, renewal="loop") as client:
                async with client.lock("job").hold():
                    say("held")
                    raise ValueError
        asyncio.run(main())
    """)
    assert said(process) == "held"

    assert ended(process) == 1
    assert free_within(url, 5.0)


def test_kill_9_frees_within_the_takeover_bound(run: Run, url: str) -> None:
    """After ``kill -9`` the lock is had within ``takeover_bound``, and not at once."""
    process = run("""
        client = sync.connect(url, settings=SHORT)
        lease = client.lock("job").acquire()
        say("held")
        time.sleep(60)
    """)
    assert said(process) == "held"
    process.kill()
    process.wait()

    assert not free_within(url, 0.5, SHORT)
    assert free_within(url, SHORT.takeover_bound(0.0) + 3.0, SHORT)


def test_a_forked_child_holds_nothing(run: Run) -> None:
    """After os.fork the child's lease is lost, its client says so, and the parent holds on."""
    process = run("""
        client = sync.connect(url, settings=SHORT)
        lease = client.lock("job").acquire()
        child = os.fork()
        if child == 0:
            words = [str(lease.held), type(lease.lost).__name__]
            try:
                client.lock("job").acquire(timeout=1)
            except asynclock.ConfigError as error:
                words.append("refused" if "connect" in str(error) else str(error))
            with sync.connect(url, settings=SHORT) as other:
                words.append(str(other.lock("other").acquire(timeout=5).held))
            say(" ".join(words))
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(2.5)
        say(f"parent {lease.held}")
        lease.confirm()
        say("confirmed")
    """)

    assert said(process) == "False LeaseLostError refused True"
    assert said(process) == "parent True"
    assert said(process) == "confirmed"


@pytest.mark.parametrize("renewal", ["thread", "loop"])
def test_a_child_forked_inside_a_loop_holds_nothing(run: Run, renewal: str) -> None:
    """Forked by a coroutine that holds, the child has lost, may connect again, and the parent holds on."""
    process = run(f"""
        async def again():
            async with connect(url, settings=LONG, renewal={renewal!r}) as client:
                async with client.lock("other").hold(timeout=5) as lease:
                    return lease.held
        async def main():
            async with connect(url, settings=LONG, renewal={renewal!r}) as client:
                async with client.lock("job").hold() as lease:
                    child = os.fork()
                    if child == 0:
                        say(f"{{lease.held}} {{type(lease.lost).__name__}} {{asyncio.run(again())}}")
                        os._exit(0)
                    os.waitpid(child, 0)
                    await lease.confirm()
                    say(f"parent {{lease.held}}")
        asyncio.run(main())
    """)

    assert said(process) == "False LeaseLostError True"
    assert said(process) == "parent True"


def test_a_multiprocessing_child_holds_nothing(url: str) -> None:
    """Multiprocessing's fork start method gives a child that holds nothing either."""
    with sync.connect(url, settings=SHORT) as client, client.lock("job").hold() as lease:
        context = multiprocessing.get_context("fork")
        answer = context.Queue()
        child = context.Process(target=lambda: answer.put(lease.held))
        child.start()

        assert answer.get(timeout=30) is False
        child.join()
        assert lease.held


@pytest.mark.parametrize("what", ["client", "lock", "lease"])
def test_pickling_is_refused(url: str, what: str) -> None:
    """What is bound to this process cannot be sent to another."""
    with sync.connect(url, settings=LONG) as client, client.lock("job").hold() as lease:
        things = {"client": client, "lock": client.lock("job"), "lease": lease}

        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(things[what])
