"""What a full disk, or a kill at the wrong moment, leaves on the timeline: empty plans and empty results."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from asynclock.spark.hadoop import HadoopFiles
from asynclock.spark.hudi.instants import CLUSTERED, WRITES

if TYPE_CHECKING:
    from collections.abc import Container

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


def reopen_empty_clusterings(
    spark: SparkSession, table: str, instants: list[Instant], seen: Container[str]
) -> list[str]:
    """Take back clusterings whose result is empty, and return their instants, whose plans are still there.

    Such a result does not say which files the clustering has replaced, so each row of them is there twice.
    After a later write it cannot be taken back, since that write may have changed either copy of a row.

    Args:
        spark: The session.
        table: URL of the table.
        instants: The active timeline. Only the leader of the service may do this.
        seen: Instants that were looked at before, since each look costs requests.
    """
    files = HadoopFiles(spark)
    written = max((one.completed or "" for one in instants if one.action in WRITES), default="")
    reopened = []
    for instant in instants:
        if instant.action != CLUSTERED or instant.completed is None or instant.requested in seen:
            continue
        file = f"{table}/.hoodie/timeline/{instant.requested}_{instant.completed}.{CLUSTERED}"
        if not files.exists(file) or files.size(file):
            continue
        if written > instant.completed:
            log.error(
                "the clustering %s has an empty result and the table was written since: rows may be there"
                " twice; restore a savepoint from before, or write the table anew",
                instant.requested,
            )
            continue
        # The result last: until it is gone, the next leader knows that there are such files. Hudi would not
        # find them, since the markers of a completed clustering are gone.
        for made in files.below(table):
            if re.search(rf"_{instant.requested}\.\w+$", made):
                files.delete(made)
        files.delete(file)
        log.warning("the clustering %s had an empty result; it is carried out again", instant.requested)
        reopened.append(instant.requested)
    return reopened
