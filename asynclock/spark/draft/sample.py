"""The first files of a folder: their format, columns, types and rows."""

from __future__ import annotations

import io
import re
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import IO, TYPE_CHECKING, Any, Final, cast

from asynclock._shared.words import printable
from asynclock.errors import ConfigError
from asynclock.spark.check.strict import csv_records, json_records, parquet_records
from asynclock.spark.check.strict.rows import Bad, BadFileError, Good, Layout
from asynclock.spark.check.strict.source_file import opened
from asynclock.spark.draft.reasons import DAMAGED, HEAD_BYTES, nested_json, no_json, no_record, other_content
from asynclock.spark.draft.texts import CHANGED_NAME, TIME_NAME, TextColumn
from asynclock.spark.spec.column import plain_name
from asynclock.spark.spec.column_groups import TOMBSTONE
from asynclock.spark.spec.dialect import CsvDialect, Encoding
from asynclock.spark.spec.load import COMPRESSIONS, format_of
from asynclock.spark.spec.ordering import ORDERING
from asynclock.spark.spec.view import COLUMN_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from asynclock.spark.check.strict.rows import Row
    from asynclock.spark.spec.model import SourceFormat

FILES: Final = 3
ROWS: Final = 10_000
"""The largest number of rows of a file that are examined."""
MOST_BYTES: Final = 32 << 20
"""The largest number of bytes of an unpacked file that are examined."""
_TABS: Final = ".tsv"
_SEPARATORS: Final = (",", ";", "\t", "|")
_NULLS: Final = frozenset({r"\N", "NULL", "null", "NA", "N/A", "n/a", "None", "nil", "-"})
_DIALECT_RECORDS: Final = 200
_WILD: Final = re.compile(r"[*?\[\]{}\\]")
_PARQUET_KINDS: Final = (
    "boolean", "int", "bigint", "float", "double", "date", "timestamp",
    *(f"decimal(38,{scale})" for scale in range(39)), "string",
)  # fmt: skip
_JSON_NUMBERS: Final = ("bigint", "double")
_JSON_TEXTS: Final = ("date", "timestamp")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The findings in the first files of a folder.

    Attributes:
        folder: The folder.
        pattern: Name pattern of the files in it.
        format: Their format.
        csv: Their dialect, if they are CSV.
        files: The files that were read.
        found: Number of files that the pattern matches now.
        types: Type by column, in the order of the files.
        empty: Columns without a value.
        sources: The names in the files, by column.
        left_out: The reason why a column is left out, by its name in the files.
        others: Files of the folder that the pattern does not match.
        notes: Things that a person should check before using the spec.
    """

    folder: Path
    pattern: str
    format: SourceFormat
    csv: CsvDialect | None
    files: tuple[Path, ...]
    found: int
    types: dict[str, str]
    empty: frozenset[str]
    sources: dict[str, str]
    left_out: dict[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def read(self, file: Path, layout: Layout) -> Iterator[Row]:
        """Yield the first rows of a file, good and bad.

        Raises:
            BadFileError: The file gives no rows.
        """
        try:
            yield from islice(_head_rows(file, self.format, self.csv, layout), ROWS)
        except DAMAGED as error:
            raise BadFileError(str(error)) from error

    def rows(self, types: dict[str, str]) -> Iterator[tuple[Any, ...]]:
        """Yield the good rows in the columns of ``types``, in the form of the second reader."""
        layout = Layout(types, (), sources=self.sources)
        for file in self.files:
            try:
                for row in self.read(file, layout):
                    if isinstance(row, Good):
                        yield row.values
            except BadFileError:
                continue


def take(folder: Path) -> Sample:
    """Read the first files of a folder.

    Raises:
        ConfigError: The folder has no file that a stream could read, or none with columns.
    """
    names, pattern, others = _matching(folder)
    files = [folder / name for name in names]
    kind = "csv" if pattern.endswith(_TABS) else format_of(names[0])
    if kind is None:  # pragma: no cover  _matching takes files of a known format only
        raise AssertionError(names[0])
    read = tuple(files[:FILES])
    notes: list[str] = []
    try:
        if complaint := other_content(read[0], kind):
            raise _wrong(folder, f"{complaint}. Nothing was written")
        dialect = _dialect(read[0], notes, tabs=pattern.endswith(_TABS)) if kind == "csv" else None
        found, dialect = _columns(read, kind, dialect, notes)
        complaint = no_json(read[0]) if kind == "json" and not found else None
        notes.append((kind == "json" and len(files) == 1 and nested_json(read[0])) or "")
    except DAMAGED as error:
        raise _wrong(folder, f"its files cannot be read as {kind}: {error}") from error
    left_out = _left_out(found)
    sources = _named({source: kind for source, (kind, _) in found.items() if source not in left_out})
    types = {name: found[source][0] for name, source in sources.items()}
    if not types:
        reason = complaint or "its first files have no column that a spec can name"
        raise _wrong(folder, f"{reason}. Nothing was written")
    return Sample(
        folder=folder,
        pattern=pattern,
        format=kind,
        csv=dialect,
        files=read,
        found=len(files),
        types=types,
        empty=frozenset(name for name, source in sources.items() if not found[source][1]),
        sources=sources,
        left_out=left_out,
        others=others,
        notes=tuple(filter(None, notes)),
    )


def _matching(folder: Path) -> tuple[list[str], str, tuple[str, ...]]:
    """Return the files of the commonest suffix by age, the pattern that matches them, and the others."""
    if not folder.is_dir():
        raise _wrong(folder, "no such folder on this machine; name the folder of a stream's files")
    if _WILD.search(str(folder.absolute())):
        raise _wrong(folder, "its path has a character that a pattern reads as a wildcard; rename it")
    files = [
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith((".", "_")) and path.stat().st_size
    ]
    suffixes: Counter[tuple[str, str]] = Counter()
    for path in files:
        if parts := _suffix(path.name):
            suffixes[parts] += 1
    if not suffixes:
        inner = [path for path in folder.iterdir() if path.is_dir() and any(path.iterdir())]
        hint = f"; its folders have files: name those, {inner[0]} first" if inner and not files else ""
        raise _wrong(folder, f"has no file that ends in .csv, .tsv, .json, .jsonl, .ndjson or .parquet{hint}")
    commonest = max(suffixes, key=lambda parts: (suffixes[parts], parts))[0]
    packed = sorted(compression for suffix, compression in suffixes if suffix == commonest)
    pattern = f"*{commonest}{packed[0]}"
    if len(packed) > 1:
        pattern = f"*{{{','.join(commonest + compression for compression in packed)}}}"
    chosen = [path for path in files if (_suffix(path.name) or ("", ""))[0] == commonest]
    chosen.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    others = sorted(path.name for path in files if path not in chosen)
    return [path.name for path in chosen], pattern, tuple(others)


def _suffix(name: str) -> tuple[str, str] | None:
    """Return the suffix of the format and that of the compression, as they are written."""
    plain, compression = name, ""
    for known in COMPRESSIONS:
        if name.endswith(known):
            plain, compression = name.removesuffix(known), known
    dot = plain.rfind(".")
    suffix = plain[dot:] if dot > 0 else ""
    known_format = suffix.lower() == _TABS or format_of(suffix) is not None
    return (suffix, compression) if known_format else None


def _dialect(file: Path, notes: list[str], *, tabs: bool) -> CsvDialect:
    with _beginning(file) as content:
        head = content.read(HEAD_BYTES)
    if b"\r" in head and b"\n" not in head:
        raise BadFileError(
            f"{file.name}: its lines end in a carriage return alone; convert it: tr '\\r' '\\n'"
        )
    encoding: Encoding = "utf-8"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif others := _not_utf8(head):
        encoding = _encoding(file, head, others, notes)
    text = head.decode(encoding, errors="replace")
    if tabs:
        return CsvDialect(separator="\t", encoding=encoding)
    best = max(_SEPARATORS, key=lambda separator: _fit(text, separator))
    return CsvDialect(separator=best if _fit(text, best) > 1 else ",", encoding=encoding)


def _not_utf8(head: bytes) -> list[int]:
    """Return the numbers of the lines that are not UTF-8, from 1."""
    lines = head.split(b"\n")
    if len(head) == HEAD_BYTES:
        lines.pop()  # it may be cut inside a character
    return [number for number, line in enumerate(lines, 1) if not _is_utf8(line)]


def _is_utf8(line: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        line.decode()
        return True
    return False


def _encoding(file: Path, head: bytes, others: list[int], notes: list[str]) -> Encoding:
    """Return the encoding of a file that is not all UTF-8, and note that it is a guess."""
    lines = head.split(b"\n")
    where = f"line {others[0]} of {file.name}" + (f" and {len(others) - 1} more" if others[1:] else "")
    if any(_is_utf8(line) and not line.isascii() for line in lines):
        notes.append(f"{where} is not UTF-8, as other lines are: such rows are bad rows. Mend the file.")
        return "utf-8"
    notes.append(
        f"{where} is not UTF-8, so the encoding is a guess: windows-1252, whose texts may be wrong. If the "
        'rest is UTF-8, set encoding = "utf-8": such rows are then bad rows.'
    )
    return "windows-1252"


def _fit(text: str, separator: str) -> int:
    """Return the number of fields that every record has; 0 if they differ."""
    counts = set()
    try:
        records = csv_records.Splitter(CsvDialect(separator=separator)).records(
            io.StringIO(text, newline="\n")
        )
        # The last record may be cut.
        for record in list(islice(records, _DIALECT_RECORDS))[:-1] or ():
            counts.add(len(record.fields) if isinstance(record, csv_records.Record) else 0)
    except BadFileError:
        return 0
    return counts.pop() if len(counts) == 1 else 0


class _CutError(Exception):
    """The file has more bytes than are examined."""


class _Head(io.RawIOBase):
    """The first bytes of an unpacked file; the rest is never read.

    It ends with an error: with a plain end, a cut record would look like a whole one.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  as RawIOBase has it
        if self._left <= 0:
            raise _CutError
        found = self._file.read(min(len(buffer), self._left))
        self._left -= len(found)
        buffer[: len(found)] = found
        return len(found)


