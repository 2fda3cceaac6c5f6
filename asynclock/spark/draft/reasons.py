"""The reasons why the files of a folder cannot be a stream, from their first bytes."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from asynclock.spark.check.strict import json_records
from asynclock.spark.check.strict.rows import BadFileError
from asynclock.spark.check.strict.source_file import opened

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from asynclock.spark.spec.model import SourceFormat

HEAD_BYTES: Final = 1 << 20
DAMAGED: Final = (BadFileError, OSError, EOFError, zlib.error, pa.ArrowException)
"""The errors of a file that cannot be read."""
_MAGIC_BYTES: Final = 200
_MAGIC: Final = {
    b"\x1f\x8b\x08": "is packed by gzip, which only the end .gz of its name tells a reader",
    b"BZh": "is packed by bzip2, which only the end .bz2 of its name tells a reader",
    b"\x28\xb5\x2f\xfd": "is packed by Zstandard, which only the end .zst of its name tells a reader",
    b"PK\x03\x04": "is a ZIP archive or a workbook; unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "is a workbook; save the sheet as CSV",
    b"PAR1": "is a parquet file, which the end .parquet of its name tells a reader",
    b"Obj\x01": "is an Avro file, which no stream reads",
    b"ORC": "is an ORC file, which no stream reads",
    b"SQLite format 3\0": "is a database of SQLite; export a table",
}
_PAGES: Final = ("<!doctype html", "<html", "<?xml")


def other_content(file: Path, kind: SourceFormat) -> str | None:
    """Return the real content of a file whose name is misleading; else None.

    Args:
        file: A local file; a compressed one is examined unpacked.
        kind: The format by its name.
    """
    with suppress(*DAMAGED), opened(file) as content:
        return _other_content(file, kind, content.read(_MAGIC_BYTES))
    return None  # its reader reports that


def _other_content(file: Path, kind: SourceFormat, head: bytes) -> str | None:
    for magic, reason in _MAGIC.items():
        if head.startswith(magic) and (kind, magic) != ("parquet", b"PAR1") and not _is_text(head):
            return f"{file.name} {reason}"
    if kind == "parquet":
        return None
    start = head.decode("latin-1").lstrip("\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(_PAGES):
        return f"{file.name} is a page of HTML or XML"
    if start.startswith("sep="):
        return f"{file.name} begins with a line for Excel, {start.splitlines()[0]!r}; remove it"
    marked = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not marked and len(head) > 1 and head.count(0) * 3 > len(head):
        reason = "looks like UTF-16 without its byte order mark; convert it: iconv -f UTF-16LE -t UTF-8"
        return f"{file.name} {reason if 0 in head[1:2] else reason.replace('LE', 'BE')}"
    return None


def no_json(file: Path) -> str:
    """Return the reason why a JSON file has no object in a line."""
    with opened(file) as content:
        head = content.read(HEAD_BYTES).decode("utf-8-sig", errors="replace").lstrip()
    first, _, more = head.partition("\n")
    if head.startswith("["):
        return (
            f"{file.name} is one JSON array; a stream reads one object on each line. Convert it: "
            f"jq -c '.[]' {file.name} > {file.stem}.jsonl"
        )
    reason = _malformed(first)
    if head.startswith("{") and more and reason and not more.lstrip().startswith("{"):
        return (
            f"{file.name} has JSON objects over several lines; a stream reads one object on each line. "
            f"Convert it: jq -c . {file.name} > {file.stem}.jsonl"
        )
    if len(first) >= HEAD_BYTES:
        return f"the first line of {file.name} is longer than 1 MiB; a stream reads one object on each line"
    return f"{file.name} has no line that is a JSON object" + (f": line 1: {reason}" if reason else "")


def nested_json(file: Path) -> str | None:
    """Return a hint for a JSON file of one object that has a list of objects; None for any other file."""
    with opened(file) as content:
        head = content.read(HEAD_BYTES)
    try:
        (found,) = json_records.objects(head.decode("utf-8-sig").strip())
    except (ValueError, RecursionError, json_records.MalformedError):
        return None
    lists = [name for name, (value, _) in found.items() if _is_list_of_objects(value)]
    if len(lists) != 1:
        return None
    path = json.dumps(lists[0], ensure_ascii=False)
    return (
        f"{file.name} has one object, whose {lists[0]!r} is a list of objects. If those are the rows, "
        f"convert it: jq -c '.[{path}][]' {file.name} > {file.stem}.jsonl"
    )


def no_record(file: Path, header: Sequence[str], others: Sequence[tuple[int, int]]) -> str:
    """Return the reason why no line of a CSV file fits its header.

    Args:
        file: The file.
        header: Its first record.
        others: Line and number of fields of the other records.
    """
    line, fields = others[0]
    return (
        f"{file.name}: none of its {len(others):,} rows has as many fields as its first line, which must be "
        f"the names of the columns: {len(header)} there, {fields} in line {line}. Remove what stands before "
        "the names, or correct the rows"
    )


def _is_list_of_objects(value: Any) -> bool:  # noqa: ANN401  any JSON
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _is_text(head: bytes) -> bool:
    text = head.decode("utf-8", errors="ignore")
    return all(character.isprintable() or character in "\t\r\n" for character in text)


def _malformed(line: str) -> str:
    try:
        list(json_records.objects(line.strip(" \t\r")))
    except (ValueError, RecursionError, json_records.MalformedError) as error:
        return str(error)
    return ""
