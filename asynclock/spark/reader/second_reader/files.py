"""One source file of any format: its rows, good and bad, or the reason why it gives none."""

from __future__ import annotations

import bz2
import gzip
import io
import struct
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from asynclock.errors import ConfigError
from asynclock.spark.reader.second_reader import csv_records, json_records, parquet_records
from asynclock.spark.reader.second_reader.rows import BadFileError, Layout
from asynclock.spark.spec.dialect import CsvDialect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from asynclock.spark.reader.second_reader.rows import Row
    from asynclock.spark.spec.model import Spec, StreamSpec

# Hadoop chooses by these, and knows them in lower case only.
_COMPRESSED: Final[dict[str, type[gzip.GzipFile | bz2.BZ2File]]] = {
    ".gz": gzip.GzipFile,
    ".bz2": bz2.BZ2File,
}
_CHECKSUMS: Final = b"crc\0"
_CHECKSUM_HEAD: Final = 8
_OTHERS: Final = frozenset({".deflate", ".lz4", ".snappy"})


def layout_of(spec: Spec, stream: StreamSpec, columns: Sequence[tuple[str, str]] = ()) -> Layout:
    """The columns that the files of a stream must have.

    Args:
        spec: The spec.
        stream: The stream.
        columns: Its own columns and their types when the file was read, with ``?`` if optional, the ordering
            column first; none: those of the spec.
    """
    shared = {name: spec.shared_type(name) for name in spec.table.shared_columns}
    owned = {name: kind.rstrip("?") for name, kind in columns}
    owned = owned or {column.name: column.type for column in stream.owned(spec.table)}
    optional = [name for name, kind in columns if kind.endswith("?")] if columns else stream.optional
    ordering = columns[0][0] if columns else stream.ordering
    return Layout(shared | owned, (*shared, ordering), spec.table.partition_by, optional)


def rows(path: Path, stream: StreamSpec, layout: Layout) -> Iterator[Row]:
    """The rows of a local file, in their order.

    Raises:
        BadFileError: The file gives no rows; those that were yielded before do not count.
        ConfigError: It is compressed in a way that only Hadoop can read.
    """
    if path.exists() and not path.is_file():
        raise BadFileError("it is no file but a pipe, a socket or a device")
    _compare_with_checksum(path)
    if stream.format == "parquet":
        yield from parquet_records.rows(path, layout)
        return
    try:
        with opened(path) as file:
            if stream.format == "json":
                yield from json_records.rows(cast("IO[bytes]", file), layout)
            else:
                yield from csv_records.rows(file, layout, stream.csv or CsvDialect())
    except (EOFError, OSError, zlib.error, pa.ArrowException) as error:
        raise BadFileError(f"it cannot be read to its end: {error}") from error


def _compare_with_checksum(path: Path) -> None:
    """Refuse a file that differs from the checksums that Hadoop keeps of the files it writes to a disk."""
    kept = path.with_name(f".{path.name}.crc")
    if not kept.is_file() or not path.stat().st_size:
        return
    content = kept.read_bytes()
    if len(content) < _CHECKSUM_HEAD or not content.startswith(_CHECKSUMS):
        return  # Hadoop goes by none, too
    (size,) = struct.unpack_from(">i", content, len(_CHECKSUMS))
    with path.open("rb") as file:
        for (wanted,) in struct.iter_unpack(">I", content[_CHECKSUM_HEAD:]):
            if zlib.crc32(file.read(size)) != wanted:
                raise BadFileError(f"it differs from its checksum in {kept.name}")
        if file.read(1):
            raise BadFileError(f"it is longer than {kept.name} says")


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a local file, unpacked by its suffix.

    Raises:
        ConfigError: It is compressed in a way that only Hadoop can read.
    """
    if path.suffix in _OTHERS:
        reason = "no reader of this package knows this compression; store the file as .gz, .bz2 or .zst"
        raise ConfigError(setting="source", value=str(path), reason=reason)
    if path.suffix == ".zst":
        with pa.input_stream(path, compression="zstd") as raw, io.BufferedReader(raw) as file:
            yield file
    elif path.suffix in _COMPRESSED:
        packed: Any = _COMPRESSED[path.suffix](path)
        with packed, io.BufferedReader(packed) as file:
            yield file
    else:
        with path.open("rb") as file:
            yield file
