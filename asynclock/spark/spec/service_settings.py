"""When the table services run, and who runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from asynclock.errors import ConfigError
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection

ServicesMode = Literal["elected", "inline"]

_MODES: Final = get_args(ServicesMode)


@dataclass(frozen=True, kw_only=True)
class ServicesSpec:
    """When the table services run, counted in commits.

    Attributes:
        mode: ``elected``: beside the streams, under a leader each; ``inline``: inside of the writes.
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
        if self.mode not in _MODES:
            raise _wrong("mode", self.mode, unknown_name(self.mode, _MODES))
        check_at_least("compaction.every_commits", self.compact_every_commits, 1)
        if self.cluster_every_commits is not None:
            check_at_least("clustering.every_commits", self.cluster_every_commits, 1)
        check_at_least("cleaning.retain_commits", self.retain_commits, 1)
        if self.archive_min_commits <= self.retain_commits:
            raise _wrong(
                "archiving.keep_min_commits",
                self.archive_min_commits,
                f"Hudi cleans by the active timeline: keep more than retain_commits ({self.retain_commits})",
            )
        if self.archive_max_commits <= self.archive_min_commits:
            raise _wrong(
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
            raise _wrong("clustering", {"every_commits": self.cluster_every_commits}, reason)
        for name in self.cluster_by:
            if name not in columns:
                raise _wrong("clustering.sort_by", name, unknown_name(name, columns))
        if self.mode == "inline" and kind == "splice" and concurrency != "nbcc":
            reason = (
                "the guard of a splice table tells every session that its writes run no services; remove it, "
                'and run the services beside the streams ("elected")'
            )
            raise _wrong("mode", self.mode, reason)
        if self.mode == "inline" and concurrency == "nbcc":
            reason = (
                "writers that never wait for each other would compact the same files at the same time; "
                'remove it, and run the services beside the streams ("elected")'
            )
            raise _wrong("mode", self.mode, reason)


def check_at_least(setting: str, value: int, least: int) -> None:
    """Refuse a number below ``least``.

    Raises:
        ConfigError: The number is too low.
    """
    if value < least:
        raise _wrong(setting, value, f"must be a whole number, {least} or more")


def _wrong(setting: str, value: object, reason: str) -> ConfigError:
    return ConfigError(setting=setting, value=value, reason=reason)
