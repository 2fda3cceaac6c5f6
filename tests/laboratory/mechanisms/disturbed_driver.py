"""A driver on a cluster whose first task is disturbed: ``disturbed_driver.py SPEC EVENTS MASTER JAR``.

For each disturbance that a line of its input names, it writes the events as soon as the file GATE-<name>
exists beside the spec, and answers with an empty line.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pandas as pd

from asynclock.spark.hudi.options import write_options
from asynclock.spark.hudi.session import jvm_output_to, session
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer import splice as splice_module
from asynclock.spark.writer.splice import Splice
from tests.laboratory.mechanisms.plain_flights import DRIVERS, frame
from tests.spark.pipeline_kit import waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec


def main(spec_path: str, events: str, master: str, jar: str) -> None:
    """Write until the input ends."""
    folder = Path(spec_path).parent
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with jvm_output_to(lambda: os.fdopen(os.dup(2), "wb")):  # the parent reads the other one
        spark = session(
            "disturbed-driver",
            master=master,
            conf={
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.jars": jar,  # beside Hudi's, on whose classes it builds
                "spark.executor.extraJavaOptions": f"-Dmarked.folder={folder} -XX:TieredStopAtLevel=1",
                "spark.executor.cores": "1",
                "spark.executor.memory": "640m",
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": "2",
                "spark.speculation": "true",
                "spark.speculation.interval": "100ms",
                "spark.speculation.quantile": "0.5",
                # Other tasks may be slow beside much work: a second attempt of theirs would leave its file.
                "spark.speculation.minTaskRuntime": "10s",
            },
        )
    spec = load_spec(Path(spec_path))
    # No setting of a spec leads to it: it is not for users.
    with mock.patch.object(splice_module, "write_options", _disturbed):
        _write(spark, spec, events)
    spark.stop()


def _disturbed(spec: Spec, *, tasks: int, name: str | None) -> dict[str, str]:
    return write_options(spec, tasks=tasks, name=name) | {
        "hoodie.writestatus.class": "MarkedStatus",
        # Hudi refuses to write while Spark speculates, which is what is shown here.
        "hoodie.block.writes.on.speculative.execution": "false",
    }


def _write(spark: SparkSession, spec: Spec, events: str) -> None:
    splice, rows = Splice(spec, spark), frame(spark, pd.read_csv(events))
    print(flush=True)  # noqa: T201  read by the parent
    for name in map(str.strip, sys.stdin):
        splice.write(waiting(rows, spec.path.with_name(f"gate-{name}")), DRIVERS[1])
        print(flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
