"""A Spark session that knows nothing of asynclock: ``foreign_session.py JARS WAREHOUSE``.

Each line of its input is a piece of Python in which ``spark`` is the session. A line of JSON answers it: the
value of the piece, or the error. It has Hudi's extension only, which no session beside one of ours could.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(jars: str, warehouse: str) -> None:
    """Answer until the input ends."""
    settings = {
        "spark.jars": jars,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.warehouse.dir": warehouse,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    }
    builder = SparkSession.builder.master("local[2]").appName("foreign")
    for name, value in settings.items():
        builder = builder.config(name, value)
    known = {"spark": builder.getOrCreate()}
    for piece in sys.stdin:
        try:
            answer = {"value": eval(piece, known)}  # noqa: S307 - the tests' own
        except Exception as error:  # noqa: BLE001 - the answer
            answer = {"error": str(error)}
        print(json.dumps(answer, default=str), flush=True)  # noqa: T201 - read by the test
    known["spark"].stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
