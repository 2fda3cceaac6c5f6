"""What a part is given to show itself with, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from asynclock.spark.spec.load import load_spec
from examples.fleet_data import prepare, write_spec
from tests.spark.pipeline_kit import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

T = TypeVar("T")


class NotShownError(Exception):
    """A part did not do what it must."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What was seen of a part.

    Attributes:
        sentence: What it did, with its numbers.
        table: Rows of measurements, each with the same names; empty if the sentence says all.
    """

    sentence: str
    table: Sequence[Mapping[str, object]] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The place where one part is shown.

    Attributes:
        spark: A session on two cores.
        folder: An empty folder of this part alone.
        small: Whether this is the short form of the test run.
    """

    spark: SparkSession
    folder: Path
    small: bool

    def sized(self, small: T, full: T) -> T:
        """Return the first in the test run and the second in ``make mechanisms``."""
        return small if self.small else full

    @property
    def deadline(self) -> float:
        """Seconds within which a run in the background ends; in its full form it writes for minutes."""
        return self.sized(DEADLINE, 400.0)

    def fleet(self, rows: int, *, files: int = 6, changes: Mapping[str, str] | None = None) -> Spec:
        """Deliver the first flights of the year as the files of three streams.

        Args:
            rows: Number of events.
            files: Files of each stream.
            changes: Pieces of the spec's text, and what replaces them.

        Returns:
            The spec of their table, ``examples/fleet.toml`` with its paths in the folder.
        """
        prepare(self.folder, rows=rows, files_per_stream=files)
        path = write_spec(self.folder)
        text = path.read_text()
        for old, new in (changes or {}).items():
            must(old in text, f"fleet.toml has {old!r}")
            text = text.replace(old, new)
        path.write_text(text)
        return load_spec(path)


def must(holds: object, what: str) -> None:
    """Raise ``NotShownError`` with what should hold, unless it does."""
    if not holds:
        raise NotShownError(f"this does not hold: {what}")


def lines(table: Sequence[Mapping[str, object]]) -> list[str]:
    """Return a table as lines of equal width."""
    if not table:
        return []
    rows = [list(table[0]), *([_text(value) for value in row.values()] for row in table)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
