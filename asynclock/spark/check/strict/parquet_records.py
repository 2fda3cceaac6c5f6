"""Parquet by pyarrow: each file by its own schema, and only values that the type holds without loss."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from asynclock.spark.check.strict import int96
from asynclock.spark.check.strict.rows import MALFORMED, Bad, BadFileError
from asynclock.spark.check.strict.values import fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from asynclock.spark.check.strict.rows import Layout, Row

_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")
_SPARK: Final = b"org.apache.spark.version"  # only this writer's INT96 is known to be microseconds
_ROWS_AT_ONCE: Final = 4096
_MICROS: Final = {"milliseconds": 1000, "microseconds": 1}
_LONG: Final = 1 << 63
_UNPACKABLE: Final = frozenset({"BROTLI", "LZO"})


def rows(path: Path, layout: Layout) -> Iterator[Row]:
    """The rows of a parquet file.

    Raises:
        BadFileError: The file gives no rows, though some may have been yielded.
    """
    if not path.stat().st_size:
        return
    try:
        yield from _rows(path, layout)
    except (pa.ArrowException, OSError) as error:
        raise BadFileError(f"it cannot be read: {error}") from error


def _rows(path: Path, layout: Layout) -> Iterator[Row]:
    with ExitStack() as stack:
        file = stack.enter_context(pq.ParquetFile(path, page_checksum_verification=True))
        places = layout.places(file.schema_arrow.names)
        wanted = [name for name, place in zip(layout.names, places, strict=True) if place is not None]
        names = [layout.sources[name] for name in wanted]
        leaves = _leaves(file)
        converters = []
        for name, kind in zip(names, map(layout.types.__getitem__, wanted), strict=True):
            made = _known(file, leaf := leaves.get(name)) and _converter(leaf, kind)
            if not made:
                raise BadFileError(f"its column {name!r} is {_shown(leaf)}, which is not always {kind}")
            converters.append(made)
        read = file
        if any(leaves[name].physical_type == "INT96" for name in names):
            old = pq.ParquetFile(path, metadata=int96.as_bytes(path), page_checksum_verification=True)
            read = stack.enter_context(old)
        number = 0
        for batch in _batches(read, names):
            if not number:
                _check_readable(file, names)
            columns = [_plain(batch.column(name)) for name in names]
            for cells in zip(*columns, strict=True):
                number += 1
                try:
                    found = {
                        name: None if cell is None else convert(cell)
                        for name, cell, convert in zip(wanted, cells, converters, strict=True)
                    }
                except UnicodeDecodeError:
                    yield Bad(number, MALFORMED)
                except ValueError as error:
                    yield Bad(number, str(error))
                else:
                    yield layout.complete(number, [found.get(name) for name in layout.names])


def _check_readable(file: pq.ParquetFile, names: Sequence[str]) -> None:
    """Refuse features that pyarrow reads and the stream's library does not.

    Call it after a first batch: pyarrow ends the process if it is asked about a column that is encrypted.
    """
    leaves = map(file.schema.column, range(len(file.schema)))
    places = [place for place, leaf in enumerate(leaves) if leaf.path in names and leaf.name == leaf.path]
    for number in range(file.metadata.num_row_groups):
        for chunk in map(file.metadata.row_group(number).column, places):
            split = "BYTE_STREAM_SPLIT" in chunk.encodings and chunk.physical_type not in {"FLOAT", "DOUBLE"}
            how = "encoded as BYTE_STREAM_SPLIT" if split else f"compressed by {chunk.compression}"
            if split or chunk.compression in _UNPACKABLE:
                raise BadFileError(f"its column {chunk.path_in_schema!r} is {how}, which is not read")


def types(path: Path, kinds: Sequence[str]) -> dict[str, list[str]]:
    """The ``kinds`` as which each column of a file can be read.

    Raises:
        BadFileError: It is not a parquet file.
    """
    try:
        with pq.ParquetFile(path) as file:
            leaves = _leaves(file)
            return {
                name: [
                    kind
                    for kind in kinds
                    if _known(file, leaves.get(name)) and _converter(leaves[name], kind)
                ]
                for name in file.schema_arrow.names
            }
    except (pa.ArrowException, OSError) as error:
        raise BadFileError(f"it cannot be read: {error}") from error


def _leaves(file: pq.ParquetFile) -> dict[str, Any]:
    """The columns that are not nested; a nested one may share a path with another: b in a, and "a.b"."""
    leaves = [file.schema.column(place) for place in range(len(file.schema))]
    return {leaf.path: leaf for leaf in leaves if leaf.name == leaf.path}


def _known(file: pq.ParquetFile, leaf: Any) -> bool:  # noqa: ANN401  pyarrow has no types
    by_spark = _SPARK in (file.metadata.metadata or {})
    return leaf is not None and leaf.max_repetition_level == 0 and (by_spark or leaf.physical_type != "INT96")


def _batches(file: pq.ParquetFile, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    batches: Iterator[pa.RecordBatch] = file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(names))
    return batches


def _plain(column: pa.Array) -> list[Any]:
    """The cells as whole numbers, bytes and other values without a calendar or an encoding."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = column.storage
        kind = column.type
    if pa.types.is_float16(kind):
        column = column.cast(pa.float32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.int64())  # pyarrow's own note on a plain INT64
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_binary())
    cells: list[Any] = column.to_pylist()
    return cells


