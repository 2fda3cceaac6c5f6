"""The oracle of the demo: the rule of the merge on small histories, and what a comparison reports."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.fleet_oracle import Difference, Expected, compare, expect

SPEC = """
[table]
path = "file:///nowhere"
key = ["id"]
[streams.a]
source = "a/*.csv"
ordering = "seen_at"
columns = { seen_at = "timestamp", name = "string", size = "int" }
[streams.b]
source = "b/*.csv"
ordering = "weighed_at"
columns = { weighed_at = "timestamp", weight = "double" }
"""


def at(minute: int) -> datetime:
    """An instant of the histories below."""
    return datetime(2020, 1, 1, 0, minute, tzinfo=UTC)


def a(minute: int, name: str, size: str = "1", key: str = "k") -> str:
    """A row of stream a."""
    return f"{key},2020-01-01T00:{minute:02d}:00.000Z,{name},{size}"


def deliver(folder: Path, *files: list[str], header: str = "id,seen_at,name,size") -> Path:
    """Write the files of stream a beside one of stream b, and give the spec."""
    for stream in ("a", "b"):
        (folder / stream).mkdir()
    for number, rows in enumerate(files):
        (folder / "a" / f"{number:05d}.csv").write_text("\n".join([header, *rows]) + "\n")
    (folder / "b" / "00000.csv").write_text("id,weighed_at,weight\nk,2020-01-01T00:59:00.000Z,2.5\n")
    spec = folder / "spec.toml"
    spec.write_text(SPEC)
    return spec


@pytest.mark.parametrize(
    ("files", "name", "size"),
    [
        ([[a(1, "old"), a(2, "new")]], "new", 1),
        ([[a(2, "new"), a(1, "old")]], "new", 1),
        ([[a(2, "new")], [a(1, "old")]], "new", 1),
        ([[a(1, "old", "7"), a(2, "new", "")]], "new", None),
        ([[a(1, "first"), a(1, "second")]], "second", 1),
        ([[a(1, "second")], [a(1, "first")]], "first", 1),
        ([[a(1, "first"), a(1, "second")], [a(1, "first")]], "first", 1),
        ([[a(2, "new"), a(1, "old")], [a(2, "new"), a(1, "old")]], "new", 1),
    ],
    ids=["newer", "late", "late file", "null erases", "tie", "tie of files", "tie repeated", "duplicates"],
)
def test_rule_of_the_merge(tmp_path: Path, files: list[list[str]], name: str, size: int | None) -> None:
    """The newest group wins whole, of equals the later arrival, and streams do not touch each other."""
    expected = expect(deliver(tmp_path, *files))

    assert expected.rows["k"]["name"] == name
    assert expected.rows["k"]["size"] == size
    assert (expected.rows["k"]["weighed_at"], expected.rows["k"]["weight"]) == (at(59), 2.5)


def test_absent_stream_is_null(tmp_path: Path) -> None:
    """A key that only one stream knows has nulls in the columns of the others."""
    expected = expect(deliver(tmp_path, [a(1, "x", key="other")]))

    assert expected.rows == {
        "k": {"seen_at": None, "name": None, "size": None, "weighed_at": at(59), "weight": 2.5},
        "other": {"seen_at": at(1), "name": "x", "size": 1, "weighed_at": None, "weight": None},
    }


def test_statistics(tmp_path: Path) -> None:
    """Late means overtaken by an earlier file; a duplicate is neither late nor lost again."""
    spec = deliver(
        tmp_path,
        [a(3, "c"), a(2, "b"), a(5, "x", key="m")],  # b is overtaken within its file only
        [a(1, "a"), a(2, "b"), a(5, "y", key="m")],  # a is late, b a duplicate, y tied with x
        [a(4, "d"), a(1, "a")],
    )

    statistics = expect(spec).statistics["a"]

    assert (statistics.files, statistics.deliveries, statistics.events) == (3, 8, 6)
    assert (statistics.duplicates, statistics.late, statistics.superseded, statistics.tied) == (2, 1, 3, 2)
    assert (statistics.duplicate_share, statistics.late_share, statistics.superseded_share) == (
        1 / 4,
        1 / 6,
        1 / 2,
    )


@pytest.mark.parametrize(
    ("row", "complaint"),
    [("k,yesterday,x,1", "yesterday"), ("k,2020-01-01T00:00:00,x,1", "no zone"), ("k", "index out of range")],
)
def test_unreadable_row_is_named(tmp_path: Path, row: str, complaint: str) -> None:
    """A row that the oracle cannot read stops it, with file and line."""
    spec = deliver(tmp_path, [a(1, "x"), row])

    with pytest.raises(ValueError, match=rf"00000\.csv:3: .*{complaint}"):
        expect(spec)


def test_missing_column_is_named(tmp_path: Path) -> None:
    """A file without a column of the spec stops it."""
    spec = deliver(tmp_path, [a(1, "x")], header="id,seen_at,name,width")

    with pytest.raises(ValueError, match=r"00000\.csv:1: .*'size'"):
        expect(spec)


def test_stream_without_files_is_named(tmp_path: Path) -> None:
    """An empty delivery is an error, not an empty table."""
    with pytest.raises(FileNotFoundError, match=r"a/\*\.csv"):
        expect(deliver(tmp_path))


@pytest.fixture
def expected(tmp_path: Path) -> Expected:
    """Twenty keys."""
    return expect(deliver(tmp_path, [a(n, f"name {n}", str(n), key=f"k{n:02d}") for n in range(20)]))


def table(expected: Expected) -> list[dict[str, object]]:
    """A copy of the expected table, as rows."""
    return [{expected.key: key, **row} for key, row in expected.rows.items()]


def test_equal_tables_have_no_difference(expected: Expected) -> None:
    """The order of the rows, further columns and the zone of a timestamp do not matter."""
    actual = [row | {"_hoodie_commit_time": "1"} for row in reversed(table(expected))]
    for row in actual:
        if isinstance(row["seen_at"], datetime):
            row["seen_at"] = row["seen_at"].astimezone().replace(tzinfo=None)

    assert compare(expected, actual) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", "name 8"),
        ("name", None),
        ("size", 8),
        ("seen_at", at(8)),
        ("weight", 0.0),
        ("weight", float("nan")),
    ],
)
def test_one_changed_cell_is_the_one_difference(expected: Expected, column: str, value: object) -> None:
    """A single wrong cell is reported with key, column and both values, and nothing else is."""
    actual = table(expected)
    changed = next(row for row in actual if row["id"] == "k07")
    right, changed[column] = changed[column], value

    (difference,) = compare(expected, actual)

    assert (difference.key, difference.kind, difference.column) == ("k07", "cell", column)
    assert difference.expected == right
    assert difference.actual is value
    assert f"k07.{column}: expected" in str(difference)


def test_rows_missing_surplus_and_repeated(expected: Expected) -> None:
    """A key that is not there, one that should not be, and one that is there twice are told apart."""
    actual = table(expected)
    lost = actual.pop(3)
    actual += [actual[5], actual[0] | {"id": "zz"}]

    assert compare(expected, actual) == [
        Difference(key=str(lost["id"]), kind="missing row"),
        Difference(key=str(actual[5]["id"]), kind="repeated row"),
        Difference(key="zz", kind="surplus row"),
    ]


def test_incomparable_row_is_refused(expected: Expected) -> None:
    """A table without one of the columns cannot pass."""
    actual = table(expected)
    del actual[0]["weight"]

    with pytest.raises(ValueError, match="has no column weight"):
        compare(expected, actual)


def test_oracle_stands_alone() -> None:
    """The oracle loads neither asynclock nor Spark, nor the code that made its input."""
    code = (
        "import sys, examples.fleet_oracle;"
        "print(*{'asynclock', 'pyspark', 'py4j', 'pandas', 'examples.fleet_data'} & set(sys.modules))"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == ""
