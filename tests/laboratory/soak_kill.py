# ruff: noqa: T201  a command that prints
"""Processes that contend for ``file://`` locks and are killed with ``kill -9`` at any instant.

``python -m tests.laboratory soak-kill --kills 200``. Mutual exclusion is witnessed by the
kernel: inside the critical section a worker takes a ``flock`` without waiting, which the kernel
frees when the worker dies. No lock may stand still for longer than the takeover bound.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import multiprocessing
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.client import connect
from asynclock.errors import LeaseLostError
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext, ForkServerProcess

    from asynclock.lock import Lock

WORKERS: Final = 8
LOCKS: Final = 32
HOLDER_SHARE: Final = 4
"""At least one kill in this many must hit a worker inside a critical section."""
SETTINGS: Final = LeaseSettings(validity=2.0, safety_margin=0.5, max_clock_skew=0.2, poll_interval=0.1)
GRACE: Final = 10.0
"""Seconds on top of the takeover bound that a busy machine may take."""
LONGEST_HOLD: Final = 0.5
LONGEST_IDLE: Final = 2.0
PER_KILL: Final = 7
"""Acquisitions from one kill to the next: a busy machine is given time to get its work done."""
LONGEST_LULL: Final = 1.0
"""Seconds after which a worker is killed though nothing was acquired."""
JITTER: Final = 0.05
"""Seconds at most from the last of these acquisitions to the kill."""


@dataclass(slots=True)
class _Worker:
    process: ForkServerProcess
    news: Connection
    inside: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Soak:
    """What the kills came to.

    Attributes:
        kills: Workers killed.
        of_holder: Those that were inside a critical section.
        double_holds: Times that a worker inside met another.
        stuck: Locks that stood still for too long.
        acquisitions: How often a lock was acquired.
    """

    kills: int = 0
    of_holder: int = 0
    double_holds: int = 0
    stuck: int = 0
    acquisitions: int = 0


def soak(kills: int, *, seed: int = 0) -> Soak:
    """Kill workers ``kills`` times and return what was seen."""
    with tempfile.TemporaryDirectory(prefix="asynclock-soak-") as folder:
        return _Supervisor(Path(folder), seed).run(kills)


class _Supervisor:
    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._seen = Soak()
        self._moved = dict.fromkeys(range(LOCKS), time.monotonic())
        self._bound = SETTINGS.takeover_bound(0.0) + GRACE
        self._workers = [self._start() for _ in range(WORKERS)]

    def run(self, kills: int) -> Soak:
        """Kill and watch."""
        try:
            while self._seen.kills < kills:
                self._let_work()
                self._kill(self._victim())
                self._watch()
            # Everybody gets over the last kills.
            until = time.monotonic() + self._bound
            while time.monotonic() < until:
                self._listen(LONGEST_LULL)
            self._watch()
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.join()
        return self._seen

    def _start(self) -> _Worker:
        news, tell = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_work, args=(str(self._folder), self._random.getrandbits(32), tell), daemon=True
        )
        process.start()
        tell.close()
        return _Worker(process, news)

    def _victim(self) -> int:
        inside = [index for index, worker in enumerate(self._workers) if worker.inside]
        if inside and self._random.random() < 0.7:
            return self._random.choice(inside)
        return self._random.randrange(WORKERS)

    def _kill(self, index: int) -> None:
        worker = self._workers[index]
        worker.process.kill()
        worker.process.join()
        while self._read(worker):  # what it said before it died
            pass
        self._seen.kills += 1
        self._seen.of_holder += bool(worker.inside)
        worker.news.close()
        self._workers[index] = self._start()

    def _let_work(self) -> None:
        self._listen(LONGEST_LULL, until=self._seen.acquisitions + PER_KILL)
        self._listen(self._random.random() * JITTER)

    def _listen(self, seconds: float, *, until: float = float("inf")) -> None:
        """Take in messages for that many seconds, or until there were that many acquisitions in all."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self._seen.acquisitions < until:
            ready = wait([worker.news for worker in self._workers], timeout=left)
            for worker in self._workers:
                if worker.news in ready:
                    self._read(worker)

    def _read(self, worker: _Worker) -> bool:
        """Take in one message; False after the last."""
        try:
            what, lock = worker.news.recv()
        except (EOFError, OSError):
            return False
        if what == "in":
            worker.inside.add(lock)
            self._seen.acquisitions += 1
            self._moved[lock] = time.monotonic()
        elif what == "out":
            worker.inside.discard(lock)
        else:
            self._seen.double_holds += 1
        return True

    def _watch(self) -> None:
        now = time.monotonic()
        for lock, moved in self._moved.items():
            if now - moved > self._bound:
                self._seen.stuck += 1
                self._moved[lock] = now


def _work(folder: str, seed: int, tell: Connection) -> None:
    logging.getLogger("asynclock").setLevel(logging.CRITICAL)  # a busy machine loses leases: expected
    asyncio.run(_contend(Path(folder), random.Random(seed), tell))


async def _contend(folder: Path, rng: random.Random, tell: Connection) -> None:
    async with connect(folder.as_uri(), settings=SETTINGS, renewal="loop") as client:
        await asyncio.gather(
            *(_take_turns(client.lock(f"lock-{each}"), folder, each, rng, tell) for each in range(LOCKS))
        )


async def _take_turns(lock: Lock, folder: Path, number: int, rng: random.Random, tell: Connection) -> None:
    while True:
        await asyncio.sleep(rng.random() * LONGEST_IDLE)
        try:
            async with lock.hold():
                with (folder / f".witness-{number}").open("w") as witness:
                    try:
                        fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        tell.send(("double", number))
                        continue
                    tell.send(("in", number))
                    try:
                        await asyncio.sleep(rng.random() * LONGEST_HOLD)
                    finally:
                        tell.send(("out", number))
        except LeaseLostError:
            continue  # this machine was too busy to renew in time


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if there was no double hold and no lock stood still."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory soak-kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    seen = soak(options.kills, seed=options.seed)
    print(f"{seen.acquisitions} acquisitions of {LOCKS} locks, {time.monotonic() - began:.0f} s")
    print(
        f"soak-kill: {seen.kills} kills, {seen.of_holder} of a holder, "
        f"{seen.double_holds} double holds, {seen.stuck} stuck"
    )
    enough = seen.of_holder * HOLDER_SHARE >= seen.kills
    return 0 if enough and not seen.double_holds and not seen.stuck else 1


if __name__ == "__main__":
    sys.exit(main())
