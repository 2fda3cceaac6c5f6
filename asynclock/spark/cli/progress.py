"""The display on a terminal while a command works: a spinner, or a bar for each stream."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Self

from asynclock._shared.words import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from asynclock.spark.results import StreamProgress


def _terminal(*, quiet: bool) -> Console | None:
    """Return a console for the terminal of the standard error; None: there is none, or ``quiet``."""
    if quiet or sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None
    from rich.console import Console  # noqa: PLC0415  lets other commands start faster

    return Console(stderr=True, highlight=False)


@contextlib.contextmanager
def busy(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a spinner and a text on a terminal while the body works; it leaves nothing behind.

    Args:
        text: The work of the body.
        quiet: Show nothing.
    """
    terminal = _terminal(quiet=quiet)
    with contextlib.nullcontext() if terminal is None else terminal.status(text):
        yield


class StreamBars:
    """A bar for each stream of a run, on a terminal; a context manager.

    A bar shows how many of the files present at the start are done, the rows, the rows per second, the time
    left and the current batch.

    Args:
        quiet: Show nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._terminal = _terminal(quiet=quiet)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    @property
    def shown(self) -> bool:
        """Whether there is a terminal to show them on."""
        return self._terminal is not None

    def __enter__(self) -> Self:
        if self._terminal is not None:
            from rich import progress  # noqa: PLC0415  lets other commands start faster

            self._bars = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(bar_width=20),
                progress.TextColumn("{task.fields[files]}"),
                progress.TextColumn("{task.fields[rows]}"),
                progress.TimeRemainingColumn(compact=True),
                progress.TextColumn("{task.fields[batch]}"),
                console=self._terminal,
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def update(self, done: StreamProgress) -> None:
        """Move the bar of a stream. From any thread."""
        if self._bars is None:
            return
        files = (
            f"{done.files_done:,} files"
            if done.files is None
            else f"{done.files_done:,}/{done.files:,} files"
        )
        speed = f", {done.rows / done.seconds:,.0f}/s" if done.rows and done.seconds else ""
        shown = {
            "total": done.files,
            "completed": done.files_done,
            "files": files,
            "rows": f"{done.rows:,} rows{speed}",
            "batch": "" if done.batch_id is None else f"batch {done.batch_id}",
        }
        if done.stream not in self._tasks:
            self._tasks[done.stream] = self._bars.add_task(printable(done.stream), **shown)  # type: ignore[arg-type]
        else:
            self._bars.update(self._tasks[done.stream], **shown)  # type: ignore[arg-type]
