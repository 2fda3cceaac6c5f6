"""What comes of the text of a source file: the value that stands there, or a row or file put aside."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asynclock.errors import SpecError
from asynclock.spark.source.reading import ARRIVAL, FILE, LINE, REASON, Source
from asynclock.spark.spec.load import load_spec
from tests.laboratory.fuzz_data.damage import damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

Content = str | bytes | pa.Table

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
{more}
columns = {{ at = "{at}", x = "{x}", note = "string" }}
"""
HEADER = "k,at,x,note\n"
MIDNIGHT = 1_704_067_200  # 2024-01-01 in UTC


@dataclass(frozen=True)
class Outcome:
    """What was read.

    Attributes:
        good: Key, ordering value, x and note of each good row, in the order of arrival.
        bad: File, line and reason of each entry for the quarantine.
    """

    good: list[tuple[Any, ...]]
    bad: list[tuple[str, int | None, str]]

    @property
    def values(self) -> list[Any]:
        """The column x of the good rows."""
        return [row[2] for row in self.good]

    @property
    def reasons(self) -> list[str]:
        """The reasons alone."""
        return [entry[2] for entry in self.bad]


@pytest.fixture
def read(tmp_path: Path, spark: SparkSession) -> Callable[..., Outcome]:
    """Read files by a spec with the columns k, at, x and note."""
    (tmp_path / "in").mkdir()

    def outcome(
        files: Mapping[str, Content] | Content,
        form: str = "csv",
        *,
        x: str = "int",
        at: str = "bigint",
        more: str = "",
    ) -> Outcome:
        for name, content in (files if isinstance(files, dict) else {f"0.{form}": files}).items():
            if isinstance(content, pa.Table):
                pq.write_table(content, tmp_path / "in" / name)
            else:
                data = content.encode() if isinstance(content, str) else content
                (tmp_path / "in" / name).write_bytes(data)
        path = tmp_path / "spec.toml"
        path.write_text(SPEC.format(form=form, x=x, at=at, more=more))
        spec = load_spec(path)
        source = Source(spec, spec.streams[0], spark)
        moment = "unix_micros(at)" if at == "timestamp" else "at"
        with source.settled(source.all()) as settled:
            rows = settled.frame.sort(f"{ARRIVAL}.file", f"{ARRIVAL}.row")
            found = rows.selectExpr("k", f"{moment} AS at", "x", "note", FILE, LINE, REASON).collect()
        return Outcome(
            good=[tuple(row[:4]) for row in found if row[REASON] is None],
            bad=[(row[FILE].rpartition("/")[2], row[LINE], row[REASON]) for row in found if row[REASON]],
        )

    return outcome


def table(**columns: Any) -> pa.Table:  # noqa: ANN401  what pyarrow takes
    """A parquet file of one good row, with some columns of its own."""
    row = {"k": ["N1"], "at": pa.array([1], pa.int64()), "x": pa.array([1], pa.int32()), "note": ["n"]}
    return pa.table({name: value for name, value in (row | columns).items() if value is not None})


@pytest.mark.parametrize(("line_end", "quoting"), [("\r\n", csv.QUOTE_MINIMAL), ("\n", csv.QUOTE_NONNUMERIC)])
def test_it_does_not_matter_where_the_readers_buffer_ends(
    read: Callable[..., Outcome], line_end: str, quoting: int
) -> None:
    """Quotes, separators and line ends come back from a file of many buffers, and so do long fields."""
    rng = random.Random(13)
    texts = [
        "".join(rng.choices('abcäß€😀,"\r\n', weights=[40, 40, 40, 1, 1, 1, 1, 2, 2, 1, 1], k=length))
        for length in [rng.randrange(1, 90) for _ in range(5_000)] + [70_000, 140_000]
    ]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator=line_end, quoting=quoting)
    writer.writerow(["k", "at", "x", "note"])
    writer.writerows([f"N{number}", number, -number, text] for number, text in enumerate(texts))

    outcome = read(file.getvalue())

    assert outcome == Outcome([(f"N{n}", n, -n, text) for n, text in enumerate(texts)], [])


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_what_pythons_csv_writes_is_read_back(read: Callable[..., Outcome], quoting: int) -> None:
    """Quotes, separators, line ends and backslashes in keys and values come back unchanged."""
    texts = [
        'say "hi"',
        "x,y\\",
        'k"5',
        "a\nb",
        "a\r\nb\rc",
        '"',
        '""',
        "\\",
        '\\"',
        " blank ",
        "'",
        "Zoë 😀",
        "\ufeff",
    ]
    file = io.StringIO()
    writer = csv.writer(file, quoting=quoting)
    writer.writerow(["k", "at", "x", "note"])
    writer.writerows([text, 1, 2, text] for text in texts)

    outcome = read(file.getvalue())

    assert outcome == Outcome([(text, 1, 2, text) for text in texts], [])


