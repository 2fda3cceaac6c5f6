"""One source file of any format: its rows, good and bad, or the reason why it has none."""

from __future__ import annotations

import bz2
import io
import struct
import zlib
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from asynclock.errors import ConfigError
from asynclock.spark.check.strict import csv_records, json_records, parquet_records
from asynclock.spark.check.strict.derived import derivation
from asynclock.spark.check.strict.rows import BadFileError, Layout
from asynclock.spark.spec.derive import derived_by
from asynclock.spark.spec.dialect import CsvDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from asynclock.spark.check.strict.rows import Row
    from asynclock.spark.spec.model import Spec, StreamSpec

# Hadoop chooses by these, and knows them in lower case only.
_COMPRESSED: Final[dict[str, Callable[[], Any]]] = {
    ".gz": partial(zlib.decompressobj, 16 + zlib.MAX_WBITS),
    ".bz2": bz2.BZ2Decompressor,
}
_CHUNK: Final = 1 << 16
_CHECKSUMS: Final = b"crc\0"
_CHECKSUM_HEAD: Final = 8
_OTHERS: Final = frozenset({".deflate", ".lz4", ".snappy"})


def layout_of(spec: Spec, stream: StreamSpec, columns: Sequence[tuple[str, str]] = ()) -> Layout:
    """The columns that the files of a stream must have.

    Args:
        spec: The spec.
        stream: The stream.
        columns: The result of ``read_with`` when the file was read; none: that of the spec.
    """
    shared = {name: spec.shared_type(name) for name in spec.table.shared_columns}
    read_with = dict(columns)
    derived = [one for one in spec.table.derived if not columns or derived_by(read_with.get(one.name, ""))]
    if columns:
        parts = {name: how.partition(" from ") for name, how in columns if not derived_by(how)}
        owned = {name: kind.rstrip("?").partition("@")[0] for name, (kind, _, _) in parts.items() if kind}
        optional = [name for name, (kind, _, _) in parts.items() if kind.endswith("?")]
        sources = {name: source for name, (_, _, source) in parts.items() if source}
        ordering = [columns[0][0], *stream.ordering[1:]]  # no other name can change
    else:
        owned = {column.name: column.type for column in stream.columns if column.name not in shared}
        optional, ordering = list(stream.optional), list(stream.ordering)
        sources = stream.sources(spec.table)
    given = {name: kind for name, kind in (shared | owned).items() if name not in spec.table.derive}
    required = (*shared, *ordering, *(one.source for one in derived))
    return Layout(
        given,
        [name for name in dict.fromkeys(required) if name in given],
        spec.table.partition_by,
        optional,
        sources,
        enveloped=stream.envelope is not None,
        derived={one.name: (one.source, derivation(one, given[one.source])) for one in derived},
        stored=tuple(dict.fromkeys((*shared, *owned, *(one.name for one in derived)))),
    )


def rows(path: Path, stream: StreamSpec, layout: Layout) -> Iterator[Row]:
    """The rows of a local file, in their order.

    Raises:
        BadFileError: The file gives no rows; any that were yielded before do not count.
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
    """Refuse a file that differs from the checksums that Hadoop keeps next to its files on a disk."""
    kept = path.with_name(f".{path.name}.crc")
    if not kept.is_file() or not path.stat().st_size:
        return
    content = kept.read_bytes()
    if len(content) < _CHECKSUM_HEAD or not content.startswith(_CHECKSUMS):
        return  # Hadoop ignores these, too
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
    if path.suffix == ".zst" and path.stat().st_size:
        with pa.input_stream(path, compression="zstd") as raw, io.BufferedReader(raw) as file:
            yield file
    elif path.suffix in _COMPRESSED and path.stat().st_size:
        with path.open("rb") as packed:
            members: Any = _Members(packed, _COMPRESSED[path.suffix])
            with io.BufferedReader(members) as file:
                yield file
    else:
        with path.open("rb") as file:
            yield file


class _Members(io.RawIOBase):
    """The bytes of compressed members one after the other; anything else in the file is an error.

    Python's own readers ignore bytes after the last member.
    """

    def __init__(self, file: IO[bytes], begin: Callable[[], Any]) -> None:
        self._file = file
        self._begin = begin
        self._member = begin()
        self._packed = b""

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, target: Any) -> int:  # noqa: ANN401  any buffer
        """Read the next bytes; 0 at the end of the file, behind a whole member."""
        while True:
            if not self._member.eof:
                found = self._member.decompress(self._packed, len(target))
                self._packed = getattr(self._member, "unconsumed_tail", b"")  # bz2 keeps it
                if found:
                    target[: len(found)] = found
                    return len(found)
            ended = self._member.eof
            self._packed = (self._member.unused_data if ended else self._packed) or self._file.read(_CHUNK)
            if not self._packed:
                if ended:
                    return 0
                raise EOFError("it ends within a member")
            if ended:
                self._member = self._begin()
