"""What does a writer's start cost on a table with a long history, and does its memory grow with it?

The commits are copies of a real one with their own times and batch numbers; Hudi archives all but the last.
"""

from __future__ import annotations

import gc
import tempfile
import time
import tracemalloc
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.spark import Splice, load_spec, session
from asynclock.spark.hudi.table import Table
from asynclock.spark.services.work import Cleaning
from benchmarks.measure import SCRATCH, Line, interleaved, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from asynclock.spark.hudi.commits import Commits
    from asynclock.spark.spec.model import Spec

ROUNDS: Final = 5
SIZES: Final = (100, 1_000, 10_000)
# A writer starts in this time at the most, of which Spark itself takes several seconds more.
MOST_SECONDS: Final = 5.0
FLAT: Final = 1.2
QUERY: Final = "bench"
FIRST_BATCH: Final = 100_000_000  # each number has as many digits, so a copy has its place in the file
SPEC: Final = """
[table]
path = "table-{size}"
key = ["k"]
buckets = 4
[locks]
url = "locks-{size}"
max_clock_skew = 0.0
[services]
[streams.a]
source = "in/*"
format = "csv"
ordering = "at"
checkpoint = "checkpoints-{size}"
columns = {{ at = "bigint", x = "double", note = "string" }}
"""


def lines() -> Iterator[Line]:
    """A first look at timelines of each length, later looks, and what Python keeps of them."""
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=SCRATCH)))
        (folder / "in").mkdir()
        spark = session("asynclock bench", master="local[2]", conf={"spark.local.dir": str(folder / "spark")})
        resources.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        specs = {size: table(spark, folder, size) for size in SIZES}
        known = {size: Table(spec, spark).commits for size, spec in specs.items()}
        first = interleaved(
            {str(size): lambda spec=spec: first_look(spark, spec) for size, spec in specs.items()},
            rounds=ROUNDS,
        )
        later = interleaved(
            {str(size): lambda commits=commits: look(commits) for size, commits in known.items()},
            rounds=ROUNDS,
        )
        memory(spark, specs[min(SIZES)])  # what a first look imports and caches is not counted
        kept = {size: memory(spark, spec) for size, spec in specs.items()}
        for size, commits in known.items():
            assert commits.has("a", QUERY, FIRST_BATCH + size - 1), size
            assert not commits.has("a", QUERY, FIRST_BATCH + size), size
    least, most = str(min(SIZES)), str(max(SIZES))
    for size in map(str, SIZES):
        target = MOST_SECONDS if size == most else None
        yield Line(name=f"first look at {size} commits", unit="s", samples=first[size], target=target)
        yield Line(name=f"next look at {size} commits", unit="s", samples=later[size])
        yield Line(name=f"kept of {size} commits", unit="KiB", samples=kept[int(size)])
    yield ratio(f"next look at {most} commits over {least} commits", later[most], later[least], target=FLAT)
    yield ratio(
        f"kept of {most} commits over {least} commits", kept[int(most)], kept[int(least)], target=FLAT
    )


def table(spark: SparkSession, folder: Path, size: int) -> Spec:
    """A table with that many commits, most of them archived by Hudi."""
    path = folder / f"{size}.toml"
    path.write_text(SPEC.format(size=size))
    spec = load_spec(path)
    frame = spark.sql("SELECT '1' k, 1L at, 1D x, 'n' note")
    Splice(spec, spark).write(frame, "a", batch_id=FIRST_BATCH, query_id=QUERY)
    timeline = folder / f"table-{size}" / ".hoodie" / "timeline"
    (done,) = timeline.glob("*_*.deltacommit")
    content, number = done.read_bytes(), str(FIRST_BATCH).encode()
    assert content.count(number) == 1
    requested = {kind: next(timeline.glob(f"*.deltacommit.{kind}")) for kind in ("requested", "inflight")}
    start = datetime.now(UTC) - timedelta(seconds=size)
    for commit in range(1, size):
        begun, ended = (instant(start + timedelta(seconds=commit, milliseconds=each)) for each in (0, 500))
        for kind, file in requested.items():
            (timeline / f"{begun}.deltacommit.{kind}").write_bytes(file.read_bytes())
        copy = content.replace(number, str(FIRST_BATCH + commit).encode())
        (timeline / f"{begun}_{ended}.deltacommit").write_bytes(copy)
    Cleaning(Table(spec, spark)).step()
    assert len(list(timeline.glob("*_*.deltacommit"))) <= spec.services.archive_max_commits
    return spec


def instant(moment: datetime) -> str:
    """Hudi's spelling of a time."""
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}"


def first_look(spark: SparkSession, spec: Spec) -> float:
    """Seconds of what a writer reads at its start."""
    return look(Table(spec, spark).commits)


def look(commits: Commits) -> float:
    """Seconds of what a writer reads before each batch; of the first call, at its start."""
    began = time.perf_counter()
    commits.refresh()
    return time.perf_counter() - began


def memory(spark: SparkSession, spec: Spec) -> list[float]:
    """KiB that Python keeps of a timeline."""
    commits = Table(spec, spark).commits
    tracemalloc.start()
    try:
        commits.refresh()
        gc.collect()
        return [tracemalloc.get_traced_memory()[0] / 1024]
    finally:
        tracemalloc.stop()
