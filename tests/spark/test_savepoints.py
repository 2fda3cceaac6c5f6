"""Savepoints of the table with its checkpoints, and the way back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import ConfigError
from asynclock.spark.check.validation import validate
from asynclock.spark.errors import UnfinishedRestoreError
from asynclock.spark.hadoop import HadoopFiles
from asynclock.spark.hudi.instants import DELTA_COMMIT, SAVEPOINT, Instant
from asynclock.spark.hudi.restores import RestoreMark
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run_services
from asynclock.spark.services import savepoints
from asynclock.spark.services.due import unkept
from asynclock.spark.services.savepoints import delete_savepoint, restore, savepoint
from asynclock.spark.services.work import Cleaning, Compaction
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import (
    SPEC,
    SUMMED,
    Background,
    Pipeline,
    command_here,
    deliver,
    wait_for,
    waiting,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

NOON = "2024-05-01T12:00:00Z"
ONLY_A = {SPEC[SPEC.index("[streams.b]") :]: ""}
ONLY_B = {SPEC[SPEC.index("[streams.a]") : SPEC.index("[streams.b]")]: ""}


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def newest(pipeline: Pipeline, spec: Spec) -> tuple[object, ...]:
    """X and y of the row N1."""
    found = read(spec, pipeline.spark).where("k = 'N1'").select("x", "y").collect()
    return tuple(found[0])


def is_valid(pipeline: Pipeline, spec: Spec) -> bool:
    """Whether the table is what its sources make it, and every file was read."""
    report = validate(spec, pipeline.spark)
    assert report.sample == ()
    assert not any(stream.unread_files for stream in report.streams)
    return report.ok


def test_what_a_restore_drops_is_read_again(pipeline: Pipeline) -> None:
    """Compactions, cleanings and archiving do not stand in the way, twice; a sum has each event once."""
    deliver(pipeline, 1, 2)
    spec = pipeline.spec(SUMMED)
    pipeline.run(spec)
    kept = savepoint(spec, spark=pipeline.spark)
    for first in (3, 6):
        for number in range(first, first + 3):
            deliver(pipeline, number)
            pipeline.run(spec)
            Compaction(Table(spec, pipeline.spark)).step()
            Cleaning(Table(spec, pipeline.spark)).step()

        report = restore(spec, kept, spark=pipeline.spark)

        assert (report.savepoint, report.undone_deletes) == (kept, ())
        assert report.dropped >= 6
        assert newest(pipeline, spec) == (1 + 2, 2.0)
        pipeline.run(spec)
        assert newest(pipeline, spec) == (sum(range(first + 3)), first + 2.0)
        assert is_valid(pipeline, spec)


@pytest.mark.parametrize("ended_before", ["a batch", "a compaction"])
def test_a_commit_that_began_before_the_last_and_ended_after_it_is_kept(
    pipeline: Pipeline, ended_before: str
) -> None:
    """The last one is of another stream or a compaction; the restore loses nothing of the savepoint."""
    deliver(pipeline, 1)
    spec = pipeline.spec()
    pipeline.run(spec)
    gate = pipeline.folder / "gate"
    event = pipeline.spark.createDataFrame([("N1", 2, 2, "slow")], "k string, at bigint, x int, note string")
    slow = waiting(event.coalesce(1), gate)  # in one task, since the session runs two
    writing = Background(lambda: Splice(spec, pipeline.spark).write(slow, "a"))
    wait_for(lambda: pipeline.timeline(spec).pending())
    if ended_before == "a batch":
        deliver(pipeline, 3)
        pipeline.run(spec, streams=["b"])
    else:
        Compaction(Table(spec, pipeline.spark)).step()
    assert pipeline.timeline(spec).pending()
    gate.touch()
    writing.result()
    before = newest(pipeline, spec)
    assert before[0] == 2
    kept = savepoint(spec, spark=pipeline.spark)
    assert savepoint(spec, spark=pipeline.spark) == kept
    for number in (4, 5):
        deliver(pipeline, number)
        pipeline.run(spec)
    Compaction(Table(spec, pipeline.spark)).step()

    restore(spec, kept, spark=pipeline.spark)

    assert newest(pipeline, spec) == before


def test_a_restore_in_the_middle_of_a_run(pipeline: Pipeline) -> None:
    """Running streams make way, read again what was dropped, and go on."""
    deliver(pipeline, 1)
    spec = pipeline.spec()
    stop = threading.Event()
    running = Background(lambda: pipeline.endless(spec, stop=stop))
    services = Background(lambda: run_services(spec, spark=pipeline.spark, stop=stop))
    wait_for(lambda: len(pipeline.timeline(spec).commits) == 2)
    kept = savepoint(spec, spark=pipeline.spark)
    deliver(pipeline, 2, 3)
    wait_for(lambda: len(pipeline.timeline(spec).commits) == 6)
    deliver(pipeline, 4)

    restore(spec, kept, spark=pipeline.spark)
    assert pipeline.table(spec).restore_mark.found() is None
    wait_for(lambda: len(pipeline.timeline(spec).commits) == 8)
    deliver(pipeline, 5)
    wait_for(lambda: len(pipeline.timeline(spec).commits) == 10)
    stop.set()

    assert [stream.skipped for stream in running.result().streams] == [0, 0]
    services.result()
    assert newest(pipeline, spec) == (5, 5.0)
    assert is_valid(pipeline, spec)


def test_streams_that_a_savepoint_does_not_know_read_all_again(pipeline: Pipeline) -> None:
    """A stream that began after the savepoint begins again."""
    deliver(pipeline, 1)
    spec = pipeline.spec()
    pipeline.run(spec, streams=["a"])
    kept = savepoint(spec, spark=pipeline.spark)
    pipeline.run(spec)

    restore(spec, kept, spark=pipeline.spark)

    assert newest(pipeline, spec) == (1, None)
    pipeline.run(spec)
    assert newest(pipeline, spec) == (1, 1.0)
    assert is_valid(pipeline, spec)


def test_a_restore_with_a_spec_that_lacks_a_stream_of_the_table_is_refused(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """Its checkpoint would stay where it is, and the dropped events would never be read again."""
    deliver(pipeline, 1)
    spec = pipeline.spec()
    pipeline.run(spec)
    only_a = pipeline.spec(ONLY_A, name="a.toml")
    kept = savepoint(only_a, spark=pipeline.spark)
    assert f"the savepoint {kept} has no checkpoint of b, which the spec does not name" in caplog.text
    caplog.clear()
    assert savepoint(spec, spark=pipeline.spark) == kept
    assert "no checkpoint" not in caplog.text
    deliver(pipeline, 2)
    pipeline.run(spec)

    with pytest.raises(ConfigError, match=r"batches of b, which .*a\.toml does not name") as refused:
        restore(only_a, kept, spark=pipeline.spark)

    assert "Nothing was changed; restore with a spec that names all streams" in str(refused.value)
    assert newest(pipeline, spec) == (2, 2.0)
    restore(spec, kept, spark=pipeline.spark)
    assert newest(pipeline, spec) == (1, 1.0)
    assert [stream.batches for stream in pipeline.run(spec).streams] == [1, 1]
    assert newest(pipeline, spec) == (2, 2.0)
    assert is_valid(pipeline, spec)


def test_a_restore_that_would_add_events_twice_is_refused(pipeline: Pipeline) -> None:
    """The savepoint has rows of the stream with the sum, but was made without its checkpoint."""
    deliver(pipeline, 1)
    spec = pipeline.spec(SUMMED)
    pipeline.run(spec)
    kept = savepoint(pipeline.spec(ONLY_B, name="b.toml"), spark=pipeline.spark)
    deliver(pipeline, 2)
    pipeline.run(spec)

    with pytest.raises(ConfigError, match=r"no checkpoint of it.* x would count events twice"):
        restore(spec, kept, spark=pipeline.spark)

    deliver(pipeline, 3)
    pipeline.run(spec)
    assert newest(pipeline, spec) == (1 + 2 + 3, 3.0)
    assert is_valid(pipeline, spec)


def test_a_restore_takes_back_sums_of_direct_writes(pipeline: Pipeline) -> None:
    """They have no checkpoint: the caller writes the later ones again."""
    spec = pipeline.spec(SUMMED)
    schema = "k string, at bigint, x int, note string"
    writer = Splice(spec, pipeline.spark)
    for number in (1, 2):
        writer.write(
            pipeline.spark.createDataFrame([("N1", number, number, "")], schema), "a", batch_id=number
        )
        if number == 1:
            kept = savepoint(spec, spark=pipeline.spark)

    assert restore(spec, kept, spark=pipeline.spark).dropped == 1

    assert newest(pipeline, spec) == (1, None)


def test_bad_rows_of_a_batch_that_stays_stay_in_quarantine(pipeline: Pipeline) -> None:
    """The table has the batch and the checkpoint does not: it is skipped, so its bad rows come only once."""
    pipeline.deliver("b", {"k": "N1", "seen": NOON, "y": 1}, {"k": "N2", "seen": NOON, "y": "bad"})
    spec = pipeline.spec()
    pipeline.run(spec)
    pipeline.forget_last_batch("b")
    kept = savepoint(spec, spark=pipeline.spark)
    deliver(pipeline, 2)
    pipeline.run(spec)
    quarantined = pipeline.quarantined("b")
    assert len(quarantined) == 1

    restore(spec, kept, spark=pipeline.spark)
    pipeline.run(spec)

    assert pipeline.quarantined("b") == quarantined
    assert is_valid(pipeline, spec)


STEPS = {
    "before Hudi's restore": (savepoints._Savepoints, "client"),
    "before the first checkpoint": (HadoopFiles, "delete"),
    "in the middle of the first checkpoint": (HadoopFiles, "copy"),
    "before the mark is removed": (RestoreMark, "remove"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_restore_that_was_cut_off_is_finished_by_running_it_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Until then streams, services, writes and other restores are refused with a sentence."""
    deliver(pipeline, 1)
    spec = pipeline.spec()
    pipeline.run(spec)
    kept = savepoint(spec, spark=pipeline.spark)
    deliver(pipeline, 2)
    pipeline.run(spec)

    class CutOff(BaseException):
        """What a kill is to the steps that follow."""

    def cut_off(*_: object) -> None:
        raise CutOff

    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], cut_off)
        with pytest.raises(CutOff):
            restore(spec, kept, spark=pipeline.spark)

    with pytest.raises(ConfigError, match=rf"also names b, .*finish it: .* restore {spec.path} {kept}\."):
        restore(pipeline.spec(ONLY_A, name="a.toml"), kept, spark=pipeline.spark)
    before = pipeline.timeline(spec).instants()
    frame = pipeline.spark.createDataFrame([("N1", 9, 9, "")], "k string, at bigint, x int, note string")
    for refused in (
        lambda: pipeline.run(spec),
        lambda: run_services(spec, once=True, spark=pipeline.spark),
        lambda: Splice(spec, pipeline.spark).write(frame, "a"),
        lambda: savepoint(pipeline.spec(ONLY_A, name="a.toml"), spark=pipeline.spark),
    ):
        with pytest.raises(UnfinishedRestoreError, match=f"asynclock pipeline restore {spec.path} {kept}"):
            refused()
    assert pipeline.timeline(spec).instants() == before

    restore(spec, kept, spark=pipeline.spark)
    assert newest(pipeline, spec) == (1, 1.0)
    pipeline.run(spec)
    assert newest(pipeline, spec) == (2, 2.0)
    assert is_valid(pipeline, spec)


