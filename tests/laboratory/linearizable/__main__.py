# ruff: noqa: T201  a command that prints
"""Processes that contend on ``file://`` and on S3 behind a proxy that breaks requests, judged by Porcupine.

``python -m tests.laboratory linearizable --minutes 5``. The processes are killed, stopped and continued, and
ended by SIGTERM. What they saw is judged against a mutex with rising tokens, a fenced counter, a semaphore
and a reader-writer lock; damaged copies of each history must be refused. What they logged of the exclusive
locks must be behaviours of ``docs/spec/Lease.tla``, and damaged copies of it must not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asynclock.testing._proxy import TapProxy, Wire
from tests.laboratory.linearizable.damages import damaged
from tests.laboratory.linearizable.histories import histories, read_lines
from tests.laboratory.linearizable.judge import judge
from tests.laboratory.linearizable.worker import LOCKS, SETTINGS
from tests.laboratory.servers import running
from tests.laboratory.traces.checking import accepted
from tests.laboratory.traces.logged import damaged as damages_of
from tests.laboratory.traces.logged import read_entries, recordings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.laboratory.linearizable.histories import History
    from tests.laboratory.traces.logged import Recording

WORKERS: Final = 4
ROUND: Final = 60.0
"""Seconds of one history: the judge's work grows faster than its length."""
_FAULT_RATE: Final = 0.2
_FAULTS: Final = (Wire.CUT_BEFORE, Wire.CUT_AFTER, Wire.CUT_MIDDLE, Wire.LATE, Wire.DUPLICATE, Wire.DELAY)
_FAULT_SECONDS: Final = 0.4
_LOOK: Final = 0.05
_LONGEST_PEACE: Final = 1.5
"""Seconds at most from one signal to the next."""
_LONGEST_STOP: Final = SETTINGS.validity * 1.5
_SIGNALS: Final = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)


@dataclass
class Report:
    """What the histories came to.

    Attributes:
        operations: How many were judged.
        signals: Sent to the processes.
        faults: Requests that the proxy broke.
        violations: Histories that nothing of its kind can have, or that were not decided in time.
        damages: Damaged copies that were judged.
        kinds: The kinds of damage among them.
        missed: Those that were not refused: kind and history.
        recordings: What the processes logged of each exclusive lock.
        refused: Those that are no behaviours of the specification.
    """

    operations: int = 0
    signals: int = 0
    faults: int = 0
    violations: list[str] = field(default_factory=list)
    damages: int = 0
    kinds: set[str] = field(default_factory=set)
    missed: list[str] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class _Crew:
    """The processes of one store, for one round."""

    def __init__(self, url: str, options: dict[str, Any], folder: Path, rng: random.Random) -> None:
        self._arguments = url, json.dumps(options)
        self._folder, self._logs = folder / "notes", folder / "logs"
        self._folder.mkdir(parents=True)
        self._logs.mkdir()
        self._rng = rng
        self._begun = 0
        self.signals = 0
        self.deaths: dict[str, int] = {}

    async def run(self, seconds: float) -> list[History]:
        """Let them contend, and return what they saw."""
        crew = [await self._start() for _ in range(WORKERS)]
        try:
            while not all(self._works(name) for name, _ in crew):  # noqa: ASYNC110  files tell
                await asyncio.sleep(_LOOK)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.sleep(self._rng.random() * _LONGEST_PEACE)
                # Not one that still starts: on a slow machine none would ever come to its work.
                if working := [at for at, (name, _) in enumerate(crew) if self._works(name)]:
                    at = self._rng.choice(working)
                    crew[at] = await self._strike(*crew[at])
        finally:
            for name, process in crew:
                await self._end(name, process, signal.SIGKILL)
        return histories(read_lines(self._folder.iterdir()), self.deaths, end=time.monotonic_ns())

    def recordings(self) -> list[Recording]:
        """Return what they logged of each exclusive lock."""
        entries = [
            each
            for log in self._logs.iterdir()
            for each in read_entries(log.read_bytes().splitlines(keepends=True))
        ]
        found = recordings(entries, SETTINGS.validity, stop=_LONGEST_STOP)
        return [each for each in found if "/lock-" in each.url]

    def _works(self, name: str) -> bool:
        return (self._folder / name).exists()

    async def _start(self) -> tuple[str, asyncio.subprocess.Process]:
        self._begun += 1
        name = f"p{self._begun}"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.laboratory.linearizable.worker",
            *self._arguments,
            str(self._folder / name),
            str(self._logs / name),
            name,
            str(self._rng.getrandbits(32)),
        )
        return name, process

    async def _strike(
        self, name: str, process: asyncio.subprocess.Process
    ) -> tuple[str, asyncio.subprocess.Process]:
        self.signals += 1
        chosen = self._rng.choice(_SIGNALS)
        if chosen is not signal.SIGSTOP:
            await self._end(name, process, chosen)
            return await self._start()
        process.send_signal(chosen)
        await asyncio.sleep(self._rng.random() * _LONGEST_STOP)
        process.send_signal(signal.SIGCONT)
        return name, process

    async def _end(self, name: str, process: asyncio.subprocess.Process, how: signal.Signals) -> None:
        process.send_signal(how)
        await process.wait()
        self.deaths[name] = time.monotonic_ns()


