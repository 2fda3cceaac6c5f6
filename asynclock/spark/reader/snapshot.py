"""Read the table: as stored, or under its plain names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark.hudi.columns import is_wider
from asynclock.spark.hudi.fit import check_properties
from asynclock.spark.hudi.instants import WRITES
from asynclock.spark.hudi.stored import stored_rows
from asynclock.spark.hudi.table import Table
from asynclock.spark.hudi.time_travel import gone, instant_time, query_time
from asynclock.spark.reader.presence import NO_TABLE, refuse_missing, unread
from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.model import RECORD_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.hudi.instants import Instant
    from asynclock.spark.spec.model import Spec

_PINS: Final = 50
NOT_YET: Final = "nothing is committed yet"
_CLEANED: Final = ("Cleaner cleaned up", "Please ensure sufficient commits are retained")
_IN_FLIGHT: Final = "first incomplete commit"
"""Hudi's message when it refuses to show an earlier state."""


def read(spec: Spec, spark: SparkSession, *, as_of: str | None = None) -> DataFrame:
    """Return the rows of the table under the names of the view.

    A name that one stream has stays plain, one of several streams is ``<stream>__<name>``, and the ``as`` of
    a stream gives any of its columns another name. A stream's columns are null if it has no event for the key
    or if its newest event is a tombstone. A row in which no stream is alive is left out, and in a plain table
    a row whose tombstone is set.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi and the merger, as ``asynclock.spark.session`` makes it.
        as_of: Show the table as it was at the completion time of an instant, ``completed`` of what
            :func:`~asynclock.spark.timeline` returns: with what was complete then, and nothing that was
            requested before and completed later. Columns that were added later are null. None: the table as
            it is.

    Returns:
        A lazy frame: each action reads the table as of its newest commit, or all as of that instant.

    Raises:
        SpecError: There is no such table, it is another one, nothing is committed to it yet, or the spec
            would rename a column of the view.
        ConfigError: No instant was completed at ``as_of``, its files are cleaned away, a restore has dropped
            commits from that time, or a write was in flight that Hudi cannot leave out.
    """
    table = Table(spec, spark)
    rows = snapshot(table, as_of=None if as_of is None else instant_time(as_of, table.timeline))
    table.check_names()
    return table.layout.shown(rows)


def snapshot(table: Table, *, as_of: str | None = None) -> DataFrame:
    """Return every row of the table with its physical columns, merged as of its newest commit.

    Columns of a stream that has not committed yet are null. Columns that the spec does not name are left out.

    Args:
        table: The table, whose commits are refreshed.
        as_of: Merge only what was committed up to this completion time of an instant.
    """
    instants = _instants(table)
    return _shown(table, stored_rows(table)) if as_of is None else _past(table, instants, as_of)


def _past(table: Table, instants: list[Instant], as_of: str) -> DataFrame:
    """Return the table as of an instant, with its files listed, so that later events change no row."""
    if table.timeline.newest_completion() == as_of:
        frame, newest = pinned_snapshot(table)
        if newest == as_of:
            return frame
    time = ""
    for _ in range(_PINS):
        before, time = time, query_time(table, instants, as_of)
        if time == before:
            return frame
        try:
            frame = _shown(table, stored_rows(table, as_of=time))
            frame.inputFiles()
        except (Py4JJavaError, PySparkException) as error:
            if any(words in str(error) for words in _CLEANED):
                raise gone(as_of) from error
            if _IN_FLIGHT not in str(error):
                raise
            time = ""
        # A write takes its time a moment before it is on the timeline. Instants stay in the list, even if
        # they are archived meanwhile.
        listed = {(one.requested, one.action): one for one in (*instants, *table.timeline.instants())}
        instants = list(listed.values())
    raise unread(table.spec, f"{_PINS} times in a row a write began while the files were listed")


def _instants(table: Table) -> list[Instant]:
    """Return the active instants, from before the commits were refreshed."""
    refuse_missing(table)
    if not table.timeline.exists():
        raise unread(table.spec, NO_TABLE)
    instants = table.timeline.instants()
    # Before its first commit is complete a table has no columns to read.
    if not any(instant.completed and instant.action in WRITES for instant in instants):
        raise unread(table.spec, NOT_YET)
    table.commits.refresh()
    return instants


def _shown(table: Table, stored: DataFrame) -> DataFrame:
    spec, columns = table.spec, table.commits.columns()
    present = set(stored.columns)
    if RECORD_KEY not in present:
        raise unread(spec, f"the table is not a {spec.table.kind} table of asynclock")
    check_properties(spec, table.timeline.properties())
    cells = []
    for name, kind in spec.physical_types().items():
        # An older spec shows the wider type that the table has by now.
        if name in columns and is_wider(columns[name].declared, kind):
            kind = columns[name].declared  # noqa: PLW2901
        cells.append((F.col(name) if name in present else F.lit(None)).cast(sql_type(kind)).alias(name))
    return stored.select(*cells)


def pinned_snapshot(table: Table) -> tuple[DataFrame, str]:
    """Return the snapshot of the present commits, and the newest completion time in it.

    The frame shows the same rows however late it is read, while others commit and compact. The cleaning keeps
    its files as long as those of any reader. Unlike time travel, it works next to any writes in flight.
    """
    for _ in range(_PINS):
        newest = table.timeline.newest_completion()
        frame = snapshot(table)
        frame.inputFiles()  # lists the files, and Hudi keeps the list
        if newest is not None and table.timeline.newest_completion() == newest:
            return frame, newest
    raise unread(table.spec, f"{_PINS} times in a row something was committed while the files were listed")


def physical_columns(spec: Spec) -> list[str]:
    """Return the names of the stored columns: the shared ones, then stream by stream."""
    return list(spec.physical_types())
