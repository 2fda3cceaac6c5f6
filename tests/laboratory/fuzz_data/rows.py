"""Rows for a stream: cells, and whether the row must be in the table or in the quarantine."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.laboratory.fuzz_data.cells import (
    DAY,
    NULL,
    Cell,
    bad,
    bad_cells,
    cells,
    day_text,
    instant_text,
    texts,
)

if TYPE_CHECKING:
    from tests.laboratory.fuzz_data.draw import Draw
    from tests.laboratory.fuzz_data.tables import Stream, Table

PARTITIONS: Final = (
    "plain", "..", "../../esc", "/abs", "a/b", "a", "a=b", "p=1", "a%2Fb", "a//b", "é", "a b",
    "__empty__", "%",
    ".", "x:y", "*", "default", "😀", "2024-01-01", "null", "a\\b", "'", '"', "{a}", "[", "_x", ".x",
)  # fmt: skip
NO_FOLDERS: Final = ("__HIVE_DEFAULT_PARTITION__", "nul\0nul", "x" * 254, "/" * 90)
SHARED_KEYS: Final = (
    ("x,k2:y", "z"), ("x", "y,k2:z"), ("x,group:y", "z"), ("x", "y,group:z"), ("urn:a:b,c", "1"), ("::,",
    "2"),
    ('k"5', "3"), ("Müller", "4"), ("Möller", "4"), ("k:1", ","), ("a|b", "c"), ("a", "b|c"), ("a%7Cb", "c"),
    ("__null__", "__empty__"), ("null", "null"), (" k", "k"), ("k", "k"), ("k ", "k"), ("K", "k"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        cells: By column: key, partitions, ordering, others.
        good: Whether it must be in the table; if not, it must be in the quarantine.
        why: What is wrong with it.
    """

    cells: dict[str, Cell]
    good: bool = True
    why: str = ""

    def spoiled(self, why: str) -> Row:
        """The row with something wrong that its cells do not show."""
        return replace(self, good=False, why=why)


