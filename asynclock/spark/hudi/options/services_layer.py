"""The layer of the table services: the work that a write leaves to them, and their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.spark import hoodie
from asynclock.spark.hudi.options.option import Option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.spark.hudi.options.option import Use
    from asynclock.spark.spec.model import TableSpec
    from asynclock.spark.spec.service_settings import ServicesSpec

_ELECTED: Final = "Elected leaders do this next to the streams (asynclock pipeline services)."
_INLINE: Final = "The spec's services run inside the writes."
_BREAKS: Final = "A clustering plan makes every later write of a table with buckets fail."
_CLUSTERING_PLAN: Final = "io.asynclock.hudi.DistinctClusteringPlanStrategy"
_COMPACTION_PLAN: Final = "io.asynclock.hudi.DistinctCompactionStrategy"
_ONCE: Final = (
    "Hudi's default plan, with each partition once: Hudi may list one twice after a kill or a full disk."
)
_UNUSED: Final = "The spec has no clustering."


def services(spec: ServicesSpec, table: TableSpec, use: Use) -> Iterator[Option]:
    """Yield the options of the table services."""
    writes = use in {"write", "sql"}
    inline = writes and spec.mode == "inline"
    if writes:
        yield from _inside(spec, table)
    if table.type == "mor" and (inline or use in {"compaction", "cleaning"}):
        yield _option(
            hoodie.COMPACT_INLINE_MAX_DELTA_COMMITS,
            str(spec.compact_every_commits),
            "The spec's compaction.every_commits: commits until logs are merged into base files.",
        )
        yield _option(hoodie.COMPACTION_STRATEGY, _COMPACTION_PLAN, _ONCE)
    if spec.cluster_every_commits is not None and (inline or use == "clustering"):
        yield from _clustering(spec, spec.cluster_every_commits)
    if inline or use == "cleaning":
        yield from _cleaning(spec)


def _inside(spec: ServicesSpec, table: TableSpec) -> Iterator[Option]:
    """Yield the options of the services that run in a write."""
    inline = spec.mode == "inline"
    clustering = inline and spec.cluster_every_commits is not None
    on = {
        hoodie.COMPACT_INLINE: inline and table.type == "mor",
        hoodie.COMPACT_SCHEDULE_INLINE: False,
        hoodie.DATASOURCE_COMPACTION_ASYNC_ENABLE: False,
        hoodie.CLEAN_AUTOMATIC: inline,
        hoodie.CLEAN_ASYNC_ENABLED: False,
        hoodie.ARCHIVE_AUTOMATIC: inline,
    }
    for key, value in on.items():
        yield _option(key, str(value).lower(), _INLINE if inline else _ELECTED)
    why = _BREAKS if table.buckets else _UNUSED if spec.cluster_every_commits is None else _ELECTED
    yield _option(hoodie.CLUSTERING_INLINE, str(clustering).lower(), _INLINE if clustering else why)
    yield _option(hoodie.CLUSTERING_ASYNC_ENABLED, "false", _INLINE if clustering else why)


def _clustering(spec: ServicesSpec, every_commits: int) -> Iterator[Option]:
    yield _option(
        hoodie.CLUSTERING_INLINE_MAX_COMMITS,
        str(every_commits),
        "The spec's clustering.every_commits: commits until small files are joined.",
    )
    yield _option(hoodie.CLUSTERING_PLAN_STRATEGY_CLASS, _CLUSTERING_PLAN, _ONCE)
    if spec.cluster_by:
        yield _option(
            hoodie.CLUSTERING_PLAN_STRATEGY_SORT_COLUMNS,
            ",".join(spec.cluster_by),
            "The spec's clustering.sort_by: rows with near values come into the same files.",
        )


def _cleaning(spec: ServicesSpec) -> Iterator[Option]:
    yield _option(
        hoodie.CLEAN_POLICY, "KEEP_LATEST_COMMITS", "Files that readers of recent commits need are kept."
    )
    yield _option(
        hoodie.CLEAN_COMMITS_RETAINED,
        str(spec.retain_commits),
        "The spec's cleaning.retain_commits: commits whose files are kept.",
    )
    yield _option(
        hoodie.KEEP_MIN_COMMITS,
        str(spec.archive_min_commits),
        "The spec's archiving.keep_min_commits: commits that archiving leaves on the active timeline.",
    )
    yield _option(
        hoodie.KEEP_MAX_COMMITS,
        str(spec.archive_max_commits),
        "The spec's archiving.keep_max_commits: commits on the active timeline at which archiving starts.",
    )


def _option(key: str, value: str, why: str) -> Option:
    return Option(key, value, "services", why)
