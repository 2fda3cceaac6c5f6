"""Another number of buckets: the copy, its catching up, and the exchange of the two tables."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.errors import AcquireTimeoutError, ConfigError, SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.errors import ChangesLostError, UnfinishedRebucketError
from asynclock.spark.hadoop import HadoopFiles
from asynclock.spark.hudi.instants import REBUCKET
from asynclock.spark.hudi.rebuckets import RebucketMark
from asynclock.spark.reader.changes import changes
from asynclock.spark.reader.snapshot import read
from asynclock.spark.reader.sql import register
from asynclock.spark.runs.run import run_services
from asynclock.spark.services import rebucket as module
from asynclock.spark.services.rebucket import rebucket
from asynclock.spark.services.savepoints import savepoint
from asynclock.spark.services.work import Cleaning, Compaction
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import SUMMED, Background, Pipeline, command_here, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def deliver(pipeline: Pipeline, *numbers: int) -> None:
    """A file of each stream for each number: a few keys of its own, and one that all files have."""
    for number in numbers:
        own = [{"k": f"A{number}-{i}", "at": i, "x": i} for i in range(5)]
        pipeline.deliver("a", {"k": "N1", "at": number, "x": number, "note": ""}, *own)
        pipeline.deliver("b", {"k": "N1", "seen": f"2024-05-01T12:00:{number:02}Z", "y": number})


def spec_of(
    pipeline: Pipeline,
    buckets: int,
    changes: Mapping[str, str] = MappingProxyType({}),
    **options: Any,  # noqa: ANN401  as spec has them
) -> Spec:
    """The spec with a number of buckets, and leases that no slow machine loses."""
    of_all = {"buckets = 1": f"buckets = {buckets}", "validity = 5.0": "validity = 60.0"}
    return pipeline.spec(of_all | dict(changes), **options)


def rows(spec: Spec, spark: SparkSession) -> list[tuple[object, ...]]:
    """The rows of the view."""
    return sorted(map(tuple, read(spec, spark).collect()), key=str)


def is_valid(pipeline: Pipeline, spec: Spec) -> bool:
    """Whether the table is what its sources make it, and every file was read."""
    report = validate(spec, pipeline.spark)
    assert report.sample == ()
    assert not any((report.unseen_commits, report.cut_files, report.changing_commits))
    assert report.not_comparable == report.unknown_statements == 0
    assert not any(stream.unread_files for stream in report.streams)
    return report.ok


def test_the_table_goes_on_with_more_buckets(pipeline: Pipeline) -> None:
    """Rows, batches, deletes and columns are those of before; the old table is kept."""
    deliver(pipeline, 1, 2)
    spec = spec_of(pipeline, 1)
    pipeline.run(spec)
    Compaction(pipeline.table(spec)).step()
    Splice(spec, pipeline.spark).delete([{"k": "A1-1"}])
    Splice(spec, pipeline.spark).delete([{"k": "A1-2"}], stream="a", up_to=9)
    deliver(pipeline, 3)
    pipeline.run(spec)
    before, then = rows(spec, pipeline.spark), pipeline.timeline(spec).newest_completion()
    batches = [one.batch for one in pipeline.timeline(spec).commits]

    report = rebucket(spec, 4, spark=pipeline.spark)

    assert (report.before, report.buckets, report.caught_up) == (1, 4, 0)
    assert report.keys == len(before) + 1  # the tombstone
    grown = spec_of(pipeline, 4)
    assert rows(grown, pipeline.spark) == before
    kept = pipeline.spec({'path = "table"': f'path = "{report.old}"'}, name="old.toml")
    assert rows(kept, pipeline.spark) == before
    files = {path.name[:8]: path.stat().st_size for path in (pipeline.folder / "table").glob("*.parquet")}
    assert files.keys() == {"00000000", "00000001", "00000002", "00000003"}
    assert max(files.values()) < 100_000  # a few rows, and no filter of 400 kB
    assert [one.batch for one in pipeline.timeline(grown).commits][: len(batches)] == batches
    register(grown, pipeline.spark, name="grown")
    pipeline.spark.sql("UPDATE grown_stored SET a__x = 50, a__ts = 50 WHERE k = 'A1-0'")
    pipeline.forget_last_batch("a")
    assert pipeline.run(grown).streams[0].skipped == 1
    deliver(pipeline, 4)
    pipeline.run(grown)
    assert is_valid(pipeline, grown)
    Compaction(pipeline.table(grown)).step()
    Cleaning(pipeline.table(grown)).step()
    assert {one.requested for one in pipeline.timeline(grown).instants()}.isdisjoint(
        one.requested for one in pipeline.timeline(grown).commits if one.stream == REBUCKET
    )
    assert is_valid(pipeline, grown)
    with pytest.raises(ChangesLostError, match="the table may be another one"):
        changes(grown, pipeline.spark, since=then)


def test_streams_go_on_meanwhile_and_are_refused_afterwards(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed and deleted while the rows are copied is in the new table."""
    deliver(pipeline, 1)
    spec = spec_of(pipeline, 1)
    pipeline.run(spec)
    writer = Splice(spec, pipeline.spark)
    frame = pipeline.spark.createDataFrame([("N9", 9, 9, "")], "k string, at bigint, x int, note string")
    waiting: list[Background] = []

    def copy(*words: object, real: Callable[..., None] = module._Work._copy) -> None:
        real(*words)
        writer.delete([{"k": "A1-1"}, {"k": "A1-2"}])
        pipeline.deliver("a", {"k": "A1-1", "at": 0, "x": 100})  # older than the deleted event
        pipeline.run(spec)

    def carry(*words: object, real: Callable[..., None] = module.carry) -> None:
        waiting.append(Background(lambda: writer.write(frame, "a")))
        wait_for(lambda: list((pipeline.folder / "locks" / "parked").rglob("*.json")))
        real(*words)

    with monkeypatch.context() as patch:
        patch.setattr(module._Work, "_copy", copy)
        patch.setattr(module, "carry", carry)
        report = rebucket(spec, 3, spark=pipeline.spark)

    assert report.caught_up == 2
    with pytest.raises(SpecError, match=r"given the table at .* 3 buckets.*Set buckets = 3"):
        waiting[0].result()
    grown = spec_of(pipeline, 3)
    assert is_valid(pipeline, grown)
    with pytest.raises(SpecError, match="3 buckets"):
        writer.write(frame, "a")
    with pytest.raises(SpecError, match="3 buckets"):
        Splice(spec, pipeline.spark)


