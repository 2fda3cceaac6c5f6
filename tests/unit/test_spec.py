"""The spec of a splice table: what is read, and how each mistake is told."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from asynclock import sync
from asynclock.errors import ConfigError, SpecError
from asynclock.settings import LeaseSettings
from asynclock.spark.dialect import CsvDialect
from asynclock.spark.load import load_spec, missing_source
from asynclock.spark.spec import Column, LocksSpec, ServicesSpec, Spec, StreamSpec, TableSpec
from asynclock.spark.spec_toml import SpecFile

if TYPE_CHECKING:
    from collections.abc import Callable

SPEC = """\
[table]
path = "table"
key = ["tailnum"]
buckets = 2

[locks]
url = "locks"
validity = 20.0

[services]
compaction = { every_commits = 5 }
cleaning = { retain_commits = 3 }

[streams.departures]
source = "in/departures/*.csv"
format = "csv"
ordering = "departed_at"
checkpoint = "checkpoints/departures"
max_files_per_trigger = 2
on_bad_row = "quarantine"
columns = { departed_at = "timestamp", origin = "string", dep_delay = "double" }

[streams.arrivals]
source = "in/arrivals/*.csv"
format = "csv"
ordering = "arrived_at"
checkpoint = "checkpoints/arrivals"

[streams.arrivals.columns]
arrived_at = "timestamp"
landed_in = "string"
deleted = "boolean"
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a spec whose sources exist."""
    for stream in ("departures", "arrivals"):
        folder = tmp_path / "in" / stream
        folder.mkdir(parents=True)
        (folder / "0.csv").write_text("tailnum\nN1\n")

    def written(text: str) -> Path:
        path = tmp_path / "fleet.toml"
        path.write_text(text)
        return path

    return written


def entries(folder: Path) -> set[Path]:
    """Everything below a folder."""
    return set(folder.rglob("*"))


def test_reads_every_setting(write: Callable[[str], Path], tmp_path: Path) -> None:
    """A spec becomes plain values, and paths start from its folder."""
    spec = load_spec(write(SPEC))

    assert spec.table == TableSpec(path=f"file://{tmp_path}/table", key=("tailnum",), buckets=2)
    assert spec.locks == LocksSpec(url=(tmp_path / "locks").as_uri(), settings=LeaseSettings(validity=20))
    assert (spec.services.compact_every_commits, spec.services.retain_commits) == (5, 3)
    assert spec.stream("departures") == StreamSpec(
        name="departures",
        source=f"{tmp_path}/in/departures/*.csv",
        format="csv",
        ordering="departed_at",
        checkpoint=f"{tmp_path}/checkpoints/departures",
        max_files_per_trigger=2,
        on_bad_row="quarantine",
        columns=(
            Column(name="departed_at", type="timestamp"),
            Column(name="origin", type="string"),
            Column(name="dep_delay", type="double"),
        ),
    )
    assert spec.stream("arrivals").on_bad_row == "fail"


def test_urls_are_left_alone(write: Callable[[str], Path]) -> None:
    """A table, lock prefix or source on another store is taken as it is written."""
    text = SPEC.replace('"table"', '"s3a://lake/fleet"').replace('"locks"', '"s3://lake/locks"')
    spec = load_spec(write(text.replace('"in/departures/*.csv"', '"s3a://lake/in/*.csv"')))

    assert spec.table.path == "s3a://lake/fleet"
    assert spec.locks.url == "s3://lake/locks"
    assert spec.stream("departures").source == "s3a://lake/in/*.csv"


@pytest.mark.parametrize("form", ["file://{}/{}", "{}/{}", "{1}"])
@pytest.mark.parametrize("name", ["mit Leerzeichen", "gesperrt-für-äöü", "50% of it", "a%20b"])
def test_locks_may_lie_in_a_folder_of_any_name(
    write: Callable[[str], Path], tmp_path: Path, form: str, name: str
) -> None:
    """A space, an umlaut or a percent sign in the place of the locks is no obstacle, as URL or as path."""
    spec = load_spec(write(SPEC.replace('url = "locks"', f'url = "{form.format(tmp_path, name)}"')))

    with sync.connect(spec.locks.url) as client, client.lock("stream/x").hold():
        made = {path.name for path in tmp_path.iterdir()}

    assert (unquote(name) if form.startswith("file:") else name) in made


def test_ordering_column_is_stored_as_ts(write: Callable[[str], Path]) -> None:
    """The ordering column has a fixed physical name; the others keep theirs behind the stream's."""
    spec = load_spec(write(SPEC))
    stream = spec.stream("departures")

    physical = [stream.physical(column) for column in stream.owned(spec.table)]

    assert physical == ["departures__ts", "departures__origin", "departures__dep_delay"]