def test_a_restore_drops_later_savepoints_and_names_the_deletes_it_undoes(pipeline: Pipeline) -> None:
    """What a delete erased comes back with a restore, so the report names it."""
    deliver(pipeline, 1)
    spec = pipeline.spec()
    pipeline.run(spec)
    first = savepoint(spec, spark=pipeline.spark)
    assert savepoint(spec, spark=pipeline.spark) == first
    deleted = Splice(spec, pipeline.spark).delete([{"k": "N1"}])
    second = savepoint(spec, spark=pipeline.spark)
    deliver(pipeline, 2)
    pipeline.run(spec)

    report = restore(spec, first, spark=pipeline.spark)

    assert report.undone_deletes == (deleted.delete_id,)
    assert pipeline.timeline(spec).savepoints() == [first]
    with pytest.raises(ConfigError, match=f"it is none; there are {first}"):
        restore(spec, second, spark=pipeline.spark)
    pipeline.run(spec)
    assert is_valid(pipeline, spec)


def test_only_a_savepoint_is_restored(pipeline: Pipeline) -> None:
    """An instant that is no savepoint is refused, and nothing is changed."""
    spec = pipeline.spec()
    with pytest.raises(ConfigError, match="nothing is committed to the table yet"):
        savepoint(spec, spark=pipeline.spark)
    deliver(pipeline, 1)
    pipeline.run(spec)
    instant = pipeline.timeline(spec).commits[-1].requested
    before = {name for name in pipeline.everything() if not name.startswith("locks/")}

    with pytest.raises(
        ConfigError, match=r"no savepoint of the table .*: it is none; there is none\. Nothing"
    ):
        restore(spec, instant, spark=pipeline.spark)

    assert {name for name in pipeline.everything() if not name.startswith("locks/")} == before