def _converter(leaf: Any, kind: str) -> Callable[[Any], Any] | None:  # noqa: ANN401, PLR0911  one a type
    physical, logical = leaf.physical_type, json.loads(leaf.logical_type.to_json())
    name = logical.get("Type")
    bits = _integer_bits(physical, logical)
    if name == "Null":
        return type  # if all are null
    if kind == "string":
        if name in {"String", "Enum", "JSON"}:
            return bytes.decode
        return str if bits else None
    if kind == "boolean":
        return bool if physical == "BOOLEAN" else None
    if kind in {"int", "bigint"}:
        most = 31 if kind == "int" else 63
        return int if bits and bits <= most else None
    if kind == "float":
        return float if physical == "FLOAT" or name == "Float16" else None
    if kind == "double":
        exact = physical in {"FLOAT", "DOUBLE"} or name == "Float16"
        return float if exact or (bits and bits <= 32) else None  # noqa: PLR2004
    if kind == "date":
        return int if name == "Date" else None
    if kind == "timestamp":
        return _instant(physical, logical)
    found = _DECIMAL.fullmatch(kind)
    return _decimal(bits, logical, int(found[1]), int(found[2])) if found else None


def _integer_bits(physical: str, logical: dict[str, Any]) -> int | None:
    """Bits of the largest absolute value; None if it is not an integer."""
    if logical.get("Type") == "Int":
        return int(logical["bitWidth"]) - bool(logical["isSigned"])
    if physical not in {"INT32", "INT64"} or logical.get("Type") != "None":
        return None
    return 31 if physical == "INT32" else 63


def _instant(physical: str, logical: dict[str, Any]) -> Callable[[Any], Any] | None:
    if physical == "INT96":
        return lambda stored: _wrapped(_of_nanoseconds(int96.nanoseconds(stored)))
    if logical.get("Type") != "Timestamp":
        return None
    if (unit := logical["timeUnit"]) == "nanoseconds":
        return _of_nanoseconds
    return lambda count: _long(count * _MICROS[unit])


def _of_nanoseconds(count: int) -> int:
    micros, rest = divmod(count, 1000)
    if rest:
        raise ValueError(f"a timestamp has parts of a microsecond: {count} ns")
    return micros


def _wrapped(micros: int) -> int:
    """The time as Spark computes it: in 64 bits from the Julian epoch, so the last times wrap around."""
    return (micros + _LONG) % (2 * _LONG) - _LONG


def _long(count: int) -> int:
    if not -_LONG <= count < _LONG:
        raise ValueError("a timestamp is out of range")
    return count


def _decimal(
    bits: int | None, logical: dict[str, Any], precision: int, scale: int
) -> Callable[[Any], Any] | None:
    if bits:
        before, places = len(str(1 << bits)), 0
    elif logical.get("Type") == "Decimal":
        places = int(logical["scale"])
        before = int(logical["precision"]) - places
    else:
        return None
    if places > scale or before > precision - scale:
        return None

    def convert(value: Decimal | int) -> Decimal:
        sign, digits, exponent = Decimal(value).as_tuple()
        return fitted(sign, "".join(map(str, digits)), int(exponent), precision=precision, scale=scale)

    return convert


def _shown(leaf: Any) -> str:  # noqa: ANN401  pyarrow has no types
    if leaf is None:
        return "nested"
    logical = str(leaf.logical_type)
    return leaf.physical_type if logical == "None" else f"{leaf.physical_type} ({logical})"
