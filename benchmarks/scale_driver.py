"""Writers of tables in S3: ``scale_driver LOG``. Its input: the settings, then specs with numbers of writers.

For each it lets that many streams write small batches, one after the other, until each has written a few
while all were at work, and answers with what they did meanwhile, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from asynclock.spark import Splice, load_spec, session
from asynclock.spark.hudi.session import jvm_output_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark import Spec

BATCHES = 2
ROWS_OF_A_BUCKET = 20
_LOOK_SECONDS = 0.01


def main(_: str) -> None:
    """Write until the input ends."""
    settings = json.loads(sys.stdin.readline())
    os.environ.update(settings["environment"])
    with jvm_output_to(lambda: os.fdopen(os.dup(2), "wb")):  # the parent reads the other one
        spark = session("scale-driver", master="local[8]", conf=settings["spark"])
    print("ready", flush=True)
    for line in sys.stdin:
        path, writers = line.split()
        done = _measured(spark, load_spec(Path(path)), int(writers))
        print(json.dumps(done), flush=True)  # read by the parent
    spark.stop()


def _rows(spark: SparkSession, spec: Spec, number: int) -> DataFrame:
    keys = ROWS_OF_A_BUCKET * spec.table.buckets
    rows = [(f"k{number}-{key}", time.time_ns(), 1.0) for key in range(keys)]
    return spark.createDataFrame(rows, "k string, at bigint, x double").coalesce(1)


def _measured(spark: SparkSession, spec: Spec, writers: int) -> dict[str, float]:
    splices = [Splice(spec, spark) for _ in range(writers)]
    written = [0] * writers
    stop = threading.Event()

    def write(number: int) -> None:
        while not stop.is_set():
            splices[number].write(_rows(spark, spec, number), spec.streams[number].name)
            written[number] += 1
            if writers == 1 and written[number] > BATCHES:
                stop.wait()  # nobody needs another batch

    def look() -> dict[str, float]:
        jvm: Any = spark._jvm  # noqa: SLF001  no public way
        taken, waited, held = jvm.io.asynclock.hudi.StoreLockProvider.use(spec.table.path)
        used = {"taken": taken, "waited": waited / 1e9, "held": held / 1e9}
        return used | {"batches": sum(written), "seconds": time.monotonic(), "cpu": _cpu_seconds()}

    def each_has(batches: Sequence[int]) -> None:
        while any(one < least for one, least in zip(written, batches, strict=True)):
            if not all(thread.is_alive() for thread in threads):
                sys.exit("a writer has failed")
            time.sleep(_LOOK_SECONDS)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    each_has([1] * writers)
    begin = look()
    each_has([one + BATCHES for one in written])
    end = look()
    stop.set()
    for thread in threads:
        thread.join()
    return {name: end[name] - begin[name] for name in end} | {"all": sum(written)}


def _cpu_seconds() -> float:
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(each.user + each.system for each in times)


if __name__ == "__main__":
    main(*sys.argv[1:])
