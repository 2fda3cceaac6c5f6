"""Names of columns as people have them, which a spec maps by ``from``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.laboratory.fuzz_data.draw import Draw

if TYPE_CHECKING:
    from tests.laboratory.fuzz_data.tables import Stream, Table

# Those of the files' other columns are not among them, nor is one that is an own name in another case.
NAMES: Final = (
    "Order ID", "_id", "AÑO", "2016", "Name", "name", "NAME", "x.y", "x.y.z", "a`b", "`", 'say "hi"', "it's",
    "c=d", "c\nd", " ", " blank ", "\ttab", "a,b;c|d", "$#%&*(){}[]", "日本", "😀", "_metadata", "select",
    "x__y", "_hoodie_commit_time", "_asynclock_file", "_asynclock_row", "null", "NULL", "\\", "\\N", "c/d",
    "deleted", "ts", "c\u2028d", "é", "e\u0301", "ß", "SS", "İ", "-0.5", "true", "x" * 300, "'", '""', "from",
)  # fmt: skip


def named(table: Table, seed: int) -> Table:
    """The table with other names in the files of its streams.

    Each stream has some that are odd, or all of its names in each other's places, or those of the table.
    """
    draw = Draw(seed)
    return replace(table, streams=tuple(_renamed(draw, table, stream) for stream in table.streams))


def _renamed(draw: Draw, table: Table, stream: Stream) -> Stream:
    own = [name for name, _ in (*table.shared, *stream.owned)]
    how = draw.one(["odd", "odd", "odd", "moved", "own"])
    if how == "own":
        return stream
    if how == "moved":
        return replace(stream, sources=dict(zip(own, own[1:] + own[:1], strict=True)))
    names = draw.shuffled([name for name in NAMES if _can_be_written(stream, name)])
    return replace(
        stream, sources={name: source for name, source in zip(own, names, strict=False) if draw.flip()}
    )


def _can_be_written(stream: Stream, name: str) -> bool:
    if stream.format != "csv":
        return True
    quoted = bool(stream.setting("quote"))
    lines = quoted and stream.setting("multiline")
    try:
        name.encode(stream.setting("encoding"))
    except UnicodeEncodeError:
        return False
    return (lines or "\n" not in name) and (quoted or stream.setting("separator") not in name)
