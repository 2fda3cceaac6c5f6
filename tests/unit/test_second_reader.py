"""The second reader: what it makes of files and texts, without Spark."""

from __future__ import annotations

import io
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asynclock.errors import ConfigError
from asynclock.spark.check.strict import csv_records, json_records
from asynclock.spark.check.strict.expected import Expected, same
from asynclock.spark.check.strict.rows import MOST_CHARACTERS, Bad, BadFileError, Good, Layout
from asynclock.spark.check.strict.source_file import layout_of, rows
from asynclock.spark.check.strict.values import reader, shown
from asynclock.spark.spec.load import load_spec
from asynclock.spark.spec.model import CsvDialect
from tests.laboratory.fuzz_data.cells import BAD, DECIMALS, Cell, bad_cells, cells
from tests.laboratory.fuzz_data.names import named
from tests.laboratory.fuzz_data.rounds import generate
from tests.laboratory.fuzz_data.tables import TABLES
from tests.spark.corpus_kit import Nasty, nasty_files, same_rows, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

KINDS = ["string", "boolean", "int", "bigint", "float", "double", "date", "timestamp", *DECIMALS]
LAYOUT = Layout({"k": "string", "at": "bigint", "text": "string"}, ("k", "at"))


def made_spec(folder: Path, text: str, stream: str) -> Spec:
    """A spec whose source folder exists."""
    (folder / "in" / stream).mkdir(parents=True)
    path = folder / "spec.toml"
    path.write_text(text, encoding="utf-8")
    return load_spec(path)


@pytest.mark.parametrize(
    "nasty", [one for one in nasty_files() if not one.hidden], ids=lambda nasty: nasty.name
)
def test_nasty_file_gives_what_is_written_beside_it(nasty: Nasty, tmp_path: Path) -> None:
    """Each file of the corpus gives the rows, the bad rows or the reason that its companion says."""
    spec = made_spec(tmp_path, spec_of(nasty.stream), nasty.stream)
    stream = spec.streams[0]
    good: list[tuple[Any, ...]] = []
    aside: list[Bad] = []
    reason: str | None = None
    try:
        for row in rows(nasty.path, stream, layout_of(spec, stream)):
            if isinstance(row, Good):
                good.append(row.values)
            else:
                aside.append(row)
    except BadFileError as error:
        good, aside, reason = [], [], str(error)

    assert same_rows(good, nasty.rows())
    assert [bad.line for bad in aside] == [line for line, _ in nasty.expected["aside"]]
    assert all(part in bad.reason for bad, (_, part) in zip(aside, nasty.expected["aside"], strict=True))
    assert (reason is None) == ("bad_file" not in nasty.expected)
    assert nasty.expected.get("bad_file", "") in (reason or "")


@pytest.mark.parametrize("table", range(len(TABLES)))
def test_generated_files_are_read_as_they_were_meant(table: int, tmp_path: Path) -> None:
    """Of 300 generated files a table every row is read exactly, or is bad where it was made so."""
    drawn = named(TABLES[table], table)
    spec_text = drawn.spec()
    for stream in drawn.streams:
        (tmp_path / "in" / stream.name).mkdir(parents=True)
    (tmp_path / "spec.toml").write_text(spec_text, encoding="utf-8")
    spec = load_spec(tmp_path / "spec.toml")
    for name, files in generate(drawn, 7, 300).items():
        stream_spec = spec.stream(name)
        layout = layout_of(spec, stream_spec)
        for file in files:
            path = tmp_path / file.name
            path.write_bytes(file.content)
            try:
                found = list(rows(path, stream_spec, layout))
            except BadFileError:
                assert file.bad, file
                continue
            meant = [[row.cells[column].value for column in layout.names] for row in file.rows if row.good]
            good = [row.values for row in found if isinstance(row, Good)]
            assert len(good) == len(meant), file
            pairs = zip(good, meant, strict=True)
            assert all(same(one, other) for a, b in pairs for one, other in zip(a, b, strict=True)), file
            assert len(found) - len(good) == file.aside, file


@pytest.mark.parametrize("kind", KINDS)
def test_every_spelling_of_a_value_is_that_value(kind: str) -> None:
    """However a value is spelled, it is read as exactly that value."""

    @settings(database=None, max_examples=200)
    @given(cells(kind))
    def check(cell: Cell) -> None:
        assert cell.text is not None
        assert same(reader(kind)(cell.text), cell.value)

    check()


