"""The resources that the processes of a run used, sample by sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asynclock.spark.runs.totals import number

if TYPE_CHECKING:
    from asynclock.spark.runs.lines import Line


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The resources that a process used at a time, in epoch seconds.

    Attributes:
        cores: Cores in use since the sample before.
        memory: Bytes in memory.
        network: Bytes a second, sent and received, of its network namespace.
        storage: Bytes a second, read from disks and written to them.
        cpu_seconds: Its CPU time so far.
    """

    time: float
    process: str
    cores: float
    memory: float
    threads: float
    descriptors: float
    network: float
    storage: float
    cpu_seconds: float


class Samples:
    """Turns lines of counters into rates.

    Attributes:
        found: The samples so far.
    """

    def __init__(self) -> None:
        self.found: list[Sample] = []
        self._before: dict[str, Line] = {}

    def take(self, line: Line) -> None:
        """Take a line; the first of a process gives no rates."""
        before = self._before.get(line.name)
        self._before[line.name] = line
        if before is None or line.time - before.time < 0.1:  # noqa: PLR2004  too short for a rate
            return

        def rate(*names: str) -> float:
            grown = sum(number(line.fields, name) - number(before.fields, name) for name in names)
            return max(0.0, grown / (line.time - before.time))

        self.found.append(
            Sample(
                time=line.time,
                process=line.name,
                cores=rate("cpu_seconds"),
                memory=number(line.fields, "rss_bytes"),
                threads=number(line.fields, "threads"),
                descriptors=number(line.fields, "descriptors"),
                network=rate("received_bytes", "sent_bytes"),
                storage=rate("read_bytes", "written_bytes"),
                cpu_seconds=number(line.fields, "cpu_seconds"),
            )
        )
