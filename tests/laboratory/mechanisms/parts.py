"""The parts in the order of the article; each is a module of this package with a function ``show``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.laboratory.mechanisms.stage import Shown, Stage


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes:
        number: Its line in docs/concepts/pipeline/mechanisms.md.
        name: What it is called there.
        module: Where it is shown.
    """

    number: int
    name: str
    module: str

    def show(self, stage: Stage) -> Shown:
        """Let it be seen; raises ``NotShownError`` if it does not do what it must."""
        shown: Shown = import_module(f"tests.laboratory.mechanisms.{self.module}").show(stage)
        return shown


PARTS: Final = (
    Part(1, "timeline and instants", "instants"),
    Part(2, "snapshot, read-optimized, time travel", "queries"),
    Part(3, "incremental by completion time", "incremental"),
    Part(4, "late data, event-time partitions", "late_data"),
    Part(5, "lock-less writers", "lockless"),
    Part(6, "optimistic concurrency control", "optimistic"),
    Part(7, "early conflict detection", "early_detection"),
    Part(8, "the starved job", "starved"),
    Part(9, "markers", "markers"),
    Part(10, "heartbeats", "heartbeats"),
    Part(11, "atomic publish and rollback", "atomic"),
    Part(12, "payloads and merge modes", "merge_modes"),
    Part(13, "a splice on copy-on-write", "copy_on_write"),
    Part(14, "table services", "table_services"),
    Part(15, "joins as views", "joins"),
    Part(16, "column insert and update by SQL", "statements"),
    Part(17, "sources", "sources"),
    Part(18, "unique keys", "unique_keys"),
    Part(19, "column groups", "column_groups"),
    Part(20, "merge functions", "merge_functions"),
)