def test_empty_and_null_fields_differ(read: Callable[..., Outcome]) -> None:
    """An unquoted empty field is null and a quoted one the empty string; a number is null either way."""
    assert read(HEADER + 'a,1,,\nb,1,"",""\n').good == [("a", 1, None, None), ("b", 1, None, "")]
    assert read(HEADER + 'a,1,NULL,NULL\nb,1,"","NULL"\nc,1,,\n', more='csv = { null = "NULL" }').good == [
        ("a", 1, None, None),
        ("b", 1, None, "NULL"),
        ("c", 1, None, ""),
    ]


@pytest.mark.parametrize(
    ("dialect", "text", "note"),
    [
        ('separator = ";"', 'k;at;x;note\na;1;1;"b;c"\n', "b;c"),
        ('separator = "\\t", quote = ""', 'k\tat\tx\tnote\na\t1\t1\t"b"\n', '"b"'),
        ('quote = "\'"', HEADER + "a,1,1,'it''s'\n", "it's"),
        ('escape = "\\\\"', HEADER + 'a,1,1,"say \\"hi\\" \\\\"\n', 'say "hi" \\'),
        ('encoding = "iso-8859-1"', (HEADER + "a,1,1,Müller\n").encode("latin-1"), "Müller"),
        ('encoding = "utf-16"', (HEADER + "a,1,1,Müller 😀\n").encode("utf-16"), "Müller 😀"),
        ('encoding = "utf-8"', ("\ufeff" + HEADER + "a,1,1,n\r\n").encode(), "n"),
    ],
)
def test_declared_dialect_is_read(
    read: Callable[..., Outcome], dialect: str, text: Content, note: str
) -> None:
    """Separator, quote, escape and encoding are the spec's; a byte order mark is no text."""
    assert read(text, more=f"csv = {{ {dialect} }}") == Outcome([("a", 1, 1, note)], [])


@pytest.mark.parametrize("row", ['a,1,1,"b"c', 'a,1,1,b"c"', "a,1,1,b\rc", 'a,1,1,"b', 'a,1,1,"b\\"c"'])
def test_broken_quoting_costs_the_file_or_the_line(read: Callable[..., Outcome], row: str) -> None:
    """Where fields may hold line ends nothing of the file is trusted; else the line alone is lost."""
    text = f"{HEADER}first,1,1,n\n{row}\nlast,1,1,n\n"

    whole = read({"0.csv": text, "1.csv": HEADER + "other,1,1,n\n"})
    line = read({"0.csv": text, "1.csv": HEADER}, more="csv = { multiline = false }")

    assert [entry[:2] for entry in whole.bad] == [("0.csv", None)]
    assert "broken quoting in the record at line 3 (" in whole.bad[0][2]
    assert [row[0] for row in whole.good] == ["other"]
    assert [entry[:2] for entry in line.bad] == [("0.csv", 3)]
    assert [row[0] for row in line.good] == ["first", "last"]


def test_escape_of_anything_else_is_broken(read: Callable[..., Outcome]) -> None:
    """Writers differ about what another escape than the quote means before a letter or outside of quotes."""
    outcome = read(
        HEADER + 'a,1,1,"b\\nc"\na,1,1,b\\c\na,1,1,"b""c"\n',
        more='csv = { escape = "\\\\", multiline = false }',
    )

    assert [entry[1] for entry in outcome.bad] == [2, 3, 4]


