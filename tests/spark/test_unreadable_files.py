"""A file that cannot be read costs one entry of the quarantine; a store that fails costs no file."""

from __future__ import annotations

import base64
import io
import json
import os
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from py4j.protocol import Py4JJavaError

from asynclock.spark.check.strict.rows import BadFileError, Good
from asynclock.spark.check.strict.source_file import layout_of, rows
from asynclock.spark.check.validation import validate
from asynclock.spark.errors import BadRowsError
from asynclock.spark.reader.snapshot import read as read_table
from asynclock.spark.runs.run import run
from asynclock.spark.source.reading import LINE, REASON, Source
from asynclock.spark.spec.load import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from asynclock.spark.results import BatchReport
    from asynclock.spark.spec.model import Spec

SPEC = """
[table]
path = "table"
key = ["k"]

[locks]
url = "locks"

[streams.a]
source = "in/*"
format = "{form}"
ordering = "at"
checkpoint = "checkpoints/a"
max_files_per_trigger = {files}
on_bad_row = "{policy}"
columns = {{ at = "bigint", x = "{x}", note = "string" }}
"""
ROWS = 3


def table(**columns: Any) -> pa.Table:  # noqa: ANN401  what pyarrow takes
    """A few rows, with some columns of its own."""
    row = {
        "k": [f"N{number}" for number in range(ROWS)],
        "at": pa.array(range(ROWS), pa.int64()),
        "x": pa.array(range(ROWS), pa.int32()),
        "note": [f"é{number}" for number in range(ROWS)],
    }
    return pa.table({name: value for name, value in (row | columns).items() if value is not None})


def stored(content: pa.Table, **options: Any) -> bytes:  # noqa: ANN401  pyarrow's
    """The bytes of a parquet file."""
    file = io.BytesIO()
    pq.write_table(content, file, **options)
    return file.getvalue()


class Keys(pe.KmsClient):  # type: ignore[misc]
    """Wraps keys by nothing."""

    def wrap_key(self, key: bytes, _master: str) -> bytes:
        """Return the key, as text."""
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, _master: str) -> bytes:
        """Return the key."""
        return base64.b64decode(wrapped)


def encrypted(**settings: Any) -> bytes:  # noqa: ANN401  pyarrow's
    """The bytes of a parquet file with encrypted columns, footer or both."""
    factory = pe.CryptoFactory(lambda _: Keys())
    chosen = pe.EncryptionConfiguration(footer_key="footer", **settings)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), chosen)
    content, file = table(secret=["s"] * ROWS), io.BytesIO()
    with pq.ParquetWriter(file, content.schema, encryption_properties=properties) as writer:
        writer.write_table(content)
    return file.getvalue()


@dataclass(frozen=True)
class Readings:
    """What both readers make of one file.

    Attributes:
        values: Of the column x, by the stream's reader; empty for a bad file.
        reason: Why the file is bad, by the stream's reader.
        agreed: Whether the second reader says the same of every row.
    """

    values: list[Any]
    reason: str | None
    agreed: bool


@pytest.fixture
def spec_of(tmp_path: Path) -> Callable[..., Spec]:
    """A spec over the folder ``in``."""
    (tmp_path / "in").mkdir()

    def spec(form: str = "parquet", x: str = "int", policy: str = "quarantine", files: int = 100) -> Spec:
        path = tmp_path / "spec.toml"
        path.write_text(SPEC.format(form=form, x=x, policy=policy, files=files))
        return load_spec(path)

    return spec


