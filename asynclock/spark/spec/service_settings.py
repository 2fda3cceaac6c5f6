"""When the table services run, and who runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from asynclock.spark.spec.checked import Whole, checked, wrong
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection

ServicesMode = Literal["elected", "inline"]
Commits = Annotated[Whole, Field(ge=1)]


@dataclass(frozen=True, kw_only=True)
class ServicesSpec:
    """When the table services run, counted in commits.

    Attributes:
        mode: ``elected``: next to the streams, under a leader each; ``inline``: inside the writes.
        compact_every_commits: Commits after which logs are merged into base files.
        cluster_every_commits: Commits after which small files are joined; None: never.
        cluster_by: Columns by which clustering sorts the rows.
        retain_commits: Commits whose files cleaning keeps for readers.
        archive_min_commits: Commits that archiving leaves on the active timeline; above ``retain_commits``.
        archive_max_commits: Commits on the active timeline at which archiving starts.
    """

    mode: ServicesMode = "elected"
    compact_every_commits: int = 10
    cluster_every_commits: int | None = None
    cluster_by: tuple[str, ...] = ()
    retain_commits: int = 10
    archive_min_commits: int = 20
    archive_max_commits: int = 30

    def __post_init__(self) -> None:
        if self.archive_min_commits <= self.retain_commits:
            raise wrong(
                "archiving.keep_min_commits",
                self.archive_min_commits,
                f"Hudi cleans by the active timeline: keep more than retain_commits ({self.retain_commits})",
            )
        if self.archive_max_commits <= self.archive_min_commits:
            raise wrong(
                "archiving.keep_max_commits",
                self.archive_max_commits,
                f"must be above keep_min_commits ({self.archive_min_commits})",
            )

    def refuse_unfit(self, *, kind: str, concurrency: str, buckets: int, columns: Collection[str]) -> None:
        """Refuse services that would break the table.

        Args:
            kind: The kind of the table.
            concurrency: Its concurrency.
            buckets: Its buckets per partition; 0: none.
            columns: Its columns.

        Raises:
            ConfigError: The setting that has to change, and why.
        """
        if self.cluster_every_commits is not None and buckets:
            remedy = (
                "remove it, and cluster a second, plain table"
                if kind == "splice"
                else "remove it, or set buckets = 0"
            )
            reason = f"a clustering plan makes every later write of a table with buckets fail; {remedy}"
            raise wrong("clustering", {"every_commits": self.cluster_every_commits}, reason)
        for name in self.cluster_by:
            if name not in columns:
                raise wrong("clustering.sort_by", name, unknown_name(name, columns))
        if self.mode == "inline" and kind == "splice" and concurrency != "nbcc":
            reason = (
                "the guard of a splice table tells every session that its writes run no services; remove it, "
                'and run the services next to the streams ("elected")'
            )
            raise wrong("mode", self.mode, reason)
        if self.mode == "inline" and concurrency == "nbcc":
            reason = (
                "writers that never wait for each other would compact the same files at the same time; "
                'remove it, and run the services next to the streams ("elected")'
            )
            raise wrong("mode", self.mode, reason)


@checked
class _Compaction:
    """When logs are merged into base files.

    Attributes:
        every_commits: Commits after which it runs.
    """

    every_commits: Commits = ServicesSpec.compact_every_commits


@checked
class _Clustering:
    """When small files are joined.

    Attributes:
        every_commits: Commits after which it runs.
        sort_by: Columns by which it sorts the rows.
    """

    every_commits: Commits
    sort_by: tuple[str, ...] = ()


@checked
class _Cleaning:
    """Which old files are deleted.

    Attributes:
        retain_commits: Commits whose files are kept for readers.
    """

    retain_commits: Commits = ServicesSpec.retain_commits


@checked
class _Archiving:
    """Which commits move to the archived timeline.

    Attributes:
        keep_min_commits: Commits that stay on the active timeline; above retain_commits.
        keep_max_commits: Commits on the active timeline at which archiving starts.
    """

    keep_min_commits: Whole | None = None
    keep_max_commits: Whole | None = None


@checked
class ServicesTable:
    """When the table services run, and who runs them.

    Attributes:
        mode: elected: next to the streams, under a leader each; inline: inside the writes.
        compaction: When logs are merged into base files.
        clustering: When small files are joined; by default never.
        cleaning: Which old files are deleted.
        archiving: Which commits move to the archived timeline.
    """

    mode: ServicesMode = ServicesSpec.mode
    compaction: _Compaction = _Compaction()
    clustering: _Clustering | None = None
    cleaning: _Cleaning = _Cleaning()
    archiving: _Archiving = _Archiving()

    def spec(self) -> ServicesSpec:
        """Return the settings of the services.

        Raises:
            ConfigError: They do not fit together.
        """
        retain, archiving = self.cleaning.retain_commits, self.archiving
        keep_min = retain + 10 if archiving.keep_min_commits is None else archiving.keep_min_commits
        keep_max = keep_min + 10 if archiving.keep_max_commits is None else archiving.keep_max_commits
        return ServicesSpec(
            mode=self.mode,
            compact_every_commits=self.compaction.every_commits,
            cluster_every_commits=self.clustering.every_commits if self.clustering else None,
            cluster_by=self.clustering.sort_by if self.clustering else (),
            retain_commits=retain,
            archive_min_commits=keep_min,
            archive_max_commits=keep_max,
        )