def test_row_with_another_number_of_fields_is_bad(read: Callable[..., Outcome]) -> None:
    """A row is as long as the header, and its line is counted with the line ends in quotes."""
    outcome = read(HEADER + '\na,1,1,"b\nc"\nd,1,1\ne,1,1,f,\n')

    assert outcome.good == [("a", 1, 1, "b\nc")]
    assert outcome.bad == [
        ("0.csv", 5, "the record has 3 fields, the header 4"),
        ("0.csv", 6, "the record has 5 fields, the header 4"),
    ]


def test_each_file_has_columns_by_its_own_header(read: Callable[..., Outcome]) -> None:
    """Reordered, further, blank and doubled foreign columns do no harm, and no empty file stops the rest."""
    outcome = read({
        "0.csv": "",
        "1.csv": HEADER + "a,1,2,n\n",
        "2.csv": "note,,x,y,y,at,k\nn,9,2,9,9,1,b\n",
        "3.csv": "k,at,x\nc,1,2\n",
        "4.csv": "k,at,x,x,note\nd,1,2,3,n\n",
        "5.csv": "k,at,x,note,Note\ne,1,2,n,n\n",
        "6.csv": "k,at,X,note\nf,1,2,n\n",
        "7.csv": "k,at, x,note\ng,1,2,n\n",
    })  # fmt: skip

    assert outcome.good == [("a", 1, 2, "n"), ("b", 1, 2, "n")]
    assert outcome.bad == [
        ("3.csv", None, "it has no column 'note' (it has: 'k', 'at', 'x'); correct the file or the spec"),
        ("4.csv", None, "it has the column 'x' 2 times; correct the file"),
        ("5.csv", None, "its column 'Note' differs from 'note' in case alone; correct the file or the spec"),
        ("6.csv", None, "its column 'X' differs from 'x' in case alone; correct the file or the spec"),
        (
            "7.csv",
            None,
            "it has no column 'x' (it has: 'k', 'at', ' x', 'note'); correct the file or the spec",
        ),
    ]


def test_column_that_no_file_has_is_an_error_of_the_spec(read: Callable[..., Outcome]) -> None:
    """Where all files lack a column the run does not begin."""
    with pytest.raises(SpecError, match=r"streams.a.columns.note.*has no column 'note' \(it has: k, at, x\)"):
        read({"0.csv": "k,at,x\na,1,2\n", "1.csv": "k,at,x\n"})


def test_bytes_of_another_encoding_merge_no_keys(read: Callable[..., Outcome]) -> None:
    """Rows with bytes that are not UTF-8 are put aside; the others of the file are text all the same."""
    text = HEADER + "Müller,1,1,n\nMöller,1,1,n\nMiller,1,1,n\n"

    outcome = read(text.encode("latin-1"))

    assert outcome.good == [("Miller", 1, 1, "n")]
    assert outcome.bad == [("0.csv", line, "it has bytes that are not utf-8") for line in (2, 3)]


