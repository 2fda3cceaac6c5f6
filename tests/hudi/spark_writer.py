"""A Spark driver of its own that writes to tables on s3a, told what to do line by line."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from asynclock.errors import ConfigError
from asynclock.spark import load_spec, session
from asynclock.spark.writer.splice import Splice
from asynclock.sync import hudi

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def start(folder: str, jars: str) -> SparkSession:
    """A session with S3A and the tests' client of Hudi's lock."""
    s3a = "spark.hadoop.fs.s3a."
    return session(
        "asynclock-hudi-tests",
        master="local[2]",
        conf={
            "spark.jars": jars,
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"file://{folder}/warehouse",
            "spark.local.dir": f"{folder}/local",
            f"{s3a}endpoint": os.environ["AWS_ENDPOINT_URL_S3"],
            f"{s3a}access.key": os.environ["AWS_ACCESS_KEY_ID"],
            f"{s3a}secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
            f"{s3a}path.style.access": "true",
            f"{s3a}connection.ssl.enabled": "false",
        },
    )


def write(spark: SparkSession, base: str, value: int) -> str:
    """One commit of one row, guarded by Hudi's lock."""
    options = {
        **hudi.write_options(base),
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.clean.automatic": "false",
    }
    row = spark.createDataFrame([(1, value)], "id long, v long")
    row.write.format("hudi").options(**options).mode("append").save(base)
    return str(spark.read.format("hudi").load(base).collect()[0]["v"])


def validate(spark: SparkSession, base: str) -> str:
    """What Hudi's own validator says of the audit trail."""
    row = spark.sql(f"CALL validate_audit_lock(path => '{base}')").collect()[0]
    return f"{row['validation_result']} {row['transactions_validated']} {row['details']}"


def splice(spark: SparkSession, spec_path: str, options: dict[str, Any]) -> str:
    """Write to a splice table, first with its lock free, then while this very process holds it."""
    spec = load_spec(spec_path)
    columns = "id string, happened_at timestamp, x long"
    row = spark.sql("SELECT 'a' id, timestamp'2026-01-01 00:00:00' happened_at, 1L x").to(
        spark.createDataFrame([], columns).schema
    )
    table = Splice(spec, spark)
    assert table.write(row, "a", batch_id=0)
    with hudi.table_lock(spec.table.path, options):
        try:
            table.write(row, "a", batch_id=1)
        except ConfigError as error:
            refused = str(error)
        else:
            refused = "written"
    table.write(row, "a", batch_id=2)
    return refused


def main() -> None:
    """Answer each line with one line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = start(sys.argv[1], sys.argv[2])
    answers.write("ready\n")
    answers.flush()
    commands: dict[str, Callable[..., str]] = {"write": write, "validate": validate, "splice": splice}
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answers.write(commands[name](spark, *arguments) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
