"""The locks of a table: where they are, and that one table has one place of them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from asynclock import sync
from asynclock.errors import SpecError
from asynclock.spark import hoodie
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run_services
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

BESIDE = {'url = "locks"\n': ""}
COW = {'key = ["k"]': 'key = ["k"]\ntype = "cow"', "compaction = { every_commits = 2 }\n": ""}
ELSEWHERE = {'url = "locks"': 'url = "elsewhere"'}


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    """Two streams over empty folders."""
    return Pipeline(tmp_path, spark)


def fed(pipeline: Pipeline, changes: Mapping[str, str]) -> Spec:
    """A table with one commit of stream a."""
    spec = pipeline.spec(changes)
    pipeline.deliver("a", {"k": "k1", "at": 1, "x": 1, "note": "n"})
    assert pipeline.run(spec, streams=["a"]).rows == 1
    return spec


def refusal(spec: Spec, spark: SparkSession) -> str:
    """The sentence with which writer and services refuse a spec; both say the same."""
    with pytest.raises(SpecError) as writer:
        Splice(spec, spark)
    with pytest.raises(SpecError) as services:
        run_services(spec, once=True, spark=spark)
    assert str(writer.value) == str(services.value)
    assert writer.value.key == "locks.url"
    return str(writer.value)


def test_locks_and_checkpoints_are_beside_the_table(pipeline: Pipeline) -> None:
    """Without a setting everything of a table is in its folder and in the hidden folder beside it."""
    spec = fed(
        pipeline, BESIDE | {'checkpoint = "checkpoints/a"\n': "", 'checkpoint = "checkpoints/b"\n': ""}
    )
    run_services(spec, once=True, spark=pipeline.spark)

    beside = pipeline.folder / ".asynclock" / "table"
    assert {path.name for path in pipeline.folder.iterdir()} == {"in", "spec.toml", "table", ".asynclock"}
    assert {path.name for path in beside.iterdir()} == {"locks", "checkpoints"}
    assert {str(path.relative_to(beside / "locks")) for path in (beside / "locks").rglob("*.json")} == {
        "service/cleaning.json",
        "service/compaction.json",
        "service/creation.json",
        "stream/a.json",
    }
    assert [commit.locks for commit in pipeline.timeline(spec).commits] == [beside.as_uri() + "/locks"]


def test_an_overwrite_of_the_table_does_not_free_its_locks(pipeline: Pipeline) -> None:
    """A lease outlives the content of the table, which an overwrite deletes with all that is inside."""
    spec = fed(pipeline, BESIDE)

    with spec.locks.connect() as client, client.lock("stream/a").hold() as lease:
        other = {
            hoodie.TABLE_NAME: "other",
            hoodie.DATASOURCE_WRITE_RECORDKEY_FIELD: "id",
            hoodie.METADATA_ENABLE: "false",
        }
        rows = pipeline.spark.range(3)
        rows.write.format("hudi").options(**other).mode("overwrite").save(spec.table.path)

        with spec.locks.connect() as another:
            assert another.lock("stream/a").try_acquire() is None
        lease.confirm()

    assert pipeline.spark.read.format("hudi").load(spec.table.path).count() == 3


@pytest.mark.parametrize("kind", [{}, COW], ids=["mor", "cow"])
def test_another_lock_url_is_refused_naming_both(pipeline: Pipeline, kind: dict[str, str]) -> None:
    """A spec whose locks are elsewhere is refused, and nothing is created there."""
    before = fed(pipeline, kind).locks.url
    spec = pipeline.spec(kind | ELSEWHERE)
    files = pipeline.everything()

    reason = refusal(spec, pipeline.spark)

    assert before in reason
    assert spec.locks.url in reason
    assert f'[locks] url = "{before}"' in reason
    assert pipeline.everything() == files


def test_a_writer_is_refused_once_the_table_has_moved_on(pipeline: Pipeline) -> None:
    """A driver that still runs under the old locks writes nothing after the first commit under the new."""
    old = Splice(fed(pipeline, {}), pipeline.spark)
    moved = pipeline.spec({'url = "locks"': 'url = "elsewhere"\nmoved_from = "locks"'}, name="moved.toml")
    pipeline.deliver("a", {"k": "k2", "at": 2, "x": 2, "note": "n"})
    assert pipeline.run(moved, streams=["a"]).rows == 1

    frame = pipeline.spark.createDataFrame([("k3", 3, 3, "n")], "k string, at bigint, x int, note string")
    with pytest.raises(SpecError, match="/elsewhere, this spec has them at"):
        old.write(frame, "a")

    assert read(moved, pipeline.spark).count() == 2
    assert refusal(pipeline.spec(), pipeline.spark)
    assert pipeline.run(pipeline.spec(ELSEWHERE), streams=["a"]).rows == 0  # moved_from is needed once


def test_a_moved_table_goes_on_under_the_same_locks(pipeline: Pipeline) -> None:
    """Where the locks know the table there is none any more, so this is no copy of it."""
    fed(pipeline, {})
    (pipeline.folder / "table").rename(pipeline.folder / "moved")
    spec = pipeline.spec({'path = "table"': 'path = "moved"'})
    pipeline.deliver("a", {"k": "k2", "at": 2, "x": 2, "note": "n"})

    assert pipeline.run(spec, streams=["a"]).rows == 1
    run_services(spec, once=True, spark=pipeline.spark)


def test_a_moved_table_has_locks_at_its_new_place_when_the_spec_says_so(pipeline: Pipeline) -> None:
    """A moved table keeps its id; the locks beside it are others, so somebody has to say that it moved."""
    before = fed(pipeline, BESIDE)
    (pipeline.folder / "table").rename(pipeline.folder / "moved")
    place = BESIDE | {'path = "table"': 'path = "moved"'}
    assert before.locks.url in refusal(pipeline.spec(place), pipeline.spark)

    said = {'url = "locks"': f'moved_from = "{before.locks.url}"', 'path = "table"': 'path = "moved"'}
    spec = pipeline.spec(said)
    pipeline.deliver("a", {"k": "k2", "at": 2, "x": 2, "note": "n"})

    assert pipeline.run(spec, streams=["a"]).rows == 1
    assert pipeline.run(pipeline.spec(place), streams=["a"]).rows == 0
    assert len({commit.table_id for commit in pipeline.timeline(spec).commits}) == 1


@pytest.mark.parametrize("copied", [False, True])
def test_two_tables_never_share_their_locks(pipeline: Pipeline, copied: bool) -> None:  # noqa: FBT001  a case
    """The locks of one table are refused to a new table and to a copy, and nothing is created."""
    first = fed(pipeline, {})
    if copied:
        shutil.copytree(pipeline.folder / "table", pipeline.folder / "second")
    spec = pipeline.spec({'path = "table"': 'path = "second"'})
    files = pipeline.everything()

    reason = refusal(spec, pipeline.spark)

    (commit,) = pipeline.timeline(first).commits
    assert f"belong to the table {commit.table_id} at {first.table.path}" in reason
    assert f"at {spec.table.path}: two tables never share" in reason
    assert pipeline.everything() == files


def test_locks_that_do_not_know_the_table_are_refused(pipeline: Pipeline) -> None:
    """One URL may mean two places on two machines: without the mark of the table it is another place."""
    spec = fed(pipeline, {})
    shutil.rmtree(pipeline.folder / "locks")
    files = pipeline.everything()

    reason = refusal(spec, pipeline.spark)

    assert "on this machine or endpoint the URL means another place" in reason
    assert pipeline.everything() == files
    said = pipeline.spec({'url = "locks"': 'url = "locks"\nmoved_from = "locks"'})
    pipeline.deliver("a", {"k": "k2", "at": 2, "x": 2, "note": "n"})
    assert pipeline.run(said, streams=["a"]).rows == 1


def test_a_new_table_in_the_place_of_an_old_one_has_a_new_id(pipeline: Pipeline) -> None:
    """The locks outlive a table that somebody deleted; what was read into it counts for no other table."""
    spec = fed(pipeline, {})
    (old,) = pipeline.timeline(spec).commits
    shutil.rmtree(pipeline.folder / "table")
    shutil.rmtree(pipeline.folder / "checkpoints")

    assert pipeline.run(spec, streams=["a"]).rows == 1

    (new,) = pipeline.timeline(spec).commits
    assert new.table_id != old.table_id
    with spec.locks.connect() as client:
        mark = sync.FencedObject(client, "table").read()
    assert mark is not None
    assert json.loads(mark.body) == {"table_id": new.table_id, "path": spec.table.path}