def zstd(data: bytes) -> bytes:
    """One frame."""
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", zstd)])
def test_damaged_compressed_file_gives_no_rows(
    read: Callable[..., Outcome], form: str, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    """A truncated file is put aside whole, whatever could be read of it; two members are one file."""

    def rows(first: int, count: int) -> bytes:
        numbers = range(first, first + count)
        if form == "csv":
            return "".join(f"N{number},1,{number},n\n" for number in numbers).encode()
        return "".join(f'{{"k":"N{number}","at":1,"x":{number}}}\n' for number in numbers).encode()

    header = HEADER.encode() if form == "csv" else b""
    whole = pack(header + rows(0, 5000))
    outcome = read(
        {
            f"0.{form}.{suffix}": whole[:-9],
            f"1.{form}.{suffix}": whole[: len(whole) // 2],
            f"2.{form}.{suffix}": pack(header + rows(0, 2)) + pack(rows(2, 1)),
            f"3.{form}.{suffix}": header + rows(0, 2),
        },
        form,
    )

    assert [row[2] for row in outcome.good] == [0, 1, 2]
    assert [entry[:2] for entry in outcome.bad] == [
        (f"{number}.{form}.{suffix}", None) for number in (0, 1, 3)
    ]
    assert all("truncated or damaged" in reason for reason in outcome.reasons)


TEXTS = {
    "string": ([(" a ", " a ")], []),
    "boolean": ([("true", True), ("False", False)], ["1", "t", "yes", " true"]),
    "int": (
        [("+5", 5), ("-007", -7), ("2147483647", 2147483647)],
        ["2147483648", "5.0", "1e3", " 5", "٣", "-", "1_0"],
    ),
    "bigint": ([("-9223372036854775808", -(2**63))], ["9223372036854775808", "1L", "0x1"]),
    "float": ([("0.5", 0.5), ("inf", float("inf"))], ["1e39", "1e-50", "1f"]),
    "double": (
        [("1.", 1.0), (".5", 0.5), ("1E-3", 0.001), ("-Infinity", float("-inf")), ("0e400", 0.0)],
        ["1e400", "1e-400", "1d", "0x1p3", ".", "1e", " 1", "1 ", "1,5", "infinit"],
    ),
    "decimal(6,2)": (
        [
            ("1.10", Decimal("1.10")),
            ("1.2300", Decimal("1.23")),
            ("9999.99", Decimal("9999.99")),
            ("1e3", Decimal(1000)),
        ],
        ["1.239", "10000", "1e400", "1e999999999", "1e99999999999", "NaN"],
    ),
    "date": (
        [("2024-02-29", dt.date(2024, 2, 29)), ("1500-01-01", dt.date(1500, 1, 1))],
        ["2023-02-29", "2024-1-1", "2024-01-01 junk", "2024-01-01T00:00:00", "2024", "0000-01-01"],
    ),
}


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize("kind", TEXTS)
def test_text_is_a_value_of_its_type_or_a_bad_row(read: Callable[..., Outcome], form: str, kind: str) -> None:
    """The same text is read alike from CSV and from a string in JSON: exactly, or not at all."""
    good, bad = TEXTS[kind]
    texts = [text for text, _ in good] + bad
    if form == "csv":
        file = io.StringIO()
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["k", "at", "x", "note"])
        writer.writerows(["N1", 1, text, "n"] for text in texts)
        content = file.getvalue()
    else:
        content = "\n".join(json.dumps({"k": "N1", "at": 1, "x": text}) for text in texts)

    outcome = read(content, form, x=kind)

    assert outcome.values == [value for _, value in good]
    assert outcome.reasons == [f"x is no {kind}: {text}" for text in bad]


def test_times_do_not_depend_on_the_session(read: Callable[..., Outcome], spark: SparkSession) -> None:
    """Without a zone a time is UTC in any session; nanoseconds, names of zones and bare times are bad."""
    good = {
        "2024-01-01": 0,
        "2024-01-01 00:01": 60,
        "2024-01-01T00:00:01": 1,
        "2024-01-01 00:00:00.5Z": 0.5,
        "2024-01-01T00:00:00.123456000+00": 0.123456,
        "2024-01-01T00:00:00-0130": 5400,
        "2024-01-01 00:00:00+18:00": -64800,
    }
    bad = [
        "2024-01-01T00:00:00.123456789",
        "2024-01-01T00:00:00+18:01",
        "2024-01-01T24:00:00",
        "2024-01-01T23:59:60",
        "2024-01-01T00:00:00 Europe/Berlin",
        "12:00",
        "2024-01-01T00",
        "2024-01-01Z",
        "0001-01-01T00:00:00+01:00",
    ]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        outcome = read(HEADER + "".join(f"N1,{text},1,n\n" for text in (*good, *bad)), at="timestamp")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    assert [row[1] / 1e6 - MIDNIGHT for row in outcome.good] == pytest.approx(list(good.values()), abs=1e-6)
    assert outcome.reasons == [f"at is no timestamp: {text}" for text in bad]


def test_all_objects_of_a_line_are_records_or_none_is(read: Callable[..., Outcome]) -> None:
    """What cat makes of files without a last line end is read; garbage spoils its whole line."""
    outcome = read(
        '{"k":"a","at":1}{"k":"b","at":1} {"k":"c","at":1}\r\n'
        "\n"
        '{"k":"d","at":1} junk\n'
        '{"k":"e","at":1}{"k":\n'
        '{"k":"f","at":1},{"k":"g","at":1}\n'
        "[1]\n"
        '{"k":"h","at":1}',
        "json",
    )

    assert [row[0] for row in outcome.good] == ["a", "b", "c", "h"]
    assert [entry[1] for entry in outcome.bad] == [3, 4, 5, 6]


def test_json_values_are_the_text_that_stands_in_the_file(read: Callable[..., Outcome]) -> None:
    """No number goes through a double, and the text of a value stays as it is."""
    outcome = read(
        '{"k":1.10,"at":1,"x":1234567890123456789.0123456789,"note":{"a": 1.10, "b":["\\u00fc"]}}\n'
        '{"k":true,"at":1,"x":1.10,"note":12345678901234567890123}\n'
        '{"k":"\\ud83d\\ude00","at":"1","x":"1e2","note":null,"other":[{"x":2}]}\n',
        "json",
        x="decimal(38,10)",
    )

    assert outcome == Outcome(
        [
            ("1.10", 1, Decimal("1234567890123456789.0123456789"), '{"a": 1.10, "b":["\\u00fc"]}'),
            ("true", 1, Decimal("1.1"), "12345678901234567890123"),
            ("😀", 1, Decimal(100), None),
        ],
        [],
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"k":"a","k":"b","at":1}', "Duplicate field 'k'"),
        ('{"k":"a","at":1,"z":{"y":1,"y":2}}', "Duplicate field 'y'"),
        ('{"k":"\\ud800","at":1}', "half a surrogate pair"),
        ('{"k":"a","at":1,"z":["\\udc00"]}', "half a surrogate pair"),
        ('{"k":"a","at":1,"Note":"n"}', "its column 'Note' differs from 'note' in case alone"),
        ('{"k":"a","at":NaN}', "at is no bigint: NaN"),
        ('{"k":"a","at":1,"x":INF}', "no well-formed JSON"),
        ('{"k":"a","at":1,"x":-INF}', "no well-formed JSON"),
        ('{"k":"a","at":1,"x":""}', "x is no int: "),
        ('{"k":"a","at":1,"x":5.0}', "x is no int: 5.0"),
        ('{"k":"","at":1}', "k is missing"),
        ('{"k":"a"}', "at is missing"),
        (b'{"k":"M\xfcller","at":1}', "bytes that are not utf-8"),
    ],
)
def test_json_line_that_two_readers_read_differently_is_bad(
    read: Callable[..., Outcome], line: str | bytes, reason: str
) -> None:
    """What is ambiguous or no value of its column is put aside with its line."""
    data = line.encode() if isinstance(line, str) else line

    outcome = read(b'{"k":"a","at":1}\n' + data + b"\n", "json")

    assert len(outcome.good) == 1
    assert [entry[:2] for entry in outcome.bad] == [("0.json", 2)]
    assert reason in outcome.bad[0][2]


