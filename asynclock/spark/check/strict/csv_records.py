"""CSV split into records, by RFC 4180 or by the dialect of the stream.

Python's ``csv`` cannot tell ``""`` from nothing, and silently accepts text that is not CSV; hence our own
reader. Lines without a quote, nearly all of them, go through ``str.split``.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from asynclock.spark.check.strict.rows import (
    MALFORMED,
    MOST_CHARACTERS,
    UNDECODABLE,
    Bad,
    BadFileError,
    Layout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from asynclock.spark.check.strict.rows import Row
    from asynclock.spark.spec.dialect import CsvDialect

NOT_CLOSED: Final = "a quoted field is never closed"
AFTER_QUOTE: Final = "text follows a closing quote"
INSIDE: Final = "a quote, an escape or a carriage return stands inside a field that is not quoted"
_MARK: Final = "asynclock.undecodable"
_ORDER_MARKS: Final = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16le": codecs.BOM_UTF16_LE,
    "utf-16be": codecs.BOM_UTF16_BE,
}

codecs.register_error(_MARK, lambda error: (UNDECODABLE, getattr(error, "end", 0)))


class Record(NamedTuple):
    """One record.

    Attributes:
        line: The line it begins on, from 1.
        fields: Its fields.
        quoted: Whether each field was quoted; None: no field was.
        decoded: Whether all its bytes are of the encoding.
    """

    line: int
    fields: list[str]
    quoted: list[bool] | None
    decoded: bool


def rows(file: io.BufferedReader, layout: Layout, dialect: CsvDialect) -> Iterator[Row]:
    """The rows of a CSV file.

    Raises:
        BadFileError: The file gives no rows, though some may have been yielded.
    """
    text = decoded(file, dialect.encoding)
    try:
        yield from _rows(Splitter(dialect).records(text), layout, dialect.null)
    finally:
        text.detach()  # the file is the caller's to close


def _rows(records: Iterator[Record | Bad], layout: Layout, null: str) -> Iterator[Row]:
    header = next(records, None)
    if header is None:
        return
    if isinstance(header, Bad):
        raise BadFileError(f"its header is broken: {header.reason}")
    if not header.decoded:
        raise BadFileError(f"its header cannot be read: {MALFORMED}")
    places = layout.places(header.fields)
    is_text = [kind == "string" for kind in layout.types.values()]
    for record in records:
        if isinstance(record, Bad):
            yield record
        elif len(record.fields) != len(header.fields):
            yield Bad(record.line, f"it has {len(record.fields)} fields, the header {len(header.fields)}")
        elif not record.decoded:
            yield Bad(record.line, MALFORMED)
        else:
            texts: list[str | None] = []
            for place, text_column in zip(places, is_text, strict=True):
                if place is None:
                    texts.append(None)
                    continue
                text = record.fields[place]
                bare = record.quoted is None or not record.quoted[place]
                is_null = (bare and text == null) or (not text and not text_column)
                texts.append(None if is_null else text)
            yield layout.good(record.line, texts)


class Splitter:
    """Splits texts into records.

    Args:
        dialect: The rules for separating fields.
    """

    def __init__(self, dialect: CsvDialect) -> None:
        self._separator, self._quote = dialect.separator, dialect.quote
        self._escape = dialect.quote if dialect.escape is None else dialect.escape
        self._multiline = dialect.multiline
        quote, escape = re.escape(self._quote), re.escape(self._escape or self._quote)
        inside = f"[^{quote}]|{quote}{quote}"
        if escape != quote:
            inside = f"[^{quote}{escape}]|{escape}[{quote}{escape}]"
        # Without a quote, only separators and line ends have a meaning.
        self._special = re.compile(f"[{quote}{escape}\\r]")
        self._quoted = re.compile(f"{quote}((?:{inside})*+)({quote}?)" if quote else "(?!)")
        self._escaped = re.compile(f"{escape}([{quote}{escape}])" if quote else "(?!)")
        self._bare = re.compile(f"[^{re.escape(self._separator)}\\n]*+")

    def records(self, text: TextIO) -> Iterator[Record | Bad]:
        """The records of a text whose lines end with LF alone.

        Raises:
            BadFileError: The quoting is broken so that the next record cannot be found, or a record is too
            long.
        """
        line = 0
        while read := _line(text):
            line += 1
            content = _without_end(read)
            if not content:
                continue
            if not self._special.search(content) or (not self._quote and "\r" not in content):
                yield Record(line, content.split(self._separator), None, UNDECODABLE not in content)
                continue
            begun = line
            try:
                record, lines = self._with_quotes(read, line, text)
            except ValueError as broken:
                if self._multiline:
                    raise BadFileError(f"line {begun}: {broken}") from None
                yield Bad(begun, str(broken))
            else:
                line += lines
                yield record

    def _with_quotes(self, read: str, line: int, text: TextIO) -> tuple[Record, int]:
        fields: list[str] = []
        quoted: list[bool] = []
        place = more = 0
        while True:
            if self._quote and read.startswith(self._quote, place):
                read, lines, field, place = self._quoted_field(read, place, text)
                more += lines
                quoted.append(True)
            else:
                field, place = self._bare_field(read, place)
                quoted.append(False)
            fields.append(field)
            if read.startswith(self._separator, place):
                place += 1
            elif read[place:] in {"", "\n", "\r\n"}:
                return Record(line, fields, quoted, UNDECODABLE not in read), more
            else:
                raise ValueError(AFTER_QUOTE)

    def _bare_field(self, read: str, place: int) -> tuple[str, int]:
        found = self._bare.match(read, place)
        end = found.end() if found else place
        field = read[place:end]
        if read.startswith("\n", end) and field.endswith("\r"):
            field, end = field[:-1], end - 1
        if self._special.search(field):
            raise ValueError(INSIDE)
        return field, end

    def _quoted_field(self, read: str, place: int, text: TextIO) -> tuple[str, int, str, int]:
        lines = 0
        while True:
            found = self._quoted.match(read, place)
            if found and found[2]:
                inner = found[1]
                if self._escape in inner:
                    inner = self._escaped.sub(r"\1", inner)
                return read, lines, inner, found.end()
            if found and found.end() < len(read):
                raise ValueError(f"{self._escape} stands before neither a quote nor itself")
            # Only a line with a quote can close the field: few enough to look at all of it again.
            pieces = [read]
            length = len(read)
            while True:
                following = _line(text) if self._multiline else ""
                if not following:
                    raise ValueError(NOT_CLOSED)
                lines += 1
                pieces.append(following)
                length += len(following)
                if length > MOST_CHARACTERS:
                    raise BadFileError(f"a record is longer than {MOST_CHARACTERS:,} characters")
                if self._quote in following:
                    break
            read = "".join(pieces)


def decoded(file: io.BufferedReader, encoding: str) -> io.TextIOWrapper:
    """The text of a file; ``UNDECODABLE`` replaces bytes that are not text.

    Raises:
        BadFileError: It is UTF-16 without a byte order mark.
    """
    if encoding == "utf-16":
        start = file.peek(2)[:2]
        if start and start not in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
            raise BadFileError("its encoding is utf-16, but it does not begin with a byte order mark")
    mark = _ORDER_MARKS.get(encoding, b"")
    if mark and file.peek(len(mark)).startswith(mark):
        file.read(len(mark))
    return io.TextIOWrapper(file, encoding=encoding, errors=_MARK, newline="\n")


def _line(text: TextIO) -> str:
    read = text.readline(MOST_CHARACTERS + 3)
    if len(read) > MOST_CHARACTERS + 2:
        raise BadFileError(f"a record is longer than {MOST_CHARACTERS:,} characters")
    return read


def _without_end(read: str) -> str:
    if read.endswith("\r\n"):
        return read[:-2]
    return read.removesuffix("\n")
