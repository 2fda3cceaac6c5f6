"""What commands print: text for people, one JSON object per line for programs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from asynclock._secrets import clean_message
from asynclock._text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import DataclassInstance

    from asynclock.status import LockStatus

_WIDE: Final = 10_000
"""A pipe has no width: nothing is cut or wrapped there."""
_COLOURS: Final = {
    "absent": "magenta",
    "free": "green",
    "held": "yellow",
    "expired": "red",
    "corrupt": "bold red",
}


def print_json(record: DataclassInstance) -> None:
    """Print a dataclass as one line of JSON, in ASCII, since foreign text may be hostile to terminals."""
    sys.stdout.write(json.dumps(dataclasses.asdict(record), ensure_ascii=True, default=str) + "\n")
    sys.stdout.flush()


def print_status(status: LockStatus) -> None:
    """Print one lock, one line per known fact."""
    from rich.text import Text  # noqa: PLC0415  lets other commands start faster

    lines = [Text.assemble((f"{status.name}: ", "bold"), (status.state, _COLOURS[status.state]))]
    if status.state == "absent":
        lines.append(Text("  no object is there: it was never taken, or the URL or the name is another"))
    last = "last " if status.state == "free" else ""
    facts = {
        "url": status.url,
        f"{last}holder": status.holder,
        f"{last}owner": status.owner,
        "token": status.fencing_token,
        "remaining": _seconds(status.remaining),
        "last write": None if status.age is None else f"{_seconds(status.age)} ago",
    }
    lines += [Text(f"  {name:<12}{printable(value)}") for name, value in facts.items() if value is not None]
    _print(*lines)


def print_list(statuses: Sequence[LockStatus]) -> None:
    """Print locks as a table."""
    from rich.table import Table  # noqa: PLC0415  lets other commands start faster
    from rich.text import Text  # noqa: PLC0415  as above

    table = Table("name", "state", "remaining", "last write", "token", "holder", box=None, pad_edge=False)
    for status in statuses:
        table.add_row(
            Text(status.name),
            Text(status.state, style=_COLOURS[status.state]),
            Text(_seconds(status.remaining) or "-"),
            Text("-" if status.age is None else f"{_seconds(status.age)} ago"),
            Text("-" if status.fencing_token is None else str(status.fencing_token)),
            Text("-" if status.holder is None else printable(status.holder)),
        )
    _print(table)


def tell(text: str) -> None:
    """Print a message to the standard error; the standard output is for results."""
    lines = "".join(f"{clean_message(line)}\n" for line in f"asynclock: {text}".split("\n"))
    with contextlib.suppress(OSError, ValueError):  # nobody can read it, which must not end a running CMD
        sys.stderr.write(lines)
        sys.stderr.flush()


def _print(*items: Any) -> None:  # noqa: ANN401  anything that rich renders
    from rich.console import Console  # noqa: PLC0415  lets other commands start faster

    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    for item in items:
        console.print(item, soft_wrap=True)


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s"