@pytest.mark.parametrize(
    ("declared", "column", "value"),
    [
        ("bigint", pa.array([5], pa.int8()), 5),
        ("bigint", pa.array([2**32 - 1], pa.uint32()), 2**32 - 1),
        ("int", pa.array([2**16 - 1], pa.uint16()), 2**16 - 1),
        ("double", pa.array([2**31 - 1], pa.int32()), 2**31 - 1),
        ("double", pa.array([0.5], pa.float32()), 0.5),
        ("decimal(20,0)", pa.array([2**64 - 1], pa.uint64()), Decimal(2**64 - 1)),
        ("decimal(38,4)", pa.array([Decimal("1.23")], pa.decimal128(36, 2)), Decimal("1.23")),
        ("string", pa.array([5], pa.int64()), "5"),
    ],
)
def test_parquet_types_are_widened(
    read: Callable[..., Outcome], declared: str, column: pa.Array, value: object
) -> None:
    """A type whose every value is one of the declared type is converted."""
    assert read(table(x=column), "parquet", x=declared) == Outcome([("N1", 1, value, "n")], [])


@pytest.mark.parametrize(
    ("declared", "column", "found"),
    [
        ("int", pa.array([5], pa.int64()), "int64"),
        ("int", pa.array([5.0]), "double"),
        ("bigint", pa.array([5], pa.uint64()), "uint64"),
        ("bigint", pa.array([1], pa.timestamp("us")), "timestamp(micros)"),
        ("double", pa.array([5], pa.int64()), "int64"),
        ("float", pa.array([5.0]), "double"),
        ("decimal(6,2)", pa.array([Decimal("1.239")], pa.decimal128(6, 3)), "decimal(6,3)"),
        ("decimal(11,2)", pa.array([5], pa.int32()), "int32"),
        ("date", pa.array([1], pa.timestamp("us")), "timestamp(micros)"),
        ("timestamp", pa.array(["2024-01-01"]), "string"),
        ("string", pa.array([b"n"]), "binary"),
        ("string", pa.array([["n"]]), "nested type"),
    ],
)
def test_parquet_type_that_loses_something_is_a_bad_file(
    read: Callable[..., Outcome], declared: str, column: pa.Array, found: str
) -> None:
    """A file whose column cannot be converted without loss is put aside with the reason."""
    outcome = read({"0.parquet": table(x=column), "1.parquet": table(x=None)}, "parquet", x=declared)

    remedy = "correct the file or the type in the spec"
    assert outcome.good == []
    assert outcome.bad == [
        (
            "0.parquet",
            None,
            f"x is {found}, which cannot become {declared} without loss; {remedy}",
        ),
        ("1.parquet", None, "it has no column 'x' (it has: 'k', 'at', 'note'); correct the file or the spec"),
    ]