class Rows:
    """Makes rows of one stream.

    Args:
        table: The table.
        stream: The stream.
    """

    def __init__(self, table: Table, stream: Stream) -> None:
        self._table = table
        self._stream = stream
        # Without quotes, or line by line, CSV can hold no line ends.
        csv = stream.format == "csv"
        self._lines = not csv or bool(stream.setting("multiline") and stream.setting("quote"))
        ordering = stream.ordering[1]
        self._few_ranks = _few_ranks(ordering)
        self._cells = {name: cells(kind, lines=self._lines) for name, kind in stream.owned}
        self._text = texts(lines=self._lines)

    def row(self, draw: Draw, fresh: str) -> Row:
        """A row; ``fresh`` makes its key unlike all others, but for good rows of the keys that many have."""
        kind = draw.one(["shared", "shared", "fresh", "fresh", "fresh", "bad"])
        key = self._shared_key(draw) if kind == "shared" else self._fresh_key(draw, fresh)
        cells = dict(zip((name for name, _ in self._table.key), key, strict=True))
        seed = zlib.crc32(json.dumps([cell.text for cell in key]).encode())
        for place, name in enumerate(self._table.partitions):
            # The same of each key in all streams; every text in every place, but not with every other:
            # a folder for nearly each key takes Hudi most of the time.
            cells[name] = text_cell(PARTITIONS[(seed + 7 * place) % len(PARTITIONS)])
        ordering = self._stream.ordering[0]
        for name, _ in self._stream.owned:
            if name == ordering and kind == "shared":
                cells[name] = draw.one(self._few_ranks)
            else:
                cells[name] = NULL if draw.number(0, 3) == 0 else draw.of(self._cells[name])
        if cells[ordering].text in {None, ""}:
            cells[ordering] = draw.one(self._few_ranks)
        cells = self._writable(cells)
        for name in (*(name for name, _ in self._table.shared), ordering):
            if cells[name].text == "":
                cells[name] = text_cell("other")
        row = Row(cells)
        return self._spoil(draw, row) if kind == "bad" else row

    def _spoil(self, draw: Draw, row: Row) -> Row:
        options: list[tuple[str, Cell]] = []
        if self._stream.format != "parquet":
            options += [(name, cell) for name, kind in self._stream.owned for cell in bad_cells(kind)]
        required = [*(name for name, _ in self._table.shared), self._stream.ordering[0]]
        options += [(name, NULL) for name in required for _ in range(3)]
        kinds = dict((*self._table.shared, *self._stream.owned))
        options += [(name, bad("")) for name in required if kinds[name] == "string" and self._quotes()]
        options += [
            (name, replace(text_cell(text), good=False))
            for name in self._table.partitions
            for text in NO_FOLDERS
        ]
        name, cell = draw.one(options)
        text = cell.text
        cell = self._writable({name: cell})[name]
        if cell.text != text and kinds[name] != "string":
            cell = bad("junk")
        return Row({**row.cells, name: cell}, good=False, why=f"{name} = {cell.text!r}")

    def _quotes(self) -> bool:
        return self._stream.format != "csv" or bool(self._stream.setting("quote"))

    def _shared_key(self, draw: Draw) -> list[Cell]:
        texts = draw.one(SHARED_KEYS)
        return [_key_cell(kind, text, texts) for (_, kind), text in zip(self._table.key, texts, strict=False)]

    def _fresh_key(self, draw: Draw, fresh: str) -> list[Cell]:
        made = []
        for place, (_, kind) in enumerate(self._table.key):
            if kind == "string":
                text = draw.of(self._text)
                made.append(text_cell(f"{text}{fresh}" if not place else text))
            else:
                made.append(_key_cell(kind, fresh, (fresh,)))
        return made

    def _writable(self, cells: dict[str, Cell]) -> dict[str, Cell]:
        """The cells without what the stream's dialect has no way to write."""
        if self._stream.format != "csv":
            return cells
        unwritable = set() if self._quotes() else {self._stream.setting("separator"), "\n", "\r"}
        encoding = self._stream.setting("encoding")
        made = {}
        for name, cell in cells.items():
            if cell.text is None:
                made[name] = cell
                continue
            text = "".join(c for c in cell.text if c not in unwritable)
            if not encoding.startswith("utf"):
                text = text.encode(encoding, errors="ignore").decode(encoding)
            if text == cell.text and (self._quotes() or text not in {"", self._stream.setting("null")}):
                made[name] = cell
            else:
                text = text if self._quotes() or text not in {"", self._stream.setting("null")} else "other"
                made[name] = replace(
                    cell, text=text, value=text if isinstance(cell.value, str) else cell.value
                )
        return made


def text_cell(text: str) -> Cell:
    """A text as a cell."""
    return Cell(text, text, json.dumps(text))


def _key_cell(kind: str, text: str, texts: tuple[str, ...]) -> Cell:
    if kind == "string":
        return text_cell(text)
    number = zlib.crc32("\0".join(texts).encode())
    if kind == "date":
        return text_cell_of_day(number % 20_000 - 10_000)
    return Cell(number, str(number), str(number))


def text_cell_of_day(day: int) -> Cell:
    """A date as a cell."""
    return Cell(day, day_text(day), json.dumps(day_text(day)))


def _few_ranks(kind: str) -> list[Cell]:
    """A few ordering values, so that many events of a key compare, and some are equal."""
    if kind == "string":
        return [text_cell(text) for text in ("9", "10", "a", "Z", "é", "\uffee", "😀")]
    if kind == "date":
        return [text_cell_of_day(day) for day in (-200_000, -1, 0, 19_000, 19_001)]
    if kind == "timestamp":
        return [
            Cell(micros, instant_text(micros), json.dumps(instant_text(micros)))
            for micros in (-3_000_000_000_000_000, 0, 1, 2, DAY * 19_000, DAY * 19_000 + 1_000_000)
        ]
    numbers = [-(1 << 31), 9, 10, 100, (1 << 31) - 1]
    return [
        Cell(number, str(number), str(number))
        for number in numbers + ([1 << 53, (1 << 53) + 1] if kind == "bigint" else [])
    ]
