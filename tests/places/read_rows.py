"""A driver for ``spark-submit``: prints the rows of a view, gives its table more buckets, and looks again."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from asynclock.spark import load_spec, read, rebucket, session_for, validate

if TYPE_CHECKING:
    from asynclock.spark import Spec

spec, wider = map(load_spec, sys.argv[1:])
with session_for(spec, "rows") as spark:

    def tell(of: Spec, **more: Any) -> None:  # noqa: ANN401  JSON
        """Print the rows, and more."""
        rows = [row.asDict() for row in read(of, spark).collect()]
        print(json.dumps({"rows": rows, **more}))  # noqa: T201

    tell(spec, master=spark.sparkContext.master)
    done = rebucket(spec, wider.table.buckets, spark=spark)
    report = validate(wider, spark)
    tell(wider, copied=done.keys, differences=report.differences, keys=report.keys)