def test_parquet_times_are_exact_or_bad(read: Callable[..., Outcome], spark: SparkSession) -> None:
    """Times of any unit, with or without a zone, are the same moment; what is below a microsecond is bad."""

    def moment(unit: str, zone: str | None = None, more: int = 0) -> pa.Table:
        factor = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
        return table(at=pa.array([MIDNIGHT * factor + more], pa.timestamp(unit, zone)))

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        outcome = read(
            {
                "0.parquet": moment("ms"),
                "1.parquet": moment("us", "UTC"),
                "2.parquet": moment("ns", "Europe/Berlin", 1000),
                "3.parquet": moment("ns", None, 1),
                "4.parquet": table(at=pa.array([-62135596800 * 10**6], pa.timestamp("us"))),
            },
            "parquet",
            at="timestamp",
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    assert [row[1] for row in outcome.good] == [
        MIDNIGHT * 10**6,
        MIDNIGHT * 10**6,
        MIDNIGHT * 10**6 + 1,
        -62135596800 * 10**6,
    ]
    assert outcome.bad == [("3.parquet", 1, f"at has nanoseconds: {MIDNIGHT * 10**9 + 1}")]


def test_damaged_parquet_and_its_bytes_are_told(read: Callable[..., Outcome]) -> None:
    """A truncated file is a bad file, a string that is not UTF-8 a bad row; a name is never a pattern."""
    whole = io.BytesIO()
    pq.write_table(table(), whole)
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())

    outcome = read(
        {
            "0.parquet": whole.getvalue()[:-10],
            "1 [a]*{b}%20ü.parquet": table(),
            "2.parquet": table(k=broken),
            "3.parquet": table(k=pa.array([None], pa.string())),
        },
        "parquet",
    )

    assert outcome.good == [("N1", 1, 1, "n")]
    assert [entry[:2] for entry in outcome.bad] == [("0.parquet", None), ("2.parquet", 1), ("3.parquet", 1)]
    assert "truncated or damaged" in outcome.reasons[0]
    assert outcome.reasons[1:] == ["k has bytes that are not utf-8", "k is missing"]


@pytest.mark.parametrize(
    ("damage", "compression"),
    [
        ("data", "none"),
        ("data", "snappy"),
        ("header", "none"),
        ("header", "zstd"),
        ("size", "snappy"),
        ("size", "lz4"),
        ("size", "gzip"),
    ],
)
def test_damaged_page_behind_a_good_footer_is_a_bad_file(
    read: Callable[..., Outcome], damage: str, compression: str
) -> None:
    """Nothing of such a file is taken, the entry says what is damaged, and the other files go on."""
    rows = 5_000
    long = table(
        k=[f"key {row}" for row in range(rows)],
        at=pa.array(range(rows), pa.int64()),
        x=pa.array(range(rows), pa.int32()),
        note=[f"the note of row {row}" for row in range(rows)],
    )
    whole = io.BytesIO()
    pq.write_table(long, whole, compression=compression, write_page_checksum=True)

    outcome = read(
        {
            "0.parquet": table(),
            "1.parquet": damaged(whole.getvalue(), damage, column="note"),
            "2.parquet": table(k=["N2"]),
        },
        "parquet",
    )

    assert [row[0] for row in outcome.good] == ["N1", "N2"]
    assert [entry[:2] for entry in outcome.bad] == [("1.parquet", None)]
    assert "damaged" in outcome.reasons[0]


