"""A lock that is handed over between real processes by a ticket."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

GIVE: Final = """
import os, signal, sys
import asynclock.sync
lease = asynclock.sync.connect(sys.argv[1]).lock("orders").acquire()
print(lease.transfer(), lease.fencing_token, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
TAKE: Final = """
import sys
import asynclock.sync
with asynclock.sync.connect(sys.argv[1]) as client:
    lock = client.lock("orders")
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        lease = lock.acquire(ticket=sys.argv[2])
    except asynclock.TicketSpentError:
        print("spent", flush=True)
        sys.exit()
    print(lease.fencing_token, flush=True)
    sys.stdin.readline()
    lease.release()
"""


def test_of_many_processes_that_use_a_ticket_one_gets_the_lock(tmp_path: Path) -> None:
    """The giver was killed right after the transfer; its token is lower."""
    url = f"file://{tmp_path}/locks"
    given = subprocess.run(
        [sys.executable, "-c", GIVE, url], capture_output=True, text=True, timeout=60, check=False
    )
    ticket, token = given.stdout.split()
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE, url, ticket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        told = []
        for taker in takers:
            assert taker.stdout is not None
            assert taker.stdout.readline() == "ready\n"
        for taker in takers:
            assert taker.stdin is not None
            taker.stdin.write("now\n")
            taker.stdin.flush()
        for taker in takers:
            assert taker.stdout is not None
            told.append(taker.stdout.readline().strip())
        (won,) = (each for each in told if each != "spent")
        assert int(won) > int(token)
        assert told.count("spent") == 2
    finally:
        for taker in takers:
            taker.communicate("\n" if taker.poll() is None else None, timeout=60)
    assert all(taker.returncode == 0 for taker in takers)