def test_key_columns_take_a_declared_type(write: Callable[[str], Path]) -> None:
    """A key is text unless a stream says otherwise."""
    plain = load_spec(write(SPEC))
    typed = load_spec(
        write(SPEC.replace('{ departed_at = "timestamp",', '{ tailnum = "int", departed_at = "timestamp",'))
    )

    assert plain.shared_type("tailnum") == "string"
    assert typed.shared_type("tailnum") == "int"
    assert typed.stream("departures").owned(typed.table)[0].name == "departed_at"


def test_csv_dialect_is_read_where_it_is_given(write: Callable[[str], Path]) -> None:
    """A stream of CSV files is read by RFC 4180, but for what its spec says."""
    given = (
        'csv = { separator = ";", escape = "\\\\", encoding = "utf-16", null = "NULL", multiline = false }'
    )
    spec = load_spec(write(SPEC.replace('ordering = "departed_at"', f'ordering = "departed_at"\n{given}')))

    assert spec.stream("departures").dialect == CsvDialect(
        separator=";", quote='"', escape="\\", encoding="utf-16", null="NULL", multiline=False
    )
    assert spec.stream("arrivals").dialect == CsvDialect()


@pytest.mark.parametrize(
    ("csv", "key", "texts"),
    [
        ('{ separator = "ab" }', "separator", ["one character"]),
        ('{ separator = "\\n" }', "separator", ["one character"]),
        ('{ quote = "," }', "quote", ["the separator is the same"]),
        ('{ quote = "", escape = "x" }', "escape", ["no quotes"]),
        ('{ encoding = "utf8" }', "encoding", ["did you mean 'utf-8'", "windows-1252"]),
        ('{ null = "a,b" }', "null", ["separator"]),
        ('{ multiline = "no" }', "multiline", ["true or false"]),
        ('{ comment = "#" }', "comment", ["unknown", "separator"]),
    ],
)
def test_wrong_csv_dialect_is_refused(
    write: Callable[[str], Path], csv: str, key: str, texts: list[str]
) -> None:
    """Each setting of the dialect is checked, and the complaint names its line."""
    path = write(SPEC.replace('ordering = "departed_at"', f'ordering = "departed_at"\ncsv = {csv}'))

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    assert (caught.value.line, caught.value.key) == (18, f"streams.departures.csv.{key}")
    for text in texts:
        assert text in str(caught.value)


def test_dialect_of_other_files_is_refused(write: Callable[[str], Path]) -> None:
    """A dialect beside files that are no CSV would be read by nobody."""
    text = SPEC.replace(
        'format = "csv"\nordering = "departed_at"', 'format = "json"\nordering = "departed_at"\ncsv = {}'
    )

    with pytest.raises(SpecError, match="no CSV dialect"):
        load_spec(write(text))


def test_tombstone_in_another_case_is_refused(write: Callable[[str], Path]) -> None:
    """A column named Deleted would hide no row, unlike what its writer means."""
    with pytest.raises(SpecError, match="only 'deleted' in lower case is a tombstone"):
        load_spec(write(SPEC.replace('deleted = "boolean"', 'Deleted = "boolean"')))


