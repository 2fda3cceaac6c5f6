"""What the demo shows: lines as things happen, bars on a terminal, and tables at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_WIDTH: Final = 110


class Screen:
    """Lines with the seconds since the start; on a terminal also a bar for each stream."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        terminal = Console()
        # A pipe has no width, and lines must not be wrapped there.
        self._console = terminal if terminal.is_terminal else Console(width=_WIDTH, soft_wrap=True)
        self._bars = Progress(
            TextColumn("{task.description:>12}"),
            BarColumn(bar_width=50),
            MofNCompleteColumn(),
            TextColumn("rows"),
            console=self._console,
            disable=not terminal.is_terminal,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._rows: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_bars()

    def open_bars(self, totals: Mapping[str, int]) -> None:
        """Show a bar for each stream; ``totals`` are rows."""
        self._tasks = {stream: self._bars.add_task(stream, total=total) for stream, total in totals.items()}
        self._bars.start()

    def close_bars(self) -> None:
        """Take the bars off the screen."""
        self._bars.stop()

    def advance(self, stream: str, rows: int, detail: str) -> None:
        """Move the bar of a stream; without a terminal, say it in a line."""
        self._bars.advance(self._tasks[stream], rows)
        if self._bars.disable:
            self.say(detail)

    def say(self, sentence: str) -> None:
        """Print a line with the time."""
        self.show(f"{time.monotonic() - self._started:6.1f} s  {sentence}")

    def show(self, text: str) -> None:
        """Print text as it stands."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Text in columns: numbers to the right, the rest to the left."""
    lines = [tuple(header), *(tuple(_cell(value) for value in row) for row in rows)]
    right = [all(_is_number(line[place]) for line in lines[1:]) for place in range(len(header))]
    widths = [max(len(line[place]) for line in lines) for place in range(len(header))]
    return "\n".join(
        "  "
        + "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).replace("%", "").strip("- ").isdigit()