@contextmanager
def _beginning(file: Path) -> Iterator[io.BufferedReader]:
    """Open the beginning of a file; a body that reads beyond it ends there.

    Raises:
        BadFileError: The body failed to read the file, which is named.
    """
    try:
        with opened(file) as content, suppress(_CutError):
            yield io.BufferedReader(_Head(content))
    except DAMAGED as error:
        raise BadFileError(f"{file.name}: {error}") from error


Found = dict[str, tuple[str, int]]
"""For each column its type, empty if there is none, and whether it has values."""
_TWICE: Final = "twice"
_SOMETIMES: Final = "sometimes"


def _columns(
    files: Iterable[Path], kind: SourceFormat, dialect: CsvDialect | None, notes: list[str]
) -> tuple[Found, CsvDialect | None]:
    if kind == "parquet":
        return _parquet(files), None
    if kind == "json":
        return _json(files, notes), None
    if dialect is None:  # pragma: no cover  a CSV file has a dialect
        raise AssertionError(kind)
    return _csv(files, dialect, notes)


def _csv(files: Iterable[Path], dialect: CsvDialect, notes: list[str]) -> tuple[Found, CsvDialect]:
    """Return the columns, and the dialect with the text that stands for null."""
    columns: dict[str, TextColumn] = {}
    nulls: dict[str, set[str]] = {}
    headers: list[list[str]] = []
    unfit: list[str] = []
    fitting = 0
    for file in files:
        others: list[tuple[int, int]] = []
        with _beginning(file) as content:
            records = csv_records.Splitter(dialect).records(csv_records.decoded(content, dialect.encoding))
            header = next(records, None)
            if isinstance(header, Bad):
                raise BadFileError(f"its header is broken: {header.reason}")
            if header is not None:
                headers.append(header.fields)
                for name in header.fields:
                    columns.setdefault(name, TextColumn())
                    nulls.setdefault(name, set())
                for record in islice(records, ROWS):
                    if isinstance(record, Bad):
                        continue
                    if len(record.fields) == len(header.fields):
                        _add(columns, nulls, header.fields, record)
                        fitting += 1
                    else:
                        others.append((record.line, len(record.fields)))
                if others:
                    unfit.append(no_record(file, header.fields, others))
    if unfit and not fitting:
        raise BadFileError(unfit[0])
    # Such a text is a value of type string only: a column with two of them is text.
    typed = Counter(
        next(iter(seen))
        for name, seen in nulls.items()
        if len(seen) == 1 and columns[name].kind() != "string"
    )
    null = max(typed, key=lambda one: typed[one], default="")
    found = {
        name: (
            column.kind() if nulls[name] <= {null} else "string",
            column.values + len(nulls[name] - {null}),
        )
        for name, column in columns.items()
    }
    notes += _value_like(headers, columns)
    notes += (_untimed(name, column) for name, column in columns.items() if found[name][0] == "string")
    return found | _unsteady(headers), replace(dialect, null=null)


