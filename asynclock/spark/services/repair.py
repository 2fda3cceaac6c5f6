"""Repair a splice table after a write or a plan that did not come from its pipeline.

Rows outside the buckets are first copied next to the table's metadata. Then their files are removed, and the
copies are appended like a stream's events. The next repair finishes an interrupted one: a file is removed
only after it is on the list of copied files, and appending a row twice changes nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock.spark import hoodie
from asynclock.spark.hudi.instants import CLUSTERING, COMPACTION
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.hudi.options import write_options
from asynclock.spark.hudi.own import own_session
from asynclock.spark.hudi.running import session_for
from asynclock.spark.hudi.stored import stored_rows
from asynclock.spark.hudi.strays import file_id, listed_strays
from asynclock.spark.hudi.table import REPAIR_COPY, Table
from asynclock.spark.services.plans import remove_empty_plans
from asynclock.spark.source.files import frame_of
from asynclock.spark.spec.column_groups import group_of
from asynclock.spark.spec.functions import SUMS
from asynclock.spark.spec.keys import record_key
from asynclock.spark.spec.load import misplaced
from asynclock.spark.spec.model import RECORD_KEY
from asynclock.spark.spec.ordering import merged_as, orderings_among
from asynclock.spark.work.worker import reserved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from asynclock import sync
    from asynclock.spark.spec.model import Spec

log = logging.getLogger(__name__)

_ROWS: Final = f"{REPAIR_COPY}/rows"
_COPIED: Final = f"{REPAIR_COPY}/files"
_REJECTED: Final = f"{REPAIR_COPY}-rejected"


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairReport:
    """The result of a repair.

    Attributes:
        files: The removed files from outside the buckets, below the table.
        rows: Number of their rows that were moved into the buckets.
        rejected: Number of their rows without a key or any ordering value, which no view showed; kept as
        JSON.
        rejected_folder: Folder of the rejected rows; None if there are none.
        plans: Instants of removed plans: of clusterings, and of compactions whose plan a full disk has left
            empty.
        guarded: Whether the guard had to be put into the table's properties.
    """

    files: tuple[str, ...]
    rows: int
    rejected: int
    rejected_folder: str | None
    plans: tuple[str, ...]
    guarded: bool

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to repair."""
        return not (self.files or self.rows or self.plans or self.guarded)


def repair(spec: Spec, *, spark: SparkSession | None = None, timeout: float | None = None) -> RepairReport:
    """Move rows outside the buckets into them, remove clustering plans, and put the guard back.

    The table is reserved meanwhile: running streams and services finish their present work first. If ordering
    values are equal, the moved row wins, as the one that arrives last.

    Args:
        spec: The table and its streams.
        spark: A session with Hudi and the merger; None: one is started, and stopped at the end.
        timeout: Longest wait for the reservation, in seconds; None: no limit.

    Raises:
        AcquireTimeoutError: The table was not reserved in time; nothing was changed.
        SpecError: The table is a plain one, or the locks of the spec are not those of the table; nothing was
            changed. Or a row outside the buckets has a sum, which may count twice; no row was moved.
        UnfinishedRestoreError: A restore has been left half done; nothing was changed.
        LeaseLostError: The reservation was lost in the middle; run the repair again.
    """
    layout_of(spec).refuse_repair()
    with (
        session_for(spec, "asynclock repair", spark=spark) as running,
        reserved(Table(spec, running), "repair", timeout=timeout) as worker,
    ):
        return _Repair(Table(spec, own_session(running)), worker.lease).run()


