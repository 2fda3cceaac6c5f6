"""Tables that fit a given width and keep the name of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from asynclock._cli.lock_words import free_in_cell, holder_cell, is_overdue, last_write_cell, since_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from asynclock._core.status import LockStatus

T = TypeVar("T")

_COLOURS: Final = {
    "absent": "magenta",
    "free": "green",
    "held": "yellow",
    "expired": "red",
    "corrupt": "bold red",
}
_GAP: Final = 2
_LEAST_NAME: Final = 8


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table.

    Attributes:
        title: Its heading.
        text: Returns its text for a row.
        rank: If there is no room for all, the columns of the lowest ranks stay; 0 is the column of the names.
        least: The width to which it may be cut; None: it is shown whole or not at all.
        style: Returns the style of a row's text.
    """

    title: str
    text: Callable[[T], str]
    rank: int
    least: int | None = None
    style: Callable[[T], str] = lambda _: ""


def state_style(status: LockStatus) -> str:
    """Return the colour of a lock's state."""
    return "red" if is_overdue(status) else _COLOURS[status.state]


LOCKS: Final[tuple[Column[LockStatus], ...]] = (
    Column("name", lambda status: status.name, 0),
    Column("state", lambda status: status.state, 1, style=state_style),
    Column("since", since_cell, 5),
    Column("last write", last_write_cell, 4),
    Column("free in", free_in_cell, 3),
    Column("token", lambda status: "-" if status.fencing_token is None else str(status.fencing_token), 6),
    Column("holder", holder_cell, 2, least=12),
)


def fitted_table(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> Table:
    """Return a table that is at most ``width`` columns wide.

    Columns that do not fit are left out, highest rank first. Names are always whole: a name that is too long
    for its line continues on the next one.
    """
    from rich.table import Table  # noqa: PLC0415  lets other commands start faster
    from rich.text import Text  # noqa: PLC0415  as above

    texts = {column.title: [column.text(row) for row in rows] for column in columns}
    widths = _widths(columns, texts, width)
    shown = [column for column in columns if column.title in widths]
    table = Table(box=None, pad_edge=False)
    for column in shown:
        table.add_column(
            column.title,
            overflow="ellipsis" if column.rank else "fold",
            no_wrap=column.rank > 0,
            max_width=widths[column.title],
        )
    for number, row in enumerate(rows):
        table.add_row(*(Text(texts[column.title][number], style=column.style(row)) for column in shown))
    return table


def _widths(columns: Sequence[Column[Any]], texts: dict[str, list[str]], width: int) -> dict[str, int]:
    """Return the width of each visible column."""
    from rich.cells import cell_len  # noqa: PLC0415  lets other commands start faster

    natural = {title: max(cell_len(title), *map(cell_len, found), 0) for title, found in texts.items()}
    name, state, *others = sorted(columns, key=lambda column: column.rank)
    beside = natural[state.title] + _GAP
    widths = {
        name.title: max(_LEAST_NAME, min(natural[name.title], width - beside)),
        state.title: natural[state.title],
    }
    left = width - widths[name.title] - beside
    for column in others:
        whole = natural[column.title]
        needed = whole if column.least is None else min(whole, column.least)
        if needed + _GAP <= left:
            widths[column.title] = needed
            left -= needed + _GAP
    for column in others:
        if column.title in widths:
            more = min(left, natural[column.title] - widths[column.title])
            widths[column.title] += more
            left -= more
    return widths
