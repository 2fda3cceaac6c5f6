"""``asynclock watch``: the locks under a URL, as they change."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import time
from typing import TYPE_CHECKING, Final, Protocol

import click

from asynclock._cli.arguments import json_option, store_options, url_argument
from asynclock._cli.durations import duration
from asynclock._cli.exit_codes import DONE, SIGNALLED
from asynclock._cli.fitted_table import LOCKS, fitted_table
from asynclock._cli.lock_words import holder_cell, is_overdue, overdue_words
from asynclock._cli.output import console, print_json, tell
from asynclock._cli.target import connect_to, refuse_hudi_table
from asynclock._secrets import clean_message
from asynclock.errors import BackendError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from asynclock._core.status import LockStatus

_LEAST_INTERVAL: Final = 0.1
_OTHER_LINES: Final = 4
"""Lines of the screen without a lock: two headings, a note and the cursor's line."""


@click.command("watch")
@url_argument
@click.option(
    "--interval", type=duration, default=2.0, metavar="TIME", help="Time between two reads; default 2s."
)
@store_options
@json_option
def watch_command(
    url: str, interval: float, options: dict[str, object], max_clock_skew: float | None, *, as_json: bool
) -> int:
    """Show all locks under URL as they change, until Ctrl-C.

    A terminal shows a table. Otherwise, or with --json, it prints a line for each lock, for each change of
    its state or owner, and if its holder is probably dead. Each look costs one listing and a read of each
    lock.
    """
    if not _LEAST_INTERVAL <= interval < math.inf:
        raise ConfigError(setting="interval", value=interval, reason=f"must be {_LEAST_INTERVAL} s or more")
    screen = console()
    live = sys.stdout.isatty() and not screen.is_dumb_terminal and not as_json
    view: _View = _Screen(url, screen) if live else _Lines(as_json=as_json)
    try:
        return asyncio.run(_watch(url, interval, options, max_clock_skew, view))
    except KeyboardInterrupt:
        return DONE
    finally:
        view.close()


class _View(Protocol):
    def show(self, statuses: Sequence[LockStatus]) -> None: ...

    def fail(self, error: BackendError) -> None: ...

    def close(self) -> None: ...


async def _watch(
    url: str, interval: float, options: dict[str, object], max_clock_skew: float | None, view: _View
) -> int:
    loop, watching = asyncio.get_running_loop(), asyncio.current_task()
    assert watching is not None  # noqa: S101  this is a coroutine
    caught: list[int] = []

    def end(number: int) -> None:
        caught.append(number)
        watching.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)
    try:
        async with connect_to(url, options, max_clock_skew=max_clock_skew) as client:
            await refuse_hudi_table(client, "", url)
            view.show(await client.list())  # if the store fails at once, the command fails
            while True:
                await asyncio.sleep(interval)
                try:
                    view.show(await client.list())
                except BackendError as error:
                    view.fail(error)
    except asyncio.CancelledError:
        if not caught:
            raise
        return SIGNALLED + caught[0]


class _Lines:
    """A line for each lock and each change, for files, pipes and programs."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._known: dict[str, LockStatus] = {}
        self._failure: str | None = None

    def show(self, statuses: Sequence[LockStatus]) -> None:
        if self._failure is not None:
            tell("the store answers again")
            self._failure = None
        found = {status.name: status for status in statuses}
        for name in self._known.keys() - found.keys():
            tell(f"{name}: its object was deleted")
        for name, status in found.items():
            before = self._known.get(name)
            if before is None or _told(before) != _told(status):
                self._print(status)
        self._known = found

    def fail(self, error: BackendError) -> None:
        if str(error) != self._failure:
            tell(f"{error}; trying again")
        self._failure = str(error)

    def close(self) -> None:
        pass

    def _print(self, status: LockStatus) -> None:
        if self._as_json:
            print_json(status)
            return
        clock = time.strftime("%Y-%m-%d %H:%M:%S")
        overdue = f"; {overdue_words(status)}" if is_overdue(status) else ""
        sys.stdout.write(f"{clock} {status.name} {status.state} {holder_cell(status)}{overdue}\n")
        sys.stdout.flush()


def _told(status: LockStatus) -> tuple[object, ...]:
    """Return the part of a lock that a line shows; a renewal changes none of it."""
    return status.state, status.owner, status.kept, is_overdue(status)


class _Screen:
    """A table that is redrawn at each look, in the present size of the terminal."""

    def __init__(self, url: str, screen: Console) -> None:
        from rich.live import Live  # noqa: PLC0415  lets other commands start faster

        self._url = url
        self._statuses: Sequence[LockStatus] = ()
        self._looked = time.time()
        self._failure: str | None = None
        self._live = Live(self, console=screen, auto_refresh=False, vertical_overflow="crop")

    def show(self, statuses: Sequence[LockStatus]) -> None:
        self._statuses, self._looked, self._failure = statuses, time.time(), None
        self._draw()

    def fail(self, error: BackendError) -> None:
        self._failure = str(error)
        self._draw()

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> None:
        self._live.start()  # a no-op after the first time
        self._live.refresh()

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text  # noqa: PLC0415  as above

        width, rows = options.max_width, max(1, screen.height - _OTHER_LINES)
        # Held locks come first, so that they are visible even on a small screen.
        by_state = sorted(self._statuses, key=lambda status: (status.state == "free", status.name))
        clock = time.strftime("%H:%M:%S", time.localtime(self._looked))
        held = sum(status.state == "held" for status in self._statuses)
        head = f"{clock}  {held} of {len(self._statuses)} held  {clean_message(self._url)}"
        yield Text(head, style="bold", overflow="ellipsis", no_wrap=True)
        yield fitted_table(LOCKS, by_state[:rows], width)
        if self._failure is not None:
            note = f"the store failed, trying again: {clean_message(self._failure)}"
            yield Text(note, style="red", overflow="ellipsis", no_wrap=True)
        elif len(by_state) > rows:
            yield Text(f"and {len(by_state) - rows} more", style="dim", no_wrap=True)
