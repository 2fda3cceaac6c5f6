"""A writer that commits row after row until it is killed: ``endless_writer.py PATH LOCK_PROVIDER``."""

from __future__ import annotations

import sys
from itertools import count

from asynclock.spark.hudi.options import sql_options
from asynclock.spark.hudi.session import session
from tests.unit.specs import table_spec


def main(path: str, provider: str) -> None:
    """Print the JVM's process id once the table exists, then keep writing."""
    spark = session("endless-writer", master="local[1]")
    options = {
        **sql_options(table_spec(path, buckets=1), tasks=1),
        "hoodie.datasource.write.recordkey.field": "key",
        "hoodie.write.lock.provider": provider,
        "hoodie.write.lock.filesystem.expire": "0",
    }
    for number in count():
        spark.sql(f"SELECT 'dead' AS key, timestamp_seconds({number}) AS a__ts").write.format("hudi").options(
            **options
        ).mode("append").save(path)
        if number == 0:
            print(spark._jvm.java.lang.ProcessHandle.current().pid(), flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main(*sys.argv[1:])
