"""A Spark that outlives the test runs that use it, so that each finds a warm JVM.

``python -m tests.spark.warm`` starts the session of the tests, prints its address and ends with its input.
A test run that has the address in its environment attaches to that JVM instead of starting one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from asynclock.spark.hudi.running import KAFKA_CONNECTOR
from asynclock.spark.hudi.session import session
from tests.laboratory._installed import one_at_a_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

VARIABLE: Final = "ASYNCLOCK_TESTS_SPARK"
_ADDRESS: Final = "warm "


@contextmanager
def session_of_tests(scratch: Path) -> Iterator[SparkSession]:
    """Yield a session on two cores, stopped at the end unless another process has started it.

    Args:
        scratch: Where its files are.
    """
    address = os.environ.get(VARIABLE)
    if address is not None:
        _attach(address)
    with one_at_a_time("ivy"):  # two that download into its folder for the first time would fail
        started = session(
            "asynclock-tests",
            master="local[2]",
            conf={
                "spark.jars.packages": KAFKA_CONNECTOR,
                "spark.sql.shuffle.partitions": "2",
                # Thousands of queries: what the UI keeps of each fills the heap.
                "spark.ui.retainedJobs": "20",
                "spark.ui.retainedStages": "20",
                "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
                "spark.local.dir": str(scratch / "local"),
            },
        )
    if address is not None:
        # What a failed test of an earlier run has left at work.
        for query in started.streams.active:
            query.stop()
        started.sparkContext.cancelAllJobs()
    yield started
    if address is None:
        started.stop()


@contextmanager
def warm_spark(folder: Path) -> Iterator[str]:
    """Start such a Spark for the context; yield its address.

    Args:
        folder: The folder from which it imports.
    """
    command = [sys.executable, "-m", "tests.spark.warm"]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server,
    ):
        assert server.stdout is not None
        for line in server.stdout:
            if line.startswith(_ADDRESS):
                yield line.removeprefix(_ADDRESS).strip()
                return  # closes its input, by which it ends
        errors.seek(0)
        raise RuntimeError(f"Spark has not started: {errors.read()[-500:].decode(errors='replace')}")


def _attach(address: str) -> None:
    """Make the running Spark the one of this process."""
    given = dict(zip(("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"), address.split(":"), strict=True))
    os.environ.update(given)
    try:
        gateway: Any = launch_gateway()
    finally:
        for name in given:
            del os.environ[name]
    jvm = gateway.jvm
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    conf = SparkConf(_jvm=jvm, _jconf=running.getConf())
    # The JVM names objects of Python by their numbers when it drops them, those of ended processes as well.
    gateway.gateway_property.pool.next_id = time.time_ns()
    SparkContext(gateway=gateway, jsc=jvm.org.apache.spark.api.java.JavaSparkContext(running), conf=conf)


def main() -> None:
    """Serve until the input ends."""
    with (
        tempfile.TemporaryDirectory(prefix="asynclock-warm-") as folder,
        session_of_tests(Path(folder)) as spark,
    ):
        parameters = spark.sparkContext._gateway.gateway_parameters
        sys.stdout.write(f"{_ADDRESS}{parameters.port}:{parameters.auth_token}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
