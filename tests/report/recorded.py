"""The lines of a run: a writer is killed, another takes over, is stopped for a while and loses a lease."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from asynclock.spark.runs.lines import utc
from asynclock.spark.spec.load import load_spec

if TYPE_CHECKING:
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

START = 1_800_000_000.0
HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
SPEC = """\
table.path = "fleet"
table.key = ["tailnum"]
[streams.departures]
source = "in/departures/*.csv"
ordering = "departed_at"
columns = { departed_at = "timestamp" }
[streams.arrivals]
source = "in/arrivals/*.csv"
ordering = "arrived_at"
columns = { arrived_at = "timestamp" }
"""


def spec(folder: Path) -> Spec:
    """A spec of two streams."""
    for stream in ("departures", "arrivals"):
        (folder / "in" / stream).mkdir(parents=True, exist_ok=True)
    path = folder / "fleet.toml"
    path.write_text(SPEC)
    return load_spec(path)


class Recorded:
    """Writes files of lines, as processes do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def add(self, process: str, pid: int | None, kind: str, after: float, **fields: Any) -> None:  # noqa: ANN401  as JSON has them
        """One line, that many seconds after the start of the run."""
        name = "chaos" if kind == "chaos" else f"{process}-{pid}"
        line = {"time": utc(START + after), "process": process, "pid": pid, "kind": kind, **fields}
        with (self.folder / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def start(
        self, process: str, pid: int, after: float, *, table: str = "/fleet", host: str = "one"
    ) -> None:
        """The first line of a process."""
        self.add(process, pid, "start", after, table=table, streams=[], host=host)

    def lock(self, process: str, pid: int, event: str, after: float, lock: str, **fields: Any) -> None:  # noqa: ANN401
        """An event of a lock."""
        owner = f"{process}{pid}{lock}"
        self.add(process, pid, "lock", after, lock=lock, event=event, owner=owner, **fields)

    def batch(self, process: str, pid: int, stream: str, batch: int, after: float, **fields: Any) -> None:  # noqa: ANN401
        """A committed batch."""
        done = {
            "rows": 100, "quarantined": 0, "skipped": False, "seconds": 2.0, "look_seconds": 0.005,
            "commit_lock_wait_seconds": 0.015, "commit_lock_hold_seconds": 0.1, "retries": 0, "conflicts": 0,
            "instant": f"2027011508000{batch}000", "token": pid,
        } | fields  # fmt: skip
        self.add(process, pid, "batch", after, stream=stream, batch=batch, **done)

    def resources(self, process: str, pid: int, after: float, cpu: float) -> None:
        """A sample."""
        self.add(
            process, pid, "resources", after, cpu_seconds=cpu, rss_bytes=int(4e8 + 1e7 * cpu), threads=60,
            descriptors=300, processes=2, read_bytes=int(cpu * 1e6), written_bytes=int(cpu * 2e6),
            received_bytes=int(cpu * 3e5), sent_bytes=0,
        )  # fmt: skip


def record(folder: Path) -> Path:
    """The whole run, of two minutes; returns its folder."""
    run = Recorded(folder)
    first, second, services = 101, 102, 103
    run.start("writer", first, 0.0, host=HOSTILE)
    run.start("writer", second, 5.0)
    run.start("services", services, 6.0)
    for lock in ("stream/departures", "stream/arrivals"):
        run.lock("writer", first, "acquired", 1.0, lock, waited_seconds=0.01, token=first)
        for after in (10.0, 20.0, 30.0):
            run.lock("writer", first, "renewed", after, lock, seconds=0.01)
        for after in range(6, 56):
            run.lock("writer", second, "waiting", float(after), lock)
            run.lock("writer", second, "not_acquired", after + 0.5, lock, waited_seconds=0.5, reason="held")
        run.lock(
            "writer", second, "acquired", 56.5, lock, waited_seconds=0.5, token=second, reason="takeover"
        )
    run.lock("services", services, "acquired", 7.0, "service/cleaning", waited_seconds=0.01)
    run.lock("services", services, "released", 118.0, "service/cleaning", held_seconds=111.0)
    for number in range(6):
        stream = ("departures", "arrivals")[number % 2]
        run.batch("writer", first, stream, number // 2, 5.0 + 5 * number)
    run.add("writer", first, "chaos", 36.0, what="kill", detail=HOSTILE)
    for number in range(8):
        stream = ("departures", "arrivals")[number % 2]
        run.batch(
            "writer", second, stream, 3 + number // 2, 60.0 + 5 * number,
            seconds=4.0 if number == 7 else 1.0,
            retries=int(number == 3), conflicts=int(number == 5), quarantined=int(number == 6),
        )  # fmt: skip
    run.add("writer", second, "chaos", 100.0, what="stop", detail="8 s")
    run.lock(
        "writer", second, "lost", 110.0, "stream/arrivals", held_seconds=53.5, detail="its deadline passed"
    )
    run.lock("writer", second, "released", 115.0, "stream/departures", held_seconds=58.5)
    run.add(
        "services", services, "service", 70.0, service="compaction", instant="20270115080100000", seconds=3.0
    )
    run.add("services", services, "service", 90.0, service="cleaning", instant=None, seconds=0.0)
    for pid, process, until in ((first, "writer", 36), (second, "writer", 116), (services, "services", 120)):
        for after in range(10, until, 5):
            run.resources(process, pid, float(after), after / 2)
    run.add("writer", second, "end", 116.0, error="lease on 'stream/arrivals' lost", commits=8)
    run.add("services", services, "end", 120.0, error=None, commits=0)
    with (folder / f"writer-{first}.jsonl").open("a") as file:
        file.write('{"time": "2027-01-15T08:0')
    return folder
