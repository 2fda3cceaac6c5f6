"""What do many leases of one client cost, how late are their renewals, and do they come in crowds?"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Line, microseconds, ratio
from tests.laboratory.servers import running

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = {"leases": 10_000, "interval": 30.0, "intervals": 1}
ON_S3 = {"leases": 1_000, "interval": 10.0, "intervals": 2}
LATE = 1.0
CPU = 1.15
WEIGHED = {"leases": 1_000, "interval": 60.0}
MEMORY = {"memory": 4.0, "azure": 6.0}
CROWD = 2.5


def lines() -> Iterator[Line]:
    """Ten thousand leases on ``memory://``, a thousand on S3 next to its SDK; memory in each cloud."""
    leases, bare = side_by_side({"url": "memory://", "options": {}, "server": None, **MANY})
    yield from cpu("memory, 10,000 leases", leases, bare, target=None)
    for what, found, target in (("renewals", leases, LATE), ("bare writes", bare, None)):
        late = statistics.quantiles(found["late"], n=100, method="inclusive")[98]
        yield Line(
            name=f"memory, 10,000 leases: 99th percentile of lateness of {what}, of the interval",
            unit="%",
            samples=[100 * late / MANY["interval"]],
            target=target,
        )
    counts = leases["hundredths"][1:-1]  # whole ones only
    yield Line(
        name="memory, 10,000 leases: renewals in the busiest hundredth of the interval over the mean",
        unit="x",
        samples=[max(counts) / statistics.mean(counts)],
        target=CROWD,
    )
    yield weight("memory", 10_000, leases)
    with running("s3") as server:
        url = f"{server.url}/leases-{uuid.uuid4()}"
        job = {"url": url, "options": server.options, "server": asdict(server), **ON_S3}
        leases, bare = side_by_side(job)
    yield from cpu("s3, 1,000 leases", leases, bare, target=CPU)
    for name in ("s3", "gcs", "azure"):
        yield weight(name, WEIGHED["leases"], weighed(name))


def weight(name: str, count: float, found: dict[str, Any]) -> Line:
    """Memory of a lease, with its lock and what the SDK keeps for it; on ``memory://`` with its object."""
    return Line(
        name=f"{name}, {count:,} leases: memory of each",
        unit="KiB",
        samples=[found["memory"] / 1024],
        target=MEMORY.get(name),
    )


def weighed(name: str) -> dict[str, Any]:
    """Run one process that acquires leases and tells their memory."""
    with running(name) as server:
        job = {"how": "weigh", "url": f"{server.url}/{uuid.uuid4()}", "options": server.options, **WEIGHED}
        command = [sys.executable, "-m", "benchmarks.renewer", json.dumps(job)]
        told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(told)
    return found


def cpu(name: str, leases: dict[str, Any], bare: dict[str, Any], *, target: float | None) -> Iterator[Line]:
    """CPU time of a renewal, all that holding the leases costs included, next to that of a bare write."""
    yield microseconds(f"{name}: CPU of a renewal", leases["cpu"])
    yield microseconds(f"{name}: CPU of a bare write at the same rate", bare["cpu"])
    yield ratio(f"{name}: CPU over the bare writes", leases["cpu"], bare["cpu"], target=target)


def side_by_side(job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run leases and bare writes in two processes at the same time; each counts its own CPU time."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.renewer", json.dumps({"how": how, **job})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for how in ("leases", "bare")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    leases, bare = (json.loads(process.communicate()[0]) for process in processes)
    return leases, bare