def test_a_deleted_savepoint_lets_cleaning_go_on(pipeline: Pipeline) -> None:
    """A savepoint keeps the files below it; once it is deleted they are cleaned."""
    deliver(pipeline, 1)
    spec = pipeline.spec()
    pipeline.run(spec)
    kept = savepoint(spec, spark=pipeline.spark)
    files = sorted((pipeline.folder / "table").glob(".0*.log*"))

    def go_on(*numbers: int) -> list[Path]:
        for number in numbers:
            deliver(pipeline, number)
            pipeline.run(spec)
            Compaction(Table(spec, pipeline.spark)).step()
            Cleaning(Table(spec, pipeline.spark)).step()
        return [path for path in files if path.exists()]

    assert files
    assert go_on(2, 3, 4) == files
    delete_savepoint(spec, kept, spark=pipeline.spark)
    assert go_on(5, 6) == []
    assert not (pipeline.folder / ".asynclock" / "table" / "savepoints" / kept).exists()
    assert is_valid(pipeline, spec)


def test_archiving_is_not_tried_where_a_savepoint_stops_it() -> None:
    """Only commits before the oldest savepoint count as a reason to archive."""

    def instant(requested: str, action: str) -> Instant:
        return Instant(requested=requested, completed=requested + "5", action=action, state="COMPLETED")

    commits = [instant(str(number), DELTA_COMMIT) for number in range(1, 5)]

    assert unkept(commits) == commits
    assert unkept([*commits, instant("3", SAVEPOINT), instant("4", SAVEPOINT)]) == commits[:2]
    assert unkept([*commits, instant("1", SAVEPOINT)]) == []


