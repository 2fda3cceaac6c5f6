"""Files of a stream: their bytes, and what must come of each of their rows."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.laboratory.fuzz_data.cells import DECIMALS
from tests.laboratory.fuzz_data.damage import DAMAGES
from tests.laboratory.fuzz_data.damage import damaged as damaged_pages
from tests.laboratory.fuzz_data.rows import Row, Rows

if TYPE_CHECKING:
    from tests.laboratory.fuzz_data.draw import Draw
    from tests.laboratory.fuzz_data.tables import Stream, Table

MOST_ROWS: Final = 5
STRANGE_NAMES: Final = ("", "", "", " b", "%20", "ü", "+", "#1", "=1", "&", "'", "~")
EXTRAS: Final = ("", "extra", "extra", "Ä", "not.`used`", "a b", '"', "_x", "0")


@dataclass(frozen=True, kw_only=True)
class File:
    """A source file.

    Attributes:
        name: Its name.
        content: Its bytes.
        rows: Its rows in their order.
        kind: What is special about it.
        bad: Whether it is bad as a whole: none of its rows may be in the table.
        aside: Entries in the quarantine that it must make.
        age: Days by which its modification time lies before that of the others.
        late: Whether it comes with the second delivery.
    """

    name: str
    content: bytes
    rows: list[Row] = field(default_factory=list)
    kind: str = "plain"
    bad: bool = False
    aside: int = 0
    age: int = 0
    late: bool = False


class Files:
    """Makes files of one stream.

    Args:
        table: The table.
        stream: The stream.
    """

    def __init__(self, table: Table, stream: Stream) -> None:
        self._stream = stream
        self._rows = Rows(table, stream)
        self._kinds = dict((*table.shared, *stream.owned))
        # A name that is mapped is meant exactly so; the others must not be written in another case.
        self._own = sorted(name for name in self._kinds if name not in stream.sources)
        self._write = {"csv": self._csv, "json": self._json, "parquet": self._parquet}[stream.format]

    def file(self, draw: Draw, number: int) -> File:
        """The file of that number."""
        count = draw.number(1, MOST_ROWS)
        rows = [self._rows.row(draw, f"~{number}.{place}") for place in range(count)]
        content, rows, kind, bad, aside = self._write(draw, rows)
        suffix = self._stream.format
        if self._stream.format != "parquet":
            packed = draw.one(["", "", "", "", "gz", "bz2", "cut"])
            if packed == "bz2":
                content, suffix = bz2.compress(content), f"{suffix}.bz2"
            elif packed:
                content, suffix = gzip.compress(content, mtime=0), f"{suffix}.gz"
            if packed == "cut":
                content, kind, bad, aside = (
                    content[: max(1, len(content) * draw.number(1, 99) // 100)],
                    "truncated gz",
                    True,
                    1,
                )
        return File(
            name=f"{number:06}{draw.one(STRANGE_NAMES)}.{suffix}",
            content=content,
            rows=rows,
            kind=kind,
            bad=bad,
            aside=1 if bad else aside,
            age=draw.one([0, 0, 0, 30, 3000]),
            late=draw.number(0, 3) == 0,
        )

    # CSV

    def _csv(self, draw: Draw, rows: list[Row]) -> tuple[bytes, list[Row], str, bool, int]:  # noqa: C901, PLR0912, PLR0915  by damage
        setting = self._stream.setting
        kinds = ["plain"] * 12 + ["empty", "mark only", "header only", "missing column", "twice", "short row"]
        kinds += ["two records in one"] * 2
        kinds += ["case"] if self._own else []
        if setting("quote"):
            kinds += ["not closed", "after quote", "quote inside", "lone CR"]
        if setting("encoding") == "utf-8":
            kinds += ["other encoding", "header in other encoding"]
        if setting("escape") != setting("quote"):
            kinds += ["doubled quote", "escape alone"]
        if not setting("multiline"):
            kinds += ["line end"]
        if setting("encoding") == "utf-16":
            kinds += ["no mark"]
        kind = draw.one(kinds)
        header = draw.shuffled([*self._kinds, *draw.some(EXTRAS, 3)])
        if setting("encoding") == "iso-8859-1" or not setting("quote"):
            header = [name for name in header if name in self._kinds or name not in {'"', "", "Ä"}]
        if kind in {"missing column", "twice", "case"}:
            name = draw.one(self._own if kind == "case" else sorted(self._kinds))
            place = header.index(name)
            if kind == "missing column":
                header[place] = "other"
            elif kind == "twice":
                header.append(name)
            else:
                header.append(name.upper())
        end = draw.one(["\n", "\r\n"])
        quoting = draw.one(["least", "least", "all", "some"])
        lines = [self._record(draw, [(self._stream.source(name), False) for name in header], quoting)]
        spoiled = draw.number(0, len(rows) - 1)
        aside = 0
        for place, row in enumerate(rows):
            line = self._record(draw, [self._field(draw, row, name) for name in header], quoting)
            extra = 0
            if place == spoiled and kind in _ROW_KINDS:
                line, extra = self._broken(kind, line, row, header)
                row = row.spoiled(kind)  # noqa: PLW2901
                rows[place] = row
            aside += max(not row.good, extra)
            lines.append(line)
        lines = [line for one in lines for line in ([one, ""] if draw.number(0, 9) == 0 else [one])]
        text = end.join(lines) + draw.one([end, ""])
        bad = kind in {"missing column", "twice", "case", "header in other encoding", "no mark"}
        if kind in _BROKEN and setting("multiline"):
            bad = True
        if kind in {"empty", "mark only", "header only"}:
            rows, aside = [], 0
            text = "" if kind != "header only" else lines[0]
        encoding = setting("encoding")
        content = text.encode(encoding if encoding != "utf-16" else "utf-16le", errors=_ERRORS)
        if encoding == "utf-16":
            content = (b"" if kind in {"no mark", "empty"} else b"\xff\xfe") + content
        elif encoding == "utf-8" and kind != "empty" and (kind == "mark only" or draw.flip()):
            content = b"\xef\xbb\xbf" + content
        if kind == "header in other encoding":
            content = content.replace(
                b"\n", "".join([setting("separator"), "é"]).encode("iso-8859-1") + b"\n", 1
            )
        return content, rows, kind, bad, aside

    def _field(self, draw: Draw, row: Row, name: str) -> tuple[str | None, bool]:
        """The text of a field, and whether it must be quoted."""
        if name.lower() not in {one.lower() for one in self._kinds}:
            return draw.one(["", "x", "é" if self._stream.setting("quote") else "y"]), False
        cell = (
            row.cells.get(name) or row.cells[next(one for one in self._kinds if one.lower() == name.lower())]
        )
        null = self._stream.setting("null")
        if cell.text is None:
            # Nothing is null for all types but strings, where the dialect says what is.
            only_null = self._kinds.get(name) == "string" or draw.flip()
            return (null if only_null else ""), False
        return cell.text, cell.text == null

    def _record(self, draw: Draw, fields: list[tuple[str | None, bool]], quoting: str) -> str:
        setting = self._stream.setting
        separator, quote, escape = setting("separator"), setting("quote"), setting("escape")
        written = []
        for text, must in fields:
            text = text or ""  # noqa: PLW2901
            if not quote:
                written.append(text)
                continue
            special = any(one in text for one in (separator, quote, escape, "\r", "\n"))
            null = not must and text == setting("null")
            needless = quoting == "all" or (quoting == "some" and draw.flip())
            if must or special or (needless and not null):
                inner = text.replace(escape, escape * 2) if escape != quote else text
                text = quote + inner.replace(quote, escape + quote) + quote  # noqa: PLW2901
            written.append(text)
        return separator.join(written)

    def _broken(self, kind: str, line: str, row: Row, header: list[str]) -> tuple[str, int]:
        """A line with damage, and how many entries it makes where each line stands for itself."""
        setting = self._stream.setting
        quote, separator, escape = setting("quote"), setting("separator"), setting("escape")
        if kind == "short row":
            return (line + separator if len(header) % 2 else f"x{separator}y"), 1
        if kind == "two records in one":
            return f"{line}{separator}{line}", 1
        if kind == "other encoding":
            return f"{line}{separator}\udce9", 1
        broken = {
            "not closed": f"{quote}{row.cells[header[0]].text if header[0] in row.cells else ''}",
            "after quote": f"{quote}a{quote}b",
            "quote inside": f"a{quote}b",
            "lone CR": "a\rb",
            "doubled quote": f"{quote}a{quote}{quote}b{quote}",
            "escape alone": f"{quote}a{escape}n{quote}",
            "line end": f"{quote}a\nb{quote}",
        }[kind].replace("None", "")
        if kind == "not closed":
            broken = f"{quote}never"
        return f"{line}{separator}{broken}", 2 if kind == "line end" else 1

    # JSON

    def _json(self, draw: Draw, rows: list[Row]) -> tuple[bytes, list[Row], str, bool, int]:
        spoilt = sorted(_JSON_KINDS.keys() - (set() if self._own else {"case"}))
        kind = draw.one(["plain"] * 8 + ["joined"] * 3 + spoilt + ["empty", "blank lines"])
        spoiled = draw.number(0, len(rows) - 1)
        objects = [self._object(draw, row) for row in rows]
        if kind in {"empty", "blank lines"}:
            return b"" if kind == "empty" else b"\n \t\r\n\n", [], kind, False, 0
        lines = []
        aside = 0
        for place, (row, text) in enumerate(zip(rows, objects, strict=True)):
            line = text
            if place == spoiled and kind in _JSON_KINDS:
                line = _JSON_KINDS[kind](text, self._own[0] if self._own else "")
                rows[place] = row.spoiled(kind)
            aside += not rows[place].good
            lines.append(line)
        if kind == "joined":
            between = draw.one(["", " ", "\t"])
            content = between.join(lines)
        else:
            content = draw.one(["\n", "\r\n", "\n\n", "\n \n"]).join(lines)
        content += draw.one(["", "\n"])
        mark = draw.one(["", "", "\ufeff"])
        return (mark + content).encode("utf-8", errors=_ERRORS), rows, kind, False, aside

    def _object(self, draw: Draw, row: Row) -> str:
        fields = []
        for name in draw.shuffled(list(self._kinds)):
            cell = row.cells[name]
            if cell.text is None and draw.flip():
                continue
            fields.append((self._stream.source(name), cell.token))
        fields += draw.some(_JSON_EXTRAS, 2)
        comma, colon = draw.one([(",", ":"), (", ", ": "), (" ,\t", " : ")])
        ascii_only = draw.flip()
        named = ((json.dumps(name, ensure_ascii=ascii_only), token) for name, token in fields)
        return "{" + comma.join(f"{name}{colon}{token}" for name, token in named) + "}"

    # Parquet

    def _parquet(self, draw: Draw, rows: list[Row]) -> tuple[bytes, list[Row], str, bool, int]:  # noqa: C901, PLR0912, PLR0915  likewise
        kinds = ["plain"] * 8 + [
            "nanoseconds",
            "other type",
            "missing column",
            "case",
            "no parquet",
            "cut",
            "bytes",
            "empty",
            *DAMAGES,
        ]
        kind = draw.one(kinds)
        names = draw.shuffled(list(self._kinds))
        bad = kind in {"missing column", "case", "no parquet", "cut"}
        spoiled = draw.one(names)
        arrays: dict[str, pa.Array] = {}
        damaged: set[int] = set()
        for name in names:
            values = [row.cells[name].value for row in rows]
            column = self._kinds[name]
            made = None
            if kind == "other type" and name == spoiled:
                made = _other_type(draw, column, len(rows))
                bad = bad or made is not None
            if kind == "bytes" and column == "string" and not damaged:
                damaged = {draw.number(0, len(rows) - 1)}
                place = next(iter(damaged))
                encoded = [None if value is None else value.encode() for value in values]
                encoded[place] = "Müller".encode("iso-8859-1")
                buffers = pa.array(encoded, pa.binary())
                made = pa.Array.from_buffers(pa.string(), len(encoded), buffers.buffers(), buffers.null_count)
            if kind == "nanoseconds" and column == "timestamp" and not damaged:
                usable = [
                    place
                    for place, value in enumerate(values)
                    if value is not None and abs(value) < _NANO_RANGE
                ]
                if usable:
                    damaged = {draw.one(usable)}
                    inside = [
                        value if value is not None and abs(value) < _NANO_RANGE else 0 for value in values
                    ]
                    place = next(iter(damaged))
                    # Every value of the column must fit: others than the damaged one are the rows' own.
                    if all(value is None or abs(value) < _NANO_RANGE for value in values):
                        nanos = [None if v is None else v * 1000 for v in values]
                        nanos[place] = inside[place] * 1000 + 1
                        made = pa.array(nanos, pa.int64()).cast(pa.timestamp("ns"))
                    else:
                        damaged = set()
            arrays[name] = made if made is not None else _array(draw, column, values)
        for place in damaged:
            rows[place] = rows[place].spoiled(kind)
        if kind == "missing column":
            arrays.pop(spoiled)
        elif kind == "case":
            arrays[spoiled.upper() if spoiled.upper() != spoiled else spoiled.lower()] = arrays.pop(spoiled)
        if draw.flip():
            arrays["extra.`x`"] = pa.array([[1]] * len(rows))
        sink = io.BytesIO()
        # Nobody knows whether the INT96 of other writers than Spark are whole microseconds.
        old = kind == "plain" and draw.number(0, 7) == 0 and self._within_int96(rows)
        if old and "timestamp" in self._kinds.values():
            kind, bad = "old timestamps", True
        compression = draw.one(["snappy", "none", "zstd"])
        if kind in DAMAGES:
            bad = True
            compression = "snappy" if kind == "size" else compression  # what is not packed is no larger
        pq.write_table(
            pa.table({self._stream.source(name): array for name, array in arrays.items()}),
            sink,
            compression=compression,
            write_page_checksum=kind in DAMAGES or draw.flip(),
            use_dictionary=draw.flip(),
            store_decimal_as_integer=draw.flip(),
            use_deprecated_int96_timestamps=old,
        )
        content = sink.getvalue()
        if kind == "empty":
            return b"", [], kind, False, 0
        if kind == "no parquet":
            content = b"k,at\n1,2\n"
        elif kind == "cut":
            content = content[: max(1, len(content) * draw.number(1, 99) // 100)]
        elif kind in DAMAGES:
            content = damaged_pages(content, kind, column=self._stream.source(spoiled))
        return content, rows, kind, bad, sum(not row.good for row in rows)

    def _within_int96(self, rows: list[Row]) -> bool:
        stamps = [name for name, kind in self._kinds.items() if kind == "timestamp"]
        return all(abs(row.cells[name].value or 0) < _NANO_RANGE for row in rows for name in stamps)


_ERRORS: Final = "surrogateescape"
_NANO_RANGE: Final = 9_000_000_000_000_000
_BROKEN: Final = frozenset(
    {"not closed", "after quote", "quote inside", "lone CR", "doubled quote", "escape alone"}
)
_ROW_KINDS: Final = _BROKEN | {"short row", "two records in one", "other encoding", "line end"}
_JSON_EXTRAS: Final = (
    ("extra", '{"a": [1, {"b": null}]}'), ("Ä", '"x"'), ("", "1e999"), ("a.b", "-0.0"), ("list", "[]"),
    ("e", '"\\ud83d\\ude00"'),
)  # fmt: skip
_JSON_KINDS: Final = {
    "garbage after": lambda text, _name: f"{text} junk",
    "second broken": lambda text, _name: f'{text}{{"a": ',
    "second no object": lambda text, _name: f"{text} 7",
    "array": lambda text, _name: f"[{text}]",
    "no value": lambda text, _name: f"{text[:-1]},}}",
    "twice": lambda text, _name: f'{text[:-1]},"z":1,"z":1}}',
    "twice inside": lambda text, _name: f'{text[:-1]},"z":[{{"a":1,"a":1}}]}}',
    "case": lambda text, name: f'{text[:-1]},"{name.upper()}":"1"}}',
    "half a pair": lambda text, _name: f'{text[:-1]},"z":"\\ud800"}}',
    "bytes": lambda text, _name: f'{text[:-1]},"z":"\udce4"}}',
    "zero before": lambda text, _name: f'{text[:-1]},"z":01}}',
    "quotes missing": lambda text, _name: f"{text[:-1]},z:1}}",
    "control": lambda text, _name: f'{text[:-1]},"z":"\x01"}}',
}


def _array(draw: Draw, kind: str, values: list[Any]) -> pa.Array:  # noqa: PLR0911  one a type
    """The values as a column of a type that gives them without loss."""
    whole = [value for value in values if value is not None]
    if kind == "string":
        digits = whole and all(
            value.isascii() and value.isdecimal() and str(int(value)) == value for value in whole
        )
        if digits and all(int(value) < 1 << 31 for value in whole) and draw.flip():
            return pa.array([None if value is None else int(value) for value in values], pa.int32())
        return pa.array(values, pa.string())
    if kind in {"int", "bigint"}:
        narrow = all(-128 <= value < 128 for value in whole)
        types = [pa.int32() if kind == "int" else pa.int64()]
        types += [pa.int8(), pa.int16()] if narrow else []
        types += [pa.uint16()] if narrow and all(value >= 0 for value in whole) else []
        return pa.array(values, draw.one(types))
    if kind in DECIMALS:
        precision, scale = DECIMALS[kind]
        short = all(abs(value) < 1000 for value in whole) and not any(value % 1 for value in whole)
        if short and precision - scale > 9 and draw.flip():
            return pa.array([None if value is None else int(value) for value in values], pa.int32())
        if short and draw.flip():
            return pa.array([None if v is None else Decimal(int(v)) for v in values], pa.decimal128(3, 0))
        return pa.array(values, pa.decimal128(precision, scale))
    types = {
        "boolean": pa.bool_(), "float": pa.float32(), "double": pa.float64(), "date": pa.date32(),
    }  # fmt: skip
    if kind == "timestamp":
        units = ["us"]
        units += ["ms"] if all(value % 1000 == 0 for value in whole) else []
        units += ["ns"] if all(abs(value) < _NANO_RANGE for value in whole) else []
        unit = draw.one(units)
        scaled = [None if v is None else {"us": v, "ms": v // 1000, "ns": v * 1000}[unit] for v in values]
        return pa.array(scaled, pa.int64()).cast(pa.timestamp(unit, tz=draw.one([None, "UTC"])))
    if kind == "date":
        return pa.array(values, pa.int32()).cast(pa.date32())
    return pa.array(values, types[kind])


def _other_type(draw: Draw, kind: str, count: int) -> pa.Array | None:
    """A column of a type that may lose something on the way."""
    options = {
        "int": [pa.int64(), pa.float64(), pa.uint32(), pa.string()],
        "bigint": [pa.float64(), pa.timestamp("us"), pa.decimal128(18, 0), pa.uint64()],
        "float": [pa.float64(), pa.int32()],
        "double": [pa.int64(), pa.decimal128(9, 2), pa.string()],
        "date": [pa.timestamp("us"), pa.int32(), pa.string()],
        "timestamp": [pa.int64(), pa.date32(), pa.string()],
        "boolean": [pa.int32(), pa.string()],
        "string": [pa.float64(), pa.bool_(), pa.binary()],
        "decimal(38,10)": [pa.float64(), pa.decimal128(38, 11), pa.string()],
        "decimal(9,2)": [pa.decimal128(10, 2), pa.int32(), pa.float32()],
        "decimal(18,0)": [pa.decimal128(18, 1), pa.int64()],
    }[kind]
    chosen = draw.one(options)
    one: Any = {pa.string(): "1", pa.binary(): b"1", pa.bool_(): True}.get(chosen, 1)
    if pa.types.is_decimal(chosen):
        one = Decimal(1)
    return pa.array([one] * count, chosen)