def test_a_commit_that_changes_no_row_meanwhile_is_no_obstacle(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the newest commit of the new table, and was made for the old number of buckets."""
    deliver(pipeline, 1)
    spec = spec_of(pipeline, 1)
    pipeline.run(spec)

    def copy(*words: object, real: Callable[..., None] = module._Work._copy) -> None:
        real(*words)
        pipeline.deliver("a", {"k": "N1", "at": 0, "x": 100})  # too late to win
        pipeline.run(spec)

    with monkeypatch.context() as patch:
        patch.setattr(module._Work, "_copy", copy)
        assert rebucket(spec, 3, spark=pipeline.spark).caught_up == 0

    grown = spec_of(pipeline, 3)
    deliver(pipeline, 2)
    assert [stream.batches for stream in pipeline.run(grown).streams] == [1, 1]
    assert is_valid(pipeline, grown)


class CutOff(BaseException):
    """What a kill is to the steps that follow."""


def test_a_rebucket_that_was_cut_off_is_finished_by_running_it_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the exchange nothing has happened to the table; in it, everybody else is refused; sums stay."""
    deliver(pipeline, 1)
    spec = spec_of(pipeline, 1, SUMMED)
    pipeline.run(spec)
    before = rows(spec, pipeline.spark)
    grown = spec_of(pipeline, 4, SUMMED, name="grown.toml")

    def cut_off_at(owner: object, name: str, call: int = 1) -> None:
        real, calls = getattr(owner, name), []

        def counted(*words: object) -> object:
            calls.append(words)
            if len(calls) == call:
                raise CutOff
            return real(*words)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, counted)
            with pytest.raises(CutOff):
                rebucket(spec, 4, spark=pipeline.spark)

    cut_off_at(module, "carry")
    assert list(pipeline.folder.glob("table-copy-*"))
    assert rows(spec, pipeline.spark) == before
    pipeline.run(spec)
    cut_off_at(HadoopFiles, "move")
    assert_refused(pipeline, spec, grown)
    assert rows(grown, pipeline.spark) == before
    cut_off_at(HadoopFiles, "move", call=2)
    assert_refused(pipeline, spec, grown)
    assert not (pipeline.folder / "table").exists()
    cut_off_at(RebucketMark, "put", call=2)
    assert_refused(pipeline, spec, grown)

    report = rebucket(spec, 4, spark=pipeline.spark)

    assert (report.keys, report.before, report.buckets) == (None, 1, 4)
    assert list(pipeline.folder.glob("table-*")) == [pipeline.folder / report.old.rpartition("/")[2]]
    pipeline.forget_last_batch("a")
    assert pipeline.run(grown).streams[0].skipped == 1
    deliver(pipeline, 2)
    pipeline.run(grown)
    assert is_valid(pipeline, grown)