async def contend(seconds: float, *, seed: int, stores: Sequence[str] = ("file", "s3")) -> Report:
    """Let processes contend on each store at once, and judge what they saw.

    Args:
        seconds: How long; a round of a minute at most is one history of each lock.
        seed: Of the choices of processes, proxy and signals; the moments are the machine's.
        stores: ``file``, or the name of a server.
    """
    report = Report()
    rng = random.Random(seed)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="asynclock-linearizable-")))
        places: list[tuple[str, str, dict[str, Any]]] = []
        proxies: list[TapProxy] = []
        for store in stores:
            if store == "file":
                places.append((store, folder.joinpath("locks").as_uri(), {}))
                continue
            server = await asyncio.to_thread(stack.enter_context, running(store, own=True))
            proxies.append(
                await stack.enter_async_context(TapProxy(server.endpoint, seed=rng.getrandbits(32)))
            )
            proxies[-1].storm(_FAULT_RATE, *_FAULTS, seconds=_FAULT_SECONDS)
            places.append((store, server.url, server.through(proxies[-1].url)))
        rounds = max(1, round(seconds / ROUND))
        for number in range(rounds):
            crews = []
            for store, url, options in places:
                place = folder / "seen" / store / str(number)
                crews.append(_Crew(f"{url}/{number}", options, place, random.Random(rng.getrandbits(32))))
            found = await asyncio.gather(*(crew.run(seconds / rounds) for crew in crews))
            report.signals += sum(crew.signals for crew in crews)
            report.recordings += [each for crew in crews for each in crew.recordings()]
            for (store, *_), histories_ in zip(places, found, strict=True):
                await asyncio.to_thread(_judge, f"{store}, round {number}", histories_, report)
        report.faults = sum(proxy.faults() for proxy in proxies)
    return report


def _judge(where: str, found: list[History], report: Report) -> None:
    copies = [(kind, copy) for history in found for kind, copy in damaged(history).items()]
    verdicts = judge([*found, *(copy for _, copy in copies)])
    for history, verdict in zip(found, verdicts, strict=False):
        report.operations += len(history.operations)
        if verdict != "ok":
            report.violations.append(f"{where}: {history.name} is {verdict}")
    for (kind, copy), verdict in zip(copies, verdicts[len(found) :], strict=True):
        report.damages += 1
        report.kinds.add(kind)
        if verdict != "illegal":
            report.missed.append(f"{where}: {kind} of {copy.name} is {verdict}")


def follow(report: Report, some: Sequence[Recording]) -> None:
    """Judge recordings by the specification, and damaged copies of the first one."""
    copies = damages_of(some[0])
    verdicts = accepted([each.lines() for each in (*some, *copies.values())])
    report.refused += [each.url for each, good in zip(some, verdicts, strict=False) if not good]
    for kind, good in zip(copies, verdicts[len(some) :], strict=True):
        report.damages += 1
        if good:
            report.missed.append(f"{kind} of {some[0].url} is accepted")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if every history is one of a lock, and every damaged copy was refused."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.laboratory linearizable", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    # As an exception, so that servers and processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = asyncio.run(contend(options.minutes * 60, seed=options.seed))
    for batch in range(0, len(report.recordings), LOCKS):
        follow(report, report.recordings[batch : batch + LOCKS])
    for line in (*report.violations, *report.missed, *(f"refused: {each}" for each in report.refused)):
        print(line)
    good = len(report.recordings) - len(report.refused)
    print(f"{good} of {len(report.recordings)} recordings are behaviours of the specification")
    print(f"{report.damages - len(report.missed)} of {report.damages} damaged copies refused")
    print(
        f"linearizable: {options.minutes:g} min, 2 stores, {report.operations} operations, "
        f"{report.signals} signals, {report.faults} faults, {len(report.violations)} violations"
    )
    wrong = report.violations or report.missed or report.refused
    return 1 if wrong or not report.operations or not report.recordings else 0


if __name__ == "__main__":
    sys.exit(main())
