"""A driver whose tables are in S3: ``counted_driver.py SPEC EVENTS``.

The first line of its input has the settings of its environment and of Spark. For each spec that a further
line names, it creates the table, writes the events once more, and answers with the requests of that write.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from asynclock.spark.hudi.session import jvm_output_to, session
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.splice import Splice
from tests.laboratory.mechanisms.plain_flights import DRIVERS, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(_: str, events: str) -> None:
    """Write until the input ends."""
    settings = json.loads(sys.stdin.readline())
    os.environ.update(settings["environment"])
    with jvm_output_to(lambda: os.fdopen(os.dup(2), "wb")):  # the parent reads the other one
        spark = session("counted-driver", master="local[2]", conf=settings["spark"])
    rows = frame(spark, pd.read_csv(events))
    for line in map(str.strip, sys.stdin):
        spec = load_spec(Path(line))
        splice = Splice(spec, spark)
        splice.write(rows, DRIVERS[0])
        before = _requests(spark, spec.table.path)
        splice.write(rows, DRIVERS[0])
        print(_requests(spark, spec.table.path) - before, flush=True)  # noqa: T201  read by the parent
    spark.stop()


def _requests(spark: SparkSession, table: str) -> int:
    """Return how many requests Hadoop's client has sent; driver and tasks of a local master share it."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(table)
    client = path.getFileSystem(spark._jsc.hadoopConfiguration())
    return int(client.getIOStatistics().counters().get("store_io_request"))


if __name__ == "__main__":
    main(*sys.argv[1:])
