"""Nasty files through a pipeline: what is written beside each of them comes of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import snapshot
from asynclock.spark.runs.run import run, run_services
from asynclock.spark.spec.load import load_spec
from tests.spark.corpus_kit import COLUMNS, STREAMS, Nasty, nasty_files, same_rows, spec_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark.check.validation import ValidationReport
    from asynclock.spark.spec.model import Spec

NOW = 1_700_000_000
DAY = 86_400


class Fed:
    """Pipelines of one stream each, fed with the whole corpus."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self._spark = spark
        self.files = nasty_files()
        self.specs: dict[str, Spec] = {}
        self.reports: dict[str, ValidationReport] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        for stream in STREAMS:
            self._feed(folder / stream, stream)

    def _feed(self, folder: Path, stream: str) -> None:
        source = folder / "in" / stream
        source.mkdir(parents=True)
        path = folder / "spec.toml"
        path.write_text(spec_of(stream), encoding="utf-8")
        self.specs[stream] = spec = load_spec(path)
        mine = [nasty for nasty in self.files if nasty.stream == stream]
        for late in (False, True):
            arriving = [nasty for nasty in mine if ("days_late" in nasty.expected) == late]
            for nasty in arriving:
                time = NOW - nasty.expected.get("days_late", 0) * DAY
                shutil.copyfile(nasty.path, source / nasty.path.name)
                os.utime(source / nasty.path.name, (time, time))
            if arriving:
                run(spec, once=True, spark=self._spark)
        self.reports[stream] = validate(spec, self._spark)
        run_services(spec, once=True, spark=self._spark)
        self._rows[stream] = _collected(snapshot(Table(spec, self._spark)), stream)

    def rows(self, stream: str) -> list[tuple[Any, ...]]:
        """The rows of the table of a stream, after a compaction."""
        return self._rows[stream]

    def entries(self, nasty: Nasty) -> list[dict[str, Any]]:
        """What the quarantine has of a file, by line."""
        folder = self.specs[nasty.stream].stream(nasty.stream).quarantine
        lines = [
            line for path in Path(folder).rglob("*.json") for line in path.read_text("utf-8").split("\n")
        ]
        mine = [
            entry
            for entry in map(json.loads, filter(None, lines))
            if unquote(entry["file"]).endswith(f"/{nasty.path.name}")
        ]
        return sorted(mine, key=lambda entry: entry.get("line", 0))


@pytest.fixture(scope="module")
def fed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Fed:
    """The corpus, fed once for all tests."""
    return Fed(tmp_path_factory.mktemp("corpus"), spark)


@pytest.mark.parametrize("nasty", nasty_files(), ids=lambda nasty: nasty.name)
def test_nasty_file_comes_to_what_is_written_beside_it(nasty: Nasty, fed: Fed) -> None:
    """Its good rows are in the table as they are, the others in the quarantine with line and reason."""
    keys = {row[:3] for row in nasty.rows()}
    found = sorted((row for row in fed.rows(nasty.stream) if row[:3] in keys), key=repr)
    entries = fed.entries(nasty)

    assert same_rows(found, sorted(nasty.rows(), key=repr))
    if "bad_file" in nasty.expected:
        assert [entry.get("line") for entry in entries] == [None]
        assert nasty.expected["bad_file"] in entries[0]["reason"]
    else:
        assert [entry["line"] for entry in entries] == [line for line, _ in nasty.expected["aside"]]
        for entry, (_, part) in zip(entries, nasty.expected["aside"], strict=True):
            assert entry["reason"]
            assert part in entry["reason"]


@pytest.mark.parametrize("stream", STREAMS)
def test_table_has_no_other_rows(stream: str, fed: Fed) -> None:
    """No row of a bad file or of a hidden one, and none that no file has."""
    expected = {row[:3] for nasty in fed.files if nasty.stream == stream for row in nasty.rows()}

    assert {row[:3] for row in fed.rows(stream)} == expected


@pytest.mark.parametrize("stream", STREAMS)
def test_validation_reads_the_corpus_as_the_stream_does(stream: str, fed: Fed) -> None:
    """The second reader finds no difference, counts the same bad rows, and names what was never read."""
    mine = [nasty for nasty in fed.files if nasty.stream == stream]
    report = fed.reports[stream]
    (told,) = report.streams

    assert report.ok
    assert told.events == sum(len(nasty.rows()) for nasty in mine)
    assert told.bad_rows == sum(1 if "bad_file" in n.expected else len(n.expected["aside"]) for n in mine)
    assert sorted(name.rpartition("/")[2] for name in told.hidden_files) == sorted(
        nasty.path.name for nasty in mine if nasty.hidden
    )


def _collected(frame: DataFrame, stream: str) -> list[tuple[Any, ...]]:
    names = [f"{stream}__{name}" for name in COLUMNS]
    times = {f"{stream}__t": f"unix_micros({stream}__t)"}
    columns = ["k", "l", "p", f"{stream}__ts", *(times.get(name, name) for name in names)]
    return [tuple(row) for row in frame.selectExpr(*columns).collect()]
