"""The output of commands: text for people, one JSON object per line for programs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Final

import click

from asynclock._cli.fitted_table import LOCKS, fitted_table, state_style
from asynclock._cli.lock_words import facts
from asynclock._codes import coded
from asynclock._secrets import clean_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import DataclassInstance
    from rich.console import Console

    from asynclock._codes import Code
    from asynclock._core.status import LockStatus

_WIDE: Final = 10_000
"""The width of a pipe: nothing is cut or wrapped."""


def print_json(record: DataclassInstance) -> None:
    """Print a dataclass as one line of JSON in ASCII, because foreign text may attack a terminal."""
    sys.stdout.write(json.dumps(dataclasses.asdict(record), ensure_ascii=True, default=str) + "\n")
    sys.stdout.flush()


def print_status(status: LockStatus, *, break_command: str) -> None:
    """Print one lock, one line per known fact; ``break_command`` breaks it."""
    from rich.text import Text  # noqa: PLC0415  lets other commands start faster

    lines = [Text.assemble((f"{status.name}: ", "bold"), (status.state, state_style(status)))]
    for name, words in facts(status, break_command=break_command):
        lines.append(Text(f"  {name:<14}{words}"))
    terminal = console()
    for line in lines:
        terminal.print(line, soft_wrap=True)


def print_list(statuses: Sequence[LockStatus]) -> None:
    """Print locks as a table."""
    terminal = console()
    terminal.print(fitted_table(LOCKS, statuses, terminal.width))


def tell(text: str, code: Code | None = None) -> None:
    """Print a message to the standard error. The standard output is for results.

    Args:
        text: The message.
        code: Its code, if it reports a problem and has none of an error at its end. None: it is news.
    """
    text = coded(text, code)
    print_message("".join(f"{clean_message(line)}\n" for line in f"asynclock: {text}".split("\n")))


def tell_once(text: str, code: Code) -> None:
    """Print a message as ``tell`` does, but only the first time in a command."""
    context = click.get_current_context(silent=True)
    told: set[str] = set() if context is None else context.find_root().meta.setdefault(__name__, set())
    if text not in told:
        told.add(text)
        tell(text, code)


def print_message(lines: str) -> None:
    """Print lines to the standard error as they are."""
    with contextlib.suppress(OSError, ValueError):  # nobody can read it, but a running CMD must go on
        sys.stderr.write(lines)
        sys.stderr.flush()


def console() -> Console:
    """Return a console for the standard output, with its width."""
    from rich.console import Console  # noqa: PLC0415  lets other commands start faster

    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