def test_page_that_gives_too_few_bytes_ends_no_stream(read: Callable[..., Outcome]) -> None:
    """Spark would wait forever for the bytes that a packed page lacks, where no checksum tells of it."""
    notes = [f"the note of row {row % 7}" for row in range(100)]
    whole = io.BytesIO()
    long = table(k=["N2"] * 100, at=pa.array([1] * 100), x=pa.array([1] * 100, pa.int32()), note=notes)
    pq.write_table(long, whole, compression="snappy", use_dictionary=False)
    content = bytearray(whole.getvalue())
    # Levels (a length and three bytes), and of each text its length: a Snappy block begins with its size.
    size = 4 + 3 + sum(4 + len(note) for note in notes)
    first = content.index(bytes([size & 0x7F | 0x80, size >> 7]))
    content[first] ^= 0x01  # one less

    outcome = read({"0.parquet": table(), "1.parquet": bytes(content)}, "parquet")

    assert outcome.good == [("N1", 1, 1, "n")]
    assert [entry[:2] for entry in outcome.bad] == [("1.parquet", None)]
    assert "damaged" in outcome.reasons[0]


def test_page_that_its_dictionary_does_not_fit_is_damage(read: Callable[..., Outcome]) -> None:
    """Damage that shows only when a cell is asked for costs the file alone, also without a checksum."""
    whole = io.BytesIO()
    pq.write_table(table(x=pa.array([7], pa.int32())), whole, compression="none")
    group = pq.read_metadata(whole).row_group(0)
    chunk = next(one for one in map(group.column, range(4)) if one.path_in_schema == "x")
    broken = bytearray(whole.getvalue())
    # The page ends with the place of its only value in the dictionary: run, and index.
    broken[(chunk.dictionary_page_offset or 0) + chunk.total_compressed_size - 1] = 0x7F

    outcome = read({"0.parquet": table(), "1.parquet": bytes(broken)}, "parquet")

    assert outcome.good == [("N1", 1, 1, "n")]
    assert [entry[:2] for entry in outcome.bad] == [("1.parquet", None)]
    assert "the file is damaged" in outcome.reasons[0]


def test_texts_beyond_ascii_are_looked_at_in_parquet(read: Callable[..., Outcome]) -> None:
    """Text in any script is good; overlong forms, surrogates and cut sequences are bad rows."""
    good = ["ü", "€", "😀", "a\u0000b", "\U0010ffff", "\ufffd", ""]
    bad = [b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ab\xe2\x82", b"\x80"]
    data = pa.array([*(text.encode() for text in good), *bad])
    note = pa.Array.from_buffers(pa.string(), len(data), data.buffers())
    rows = len(data)

    outcome = read(
        pa.table({
            "k": [f"N{number}" for number in range(rows)],
            "at": pa.array(range(rows), pa.int64()),
            "x": pa.array(range(rows), pa.int32()),
            "note": note,
        }),
        "parquet",
    )  # fmt: skip

    assert [row[3] for row in outcome.good] == good
    assert outcome.reasons == ["note has bytes that are not utf-8"] * len(bad)


@pytest.mark.parametrize("files", [2, 20])
def test_footers_are_looked_at_however_many_files_there_are(read: Callable[..., Outcome], files: int) -> None:
    """A few footers are read at once, many by a job: each misfit is found."""
    tables = {f"{number:02}.parquet": table(at=pa.array([number], pa.int64())) for number in range(files)}

    outcome = read({**tables, "90.parquet": table(x=pa.array([0.5])), "91.parquet": b"none"}, "parquet")

    assert [row[1] for row in outcome.good] == list(range(files))
    assert [entry[:2] for entry in outcome.bad] == [("90.parquet", None), ("91.parquet", None)]
