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
from benchmarks.measure import SCRATCH, Line, interleaved, microseconds, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 15
PAIRS = 60
SETTINGS = LeaseSettings(max_clock_skew=0)


def lines() -> Iterator[Line]:
    """Times of one acquire and release in the same folder, from a thread."""
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=SCRATCH)))
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

        samples = interleaved(
            {
                "asynclock without fsync": lambda: ours(fsync=False),
                "asynclock with fsync": lambda: ours(fsync=True),
                "filelock.SoftFileLease": theirs,
            },
            rounds=ROUNDS,
        )
    for name, seconds in samples.items():
        yield microseconds(f"file acquire+release, {name}", seconds)
    plain = samples["asynclock without fsync"]
    yield ratio(
        "file acquire+release without fsync over SoftFileLease", plain, samples["filelock.SoftFileLease"]
    )
    yield ratio("file acquire+release, fsync over none", samples["asynclock with fsync"], plain)


def per_pair(pair: Callable[[], None]) -> float:
    """Seconds per pair, the first one left out: it creates the object."""
    pair()
    began = time.perf_counter()
    for _ in range(PAIRS):
        pair()
    return (time.perf_counter() - began) / PAIRS