def test_the_commands_keep_and_restore(pipeline: Pipeline) -> None:
    """``asynclock pipeline savepoint`` prints the instant that ``restore`` takes."""
    deliver(pipeline, 1)
    spec = pipeline.spec()
    pipeline.run(spec)

    kept = command_here("savepoint", str(spec.path))
    assert kept.returncode == 0, kept.stderr
    deliver(pipeline, 2)
    pipeline.run(spec)
    back = command_here("restore", str(spec.path), kept.stdout.strip())

    assert back.stdout == f"2 commits after {kept.stdout.strip()} dropped\n", back.stderr
    assert newest(pipeline, spec) == (1, 1.0)
    none = command_here("restore", str(spec.path), "20240101000000000")
    assert none.returncode == 2
    assert "no savepoint of the table" in none.stderr


def test_a_timeline_read_during_a_restore_forgets_what_it_drops(pipeline: Pipeline) -> None:
    """A driver that starts meanwhile sees commits that are rolled back a moment later."""
    deliver(pipeline, 1)
    spec = pipeline.spec()
    pipeline.run(spec)
    kept = savepoint(spec, spark=pipeline.spark)
    deliver(pipeline, 2)
    pipeline.run(spec)
    dropped = pipeline.timeline(spec).commits[-1]
    early = pipeline.table(spec).commits
    # As a restore looks that has begun and dropped nothing yet.
    folder = pipeline.folder / "table" / ".hoodie" / "timeline"
    begun = folder / "20990101000000000.restore.requested"
    begun.write_bytes(b"")
    early.refresh()
    assert early.has(dropped.stream, dropped.query_id, dropped.batch_id)
    begun.unlink()

    restore(spec, kept, spark=pipeline.spark)
    [done] = folder.glob("*_*.restore")
    done.rename(done.with_name(f"20990101000000000_{done.name.partition('_')[2]}"))
    for part in folder.glob("*.restore.*"):
        part.rename(part.with_name(f"20990101000000000.restore.{part.name.rpartition('.')[2]}"))
    early.refresh()

    assert not early.has(dropped.stream, dropped.query_id, dropped.batch_id)