@pytest.fixture
def both(tmp_path: Path, spec_of: Callable[..., Spec], spark: SparkSession) -> Callable[..., Readings]:
    """Read a file by both readers, a good one beside it."""

    def read(content: bytes, x: str = "int") -> Readings:
        (tmp_path / "in/1.parquet").write_bytes(content)
        (tmp_path / "in/2.parquet").write_bytes(stored(table(k=["good"], at=[1], x=pa.nulls(1), note=["g"])))
        spec = spec_of(x=x)
        (stream,) = spec.streams
        source = Source(spec, stream, spark)
        with source.settled(source.all()) as settled:
            shown = "unix_micros(x) AS x" if x == "timestamp" else "unix_date(x) AS x" if x == "date" else "x"
            ordered = settled.frame.sort("_asynclock_arrival")
            found = ordered.selectExpr("k", "at", shown, "note", LINE, REASON).collect()
        assert found[-1]["k"] == "good"
        mine = found[:-1]
        try:
            second = list(rows(tmp_path / "in/1.parquet", stream, layout_of(spec, stream)))
        except BadFileError:
            return Readings([], mine[0][REASON], len(mine) == 1 and mine[0][LINE] is None)
        first = [None if row[REASON] else tuple(row)[:4] for row in mine]
        same = repr(first) == repr([one.values if isinstance(one, Good) else None for one in second])
        return Readings([row["x"] for row in mine], next((row[REASON] for row in mine), None), same)

    return read


