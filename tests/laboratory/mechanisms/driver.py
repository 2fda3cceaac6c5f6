"""``python -m tests.laboratory.mechanisms.driver``: start Spark, then do what the standard input says."""
# ruff: noqa: T201  talks to its parent

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import urlsplit

from asynclock.spark import load_spec, run, run_services, session


def main() -> None:
    """Say ``ready``, read one order, carry it out until SIGTERM, and say what the commit lock has cost."""
    spark = session("asynclock-driver", master="local[1]", conf={"spark.sql.shuffle.partitions": "1"})
    print(json.dumps({"ready": True}), flush=True)
    line = sys.stdin.readline()
    if not line:
        return
    order: dict[str, Any] = json.loads(line)
    spec = load_spec(order["spec"])
    if order["streams"]:
        run(spec, streams=order["streams"], once=order["once"], spark=spark)
    else:
        run_services(spec, once=order["once"], spark=spark)
    jvm: Any = spark._jvm
    taken, waited, held = jvm.io.asynclock.hudi.FileLockProvider.use(urlsplit(spec.table.path).path)
    print(json.dumps({"taken": taken, "waited": waited / 1e9, "held": held / 1e9}), flush=True)


if __name__ == "__main__":
    main()
