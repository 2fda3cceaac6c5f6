"""``python -m tests.laboratory.mechanisms.driver [CONF]``: start Spark, then do what standard input says."""
# ruff: noqa: T201  talks to its parent

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from asynclock.clock import SystemClock
from asynclock.spark import load_spec, run, run_services, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec


def main(conf: str = "{}") -> None:
    """Say ``ready``, read one order, carry it out until SIGTERM, and say what the commit lock has cost."""
    settings = {"spark.sql.shuffle.partitions": "1"} | json.loads(conf)
    spark = session("asynclock-driver", master="local[1]", conf=settings)
    print(json.dumps({"ready": True}), flush=True)
    line = sys.stdin.readline()
    if not line:
        return
    order: dict[str, Any] = json.loads(line)
    if order["clock"]:
        set_clock_wrong(order["clock"])
    spec = load_spec(order["spec"])
    _work(spec, order, spark)
    table = urlsplit(spec.table.path)
    jvm: Any = spark._jvm
    taken, waited, held = (
        jvm.io.asynclock.hudi.FileLockProvider.use(table.path) if table.scheme == "file" else (0, 0, 0)
    )
    print(json.dumps({"taken": taken, "waited": waited / 1e9, "held": held / 1e9}), flush=True)


def set_clock_wrong(seconds: float) -> None:
    """Make the wall clock, as the leases of this process see it, that many seconds fast."""
    SystemClock.wall = staticmethod(lambda: time.time() + seconds)  # type: ignore[method-assign]


def _work(spec: Spec, order: dict[str, Any], spark: SparkSession) -> None:
    options = {"once": order["once"], "spark": spark, "run_dir": order["run_dir"]}
    if not order["services"]:
        run(spec, streams=order["streams"], **options)
        return
    if not order["streams"]:
        run_services(spec, **options)
        return
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        services = pool.submit(run_services, spec, **options, stop=stop)
        services.add_done_callback(lambda _: stop.set())
        try:
            run(spec, streams=order["streams"], **options, stop=stop)
        finally:
            stop.set()
        services.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