def assert_refused(pipeline: Pipeline, spec: Spec, grown: Spec) -> None:
    """Streams, services and savepoints of both specs are refused; so is another rebucket."""
    again = "asynclock pipeline rebucket .* --buckets 4"
    for one in (spec, grown):
        for work in (
            lambda one=one: pipeline.run(one),
            lambda one=one: run_services(one, once=True, spark=pipeline.spark),
            lambda one=one: savepoint(one, spark=pipeline.spark),
        ):
            with pytest.raises(UnfinishedRebucketError, match=again):
                work()
    with pytest.raises(ConfigError, match="into 4 buckets has been cut off; finish that one first"):
        rebucket(spec, 8, spark=pipeline.spark)


def test_a_failed_rebucket_leaves_the_table_as_it_was(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence says what stands in the way, and nothing of the copy is left."""
    spec = spec_of(pipeline, 1)
    with pytest.raises(
        ConfigError, match=r"nothing is committed to the table yet; nothing was changed\. Set"
    ):
        rebucket(spec, 2, spark=pipeline.spark)
    deliver(pipeline, 1)
    pipeline.run(spec)
    before = rows(spec, pipeline.spark)
    for buckets, reason in {
        1: "the table has 1 buckets already; nothing was changed",
        0: "must be a whole number, 1 or more",
        "many": "must be a whole number, 1 or more",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            rebucket(spec, buckets, spark=pipeline.spark)  # type: ignore[arg-type]
    ahead = command_here("rebucket", str(spec_of(pipeline, 4, name="ahead.toml").path), "--buckets", "1")
    assert (ahead.returncode, ahead.stdout) == (2, "")
    assert "the table has 1 buckets already; nothing was changed. Set buckets = 1 in" in ahead.stderr
    with (
        spec.locks.connect() as client,
        client.lock(module.REBUCKET_LOCK).hold(),
        pytest.raises(AcquireTimeoutError, match="rebucket/table"),
    ):
        rebucket(spec, 2, spark=pipeline.spark)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "carry", full)
        with pytest.raises(
            UnfinishedRebucketError, match=r"No space left.*unchanged, and the copy was removed"
        ):
            rebucket(spec, 2, spark=pipeline.spark)
    assert not list(pipeline.folder.glob("table-*"))
    assert pipeline.table(spec).rebucket_mark.found() is None
    assert rows(spec, pipeline.spark) == before
    pipeline.run(spec)
