"""The resources of a driver: its Python process, its JVM and the workers of Spark that they started."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Resources:
    """Samples what this driver uses; call it for a sample.

    Counters never fall: the last sample of an ended process stays in the sums.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[int, float], tuple[float, int, int]] = {}
        self._ended = (0.0, 0, 0)

    def __call__(self) -> dict[str, object]:
        """Return the fields of a line.

        ``cpu_seconds``, ``read_bytes`` and ``written_bytes`` (of disks) are sums since the processes began.
        ``received_bytes`` and ``sent_bytes`` are sums of the whole network namespace since it was made.
        ``rss_bytes``, ``threads``, ``descriptors`` and ``processes`` are as of now.
        """
        rss = threads = descriptors = processes = 0
        found = {}
        for process in _driver():
            with contextlib.suppress(psutil.Error):
                # Read from one look at /proc, as far as the system allows.
                with process.oneshot():
                    key = process.pid, process.create_time()
                    times = process.cpu_times()
                    rss += process.memory_info().rss
                    threads += process.num_threads()
                processes += 1
                descriptors += _or_zero(process.num_fds)
                read, written = _disk_bytes(process)
                found[key] = times.user + times.system, read, written
        gone = [used for key, used in self._running.items() if key not in found]
        self._running, self._ended = found, _sums([self._ended, *gone])
        cpu, read, written = _sums([self._ended, *found.values()])
        network = psutil.net_io_counters()
        return {
            "cpu_seconds": round(cpu, 2),
            "rss_bytes": rss,
            "threads": threads,
            "descriptors": descriptors,
            "processes": processes,
            "read_bytes": read,
            "written_bytes": written,
            "received_bytes": network.bytes_recv if network else 0,
            "sent_bytes": network.bytes_sent if network else 0,
        }


def _sums(used: list[tuple[float, int, int]]) -> tuple[float, int, int]:
    return sum(cpu for cpu, _, _ in used), sum(read for _, read, _ in used), sum(each for _, _, each in used)


def _driver() -> Iterator[psutil.Process]:
    """Yield the processes of this driver; under ``spark-submit`` the JVM is the parent of this process."""
    root = psutil.Process()
    if "PYSPARK_GATEWAY_PORT" in os.environ and (parent := root.parent()) is not None:
        root = parent
    yield root
    with contextlib.suppress(psutil.Error):
        yield from root.children(recursive=True)


def _or_zero(call: Callable[[], int]) -> int:
    try:
        return call()
    except psutil.Error:
        return 0


def _disk_bytes(process: psutil.Process) -> tuple[int, int]:
    try:
        counters = process.io_counters()
    except (psutil.Error, AttributeError):  # not on every system
        return 0, 0
    return counters.read_bytes, counters.write_bytes
