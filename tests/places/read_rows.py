"""A driver for ``spark-submit`` that prints its master and every row of a table's view."""

from __future__ import annotations

import json
import sys

from asynclock.spark import load_spec, read, session_for

spec = load_spec(sys.argv[1])
with session_for(spec, "rows") as spark:
    rows = [row.asDict() for row in read(spec, spark).collect()]
    print(json.dumps({"master": spark.sparkContext.master, "rows": rows}))  # noqa: T201
