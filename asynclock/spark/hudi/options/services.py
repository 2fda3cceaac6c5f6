"""The layer of the table services: what a write leaves to them, and when they act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.hudi import hoodie
from asynclock.spark.hudi.options.option import Option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.spark.hudi.options.option import Use
    from asynclock.spark.spec.model import ServicesSpec

_ELECTED: Final = "Elected leaders do this beside the streams (asynclock pipeline services)."
_OFF: Final = (
    hoodie.COMPACT_INLINE,
    hoodie.COMPACT_SCHEDULE_INLINE,
    hoodie.DATASOURCE_COMPACTION_ASYNC_ENABLE,
    hoodie.CLEAN_AUTOMATIC,
    hoodie.CLEAN_ASYNC_ENABLED,
    hoodie.ARCHIVE_AUTOMATIC,
)
_NO_CLUSTERING: Final = (hoodie.CLUSTERING_INLINE, hoodie.CLUSTERING_ASYNC_ENABLED)


def services(spec: ServicesSpec, use: Use) -> Iterator[Option]:
    """Yield the options of the table services."""
    if use in {"write", "sql"}:
        for key in _OFF:
            yield _option(key, "false", _ELECTED)
        for key in _NO_CLUSTERING:
            yield _option(key, "false", "A clustering plan makes every later write of a bucket table fail.")
    if use in {"compaction", "cleaning"}:
        yield _option(
            hoodie.COMPACT_INLINE_MAX_DELTA_COMMITS,
            str(spec.compact_every_commits),
            "The spec's compaction.every_commits: commits until logs are merged into base files.",
        )
    if use == "cleaning":
        yield from _cleaning(spec)


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