@pytest.mark.parametrize("kind", [*BAD, *DECIMALS])
def test_what_is_no_value_is_refused(kind: str) -> None:
    """A text that a lenient parser would take for a value is none."""
    for cell in bad_cells(kind):
        with pytest.raises(ValueError):  # noqa: PT011  its text is for programmers
            reader(kind)(cell.text or "")


def test_single_is_rounded_once() -> None:
    """A float is the nearest one to the text, not to the double nearest to the text."""
    halfway = "1.000000059604644775390625"

    assert reader("float")(halfway) == 1.0
    assert reader("float")(f"{halfway}000000000000000001") == math.nextafter(1.0, 2) + 2.0**-23 - 2.0**-52
    assert reader("float")("7.1e-46") == 2.0**-149


def test_number_of_a_thousand_characters_is_the_longest() -> None:
    """Longer texts are no numbers, and cost no time."""
    assert reader("bigint")("0" * 999 + "1") == 1
    with pytest.raises(ValueError, match="00"):
        reader("bigint")("0" * 1000 + "1")
    assert reader("decimal(9,2)")("0e999999999999") == Decimal(0)


def test_long_record_makes_the_file_bad() -> None:
    """A record of more characters than the bound, quoted or not, is not taken into memory whole."""
    header = b"k,at,text\n"
    quoted = io.BytesIO(header + b'a,1,"' + b"x\n" * (MOST_CHARACTERS // 2 + 10) + b'"\n')
    plain = io.BytesIO(header + b"a,1," + b"x" * (MOST_CHARACTERS + 10))
    line = io.BytesIO(b'{"k":"' + b"x" * (MOST_CHARACTERS + 10) + b'"}')

    for file in (quoted, plain):
        with pytest.raises(BadFileError, match="longer than"):
            list(csv_records.rows(io.BufferedReader(file), LAYOUT, CsvDialect()))  # type: ignore[arg-type]
    with pytest.raises(BadFileError, match="longer than"):
        list(json_records.rows(line, LAYOUT))


@settings(database=None, max_examples=300)
@given(
    st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=3, max_size=3), max_size=5)
)
def test_what_python_writes_as_csv_is_read_back(records: list[list[str]]) -> None:
    """Python's ``csv`` and this reader agree on every text, and it can tell nothing from the empty text."""
    import csv  # noqa: PLC0415  the other side of the comparison

    buffer = io.StringIO(newline="")
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows(records)
    text = io.StringIO(buffer.getvalue(), newline="\n")

    found = list(csv_records.Splitter(CsvDialect()).records(text))  # type: ignore[arg-type]

    assert [record.fields for record in found if isinstance(record, csv_records.Record)] == records


def test_compression_that_only_hadoop_knows_is_named(tmp_path: Path) -> None:
    """A file that cannot be read here is no bad file: the comparison says so and ends."""
    spec = made_spec(tmp_path, spec_of("rfc"), "rfc")

    with pytest.raises(ConfigError, match=r"\.gz, \.bz2 or \.zst"):
        list(rows(tmp_path / "x.csv.snappy", spec.streams[0], layout_of(spec, spec.streams[0])))


@pytest.fixture
def expected(tmp_path: Path) -> Iterator[Expected]:
    """One stream with a time and a number."""
    made = Expected(tmp_path, [[("a__ts", "timestamp"), ("a__x", "int")]])
    yield made
    made.close()


def test_newest_event_wins_and_of_equals_the_last(expected: Expected) -> None:
    """Ordering value first, then arrival; an older event changes nothing."""
    expected.add(0, [(("k",), 5, (5, 1)), (("k",), 5, (5, 2)), (("k",), 4, (4, 3))])
    expected.compare([(("k",), [(5, 2)])])

    assert expected.count() == 0
    assert expected.keys() == 1


