"""The twelve bytes of INT96, which pyarrow turns into a wrong time if it is far from 1970.

A changed footer makes pyarrow read them as bytes: it declares each such column as FIXED_LEN_BYTE_ARRAY(12).
The pages of both types are the same.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC: Final = b"PAR1"
_LENGTH: Final = struct.Struct("<I4s")
_STORED: Final = struct.Struct("<qi")
_EPOCH_AS_JULIAN_DAY: Final = 2_440_588
_NANOS_A_DAY: Final = 86_400_000_000_000
_SIZE: Final = 12
# Of parquet.thrift: two physical types, and the places of the fields.
_INT96: Final = 3
_FIXED: Final = 7
_TYPE, _TYPE_LENGTH = 1, 2  # of a SchemaElement; the type is the first field of ColumnMetaData, too
_SCHEMA, _ROW_GROUPS = 2, 4  # of FileMetaData
_COLUMNS: Final = 1  # of a RowGroup
_META_DATA: Final = 3  # of a ColumnChunk
# Of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _I32, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 5, 7, 8, 9, 10, 12
_WIDE_LIST: Final = 15

_Fields = dict[int, tuple[int, Any]]


def as_bytes(path: Path) -> pq.FileMetaData:
    """The metadata of a file, with each INT96 declared as twelve bytes.

    Args:
        path: A parquet file that pyarrow can open; its footer is not encrypted.
    """
    with path.open("rb") as file:
        file.seek(-_LENGTH.size, io.SEEK_END)
        length, _ = _LENGTH.unpack(file.read())
        file.seek(-_LENGTH.size - length, io.SEEK_END)
        footer = _Reader(file.read(length)).fields()
    for element in footer[_SCHEMA][1][1]:
        if _retyped(element):
            element[_TYPE_LENGTH] = _I32, _SIZE
    for group in footer[_ROW_GROUPS][1][1]:
        for chunk in group[_COLUMNS][1][1]:
            _, column = chunk.get(_META_DATA, (_STRUCT, {}))  # an encrypted column has none
            _retyped(column)
    written = _written(footer)
    return pq.read_metadata(pa.BufferReader(_MAGIC + written + _LENGTH.pack(len(written), _MAGIC)))


def nanoseconds(stored: bytes) -> int:
    """The nanoseconds since 1970 of an INT96, which has the nanoseconds of the day and its Julian number."""
    nanos, day = _STORED.unpack(stored)
    return int((day - _EPOCH_AS_JULIAN_DAY) * _NANOS_A_DAY + nanos)


def _retyped(fields: _Fields) -> bool:
    if fields.get(_TYPE) != (_I32, _INT96):
        return False
    fields[_TYPE] = _I32, _FIXED
    return True


class _Reader:
    """Reads a footer, which pyarrow has found to be whole."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def fields(self) -> _Fields:
        """The fields of a struct by their numbers: type and value of each."""
        found: _Fields = {}
        number = 0
        while head := self._content.read(1)[0]:
            kind = head & 0x0F
            number = number + (head >> 4) if head >> 4 else _signed(self._number())
            found[number] = kind, None if kind in {_TRUE, _FALSE} else self._value(kind)
        return found

    def _value(self, kind: int) -> Any:  # noqa: ANN401  of any type
        if kind == _STRUCT:
            return self.fields()
        if kind in {_LIST, _SET}:
            head = self._content.read(1)[0]
            count = self._number() if head >> 4 == _WIDE_LIST else head >> 4
            inner = head & 0x0F
            return inner, [self._value(inner) for _ in range(count)]
        if kind == _BINARY:
            return self._content.read(self._number())
        if kind in {_TRUE, _FALSE, _BYTE}:
            return self._content.read(1)
        return self._content.read(8) if kind == _DOUBLE else _signed(self._number())

    def _number(self) -> int:
        number = shift = 0
        while (byte := self._content.read(1)[0]) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | byte << shift


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _written(fields: _Fields) -> bytes:
    before = 0
    made = bytearray()
    for number, (kind, value) in sorted(fields.items()):
        step = number - before
        made += bytes([step << 4 | kind]) if step <= 0x0F else bytes([kind]) + _zigzag(number)  # noqa: PLR2004
        made += b"" if value is None else _one(kind, value)
        before = number
    return bytes(made + b"\0")


def _one(kind: int, value: Any) -> bytes:  # noqa: ANN401  of any type
    if kind == _STRUCT:
        return _written(value)
    if kind in {_LIST, _SET}:
        inner, values = value
        short = len(values) < _WIDE_LIST
        head = bytes([len(values) << 4 | inner]) if short else bytes([0xF0 | inner]) + _packed(len(values))
        return head + b"".join(_one(inner, one) for one in values)
    if kind == _BINARY:
        return _packed(len(value)) + bytes(value)
    return _zigzag(value) if isinstance(value, int) else bytes(value)


def _zigzag(number: int) -> bytes:
    return _packed(number * 2 if number >= 0 else -number * 2 - 1)


def _packed(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:  # noqa: PLR2004  seven bits a byte
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(made + bytes([number]))
