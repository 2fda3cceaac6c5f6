"""The servers that the tests run against."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

PROGRAM = """
import time
from asynclock.testing.servers import running
with running("moto") as server:
    print(server.endpoint, flush=True)
    time.sleep(60)
"""


def answers(endpoint: str) -> bool:
    """Return whether anything takes connections there."""
    address = urlsplit(endpoint)
    try:
        socket.create_connection((address.hostname or "", address.port or 0), timeout=5.0).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_killed_test_run_leaves_no_server() -> None:
    """After ``kill -9`` of whoever started a server, the server ends too."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        endpoint = program.stdout.readline().strip()
        assert answers(endpoint)

        program.send_signal(signal.SIGKILL)

    deadline = time.monotonic() + 30.0
    while answers(endpoint):
        assert time.monotonic() < deadline
        time.sleep(0.1)
