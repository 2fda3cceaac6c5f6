"""INT96 in the second reader: every time that Spark can write is read as it is."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asynclock.spark.check.strict import parquet_records
from asynclock.spark.check.strict.rows import Bad, Good, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BY_SPARK = {"org.apache.spark.version": "3.5.0"}
DAY = 86_400_000_000
EPOCH = 2_440_588
JULIAN_ZERO = -EPOCH * DAY
LONG = 1 << 63
LAYOUT = Layout({"k": "bigint", "at": "bigint", "t": "timestamp"}, ("k", "at"))
FAR = (
    0, 1, -1, DAY, -DAY, JULIAN_ZERO, JULIAN_ZERO - 1, JULIAN_ZERO + 1, JULIAN_ZERO + DAY - 1,
    JULIAN_ZERO + DAY, 9 * 10**18, -9 * 10**18, LONG - 1, -LONG, LONG // 1000, -LONG // 1000 - 1,
)  # fmt: skip


def nanos(micros: int) -> int:
    """As an INT96 has it."""
    return micros * 1000


def write(path: Path, stored: Sequence[int | None], **options: object) -> None:
    """Write nanoseconds as INT96, however far, into places that pyarrow has made for others."""
    marks = [None if one is None else 7_000 + place for place, one in enumerate(stored)]
    table = pa.table({
        "k": range(len(stored)),
        "at": [1] * len(stored),
        "t": pa.array(marks, pa.int64()).cast(pa.timestamp("ns")),
    }).replace_schema_metadata(BY_SPARK)  # fmt: skip
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", use_deprecated_int96_timestamps=True, **options)
    content = sink.getvalue()
    for mark, one in zip(marks, stored, strict=True):
        if mark is not None and one is not None:
            day, rest = divmod(one, DAY * 1000)
            made = struct.pack("<qi", mark, EPOCH)
            assert content.count(made) == 1
            content = content.replace(made, struct.pack("<qi", rest, day + EPOCH))
    path.write_bytes(content)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("rows_a_group", [1, 3, 100])
def test_every_time_is_read_as_it_is(
    tmp_path: Path, *, dictionary: bool, version: str, rows_a_group: int
) -> None:
    """Before the Julian period, on its first day and at both ends of a timestamp, pages of any kind."""
    path = tmp_path / "a.parquet"
    stored = [nanos(FAR[0]), None, *map(nanos, FAR[1:])]
    write(path, stored, use_dictionary=dictionary, data_page_version=version, row_group_size=rows_a_group)

    found = list(parquet_records.rows(path, LAYOUT))

    assert [row.values[-1] for row in found if isinstance(row, Good)] == [FAR[0], None, *FAR[1:]]
    assert [row.values[0] for row in found if isinstance(row, Good)] == list(range(len(stored)))


def test_parts_of_a_microsecond_are_bad_rows(tmp_path: Path) -> None:
    """However far from 1970 they are."""
    path = tmp_path / "a.parquet"
    write(path, [1, nanos(LONG - 1) + 1, nanos(-LONG) + 999, nanos(5)])

    *bad, last = parquet_records.rows(path, LAYOUT)

    assert [row.reason.partition(":")[0] for row in bad if isinstance(row, Bad)] == [
        "a timestamp has parts of a microsecond"
    ] * 3
    assert isinstance(last, Good)
    assert last.values[-1] == 5


def test_times_that_spark_stores_wrapped_around_are_read_back(tmp_path: Path) -> None:
    """Its sum of a time and the Julian epoch has 64 bits: that of the last 6,682 years is below zero."""
    path = tmp_path / "a.parquet"
    write(path, [nanos(LONG - 1 - 2 * LONG), nanos(LONG + JULIAN_ZERO - 2 * LONG)])

    found = list(parquet_records.rows(path, LAYOUT))

    assert [row.values[-1] for row in found if isinstance(row, Good)] == [LONG - 1, LONG + JULIAN_ZERO]


def test_many_columns_and_nested_ones_stay_what_they_are(tmp_path: Path) -> None:
    """A footer with all that a footer can hold is rewritten as it was, but for the columns of INT96."""
    when = pa.array([1_000, None], pa.int64()).cast(pa.timestamp("ns"))
    more = {f"c{number}": [number, None] for number in range(40)}
    table = pa.table({
        "k": [1, 2], "at": [1, 1], "t": when, "inner": [{"a": [1, 2], "b": None}, None],
        "map": pa.array([[("x", 1)], []], pa.map_(pa.string(), pa.int64())),
        "price": pa.array([1, 2], pa.decimal128(9, 2)), "yes": [True, False], "double": [1.5, -0.0],
        "nested": pa.StructArray.from_arrays([when], ["old"]), **more,
    }).replace_schema_metadata(BY_SPARK)  # fmt: skip
    path = tmp_path / "a.parquet"
    pq.write_table(
        table,
        path,
        use_deprecated_int96_timestamps=True,
        row_group_size=1,
        sorting_columns=[pq.SortingColumn(0)],
    )

    found = list(parquet_records.rows(path, LAYOUT))

    assert [row.values for row in found if isinstance(row, Good)] == [(1, 1, 1), (2, 1, None)]