def _value_like(headers: list[list[str]], columns: dict[str, TextColumn]) -> Iterator[str]:
    """Yield a note if the first line may have values in place of names."""
    for header in headers[:1]:
        typed = [name for name in header if columns[name].kind() not in {"string", "boolean"}]
        fitting = [name for name in typed if columns[name].takes(name)]
        if fitting and fitting == typed and (len(typed) == len(header) or not all(map(str.isdigit, fitting))):
            yield (
                f"The first line looks like values ({', '.join(fitting[:3])}) and not like names. A CSV file "
                "needs a header: put a line with the names of the columns before it."
            )


def _untimed(name: str, column: TextColumn) -> str:
    """Return a note if a column is named like a time but has other texts; else nothing."""
    text = column.no_time
    if text is None or not (TIME_NAME.fullmatch(name.lower()) or CHANGED_NAME.fullmatch(name.lower())):
        return ""
    return (
        f"{name} is called like a time, but {text!r} is none that a stream reads (2024-01-31, "
        "2024-01-31 12:00:00, 2024-01-31T12:00:00Z): it is text, and cannot order events."
    )


def _add(
    columns: dict[str, TextColumn], nulls: dict[str, set[str]], header: list[str], record: csv_records.Record
) -> None:
    for place, (name, text) in enumerate(zip(header, record.fields, strict=True)):
        if text in _NULLS and (record.quoted is None or not record.quoted[place]):
            nulls[name].add(text)
        elif text:  # an empty field is null in every type but string
            columns[name].add(text)