HALVES = [0.1, -65504.0, 6e-8]
GOOD: dict[str, tuple[pa.Table, dict[str, Any], str, list[Any]]] = {
    "a half nobody names": (table(h=pa.array(HALVES, pa.float16())), {}, "int", [0, 1, 2]),
    "a half in a list": (table(h=pa.array([HALVES] * 3, pa.list_(pa.float16()))), {}, "int", [0, 1, 2]),
    "halves": (
        table(x=pa.array(HALVES, pa.float16())),
        {},
        "double",
        [0.0999755859375, -65504.0, 5.960464477539063e-08],
    ),
    "halves that are no numbers": (
        table(x=pa.array([float("inf"), -0.0, None], pa.float16())),
        {},
        "float",
        [float("inf"), -0.0, None],
    ),
    "split bytes": (
        table(x=pa.array([0.5, 1.5, 2.5])),
        {"use_dictionary": False, "column_encoding": {"x": "BYTE_STREAM_SPLIT"}},
        "double",
        [0.5, 1.5, 2.5],
    ),
    "nulls of no type": (table(x=pa.nulls(3)), {}, "timestamp", [None] * 3),
    "JSON": (table(x=pa.array(["1", "2", None], pa.json_())), {}, "string", ["1", "2", None]),
    "brotli nobody names": (
        table(h=pa.array(["a"] * 3)),
        {"compression": {"h": "brotli"}},
        "int",
        [0, 1, 2],
    ),
    "unsigned": (
        table(x=pa.array([2**64 - 1, 0, None], pa.uint64()), h=pa.array(HALVES, pa.float16())),
        {},
        "decimal(20,0)",
        [Decimal(2**64 - 1), Decimal(0), None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_file_that_spark_cannot_read_is_read(both: Callable[..., Readings], name: str) -> None:
    """Columns that nobody names do no harm, and values of newer types are the same by both readers."""
    content, options, kind, values = GOOD[name]

    found = both(stored(content, **options), kind)

    assert repr(found.values) == repr(values)
    assert found.agreed


def test_all_types_are_the_same_beside_a_column_that_spark_does_not_know(
    both: Callable[..., Readings],
) -> None:
    """The other library gives the values that Spark gives."""
    half = {"h": pa.array(HALVES, pa.float16())}
    columns = {
        "boolean": pa.array([True, False, None]),
        "int": pa.array([-128, 127, None], pa.int8()),
        "bigint": pa.array([2**32 - 1, 0, None], pa.uint32()),
        "float": pa.array([0.1, None, 1.0], pa.float32()),
        "double": pa.array([65535, 0, None], pa.uint16()),
        "string": pa.array(["", "ü\0€", None], pa.large_string()),
        "date": pa.array([-719162, 0, None], pa.date32()),
        "timestamp": pa.array([-62135596800000, 1, None], pa.timestamp("ms")),
        "decimal(38,4)": pa.array([Decimal("-1.5"), Decimal("99999999.99"), None], pa.decimal128(10, 2)),
        "decimal(9,2)": pa.array([Decimal("-1.5"), Decimal("9.25"), None], pa.decimal32(5, 2)),
    }
    for kind, column in columns.items():
        plain, beside = both(stored(table(x=column)), kind), both(stored(table(x=column, **half)), kind)

        assert beside.values == plain.values, kind
        assert len(plain.values) == ROWS
        assert plain.agreed, kind
        assert beside.agreed, kind


def _broken(place: int) -> bytes:
    content = bytearray(stored(table(), use_dictionary=False, compression="none"))
    content[place] ^= 0xFF
    return bytes(content)


BAD = {
    "a half for an int": (stored(table(x=pa.array(HALVES, pa.float16()))), "x is float16"),
    "split whole numbers": (
        stored(table(), use_dictionary=False, column_encoding={"x": "BYTE_STREAM_SPLIT"}),
        "'x' is encoded as BYTE_STREAM_SPLIT of INT32",
    ),
    "brotli": (stored(table(), compression={"x": "brotli"}), "'x' is compressed by BROTLI"),
    "an encrypted footer": (encrypted(column_keys={"secret": ["secret"]}), "encrypted"),
    "an encrypted column": (encrypted(column_keys={"x": ["x"]}, plaintext_footer=True), "'x' is encrypted"),
    "another magic": (stored(table())[:-4] + b"PARX", "no parquet file"),
    "nothing but magic": (b"PAR1" + bytes(20) + b"PAR1", "no parquet file"),
    "a footer that is too long": (stored(table())[:-8] + b"\xff\xff\xff\x7fPAR1", "no parquet file"),
    "text": (b"k,at,x,note\n1,2,3,4\n", "no parquet file"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_nobody_can_read_is_one_entry(both: Callable[..., Readings], name: str) -> None:
    """Its reason says what is wrong, both readers agree that it is bad, and the file beside it is read."""
    content, reason = BAD[name]

    found = both(content)

    assert found.reason is not None
    assert reason in found.reason
    assert found.agreed


def test_an_encrypted_column_nobody_names_does_no_harm(both: Callable[..., Readings]) -> None:
    """The others are read."""
    found = both(encrypted(column_keys={"secret": ["secret"]}, plaintext_footer=True))

    assert found.values == [0, 1, 2]
    assert found.agreed


def test_a_time_beyond_all_times_is_a_bad_row(both: Callable[..., Readings]) -> None:
    """It does not end the job that reads the other rows."""
    found = both(stored(table(x=pa.array([1 << 60, -(1 << 60), 5], pa.timestamp("ms")))), "timestamp")

    assert found.reason == "x is out of range"
    assert [value is None for value in found.values] == [True, True, False]


def test_bad_parquet_files_end_no_stream(
    tmp_path: Path, spec_of: Callable[..., Spec], spark: SparkSession
) -> None:
    """Each is one line of the quarantine, the good rows are in the table, and it validates."""
    halves = table(k=["half"] * 3, h=pa.array(HALVES, pa.float16()))
    contents = {"0.parquet": stored(halves), "8.parquet": stored(table())}
    contents |= {f"{place}.parquet": content for place, (content, _) in enumerate(BAD.values(), start=10)}
    for name, content in contents.items():
        (tmp_path / "in" / name).write_bytes(content)
    spec = spec_of()

    report = run(spec, once=True, spark=spark)

    assert report.streams[0].quarantined == len(BAD)
    assert {row["k"] for row in read_table(spec, spark).collect()} == {"half", "N0", "N1", "N2"}
    assert validate(spec, spark).ok


def test_a_stream_that_fails_on_bad_rows_names_the_file(
    tmp_path: Path, spec_of: Callable[..., Spec], spark: SparkSession
) -> None:
    """One sentence says which file, and why."""
    (tmp_path / "in/brotli.parquet").write_bytes(BAD["brotli"][0])

    with pytest.raises(BadRowsError, match=r"brotli\.parquet: its column 'x' is compressed by BROTLI"):
        run(spec_of(policy="fail"), once=True, spark=spark)


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_file_that_vanishes_before_it_is_read_is_told(
    tmp_path: Path, spec_of: Callable[..., Spec], spark: SparkSession, form: str
) -> None:
    """Spark goes on without a word; the quarantine has an entry."""
    for number in range(3):
        row = {"k": f"N{number}", "at": number, "x": number, "note": "n"}
        path = tmp_path / "in" / f"{number}.{form}"
        if form == "parquet":
            pq.write_table(pa.Table.from_pylist([row]), path)
        else:
            path.write_text("k,at,x,note\nN,1,1,n\n" if form == "csv" else json.dumps(row))

    def vanish(done: BatchReport) -> None:
        if done.batch_id == 0:
            for path in sorted((tmp_path / "in").iterdir())[1:]:
                path.unlink()

    spec = spec_of(form, x="bigint", files=1)
    report = run(spec, once=True, spark=spark, on_batch=vanish)

    assert report.streams[0].quarantined == 2
    entries = [
        json.loads(line)
        for path in Path(spec.streams[0].quarantine).rglob("*.json")
        for line in path.read_text().splitlines()
    ]
    assert len(entries) == 2
    assert all("not there any more" in entry["reason"] for entry in entries)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_store_that_fails_makes_no_file_bad(
    tmp_path: Path, spec_of: Callable[..., Spec], spark: SparkSession, form: str
) -> None:
    """The job fails, to be tried again."""
    spec = spec_of(form)
    # Linux lets it be opened, and no byte at its beginning be read: an error of input and output.
    file = tmp_path / "in" / f"0.{form}"
    url = file.as_uri()
    source = Source(spec, spec.streams[0], spark)

    file.symlink_to("/proc/self/mem")

    with pytest.raises(Py4JJavaError, match="StoreFailure"), source.settled(source.all(), [(url, 0)]):
        pass


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_file_that_differs_from_its_checksum_is_a_bad_file(
    tmp_path: Path, spec_of: Callable[..., Spec], spark: SparkSession, form: str
) -> None:
    """Hadoop keeps a checksum beside a file that it writes; a file that was edited since is bad to both."""
    good = {"csv": "k,at,x,note\nN1,1,1,n\n", "json": '{"k": "N1", "at": 1, "x": 1, "note": "n"}\n'}
    spark.createDataFrame([(good[form].strip(),)], "value string").coalesce(1).write.text(
        str(tmp_path / "out")
    )
    (part,) = (tmp_path / "out").glob("part-*")
    (tmp_path / "in" / f"0.{form}").write_text(good[form].replace("N1", "N2"))
    (tmp_path / f"in/.0.{form}.crc").write_bytes(part.with_name(f".{part.name}.crc").read_bytes())
    (tmp_path / "in" / f"1.{form}").write_text(good[form])
    spec = spec_of(form)

    report = run(spec, once=True, spark=spark)

    assert report.streams[0].quarantined == 1
    assert [row["k"] for row in read_table(spec, spark).collect()] == ["N1"]
    assert validate(spec, spark).ok


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_pipe_among_the_files_is_an_entry_and_hangs_nobody(
    spec_of: Callable[..., Spec], tmp_path: Path, spark: SparkSession, form: str
) -> None:
    """A FIFO that nobody writes to would be waited for: the stream and the validation go on without."""
    spec = spec_of(form=form, policy="quarantine")
    good = tmp_path / "in" / f"good.{form}"
    if form == "parquet":
        good.write_bytes(stored(table()))
    else:
        row = {"k": "N1", "at": 1, "x": 1, "note": "a"}
        lines = [",".join(row), ",".join(map(str, row.values()))] if form == "csv" else [json.dumps(row)]
        good.write_text("".join(f"{line}\n" for line in lines))
    os.mkfifo(tmp_path / "in" / f"pipe.{form}")

    report = run(spec, once=True, spark=spark)
    found = validate(spec, spark)

    assert report.streams[0].quarantined == 1
    assert (found.ok, found.streams[0].bad_rows) == (True, 1)
    assert read_table(spec, spark).count() == found.keys > 0
