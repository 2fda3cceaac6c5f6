"""Writers of one table in S3: ``scale_driver SPEC``; the settings and then numbers of writers are its input.

For each number it lets so many streams write small batches, one after the other, and answers with the batches
and the seconds that they took, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from asynclock.spark import Splice, load_spec, session
from asynclock.spark.hudi.session import jvm_output_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCHES = 2


def main(path: str) -> None:
    """Write until the input ends."""
    settings = json.loads(sys.stdin.readline())
    os.environ.update(settings["environment"])
    with jvm_output_to(lambda: os.fdopen(os.dup(2), "wb")):  # the parent reads the other one
        spark = session("scale-driver", master="local[8]", conf=settings["spark"])
    spec = load_spec(Path(path))

    def rows(number: int) -> DataFrame:
        return spark.createDataFrame([(f"k{number}", time.time_ns(), 1.0)], "k string, at bigint, x double")

    Splice(spec, spark).write(rows(0), spec.streams[0].name)  # creates the table
    splices = [Splice(spec, spark) for _ in spec.streams]
    print("ready", flush=True)

    def write(number: int) -> None:
        for _ in range(BATCHES):
            splices[number].write(rows(number), spec.streams[number].name)

    for line in sys.stdin:
        threads = [threading.Thread(target=write, args=(number,)) for number in range(int(line))]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done = {"batches": BATCHES * len(threads), "seconds": time.monotonic() - began}
        print(json.dumps(done), flush=True)  # read by the parent
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