BAD = [
    pytest.param(
        (
            "buckets = 2",
            "bukets = 2",
            4,
            "table.bukets",
            ["bukets", "did you mean 'buckets'"],
        ),
        id="unknown-key",
    ),
    pytest.param(
        (
            "[services]",
            "[servises]",
            10,
            "servises",
            ["servises", "did you mean 'services'"],
        ),
        id="unknown-table",
    ),
    pytest.param(
        (
            "on_bad_row =",
            "on_bad_rows =",
            20,
            "streams.departures.on_bad_rows",
            ["did you mean 'on_bad_row'"],
        ),
        id="unknown-stream-key",
    ),
    pytest.param(
        (
            'landed_in = "string"',
            'origin = "string"',
            31,
            "streams.arrivals.columns.origin",
            ["'origin'", "'departures'", "'arrivals'", "drop or rename"],
        ),
        id="column-of-two-streams",
    ),
    pytest.param(
        (
            'landed_in = "string"',
            'Origin = "string"',
            31,
            "streams.arrivals.columns.Origin",
            ["'Origin'", "'departures'", "drop or rename"],
        ),
        id="column-of-two-streams-but-for-case",
    ),
    pytest.param(
        (
            'ordering = "departed_at"',
            'ordering = "left_at"',
            17,
            "streams.departures.ordering",
            ["'left_at'", "add 'left_at' to columns"],
        ),
        id="missing-ordering-column",
    ),
    pytest.param(
        (
            'ordering = "departed_at"\n',
            "",
            14,
            "streams.departures.ordering",
            ["missing; add ordering"],
        ),
        id="no-ordering",
    ),
    pytest.param(
        (
            "in/departures",
            "in/departure",
            15,
            "streams.departures.source",
            ["in/departure", "does not exist", "create it or correct the path"],
        ),
        id="source-folder-missing",
    ),
    pytest.param(
        (
            "departures/*.csv",
            "departures/*.cvs",
            15,
            "streams.departures.source",
            ["*.cvs", "does not exist", "correct the pattern"],
        ),
        id="source-matches-nothing",
    ),
    pytest.param(
        (
            "validity = 20.0",
            "validity = 20.0\nrenew_interval = 2.5",
            9,
            "locks.renew_interval",
            ["2.5", "validity / 10", "raise validity or lower renew_interval"],
        ),
        id="validity-below-10-renewals",
    ),
    pytest.param(
        (
            "validity = 20.0",
            'validity = "20"',
            8,
            "locks.validity",
            ["a number", "'20'"],
        ),
        id="validity-as-text",
    ),
    pytest.param(
        (
            "validity = 20.0",
            "validity = true",
            8,
            "locks.validity",
            ["a number", "True"],
        ),
        id="validity-as-bool",
    ),
    pytest.param(
        (
            "validity = 20.0",
            "validity = 0.0",
            8,
            "locks.validity",
            ["more than 0"],
        ),
        id="validity-zero",
    ),
    pytest.param(
        (
            'url = "locks"\n',
            "",
            6,
            "locks.url",
            ["missing; add url"],
        ),
        id="no-locks-url",
    ),
    pytest.param(
        ('url = "locks"', 'url = "ftp://host/locks"', 7, "locks.url", ["ftp://host", "unknown scheme"]),
        id="unknown-lock-store",
    ),
    pytest.param(
        (
            "buckets = 2",
            "buckets = 0",
            4,
            "table.buckets",
            ["1 or more"],
        ),
        id="no-buckets",
    ),
    pytest.param(
        (
            "buckets = 2",
            "buckets = 2.5",
            4,
            "table.buckets",
            ["a whole number"],
        ),
        id="half-a-bucket",
    ),
    pytest.param(
        (
            'key = ["tailnum"]',
            "key = []",
            3,
            "table.key",
            ["name the columns"],
        ),
        id="no-key",
    ),
    pytest.param(
        (
            'key = ["tailnum"]',
            "key = [1]",
            3,
            "table.key",
            ["list of strings"],
        ),
        id="key-of-numbers",
    ),
    pytest.param(
        (
            'key = ["tailnum"]',
            'key = "tailnum"',
            3,
            "table.key",
            ["a list of strings"],
        ),
        id="key-as-text",
    ),
    pytest.param(
        (
            'key = ["tailnum"]',
            'key = ["tail__num"]',
            3,
            "table.key",
            ["tail__num", "no double _"],
        ),
        id="key-with-__",
    ),
    pytest.param(
        (
            "buckets = 2",
            'partition_by = ["a__b"]',
            4,
            "table.partition_by",
            ["a__b", "no double _"],
        ),
        id="partition-with-__",
    ),
    pytest.param(
        (
            'key = ["tailnum"]',
            'key = ["a", "A"]',
            3,
            "table.key",
            ["twice"],
        ),
        id="key-twice",
    ),
    pytest.param(
        (
            "[streams.departures]",
            "[streams.Departures]",
            14,
            "streams.Departures",
            ["rename the stream"],
        ),
        id="stream-name-upper-case",
    ),
    pytest.param(
        (
            "[streams.departures]",
            "[streams.de__partures]",
            14,
            "streams.de__partures",
            ["single inner _"],
        ),
        id="stream-name-with-__",
    ),
    pytest.param(
        (
            "[streams.departures]",
            "[streams.departures_]",
            14,
            "streams.departures_",
            ["single inner _"],
        ),
        id="stream-name-ends-with-_",
    ),
    pytest.param(
        (
            'origin = "string"',
            'origin = "text"',
            21,
            "streams.departures.columns.origin",
            ["text", "use one of string"],
        ),
        id="unknown-type",
    ),
    pytest.param(
        (
            'origin = "string"',
            'origin = "decimal(50,2)"',
            21,
            "streams.departures.columns.origin",
            ["decimal(50,2)"],
        ),
        id="decimal-too-long",
    ),
    pytest.param(
        (
            'origin = "string"',
            'ts = "string"',
            21,
            "streams.departures.columns.ts",
            ["departures__ts", "use another name"],
        ),
        id="ts-taken",
    ),
    pytest.param(
        (
            'deleted = "boolean"',
            'deleted = "string"',
            32,
            "streams.arrivals.columns.deleted",
            ["tombstone", "make it boolean"],
        ),
        id="tombstone-no-boolean",
    ),
    pytest.param(
        (
            'departed_at = "timestamp"',
            'departed_at = "double"',
            21,
            "streams.departures.columns.departed_at",
            ["cannot order by double", "use one of timestamp"],
        ),
        id="ordering-by-double",
    ),
    pytest.param(
        (
            'origin = "string"',
            'origin = "string", ORIGIN = "int"',
            21,
            "streams.departures.columns.ORIGIN",
            ["only in case"],
        ),
        id="column-twice-but-for-case",
    ),
    pytest.param(
        (
            '"checkpoints/arrivals"',
            '"checkpoints/departures"',
            27,
            "streams.arrivals.checkpoint",
            ["'departures'", "'arrivals'", "give each its own"],
        ),
        id="shared-checkpoint",
    ),
    pytest.param(
        (
            'format = "csv"\nordering = "departed_at"',
            'format = "xml"\nordering = "departed_at"',
            16,
            "streams.departures.format",
            ["'xml'", "csv, json, parquet"],
        ),
        id="unknown-format",
    ),
    pytest.param(
        (
            'on_bad_row = "quarantine"',
            'on_bad_row = "skip"',
            20,
            "streams.departures.on_bad_row",
            ["'skip'", "fail, quarantine"],
        ),
        id="unknown-policy",
    ),
    pytest.param(
        (
            "max_files_per_trigger = 2",
            "max_files_per_trigger = 0",
            19,
            "streams.departures.max_files_per_trigger",
            ["1 or more"],
        ),
        id="no-files-a-batch",
    ),
    pytest.param(
        (
            "[services]",
            "[services]\nclustering = { every_commits = 4 }",
            11,
            "services.clustering",
            ["every later write", "remove it"],
        ),
        id="clustering",
    ),
    pytest.param(
        (
            "cleaning = { retain_commits = 3 }",
            "cleaning = { retain_commits = 3 }\narchiving = { keep_min_commits = 3 }",
            13,
            "services.archiving.keep_min_commits",
            ["more than retain_commits (3)"],
        ),
        id="archives-before-cleaning",
    ),
    pytest.param(
        (
            'key = ["tailnum"]',
            'key = ["Deleted"]',
            3,
            "table.key",
            ["tombstone", "use another name"],
        ),
        id="key-named-as-the-tombstone",
    ),
    pytest.param(
        (
            "buckets = 2",
            'buckets = 2\npartition_by = ["Tailnum"]',
            5,
            "table.partition_by",
            ["'Tailnum'", "differs from 'tailnum' in case only"],
        ),
        id="partition-differs-from-key-in-case",
    ),
    pytest.param(
        (
            "buckets = 2",
            "buckets = 2\nbuckets = 3",
            5,
            "",
            ["not valid TOML"],
        ),
        id="key-given-twice",
    ),
    pytest.param(
        (
            "buckets = 2",
            "buckets =",
            4,
            "",
            ["not valid TOML"],
        ),
        id="no-value",
    ),
]


