"""A table of locks that fits the width it is given and keeps their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock._text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from asynclock.status import LockStatus

COLOURS: Final = {
    "absent": "magenta",
    "free": "green",
    "held": "yellow",
    "expired": "red",
    "corrupt": "bold red",
}
_GAP: Final = 2
_NAME: Final = "name"
_LEAST_NAME: Final = 8


@dataclass(frozen=True)
class _Column:
    title: str
    text: Callable[[LockStatus], str]
    least: int | None = None
    """To this width it may be cut; None: it is shown whole or not at all."""


_BY_PLACE: Final = (
    _Column(_NAME, lambda status: status.name, _LEAST_NAME),
    _Column("state", lambda status: status.state),
    _Column("remaining", lambda status: seconds(status.remaining) or "-"),
    _Column("last write", lambda status: "-" if status.age is None else f"{seconds(status.age)} ago"),
    _Column("token", lambda status: "-" if status.fencing_token is None else str(status.fencing_token)),
    _Column("holder", lambda status: "-" if status.holder is None else printable(status.holder), 12),
)
_BY_USE: Final = ("name", "state", "holder", "remaining", "last write", "token")


def lock_table(statuses: Sequence[LockStatus], width: int) -> Table:
    """Return a table that is at most ``width`` columns wide.

    Columns that do not fit are left out, the least useful first, and a holder is cut. A name is whole: one
    that is too long for its line goes on in the next.
    """
    from rich.table import Table  # noqa: PLC0415  lets other commands start faster
    from rich.text import Text  # noqa: PLC0415  as above

    widths = _widths({column.title: _natural(column, statuses) for column in _BY_PLACE}, width)
    table = Table(box=None, pad_edge=False)
    shown = [column for column in _BY_PLACE if column.title in widths]
    for column in shown:
        folds = column.title == _NAME
        table.add_column(
            column.title,
            overflow="fold" if folds else "ellipsis",
            no_wrap=not folds,
            max_width=widths[column.title],
        )
    for status in statuses:
        table.add_row(
            *(
                Text(column.text(status), style=COLOURS[status.state] if column.title == "state" else "")
                for column in shown
            )
        )
    return table


def seconds(value: float | None) -> str | None:
    """Return seconds with their unit; None for None."""
    return None if value is None else f"{value:.1f} s"


def _natural(column: _Column, statuses: Sequence[LockStatus]) -> int:
    from rich.cells import cell_len  # noqa: PLC0415  as above

    return max([cell_len(column.title), *(cell_len(column.text(status)) for status in statuses)])


def _widths(natural: dict[str, int], width: int) -> dict[str, int]:
    """Return the width of each column that is shown."""
    least = {column.title: column.least for column in _BY_PLACE}
    state = natural["state"] + _GAP
    widths = {_NAME: max(_LEAST_NAME, min(natural[_NAME], width - state)), "state": natural["state"]}
    left = width - widths[_NAME] - state
    for title in _BY_USE[len(widths) :]:
        needed = natural[title] if least[title] is None else min(natural[title], least[title] or 0)
        if needed + _GAP <= left:
            widths[title] = needed
            left -= needed + _GAP
    if "holder" in widths:
        widths["holder"] += min(left, natural["holder"] - widths["holder"])
    return widths
