"""A driver that is paused in the middle of a write: ``paused_driver.py SPEC EVENTS GATE``.

It writes the events to the stream ``second`` once the file GATE exists, and again if that fails with
an error that passes. A line of JSON says how each attempt ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from asynclock.spark.faults import is_passing, sentence
from asynclock.spark.hudi.session import session
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.splice import Splice
from tests.laboratory.mechanisms.plain_flights import DRIVERS, frame
from tests.spark.pipeline_kit import waiting


def main(spec_path: str, events: str, gate: str) -> None:
    """Write until it works, or until it cannot work."""
    spec = load_spec(Path(spec_path))
    spark = session("paused-driver", master="local[1]", conf={"spark.sql.shuffle.partitions": "1"})
    rows = waiting(frame(spark, pd.read_csv(events)), Path(gate))
    splice, passing = Splice(spec, spark), True
    while passing:
        try:
            passing = not splice.write(rows, DRIVERS[1], batch_id=0)
            _tell(error=None)
        except (Py4JJavaError, CapturedException) as error:
            passing = is_passing(error)
            _tell(error=sentence(error), passing=passing)
            sys.stdin.readline()  # the parent looks at what the failed write has left
    spark.stop()


def _tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201  read by the parent


if __name__ == "__main__":
    main(*sys.argv[1:])