def test_bad_file_takes_back_its_rows(expected: Expected) -> None:
    """What a file gave before its damage showed is not expected, and what was there before it is."""

    def broken() -> Iterator[tuple[tuple[str], int, tuple[int, int]]]:
        yield ("k",), 9, (9, 9)
        yield ("new",), 9, (9, 9)
        raise BadFileError("damage")

    expected.add(0, [(("k",), 1, (1, 1))])
    with pytest.raises(BadFileError):
        expected.add(0, broken())
    expected.compare([(("k",), [(1, 1)])])

    assert expected.count() == 0
    assert expected.keys() == 1


def test_differences_say_what_is_missing_surplus_twice_and_other(expected: Expected) -> None:
    """Rows on one side, rows that are there twice and differing cells, in the order of their keys."""
    expected.add(0, [((key,), 0, (0, 1)) for key in ("both", "missing", "other", "twice")])
    table = [("both", (0, 1)), ("other", (86_400_000_001, None)), ("surplus", (0, 1)), ("twice", (0, 1))]
    expected.compare([((key,), [cells]) for key, cells in [*table, ("twice", (7, 7))]])

    assert list(expected.differences()) == [
        (("missing",), None, "one row", None),
        (("other",), "a__ts", "1970-01-01 00:00:00", "1970-01-02 00:00:00.000001"),
        (("other",), "a__x", "1", None),
        (("surplus",), None, None, "one row"),
        (("twice",), None, "one row", "2 rows"),
    ]
    assert (expected.count(), expected.keys()) == (5, 5)


def test_key_in_two_partitions_is_one_difference(tmp_path: Path) -> None:
    """It is reported without a partition, also if the sources have it in both."""
    made = Expected(tmp_path, [[("a__ts", "int")]], key_columns=1)
    rows = [(("k", "p"), 0, (0,)), (("k", "q"), 0, (0,)), (("l", "p"), 0, (0,))]
    made.add(0, rows)
    made.compare([(key, [cells]) for key, _, cells in rows])

    assert list(made.differences()) == [(("k",), None, "one row", "2 partitions")]
    made.close()


def test_sample_keeps_one_key_in_some(tmp_path: Path) -> None:
    """Only sampled keys are kept, always the same ones."""
    made = Expected(tmp_path, [[("a__ts", "int")]], one_key_in=10)
    made.add(0, [((f"k{number}",), 0, (0,)) for number in range(1000)])

    assert 60 < made.keys() < 140
    made.close()


def test_cells_are_the_same_only_with_sign_and_type() -> None:
    """Minus zero is not zero, NaN is NaN, and a number is not its text."""
    assert same(math.nan, math.nan)
    assert same(Decimal("1.10"), Decimal("1.1"))
    assert not same(0.0, -0.0)
    assert not same(1, True)
    assert not same(1, "1")
    assert not same(None, 0)
    assert shown(-1, "date") == "1969-12-31"
    assert shown(True, "boolean") == "true"


def test_what_a_lost_delete_may_have_removed_is_unknown_until_a_newer_event(tmp_path: Path) -> None:
    """A row or cell from before it is not compared; one from after it is, and so is a newer event."""
    made = Expected(tmp_path, [[("a__ts", "int")]], ranks=[[0]])
    made.add(0, [(("gone",), 5, (5,)), (("again",), 5, (5,)), (("newer",), 5, (5,)), (("kept",), 5, (5,))])
    made.doubt()
    made.add(0, [(("again",), 3, (3,)), (("newer",), 6, (6,)), (("later",), 1, (1,))])

    made.compare([(("again",), [(3,)]), (("kept",), [(5,)])])

    assert [(key, found) for key, _, _, found in made.differences()] == [
        (("later",), None),
        (("newer",), None),
    ]
    assert made.incomparable() == 2
    made.close()


def test_an_event_that_is_lost_may_have_set_what_is_no_older(tmp_path: Path) -> None:
    """A newer or equal value, and a row that nothing explains, are not compared; an older value differs."""
    made = Expected(tmp_path, [[("a__ts", "int"), ("a__x", "int")]], ranks=[[0]])
    made.add(0, [((key,), 5, (5, 1)) for key in ("equal", "newer", "older")])
    made.lose([0])

    made.compare(
        [((key,), [(rank, 2)]) for key, rank in (("equal", 5), ("newer", 6), ("older", 4), ("new", 1))]
    )

    assert {key for key, *_ in made.differences()} == {("older",)}
    assert made.incomparable() == 3
    made.close()
