"""Mistakes in the spec of a splice table: each is named with its line, and nothing is created."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark.spec.load import load_spec
from tests.unit.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def entries(folder: Path) -> set[Path]:
    """Everything below a folder."""
    return set(folder.rglob("*"))


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
            'on_bad_row = "quarantine"',
            'optional = ["orign"]',
            20,
            "streams.departures.optional",
            ["orign", "did you mean 'origin'"],
        ),
        id="unknown-optional",
    ),
    pytest.param(
        (
            'on_bad_row = "quarantine"',
            'optional = ["departed_at"]',
            20,
            "streams.departures.optional",
            ["departed_at", "the ordering column cannot be missing"],
        ),
        id="optional-ordering",
    ),
    pytest.param(
        (
            'on_bad_row = "quarantine"\ncolumns = {',
            'optional = ["tailnum"]\ncolumns = { tailnum = "string",',
            20,
            "streams.departures.optional",
            ["tailnum", "a key or partition column cannot be missing"],
        ),
        id="optional-key",
    ),
    pytest.param(
        (
            'landed_in = "string"',
            'TailNum = "string"',
            31,
            "streams.arrivals.columns.TailNum",
            ["'tailnum'", "in case only"],
        ),
        id="key-column-in-another-case",
    ),
    pytest.param(
        (
            'checkpoint = "checkpoints/arrivals"',
            'as = { landed_in = "Origin" }',
            27,
            "streams.arrivals.as.landed_in",
            ["two columns 'Origin'", "'landed_in' of stream 'arrivals'", "'origin' of stream 'departures'"],
        ),
        id="view-name-of-another-column",
    ),
    pytest.param(
        (
            'checkpoint = "checkpoints/arrivals"',
            'as = { landed_in = "tailnum" }',
            27,
            "streams.arrivals.as.landed_in",
            ["two columns 'tailnum'", "a key or partition column"],
        ),
        id="view-name-of-the-key",
    ),
    pytest.param(
        (
            'checkpoint = "checkpoints/arrivals"',
            'as = { landed = "place" }',
            27,
            "streams.arrivals.as.landed",
            ["unknown name 'landed'", "did you mean 'landed_in'"],
        ),
        id="unknown-column-in-as",
    ),
    pytest.param(
        (
            'checkpoint = "checkpoints/arrivals"',
            'as = { landed_in = "where landed" }',
            27,
            "streams.arrivals.as.landed_in",
            ["'where landed'", "letters, digits and _"],
        ),
        id="no-name-in-as",
    ),
    pytest.param(
        (
            '[streams.departures]\nsource = "in/departures/*.csv"\nformat = "csv"',
            '[streams.departures]\nsource = "in/departures/"',
            14,
            "streams.departures.format",
            ["does not end in .csv", "add format = 'csv' | 'parquet' | 'json'"],
        ),
        id="no-format-in-the-source",
    ),
    pytest.param(
        (
            '"string", dep_delay = "double" }',
            '"string", dep_delay = "double" }\n[streams.weather]\nsource = "in/arrivals/*.csv"',
            22,
            "streams.weather.columns",
            ["missing", "asynclock pipeline init"],
        ),
        id="no-columns",
    ),
    pytest.param(
        (
            'path = "table"\nkey = ["tailnum"]\nbuckets = 2\n\n[locks]\nurl = "locks"',
            'path = "s3a://lake"\nkey = ["tailnum"]\nbuckets = 2\n\n[locks]',
            2,
            "table.path",
            ["s3a://lake", "a whole bucket", "[locks] url"],
        ),
        id="no-place-beside-a-bucket",
    ),
    pytest.param(
        (
            'path = "table"\nkey = ["tailnum"]\nbuckets = 2\n\n[locks]\nurl = "locks"',
            'path = "hdfs://nameservice/fleet"\nkey = ["tailnum"]\nbuckets = 2\n\n[locks]',
            2,
            "table.path",
            ["no locks can be next to the table", "unknown scheme", "[locks] url"],
        ),
        id="no-locks-on-the-table's-store",
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
            'departed_at = "boolean"',
            21,
            "streams.departures.columns.departed_at",
            ["cannot order by boolean", "use one of string, int"],
        ),
        id="ordering-by-boolean",
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
            'format = "csv"\nordering = "departed_at"',
            'format = "csv"\nordering = "departed_at"\nenvelope = "debezium"',
            18,
            "streams.departures.envelope",
            ["only JSON", "csv files"],
        ),
        id="envelope-of-csv",
    ),
    pytest.param(
        (
            'format = "csv"\nordering = "departed_at"',
            'format = "json"\nordering = "departed_at"\nenvelope = "maxwell"',
            18,
            "streams.departures.envelope",
            ["debezium"],
        ),
        id="unknown-envelope",
    ),
    pytest.param(
        (
            'format = "csv"\nordering = "departed_at"',
            'format = "json"\nenvelope = "debezium"\nordering = "departed_at"',
            17,
            "streams.departures.envelope",
            ['add deleted = "boolean" to columns'],
        ),
        id="envelope-without-tombstone",
    ),
    pytest.param(
        (
            SPEC[SPEC.index('format = "csv"') : SPEC.index("[streams.arrivals]")],
            (
                'format = "json"\nordering = "departed_at"\nenvelope = "debezium"\n'
                'groups = { place = { ordering = "dep_delay", columns = ["origin"] } }\n'
                'columns = { departed_at = "timestamp", origin = "string", dep_delay = "double", '
                'deleted = "boolean" }\n'
            ),
            19,
            "streams.departures.groups.place.ordering",
            ["a delete need not have dep_delay", "a field of the envelope"],
        ),
        id="envelope-with-a-group-that-a-delete-does-not-order",
    ),
    pytest.param(
        (
            'format = "csv"\nordering = "departed_at"',
            'format = "csv"\nordering = "departed_at"\ndeletes = "table"',
            18,
            "streams.departures.deletes",
            ["row, stream"],
        ),
        id="unknown-deletes",
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
    write_spec: Callable[[str], Path], tmp_path: Path, mistake: tuple[str, str, int, str, list[str]]
) -> None:
    """A wrong spec is refused with file, line, key, value and remedy, and no file appears."""
    old, new, line, key, texts = mistake
    assert old in SPEC
    path = write_spec(SPEC.replace(old, new, 1))
    before = entries(tmp_path)

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    error = caught.value
    assert (error.path, error.line, error.key) == (str(path), line, key)
    assert str(error).startswith(f"{path}:{line}: ")
    for text in texts:
        assert text in str(error)
    assert entries(tmp_path) == before


def test_all_mistakes_are_named_at_once(write_spec: Callable[[str], Path], tmp_path: Path) -> None:
    """Each has a line of the text with its place, in the order of the file; the fields are of the first."""
    types, new_types = '"timestamp", origin = "string"', '"time", origin = 3'
    arrivals, new_arrivals = 'format = "csv"\nordering = "arrived_at"', 'format = "xml"'
    mistakes = [
        ("buckets = 2", "bukets = 2", "4: table.bukets=2: unknown name 'bukets'; did you mean 'buckets'?"),
        ("validity = 20.0", "validity = 2000000.0", "8: locks.validity=2000000.0: must be 0.1 s to"),
        ("retain_commits = 3", "retain_commits = 0", "12: services.cleaning.retain_commits=0: must be"),
        ("in/departures", "in/departure", f"15: streams.departures.source='{tmp_path}/in/departure/*"),
        (types, new_types, "21: streams.departures.columns.departed_at='time': unknown type"),
        (types, new_types, "21: streams.departures.columns.origin=3: expected a string, found 3"),
        (arrivals, new_arrivals, "23: streams.arrivals.ordering=None: missing; add ordering = a string"),
        (arrivals, new_arrivals, "25: streams.arrivals.format='xml': unknown name 'xml'; known here:"),
        ('deleted = "boolean"', 'deleted = "boolen"', "31: streams.arrivals.columns.deleted='boolen':"),
    ]
    text = SPEC
    for old, new, _ in mistakes:
        assert old in text or new in text
        text = text.replace(old, new)
    path = write_spec(text)

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    error = caught.value
    lines = str(error).split("\n")
    assert (error.line, error.key, error.value) == (4, "table.bukets", 2)
    assert "\n".join(lines[1:]) == "\n".join(error.others) + " [AL-003]"
    for line, (_, _, expected) in zip(lines, mistakes, strict=True):
        assert line.startswith(f"{path}:{expected}")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301  our own bytes


def test_mistakes_between_tables_are_named_at_once(write_spec: Callable[[str], Path]) -> None:
    """What does not fit together is looked for once each value is right, and then all of it is named."""
    text = SPEC.replace("checkpoints/arrivals", "checkpoints/departures").replace("landed_in", "TailNum")

    with pytest.raises(SpecError) as caught:
        load_spec(write_spec(text))

    assert [line.split(": ")[1].partition("=")[0] for line in str(caught.value).split("\n")] == [
        "streams.arrivals.checkpoint",
        "streams.arrivals.columns.TailNum",
    ]


def test_a_spec_that_does_not_exist_is_named_without_a_line(tmp_path: Path) -> None:
    """There is no line to look at, so the message shows none."""
    path = tmp_path / "missing.toml"

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    assert caught.value.line == 0
    assert str(caught.value).startswith(f"{path}: spec=")