@pytest.mark.parametrize("mistake", BAD)
def test_each_mistake_is_named_with_its_line_and_creates_nothing(
    write: Callable[[str], Path], tmp_path: Path, mistake: tuple[str, str, int, str, list[str]]
) -> None:
    """A wrong spec is refused with file, line, key, value and remedy, and no file appears."""
    old, new, line, key, texts = mistake
    assert old in SPEC
    path = write(SPEC.replace(old, new, 1))
    before = entries(tmp_path)

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    error = caught.value
    assert (error.path, error.line, error.key) == (str(path), line, key)
    assert str(error).startswith(f"{path}:{line}: ")
    for text in texts:
        assert text in str(error)
    assert entries(tmp_path) == before


def test_a_spec_without_streams_is_refused(write: Callable[[str], Path]) -> None:
    """There is nothing to splice without a stream."""
    with pytest.raises(SpecError, match=r"add a table \[streams\.NAME\]") as caught:
        load_spec(write(SPEC.partition("[streams")[0]))

    assert caught.value.key == "streams"


def test_a_missing_file_is_a_spec_error(tmp_path: Path) -> None:
    """A path that leads nowhere is told like any other mistake."""
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(tmp_path / "none.toml")


def test_key_type_must_be_the_same_in_all_streams(write: Callable[[str], Path]) -> None:
    """Two streams cannot mean the same row by keys of two types."""
    text = SPEC.replace("{ departed_at", '{ tailnum = "string", departed_at')
    text = text.replace("arrived_at = ", 'tailnum = "int"\narrived_at = ')

    with pytest.raises(SpecError, match="give it one type everywhere") as caught:
        load_spec(write(text))

    assert caught.value.key == "streams.arrivals.columns.tailnum"


