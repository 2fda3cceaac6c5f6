"""What does a lock on file:// cost compared with filelock.SoftFileLease, and what does fsync cost?"""

from __future__ import annotations

import itertools
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import SoftFileLease

from asynclock import LeaseSettings, sync
from benchmarks.measure import SCRATCH, Line, Samples, interleaved, microseconds, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 15
PAIRS = 60
SETTINGS = LeaseSettings(max_clock_skew=0)
MEMORY = Path("/dev/shm")  # noqa: S108  a folder in memory, on Linux
WITHOUT = "asynclock without fsync"
WITH = "asynclock with fsync"
THEIRS = "filelock.SoftFileLease"


def lines() -> Iterator[Line]:
    """Times of one acquire and release in the same folder, from a thread; on a disk and in memory."""
    samples = contenders(SCRATCH)
    for name, seconds in samples.items():
        yield microseconds(f"file acquire+release, {name}", seconds)
    plain = samples[WITHOUT]
    over = "file acquire+release without fsync over SoftFileLease"
    yield ratio(over, plain, samples[THEIRS], target=1.0)
    yield ratio("file acquire+release, fsync over none", samples[WITH], plain)
    renames = interleaved({kind: renaming(kind) for kind in ("replacing", "new")}, rounds=ROUNDS)
    yield microseconds("a rename that replaces a file: an acquire+release has two", renames["replacing"])
    yield microseconds("a rename to a new name", renames["new"])
    if MEMORY.is_dir():
        samples = contenders(MEMORY)
        yield ratio(f"{over}, both in {MEMORY}", samples[WITHOUT], samples[THEIRS], target=1.0)


def contenders(parent: Path) -> Samples:
    """Seconds per acquire and release of each contender, in a new folder."""
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=parent)))
        clients = {
            fsync: resources.enter_context(sync.connect(f"file://{folder}", settings=SETTINGS, fsync=fsync))
            for fsync in (False, True)
        }
        numbers = itertools.count()

        def ours(*, fsync: bool) -> float:
            lock = clients[fsync].lock(f"{next(numbers)}")
            return per_pair(lambda: lock.acquire().release())

        def theirs() -> float:
            lock = SoftFileLease(folder / f"{next(numbers)}.lock")

            def pair() -> None:
                lock.acquire()
                lock.release()

            return per_pair(pair)

        return interleaved(
            {WITHOUT: lambda: ours(fsync=False), WITH: lambda: ours(fsync=True), THEIRS: theirs},
            rounds=ROUNDS,
        )


def renaming(kind: str) -> Callable[[], float]:
    """A contender that writes a small file and renames it: seconds of the rename alone."""

    def rename() -> float:
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            draft, target = Path(folder, "draft"), Path(folder, "target")
            took = 0.0
            for _ in range(PAIRS):
                draft.write_bytes(b"x" * 250)
                if kind == "new":
                    target.unlink(missing_ok=True)
                began = time.perf_counter()
                draft.rename(target)
                took += time.perf_counter() - began
            return took / PAIRS

    return rename


def per_pair(pair: Callable[[], None]) -> float:
    """Seconds per pair, the first one left out: it creates the object."""
    pair()
    began = time.perf_counter()
    for _ in range(PAIRS):
        pair()
    return (time.perf_counter() - began) / PAIRS