class _Repair:
    """One repair; the caller has reserved the table."""

    def __init__(self, table: Table, lease: sync.Lease) -> None:
        self._table = table
        self._spec = table.spec
        self._spark = table.spark
        self._lease = lease
        self._files = table.files

    def run(self) -> RepairReport:
        plans = self._remove_plans()
        guarded = self._table.guard()
        strays = listed_strays(self._spark, self._spec.table)
        copied = self._copied()
        rejected = self._copy([stray for stray in strays if stray not in copied])
        for stray in strays:
            self._delete(stray)
        rows = self._append() if self._files.exists(self._below(_ROWS)) else 0
        self._delete(REPAIR_COPY)
        return RepairReport(
            files=tuple(strays),
            rows=rows,
            rejected=rejected,
            rejected_folder=self._below(_REJECTED) if rejected else None,
            plans=plans,
            guarded=guarded,
        )

    def _remove_plans(self) -> tuple[str, ...]:
        removed = remove_empty_plans(self._table, self._table.timeline.instants(), COMPACTION)
        plans = [one for one in self._table.timeline.pending() if one.action == CLUSTERING]
        for plan in plans:
            if plan.state == "REQUESTED":
                self._delete(f".hoodie/timeline/{plan.requested}.clustering.requested")
            else:
                self._spark.sql(
                    f"CALL run_rollback_inflight_tableservice(path => '{self._table.path}', "
                    f"pending_instant => '{plan.requested}', delete_request_instant_file => true)"
                ).collect()
        return (*removed, *(plan.requested for plan in plans))

    def _copied(self) -> set[str]:
        """Return the files whose rows an interrupted repair has copied."""
        if not self._files.exists(self._below(_COPIED)):
            return set()
        return {row.value for row in self._spark.read.text(self._below(_COPIED)).collect()}

    def _copy(self, strays: list[str]) -> int:
        """Copy the rows of the strays' file groups, to append them; return the number that cannot be."""
        if not strays:
            return 0
        self._table.commits.refresh()
        stored = stored_rows(self._table)
        groups = sorted(filter(None, map(file_id, strays)))
        # In a row from a log the file's name is the id of its group.
        of_group = F.regexp_extract("_hoodie_file_name", "^[^_]+", 0)
        rows = stored.where(of_group.isin(groups))
        rows = rows.select(*(F.col(f"`{name}`") for name in rows.columns if not name.startswith("_hoodie_")))
        self._refuse_sums(rows)
        fit = self._fits(rows)
        rejected: int = rows.where(~fit).count()
        if rejected:
            rows.where(~fit).write.mode("append").json(self._below(_REJECTED))
        rows.where(fit).selectExpr(*self._values(rows)).write.mode("append").parquet(self._below(_ROWS))
        paths = frame_of(self._spark, [(stray,) for stray in strays], "value string")
        paths.write.mode("append").text(self._below(_COPIED))
        return rejected

    def _refuse_sums(self, rows: DataFrame) -> None:
        """Refuse rows that count twice if the repair is interrupted after it has appended them."""
        for name in rows.columns:
            if group_of(name) == SUMS and not rows.where(F.col(f"`{name}`").isNotNull()).isEmpty():
                reason = (
                    f"rows outside the buckets have values of {name}, and a repair that is interrupted would "
                    "count them twice. No row was moved; restore a savepoint from before those rows"
                )
                raise misplaced(self._spec, ("table", "path"), self._spec.table.path, reason)

    def _fits(self, rows: DataFrame) -> Column:
        table = self._spec.table
        keyed = [f"coalesce(CAST(`{name}` AS STRING), '') <> ''" for name in table.shared_columns]
        seen = map(_ordered, orderings_among(rows.columns).values())
        return F.expr(f"{' AND '.join(keyed)} AND ({' OR '.join(seen)})")

    def _values(self, rows: DataFrame) -> Iterator[str]:
        orderings = orderings_among(rows.columns)
        for name in rows.columns:
            prefix, separator, _ = name.partition("__")
            ordering = orderings.get(merged_as(prefix)) if separator else None
            if name == RECORD_KEY:
                yield f"{record_key(self._spec.table)} AS `{name}`"
            elif ordering:
                # Without its ordering value a stream's columns are dropped by the merge.
                yield f"CASE WHEN {_ordered(ordering)} THEN `{name}` END AS `{name}`"
            else:
                yield f"CASE WHEN true THEN `{name}` END AS `{name}`"

    def _append(self) -> int:
        rows = self._spark.read.parquet(self._below(_ROWS))
        count: int = rows.count()
        if count:
            options = write_options(self._spec, tasks=self._table.tasks, name=self._table.name())
            # A key may have been in several of the files.
            options[hoodie.COMBINE_BEFORE_UPSERT] = "true"
            self._lease.check()
            rows.write.format("hudi").options(**options).mode("append").save(self._table.path)
            log.info("moved %d rows of %s into its buckets", count, self._table.path)
        return count

    def _delete(self, below: str) -> None:
        self._lease.check()
        self._files.delete(self._below(below))

    def _below(self, path: str) -> str:
        return f"{self._table.path}/{path}"


def _ordered(ordering: list[str]) -> str:
    """Return SQL that says whether a row has the ordering values of a group."""
    return " AND ".join(f"`{name}` IS NOT NULL" for name in ordering)