def test_an_empty_source_folder_waits_for_its_first_delivery(tmp_path: Path) -> None:
    """A folder without any file is a source; a folder that does not exist is none."""
    (tmp_path / "empty").mkdir()

    assert missing_source(f"{tmp_path}/empty/*.csv") is None
    assert missing_source(f"file://{tmp_path}/empty") is None
    assert missing_source(f"{tmp_path}/none/*.csv") is not None
    assert missing_source("s3a://bucket/none/*.csv") is None


def test_a_source_of_one_file_is_refused_with_a_pattern(tmp_path: Path) -> None:
    """Spark cannot watch a single file; the text says what to name instead."""
    file = tmp_path / "events.csv"
    file.touch()

    problem = missing_source(str(file))

    assert problem is not None
    assert str(tmp_path / "events*.csv") in problem


def test_an_unknown_stream_is_named(write: Callable[[str], Path]) -> None:
    """Asking for a stream that the spec does not have says which ones it has."""
    spec = load_spec(write(SPEC))

    with pytest.raises(ConfigError, match="did you mean 'departures'"):
        spec.stream("departure")


def test_keys_inside_text_are_no_keys() -> None:
    """Lines of a string of several lines do not count as assignments."""
    file = SpecFile(Path("x.toml"), 'a = """\nb = 1\n"""\nb = 2\n[c]\nd.e = 1\n')

    assert [file.line(keys) for keys in (("b",), ("c",), ("c", "d", "e"), ("z",))] == [4, 5, 6, 0]


def test_a_spec_survives_pickling(write: Callable[[str], Path]) -> None:
    """A spec can be sent to another process."""
    spec = load_spec(write(SPEC))

    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301  our own bytes


def test_rules_hold_without_a_file() -> None:
    """A spec built in code is checked by the same rules."""
    with pytest.raises(ConfigError, match="at least one stream"):
        Spec(
            path=Path("none.toml"),
            table=TableSpec(path="file:///t", key=("k",)),
            locks=LocksSpec(url="memory://", settings=LeaseSettings()),
            services=ServicesSpec(),
            streams=(),
        )
