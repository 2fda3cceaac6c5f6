# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory soak --minutes 5``: all at once, on a disk and on S3, and nothing is lost.

Two acts of the same length, one with its tables on a disk, the other on an S3 server behind a proxy. In each
several drivers write three streams and a plain table and run the services, while persons are deleted, SQL
changes rows, a consumer follows the changes, and a reader looks at every snapshot. Meanwhile drivers are
killed, stopped and restarted, one has a wrong clock, the disk is filled, answers of the store are cut,
delayed and refused. What must hold is in ``checks``, what may grow in ``leaks``.

The orders come from the seed. The moments are those of this machine, so no two runs are the same.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.spark import session
from asynclock.spark.hudi.session import jvm_output_to
from tests.laboratory.servers import running
from tests.laboratory.soak.act import ROLES, Act
from tests.laboratory.soak.crew import Crew
from tests.laboratory.soak.journal import Journal
from tests.laboratory.soak.leaks import LONG_SECONDS, leaks, slopes, watched
from tests.laboratory.soak.paces import paces
from tests.laboratory.soak.places import (
    lock_client,
    on_disk,
    on_server,
    s3a_conf,
    s3a_environment,
    small_disk,
)
from tests.laboratory.soak.spoiler import Spoiler
from tests.laboratory.soak.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.laboratory.soak.act import Result

OVERHEAD_SECONDS: Final = 130.0
"""For the start, and for what each act leaves to be judged."""
SHORTEST_SECONDS: Final = 40.0
PLACES: Final = ("file", "s3a")

_SPARED: Final = {"file": "writer", "s3a": "services"}


@dataclass
class Soaked:
    """What was done, and what came of it."""

    minutes: float
    kills: int = 0
    faults: int = 0
    commits: int = 0
    differences: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not (self.differences or self.leaks)

    def __str__(self) -> str:
        return (
            f"soak: {self.minutes:g} min, {self.kills} kills, {self.faults} faults, {self.commits} commits, "
            f"{len(self.differences)} differences, {len(self.leaks)} leaks"
        )


def soak(
    minutes: float,
    *,
    seed: int,
    folder: Path,
    scratch: Path,
    places: Sequence[str] = PLACES,
    say: Callable[[str], object] = print,
) -> Soaked:
    """Play the acts.

    Args:
        minutes: How long, with the start and the judgement.
        seed: Of the orders.
        folder: Gets ``found.txt``, ``slopes.txt``, ``watched.txt`` and a folder for each place: what its
            drivers recorded, ``chaos.jsonl``, ``watch.jsonl``, and a report of each table; and ``spark.log``
            of the session that reads. Where anything is found also the logs of the drivers and the tables on
            the disk.
        scratch: An empty folder for all else.
        places: Those of ``PLACES`` that have an act.
        say: Told of each step.
    """
    done = Soaked(minutes)
    journals = {place: Journal(folder / place) for place in places}
    watch = Watch()
    seconds = max(SHORTEST_SECONDS, (60 * minutes - OVERHEAD_SECONDS) / len(places))
    with contextlib.ExitStack() as ended:
        server = ended.enter_context(running("s3", own=True))
        proxy = ended.enter_context(Spoiler(server.endpoint, seed, scratch))
        jar = lock_client(scratch)
        crew = Crew(
            scratch,
            conf=s3a_conf(proxy.url, jar),
            variables=s3a_environment(server, proxy.url),
            journal=journals[places[0]],
        )
        ended.callback(crew.abandon)
        crew.prepare(len(ROLES))
        os.environ.update(s3a_environment(server, server.endpoint))
        with jvm_output_to(lambda: (folder / "spark.log").open("ab")):
            spark = session("asynclock-soak", master="local[2]", conf=s3a_conf(server.endpoint, jar))
        ended.callback(spark.stop)
        is_small = ended.enter_context(small_disk(scratch / "disk"))
        disk = scratch / "disk" if is_small else None
        if disk is None:
            say("only root can mount a disk to be filled, so none is")
        for place, crew.journal in journals.items():
            act = Act(
                on_disk(scratch / "disk")
                if place == "file"
                else on_server(server, f"soak-{seed}-{random.getrandbits(32):x}", proxy.url),
                scratch,
                spark,
                crew,
                journal=crew.journal,
                watch=watch,
                seed=seed,
                disk=disk if place == "file" else None,
                proxy=proxy if place == "s3a" else None,
                spared=_SPARED[place],
            )
            began = time.monotonic()
            result: Result = act.play(seconds, drivers=0 if place == places[-1] else len(ROLES))
            done.commits += result.commits
            done.faults += result.faults
            done.differences += result.differences
            if result.differences and place == "file":
                shutil.copytree(scratch / "disk", folder / "tables", dirs_exist_ok=True)
            say(f"{time.monotonic() - began:.0f} s: {result.numbers}")
        done.differences += crew.differences
        done.kills = crew.kills
        done.faults += crew.disturbances + proxy.faults
    samples = [*watch.samples, *(one for place in places for one in paces(folder / place))]
    done.leaks = crew.leaks + leaks(samples)
    (folder / "slopes.txt").write_text("".join(f"{slope}\n" for slope in slopes(samples)))
    seen = watched(samples)
    (folder / "watched.txt").write_text("".join(f"{line}\n" for line in seen))
    judged = [line for line in seen if ": judged: " in line]
    say(
        f"{len(judged)} of {len(seen)} lived for the {LONG_SECONDS / 60:.0f} minutes after which slopes are "
        "judged; all are in watched.txt"
    )
    for line in judged:
        say(line)
    (folder / "found.txt").write_text("".join(f"{found}\n" for found in (*done.differences, *done.leaks)))
    if not done.ok:
        for log in scratch.glob("*.log"):
            shutil.copy(log, folder)
    return done


def main() -> int:
    """Soak for as long as is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long, start and judgement included")
    parser.add_argument("--seed", type=int, default=None, help="of the orders; default: drawn, and printed")
    parser.add_argument("--run", type=Path, help="folder of the run's files; default: build/soak-<seed>")
    parser.add_argument("--place", choices=PLACES, action="append", help="only there; repeatable")
    chosen = parser.parse_args()
    seed = random.randrange(1_000_000) if chosen.seed is None else chosen.seed
    folder = chosen.run or Path("build") / f"soak-{seed}"
    print(f"seed {seed}, files of the run in {folder}", flush=True)
    # As an exception, so that no process and no mount is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=folder / "soak.log", filemode="w", level=logging.INFO)
    with tempfile.TemporaryDirectory(prefix="asynclock-soak-", ignore_cleanup_errors=True) as scratch:
        done = soak(
            chosen.minutes,
            seed=seed,
            folder=folder,
            scratch=Path(scratch),
            places=chosen.place or PLACES,
        )
    for found in (*done.differences[:20], *done.leaks[:20]):
        print(found)
    print(done)
    return 0 if done.ok else 1


if __name__ == "__main__":
    sys.exit(main())
