"""Samples of processes, by ``/proc``, and of tables."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from tests.laboratory.soak.leaks import Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.laboratory.soak.crew import Crew
    from tests.laboratory.soak.journal import Journal
    from tests.laboratory.soak.tables import Table

_PROC: Final = Path("/proc")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_INSTANT: Final = re.compile(r"(\d{17})(_\d+)?\.")


def of_group(group: int) -> dict[str, float]:
    """Return memory in bytes, threads, descriptors and sockets of all processes of a group."""
    found: Counter[str] = Counter()
    for folder in _PROC.glob("[0-9]*"):
        pid = int(folder.name)
        try:
            if os.getpgid(pid) == group:
                found += _of_process(folder)
        except OSError:  # it has ended
            continue
    return dict(found)


def of_this() -> dict[str, float]:
    """Return the same of this process and its JVM, but not of the servers that it has started."""
    java = [child.pid for child in psutil.Process().children() if child.name() == "java"]
    return dict(sum((_of_process(_PROC / str(pid)) for pid in (os.getpid(), *java)), Counter()))


def _of_process(folder: Path) -> Counter[str]:
    descriptors = [_target(entry) for entry in (folder / "fd").iterdir()]
    return Counter({
        "rss": int((folder / "statm").read_text().split()[1]) * _PAGE,
        "threads": sum(1 for _ in (folder / "task").iterdir()),
        "descriptors": len(descriptors),
        "sockets": sum(target.startswith("socket:") for target in descriptors),
    })  # fmt: skip


def _target(entry: Path) -> str:
    try:
        return os.readlink(entry)  # noqa: PTH115  of /proc: no path
    except OSError:
        return ""


def of_table(table: Table) -> dict[str, float]:
    """Return how many lock objects, log files, active instants and temporary files a table has."""
    files = table.place.files(table.spec.table.path)
    active = [name.rpartition("/")[2] for name in files if name.startswith(".hoodie/timeline/")]
    instants = {found[1] for name in active if (found := _INSTANT.match(name))}
    with table.spec.locks.connect() as client:
        locks = len(client.list())
    return {
        "lock_objects": locks,
        "log_files": sum(".log." in name and not name.startswith(".hoodie/") for name in files),
        "timeline": len(instants),
        "temporary": sum(name.startswith((".hoodie/.temp/", ".hoodie/.heartbeat/")) for name in files),
    }


class Watch:
    """Takes samples of the drivers, of this process and of the tables.

    Attributes:
        samples: All samples.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._began = time.monotonic()
        self._rests = 0

    def sample(self, crew: Crew, tables: Mapping[str, Table], *, rest: bool = False) -> None:
        """Take one of everything; at a state of rest all counts are comparable with the earlier rests."""
        self._rests += rest
        work = sum(states.files for table in tables.values() for states in table.states.values())
        for name, member in tuple(crew.members.items()):
            if member.stopped_until is None:
                group = member.driver.group
                self._note(crew.journal, f"{name}-{group}", of_group(group), rest=rest, work=work)
        # Of one place: on another one it has other pools.
        [place] = {table.place.name for table in tables.values()}
        self._note(crew.journal, f"onlooker on {place}", of_this(), rest=rest, work=work)
        if rest:
            for name, table in tables.items():
                self._note(crew.journal, name, of_table(table), rest=rest, work=work)

    def _note(self, journal: Journal, who: str, counts: dict[str, float], *, rest: bool, work: int) -> None:
        number = self._rests if rest else None
        seconds = time.monotonic() - self._began
        self.samples.append(Sample(who=who, seconds=seconds, counts=counts, rest=number, work=work))
        journal.watch(who, counts, rest=number, work=work)
