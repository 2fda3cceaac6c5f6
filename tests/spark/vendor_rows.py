"""The rows that Apache Paimon and Apache Doris document for partial updates, as streams of a splice table.

The rows and results are those of the pages that are named; the specs and the words are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.spark.merged_rows import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row = dict[str, Any]

PARTIAL_UPDATE: Final = "[Paimon][partial update]"
AGGREGATION: Final = "[Paimon][aggregation]"
DORIS: Final = "[Doris][sequence mapping]"


@dataclass(frozen=True, kw_only=True)
class Documented:
    """Rows of one key that a page has, each a batch, and what it shows after some of them.

    Attributes:
        page: A link to the page, whose address is in docs/concepts/pipeline/partial-updates.md.
        what: What the page shows with them.
        key: How many of the columns are the key.
        columns: Their names, those of the key first.
        rows: Their values.
        after: The values that the page shows, by the number of rows before.
        spec: The streams of our table, without ``source``.
        how: How the spec says it.
        before: How many of the rows are written with an older spec, and that spec.
        read: Another spec to read with, whose columns are the first ones; empty: the same.
        in_order: Whether the result is one of the rows' order, and other orders are not compared.
    """

    page: str
    what: str
    columns: str
    rows: Sequence[tuple[object, ...]]
    after: Mapping[int, tuple[object, ...]]
    spec: str
    how: str
    before: tuple[int, str] = (0, "")
    read: str = ""
    in_order: bool = False
    key: int = 1

    def row(self, values: Sequence[object]) -> Row:
        """A row of the view by the names of its columns."""
        return dict(zip(self.columns.split(), values, strict=not self.read))

    def texts(self, values: Sequence[object]) -> dict[str, str]:
        """A row of a CSV file by the names of its columns."""
        return {name: text_of(value) for name, value in self.row(values).items()}

    def text(self, spec: str) -> str:
        """The whole text of a spec."""
        keys = self.columns.split()[: self.key]
        typed = "".join(f'{name} = "int", ' for name in keys)
        streams = spec.replace("[streams.s]\n", '[streams.s]\nsource = "in/*.csv"\n')
        streams = streams.replace("columns = { ", f"columns = {{ {typed}")
        return f'table.path = "table"\ntable.key = {keys}\ntable.buckets = 1\n{streams}'


def _stream(ordering: str, columns: str, *more: str) -> str:
    typed = ", ".join(f'{name} = "{kind}"' for name, kind in (one.split(":") for one in columns.split()))
    return "\n".join(["[streams.s]", f'ordering = "{ordering}"', f"columns = {{ {typed} }}", *more, ""])


def _group(name: str, ordering: str, *columns: str) -> str:
    listed = ", ".join(f'"{column}"' for column in columns)
    return f"[streams.s.groups.{name}]\nordering = {ordering}\ncolumns = [{listed}]"


_NUMBERED: Final = "n:int c:int d:int s1:int"
_C_AND_D: Final = _group("first", '"s1"', "c", "d")
_E: Final = _group("second", '"s2"', "e")
_SMALL: Final = _stream("n", _NUMBERED, _C_AND_D)
_DORIS: Final = _stream("n", f"{_NUMBERED} e:int s2:int", _C_AND_D, _E)

DOCUMENTED: Final = (
    Documented(
        page=PARTIAL_UPDATE,
        what="nulls do not overwrite",
        columns="k n price sold text",
        rows=((1, 1, 23.0, 10, None), (1, 2, None, None, "This is a book"), (1, 3, 25.2, None, None)),
        after={3: (1, 3, 25.2, 10, "This is a book")},
        spec=_stream("n", "n:int price:double sold:int text:string", 'nulls = "keep"'),
        how='`nulls = "keep"`, and a column `n` with the number of the record, for the order of arrival',
    ),
    Documented(
        page=PARTIAL_UPDATE,
        what="two sequence groups",
        columns="k a b g_1 c d g_2",
        rows=((1, 1, 1, 1, 1, 1, 1), (1, 2, 2, 2, 2, 2, None), (1, 3, 3, 1, 3, 3, 3)),
        after={2: (1, 2, 2, 2, 1, 1, 1), 3: (1, 2, 2, 2, 3, 3, 3)},
        spec=_stream("g_1", "g_1:int a:int b:int g_2:int c:int d:int", _group("second", '"g_2"', "c", "d")),
        how="the stream is ordered by `g_1`, and a group with `c` and `d` by `g_2`",
    ),
    Documented(
        page=PARTIAL_UPDATE,
        what="a sequence group with two fields",
        columns="k a b g_1 c d g_2 g_3",
        rows=((1, 1, 1, 1, 1, 1, 1, 1), (1, 2, 2, 2, 2, 2, 1, None), (1, 3, 3, 1, 3, 3, 3, 1)),
        after={2: (1, 2, 2, 2, 1, 1, 1, 1), 3: (1, 2, 2, 2, 3, 3, 3, 1)},
        spec=_stream(
            "g_1",
            "g_1:int a:int b:int g_2:int g_3:int c:int d:int",
            _group("second", '["g_2", "g_3"]', "c", "d"),
        ),
        how='`ordering = ["g_2", "g_3"]` in the group',
    ),
    Documented(
        page=PARTIAL_UPDATE,
        what="*an equal sequence value replaces, its nulls too*",
        columns="k a b g_1",
        rows=((1, 1, 1, 1), (1, 2, None, 1)),
        after={2: (1, 2, None, 1)},
        spec=_stream("g_1", "g_1:int a:int b:int"),
        how="of equal ordering values the later arrival wins",
        in_order=True,
    ),
    Documented(
        page=PARTIAL_UPDATE,
        what="`first_value` in a sequence group",
        columns="k a b",
        rows=((1, 1, 1), (1, 2, 2)),
        after={2: (1, 2, 1)},
        spec=_stream("a", "a:int b:int", 'merge = { b = "first_value" }'),
        how="a stream for the group, and `first_value` in it; the page's other rows are another stream's",
    ),
    Documented(
        page=PARTIAL_UPDATE,
        what="`sum` in a sequence group",
        columns="k c d",
        rows=((1, 1, 1), (1, 2, 2)),
        after={2: (1, 2, 3)},
        spec=_stream("c", "c:int d:int", 'merge = { d = "sum" }'),
        how="a stream for the group, and `sum` in it; a repeated event counts twice",
    ),
    Documented(
        page=PARTIAL_UPDATE,
        what="`sum` in a sequence group with two fields",
        columns="k a b g_1 c g_2 g_3",
        rows=((1, 1, 1, 1, "1", 1, 1), (1, 2, 2, 2, "2", None, 2), (1, 3, 3, 2, "3", 3, 1)),
        after={2: (1, 3, 2, 2, "1", 1, 2), 3: (1, 6, 3, 2, "3", 3, 2)},
        spec=_stream(
            "g_2",
            "g_2:int a:int b:int g_1:int g_3:int c:string",
            'merge = { a = "sum" }',
            _group("first", '["g_1", "g_3"]', "a"),
        ),
        how="a sum is no part of a group; make the group a stream, as above",
    ),
    Documented(
        page=PARTIAL_UPDATE,
        what="a column outside of the sequence groups (`a` and its group left out)",
        columns="k n b c g_2",
        rows=((1, 1, 1, "1", 1), (1, 2, 2, "2", None), (1, 3, 3, "3", 3)),
        after={2: (1, 2, 2, "1", 1), 3: (1, 3, 3, "3", 3)},
        spec=_stream(
            "n",
            "n:int b:int c:string g_2:int",
            'merge = { b = "last_non_null_value" }',
            _group("second", '"g_2"', "c"),
        ),
        how="`last_non_null_value`, ordered by a column `n` with the number of the row",
    ),
    Documented(
        page=PARTIAL_UPDATE,
        what="`last_non_null_value` by default",
        columns="k a b",
        rows=((1, 1, 1), (1, 2, 2)),
        after={2: (1, 2, 2)},
        spec=_stream("a", "a:int b:int", 'nulls = "keep"'),
        how='a stream for the group, with `nulls = "keep"`',
    ),
    Documented(
        page=AGGREGATION,
        what="`max`",
        columns="k n price",
        rows=((1, 1, 23.0), (1, 2, 30.2)),
        after={2: (1, 2, 30.2)},
        spec=_stream("n", "n:int price:double", 'merge = { price = "max" }'),
        how="`max`; the stream has an ordering all the same",
    ),
    Documented(
        page=DORIS,
        what="two sequence columns, five inserts",
        key=2,
        columns="a b n c d e s1 s2",
        rows=(
            (1, 1, 1, 2, 2, None, 2, None),
            (1, 1, 2, 1, 1, None, 1, None),
            (1, 1, 3, None, None, 2, None, 2),
            (1, 1, 4, 3, 3, None, 3, None),
            (1, 1, 5, 5, 5, 5, 4, 4),
        ),
        after={
            1: (1, 1, 1, 2, 2, None, 2, None),
            2: (1, 1, 2, 2, 2, None, 2, None),
            3: (1, 1, 3, 2, 2, 2, 2, 2),
            4: (1, 1, 4, 3, 3, 2, 3, 2),
            5: (1, 1, 5, 5, 5, 5, 4, 4),
        },
        spec=_DORIS,
        how="two groups; the stream itself is ordered by a column `n` with the number of the insert",
    ),
    Documented(
        page=DORIS,
        what="a sequence column that joins later",
        key=2,
        columns="a b n c d s1 e s2",
        rows=(
            (1, 1, 1, 1, 1, 1, None, None),
            (1, 1, 2, 3, 3, 3, None, None),
            (1, 1, 3, 2, 2, 2, None, None),
            (1, 1, 4, None, None, None, 2, 2),
            (1, 1, 5, 5, 5, 4, 5, 4),
        ),
        after={
            3: (1, 1, 3, 3, 3, 3, None, None),
            4: (1, 1, 4, 3, 3, 3, 2, 2),
            5: (1, 1, 5, 5, 5, 4, 5, 4),
        },
        spec=_DORIS,
        before=(3, _SMALL),
        how="new columns join a table in a new group",
    ),
    Documented(
        page=DORIS,
        what="columns that are dropped",
        key=2,
        columns="a b n c d s1 e s2",
        rows=((1, 1, 4, 3, 3, 3, 2, 2), (1, 1, 5, 5, 5, 4, 5, 4)),
        after={2: (1, 1, 5, 5, 5, 4)},
        spec=_DORIS,
        read=_SMALL,
        how="a spec without the columns; the table keeps their values",
    ),
    Documented(
        page=DORIS,
        what="*only a greater sequence value replaces*",
        key=2,
        columns="a b c d s1",
        rows=((1, 1, 2, 2, 2), (1, 1, 9, 9, 2)),
        after={2: (1, 1, 2, 2, 2)},
        spec=_stream("s1", "c:int d:int s1:int"),
        how="of equal ordering values the later arrival wins, so the corrected event of a source is taken",
        in_order=True,
    ),
)


def listed(one: Documented, verdict: str, why: str) -> str:
    """The line of the page about these rows."""
    rows = ", ".join(f"`{_text(row)}`" for row in one.rows)
    last = one.after[max(one.after)]
    shown = f"{one.page}: {one.what}"
    return f"| {shown} | `{one.columns}`: {rows} | `{_text(last)}` | {verdict} | {why} |"


def _text(row: Sequence[object]) -> str:
    return " ".join("-" if value is None else str(value) for value in row)
