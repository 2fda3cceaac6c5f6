"""Leftovers that Hudi does not expect: plans and results without content, files of rolled back writes."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from asynclock.spark.hudi.instants import CLUSTERED, WRITES
from asynclock.spark.hudi.meta import active_timeline

if TYPE_CHECKING:
    from collections.abc import Container

    from asynclock.spark.hudi.instants import Instant
    from asynclock.spark.hudi.table import Table

log = logging.getLogger(__name__)


def remove_empty_plans(table: Table, instants: list[Instant], action: str) -> list[str]:
    """Remove the plans of a service whose files are empty, and return their instants.

    When the disk is full, Hudi 1.2 still creates the plan's file, empty. With such a plan of a compaction,
    every read and write of the table fails, and so does the service, forever. Such a plan has changed
    nothing.

    Args:
        table: The table.
        instants: The active timeline; removed instants are taken off.
        action: The service's; only its leader, or the holder of a reservation, may remove its plans.
    """
    files = table.files
    removed = []
    for instant in list(instants):
        if instant.action == action and instant.state == "REQUESTED":
            file = f"{table.path}/.hoodie/timeline/{instant.requested}.{action}.requested"
            if files.exists(file) and not files.size(file):
                files.delete(file)
                log.warning("the %s that was planned at %s had no plan; removed", action, instant.requested)
                instants.remove(instant)
                removed.append(instant.requested)
    return removed


def reopen_empty_clusterings(table: Table, instants: list[Instant], seen: Container[str]) -> list[str]:
    """Take back clusterings whose result is empty, and return their instants, whose plans are still there.

    Such a result does not name the files that the clustering has replaced, so each of their rows exists
    twice. After a later write it cannot be taken back, since that write may have changed either copy of a
    row.

    Args:
        table: The table.
        instants: The active timeline. Only the leader of the service may do this.
        seen: Instants that were examined before, since each look costs requests.
    """
    files = table.files
    written = max((one.completed or "" for one in instants if one.action in WRITES), default="")
    reopened = []
    for instant in instants:
        if instant.action != CLUSTERED or instant.completed is None or instant.requested in seen:
            continue
        file = f"{table.path}/.hoodie/timeline/{instant.requested}_{instant.completed}.{CLUSTERED}"
        if not files.exists(file) or files.size(file):
            continue
        if written > instant.completed:
            log.error(
                "the clustering %s has an empty result and the table was written since: rows may be there"
                " twice; restore a savepoint from before, or write the table again",
                instant.requested,
            )
            continue
        # The result last: until it is gone, the next leader knows that there are such files. Hudi would not
        # find them: a completed clustering has no markers any more.
        for made in _data_files(table, {instant.requested}):
            files.delete(made)
        files.delete(file)
        log.warning("the clustering %s had an empty result; it is planned again", instant.requested)
        reopened.append(instant.requested)
    return reopened


def remove_late_files(table: Table) -> list[str]:
    """Remove files of rolled back writes that a task of a dead writer has made since.

    Nobody sees such a file while the active timeline begins before its instant. For Hudi, the files of
    earlier instants are committed, so call this before an archiving.

    Args:
        table: The table.

    Returns:
        The removed files.
    """
    meta = table.timeline.meta()
    if meta is None:
        return []
    active = active_timeline(meta)
    rollbacks = active.getRollbackTimeline().filterCompletedInstants().getInstants()
    rolled_back: set[str] = set()
    for rollback in rollbacks:
        try:
            rolled_back.update(map(str, active.readRollbackMetadata(rollback).getCommitsRollback()))
        except Py4JJavaError:  # a full disk has left it without content; the archiving must go on
            log.warning("what the rollback %s removed cannot be read", rollback.requestedTime())
    # A rolled back write may have been carried out again under its instant. This is not known for instants
    # before the first write of the active timeline.
    known = {instant.requestedTime() for instant in active.getInstants()}
    first = min((one.requestedTime() for one in active.getCommitsTimeline().getInstants()), default="")
    dead = {instant for instant in rolled_back - known if instant > first}
    if not dead:
        return []
    files = table.files
    late = _data_files(table, dead)
    for file in late:
        log.warning("the file %s was made after its write was rolled back; removed", file)
        files.delete(file)
    return late


def _data_files(table: Table, instants: set[str]) -> list[str]:
    """Return the base and log files of a table that writes at these instants have made."""
    theirs = re.compile(rf"_({'|'.join(sorted(instants))})\.(parquet|log\.)")
    return [file for file in table.files.below(table.path) if "/.hoodie/" not in file and theirs.search(file)]
