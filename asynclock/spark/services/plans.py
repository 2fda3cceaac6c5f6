"""Plans of table services that are no plans."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from asynclock.spark.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.hudi.instants import Instant

log = logging.getLogger(__name__)


def remove_empty_plans(spark: SparkSession, table: str, instants: list[Instant], action: str) -> list[str]:
    """Remove the plans of a service whose files are empty, and return their instants.

    Hudi 1.2 gives a plan that it could not write for want of space its name all the same. With such a plan
    of a compaction every read and write of the table fails, and the service for ever. Nothing was done by it.

    Args:
        spark: The session.
        table: URL of the table.
        instants: The active timeline; those that are removed are taken off.
        action: Of the service: only its leader may remove its plans, or who has reserved the table.
    """
    files = HadoopFiles(spark)
    removed = []
    for instant in list(instants):
        if instant.action == action and instant.state == "REQUESTED":
            file = f"{table}/.hoodie/timeline/{instant.requested}.{action}.requested"
            if files.exists(file) and not files.size(file):
                files.delete(file)
                log.warning("the %s that was planned at %s had no plan; removed", action, instant.requested)
                instants.remove(instant)
                removed.append(instant.requested)
    return removed
