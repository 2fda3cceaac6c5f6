"""The nasty files of ``corpus/`` and what must come of each."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

CORPUS: Final = Path(__file__).parent / "corpus"
EXPECTED: Final = ".expected.json"
COLUMNS: Final = ("text", "i", "d", "m", "t")
STREAMS: Final = {
    "rfc": 'format = "csv"',
    "semi": """format = "csv"\ncsv = { separator = ";", quote = "'", escape = '\\', null = "NULL" }""",
    "one_line": 'format = "csv"\ncsv = { multiline = false }',
    "latin": 'format = "csv"\ncsv = { encoding = "iso-8859-1" }',
    "utf16": 'format = "csv"\ncsv = { encoding = "utf-16" }',
    "json": 'format = "json"',
    "parquet": 'format = "parquet"',
    "named": 'format = "csv"',
    "named_json": 'format = "json"',
    "named_parquet": 'format = "parquet"',
}
_PLAIN: Final = """\
columns = { at = "bigint", text = "string", i = "int", d = "double", m = "decimal(38,10)", t = "timestamp" }
"""
# Names as people have them, two of which differ in case alone.
_NAMED: Final = """\
[streams.%s.columns]
k = { type = "string", from = "Order ID" }
l = { type = "string", from = "_id" }
p = { type = "string", from = "AÑO" }
at = { type = "bigint", from = "2016" }
text = { type = "string", from = "Text" }
i = { type = "int", from = "text" }
d = { type = "double", from = "a.b" }
m = { type = "decimal(38,10)", from = "a`b" }
t = { type = "timestamp", from = " blank " }
"""
_TABLE: Final = """\
[table]
path = "table"
key = ["k", "l"]
partition_by = ["p"]
buckets = 1
[locks]
url = "locks"
[services]
compaction = { every_commits = 1 }
"""
# A column has one owner: the stream's name tells them apart.
_STREAM: Final = """
[streams.%(name)s]
%(format)s
source = "in/%(name)s/*"
ordering = "at"
checkpoint = "checkpoints/%(name)s"
on_bad_row = "quarantine"
"""


@dataclass(frozen=True)
class Nasty:
    """One file.

    Attributes:
        path: Where it lies.
        stream: The stream it belongs to.
        expected: What its ``.expected.json`` says.
    """

    path: Path
    stream: str
    expected: dict[str, Any]

    @property
    def name(self) -> str:
        """Its folder and name."""
        return f"{self.stream}/{self.path.name}"

    @property
    def hidden(self) -> bool:
        """Whether no stream reads it."""
        return bool(self.expected.get("hidden"))

    def rows(self) -> list[tuple[Any, ...]]:
        """Its good rows: key, partition, ordering value and columns, as the second reader has them."""
        return [
            (row["k"], row["l"], row["p"], row["at"], *(_value(name, row.get(name)) for name in COLUMNS))
            for row in self.expected["rows"]
        ]


def nasty_files() -> list[Nasty]:
    """All of them, in a fixed order."""
    paths = sorted(
        path for stream in STREAMS for path in CORPUS.glob(f"{stream}/*") if not path.name.endswith(EXPECTED)
    )
    return [
        Nasty(path, path.parent.name, json.loads(path.with_name(path.name + EXPECTED).read_text("utf-8")))
        for path in paths
    ]


def spec_of(stream: str) -> str:
    """The text of a spec with that stream alone."""
    columns = _NAMED % stream if stream.startswith("named") else _PLAIN
    return _TABLE + _STREAM % {"name": stream, "format": STREAMS[stream]} + columns


def _value(name: str, given: Any) -> Any:  # noqa: ANN401  as JSON has it
    if given is None or name in {"text", "i"}:
        return given
    if name == "d":
        return float(given)
    if name == "m":
        return Decimal(given)
    if isinstance(given, int):
        return given
    moment = dt.datetime.fromisoformat(given).replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return moment // dt.timedelta(microseconds=1)


def same_rows(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Whether two lists of rows are the same; NaN is NaN, and minus zero is not zero."""
    return _plain(found) == _plain(expected)


def _plain(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    return [tuple(_cell(cell) for cell in row) for row in rows]


def _cell(cell: Any) -> str:  # noqa: ANN401  of any type
    if isinstance(cell, Decimal):
        return f"Decimal {cell.normalize() if cell else 0}"
    return "nan" if isinstance(cell, float) and math.isnan(cell) else repr(cell)