def _unsteady(headers: list[list[str]]) -> Found:
    """Return the columns that some header lacks or has twice: a file without them is a bad file."""
    names = dict.fromkeys(name for header in headers for name in header)
    twice = {name: (_TWICE, 0) for name in names if any(header.count(name) > 1 for header in headers)}
    return {name: (_SOMETIMES, 0) for name in names if any(name not in header for header in headers)} | twice


def _json(files: Iterable[Path], notes: list[str]) -> Found:
    texts: dict[str, TextColumn] = {}
    numbers: dict[str, TextColumn] = {}
    kinds: dict[str, set[str]] = {}
    for file in files:
        with _beginning(file) as content:
            for name, value, source in islice(_fields(cast("IO[bytes]", content)), 100 * ROWS):
                seen = kinds.setdefault(name, set())
                if isinstance(value, str):
                    seen.add("string")
                    texts.setdefault(name, TextColumn(_JSON_TEXTS)).add(value)
                elif isinstance(value, json_records.Token):
                    seen.add("number")
                    numbers.setdefault(name, TextColumn(_JSON_NUMBERS)).add(source)
                elif value is not None:
                    seen.add("boolean" if isinstance(value, bool) else "nested")
    found: Found = {}
    for name, seen in kinds.items():
        column = {frozenset({"string"}): texts, frozenset({"number"}): numbers}.get(frozenset(seen), {}).get(
            name
        )
        kind = column.kind() if column else "boolean" if seen == {"boolean"} else "string"
        found[name] = kind, len(seen)
    notes += (_untimed(name, column) for name, column in texts.items() if found[name][0] == "string")
    return found


def _fields(content: IO[bytes]) -> Iterator[tuple[str, Any, str]]:
    for number, line in enumerate(content):
        if number >= ROWS:
            return
        try:
            for fields in json_records.objects(line.decode("utf-8-sig").strip(" \t\r\n")):
                for name, (value, source) in fields.items():
                    yield name, value, source
        except (ValueError, json_records.MalformedError):
            continue  # a bad row


def _parquet(files: Iterable[Path]) -> Found:
    found: dict[str, list[str]] = {}
    headers: list[list[str]] = []
    for file in files:
        types = parquet_records.types(file, _PARQUET_KINDS)
        headers.append(list(types))
        for name, kinds in types.items():
            found[name] = [kind for kind in found.get(name, kinds) if kind in kinds]
    return {name: (kinds[0] if kinds else "", 1) for name, kinds in found.items()} | _unsteady(headers)


def _left_out(found: Found) -> dict[str, str]:
    """Return the reasons why columns cannot be in a spec, by their names in the files."""
    reasons: dict[str, str] = {}
    for name, (kind, _) in found.items():
        if not name:
            reasons[name] = "it has no name"
        elif kind == _TWICE:
            reasons[name] = "a file has it twice"
        elif kind == _SOMETIMES:
            reasons[name] = "not every file has it, and a file without it would be a bad file"
        elif not kind:
            reasons[name] = "no type of a table takes its values without loss"
    return reasons


def _named(kinds: dict[str, str]) -> dict[str, str]:
    """Return the names in the files, by names that a spec can have.

    Args:
        kinds: Types by the names in the files.
    """
    times = Counter(source.lower() for source in kinds)
    own = [source for source, kind in kinds.items() if COLUMN_NAME.fullmatch(source)
           and times[source.lower()] == 1
           and (source.lower() != TOMBSTONE or (source, kind) == (TOMBSTONE, "boolean"))]  # fmt: skip
    taken = {TOMBSTONE, ORDERING, *(source.lower() for source in own)}
    names = {}
    for source in kinds:
        name = source
        if source not in own:
            name = plain_name(source)
            for number in count(2):
                if name not in taken:
                    break
                name = f"{plain_name(source)}_{number}"
            taken.add(name)
        names[name] = source
    return names


def _head_rows(file: Path, kind: SourceFormat, dialect: CsvDialect | None, layout: Layout) -> Iterator[Row]:
    if kind == "parquet":
        yield from parquet_records.rows(file, layout)
        return
    with _beginning(file) as content:
        if kind == "json":
            yield from json_records.rows(cast("IO[bytes]", content), layout)
        else:
            yield from csv_records.rows(content, layout, dialect or CsvDialect())


def _wrong(folder: Path, reason: str) -> ConfigError:
    return ConfigError(setting="folder", value=printable(folder), reason=reason)
