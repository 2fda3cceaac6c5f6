"""What commands print: text for people, one JSON object per line for programs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Final

from asynclock._secrets import clean_message
from asynclock._text import printable
from asynclock.cli.table import COLOURS, LOCKS, fitted_table, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import DataclassInstance
    from rich.console import Console

    from asynclock.status import LockStatus

_WIDE: Final = 10_000
"""A pipe has no width: nothing is cut or wrapped there."""


def print_json(record: DataclassInstance) -> None:
    """Print a dataclass as one line of JSON, in ASCII, since foreign text may be hostile to terminals."""
    sys.stdout.write(json.dumps(dataclasses.asdict(record), ensure_ascii=True, default=str) + "\n")
    sys.stdout.flush()


def print_status(status: LockStatus) -> None:
    """Print one lock, one line per known fact."""
    from rich.text import Text  # noqa: PLC0415  lets other commands start faster

    lines = [Text.assemble((f"{status.name}: ", "bold"), (status.state, COLOURS[status.state]))]
    if status.state == "absent":
        lines.append(Text("  no object is there: it was never taken, or the URL or the name is another"))
    last = "last " if status.state == "free" else ""
    facts = {
        "url": status.url,
        f"{last}holder": status.holder,
        f"{last}owner": status.owner,
        "token": status.fencing_token,
        "remaining": seconds(status.remaining),
        "last write": None if status.age is None else f"{seconds(status.age)} ago",
    }
    lines += [Text(f"  {name:<12}{printable(value)}") for name, value in facts.items() if value is not None]
    terminal = console()
    for line in lines:
        terminal.print(line, soft_wrap=True)


def print_list(statuses: Sequence[LockStatus]) -> None:
    """Print locks as a table."""
    terminal = console()
    terminal.print(fitted_table(LOCKS, statuses, terminal.width))


def tell(text: str) -> None:
    """Print a message to the standard error; the standard output is for results."""
    lines = "".join(f"{clean_message(line)}\n" for line in f"asynclock: {text}".split("\n"))
    with contextlib.suppress(OSError, ValueError):  # nobody can read it, which must not end a running CMD
        sys.stderr.write(lines)
        sys.stderr.flush()


def console() -> Console:
    """Return what prints to the standard output, as wide as it is."""
    from rich.console import Console  # noqa: PLC0415  lets other commands start faster

    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
