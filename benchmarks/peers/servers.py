"""redis-server and etcd on free ports, with nothing but memory below them, as our own servers have."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock._cli.run_guard import Guard
from tests.laboratory._installed import debian_program
from tests.laboratory.servers import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY: Final = Path("/dev/shm")  # noqa: S108  a tmpfs, as for the servers of the tests
_READY_WITHIN: Final = 30.0
_GRACE: Final = 5.0


@contextlib.contextmanager
def redis() -> Iterator[int]:
    """Run redis-server without snapshots, its default for a lock; yields its port."""
    program = debian_program("redis-server", "redis-server")
    (port,) = free_ports(1)
    with _started([program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], port):
        yield port


@contextlib.contextmanager
def etcd() -> Iterator[str]:
    """Run etcd as a cluster of one; yields its endpoint."""
    program = debian_program("etcd", "etcd-server")
    port, peers = free_ports(2)
    endpoint = f"http://127.0.0.1:{port}"
    command = [program, "--name", "one", "--data-dir", "data", "--log-level", "error"]
    command += ["--listen-client-urls", endpoint, "--advertise-client-urls", endpoint]
    command += ["--listen-peer-urls", f"http://127.0.0.1:{peers}"]
    command += ["--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}"]
    command += ["--initial-cluster", f"one=http://127.0.0.1:{peers}"]
    with _started(command, port):
        yield endpoint


@contextlib.contextmanager
def _started(command: list[str], port: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None, ignore_cleanup_errors=True)
        )
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(
            command, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
        # A killed benchmark leaves no server behind.
        stack.callback(Guard(process.pid, grace=_GRACE).dismiss)
        stack.callback(process.wait)
        stack.callback(process.kill)
        _await_port(port, process)
        yield


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _READY_WITHIN
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    message = f"{process.args!r} did not get ready"
    raise RuntimeError(message)
