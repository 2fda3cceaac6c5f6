"""Several drivers write one splice table at the same time, and wait only for Hudi's commit lock."""

from __future__ import annotations

import contextlib
from itertools import combinations
from typing import TYPE_CHECKING

from asynclock.spark import Splice, run, timeline
from tests.laboratory.mechanisms.feed import STREAMS, Feed, seen
from tests.laboratory.mechanisms.stage import Shown, must
from tests.laboratory.mechanisms.warm import WarmDriver
from tests.spark.pipeline_kit import Background, wait_for, waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asynclock.spark import Instant
    from tests.laboratory.mechanisms.stage import Stage


def show(stage: Stage) -> Shown:
    """Begin a write, let two other drivers commit all of their batches, and only then let it go on."""
    files = stage.sized(4, 20)
    feed = Feed(stage, stage.sized(3_000, 60_000), files=files)
    with contextlib.ExitStack() as ended:
        drivers = {stream: WarmDriver(stream, stage.folder) for stream in STREAMS[1:]}
        for driver in drivers.values():
            ended.callback(driver.abandon)
        feed.deliver("registry")
        run(feed.spec, streams=["registry"], once=True, spark=stage.spark)
        gate = stage.folder / "gate"
        ended.callback(gate.touch)
        slow = Background(lambda: _write_slowly(stage, feed))
        wait_for(lambda: [one for one in timeline(feed.spec, stage.spark) if one.completed is None])
        for stream, driver in drivers.items():
            feed.deliver(stream, files)
            driver.go(feed.spec, [stream], once=True)
        locks = {stream: driver.result() for stream, driver in drivers.items()}
        gate.touch()
        must(slow.result(), "the slow write commits")
    state = seen(feed.spec, stage.spark)
    must(all(state[stream] == feed.expected(stream) for stream in STREAMS), "every event is in the table")
    return _shown([one for one in timeline(feed.spec, stage.spark) if one.stream], locks, files)


def _write_slowly(stage: Stage, feed: Feed) -> bool:
    """Write the second file of the registry, whose rows wait in Spark's tasks for the gate."""
    file = feed.held_back("registry")
    stream = feed.spec.stream("registry")
    types = ", ".join(f"`{column.name}` {column.type}" for column in stream.columns)
    frame = stage.spark.read.csv(str(file), schema=f"tailnum string, {types}", header=True)
    return Splice(feed.spec, stage.spark).write(waiting(frame, stage.folder / "gate"), "registry")


def _shown(commits: Sequence[Instant], locks: Mapping[str, Mapping[str, float]], files: int) -> Shown:
    slow = commits[-1]
    overtook = [one for one in commits if _within(one, slow)]
    must(slow.stream == "registry", "the slow write, begun first, completes last")
    must(len(overtook) == 2 * files, f"all {2 * files} batches of the others committed during it")
    met = [pair for pair in combinations(overtook, 2) if pair[0].stream != pair[1].stream and _meet(*pair)]
    must(met, "batches of the two other drivers overlap, too")
    spent = {stream: sum(one.latency or 0.0 for one in overtook if one.stream == stream) for stream in locks}
    must(all(lock["taken"] >= files for lock in locks.values()), "each commit takes the commit lock")
    waited = sum(lock["waited"] for lock in locks.values())
    return Shown(
        sentence=f"{len(overtook)} commits of two drivers were requested and completed while a third was in "
        f"flight, {len(met)} pairs of them overlapped; waiting for the commit lock took "
        f"{100 * waited / sum(spent.values()):.1f} % of their time",
        table=[
            {
                "driver": stream,
                "commits": files,
                "in commits (s)": spent[stream],
                "lock taken": lock["taken"],
                "waited (s)": lock["waited"],
                "waited (%)": 100 * lock["waited"] / spent[stream],
                "held (s)": lock["held"],
                "held (%)": 100 * lock["held"] / spent[stream],
            }
            for stream, lock in locks.items()
        ],
    )


def _within(inner: Instant, outer: Instant) -> bool:
    """Whether an instant was requested after the other one, and completed before it."""
    return outer.requested < inner.requested and (inner.completed or "") < (outer.completed or "")


def _meet(one: Instant, other: Instant) -> bool:
    """Whether there was a moment at which both were in flight."""
    return one.requested < (other.completed or "") and other.requested < (one.completed or "")
