"""A table that is not there, or is another one, is no empty table."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from asynclock._cli.app import run_command
from asynclock.errors import ConfigError, SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.reader.changes import changes
from asynclock.spark.reader.snapshot import read
from asynclock.spark.reader.sql import register
from asynclock.spark.reader.table_history import timeline
from asynclock.spark.runs.run import run_services
from asynclock.spark.services.savepoints import savepoint
from asynclock.spark.services.zone import to_utc
from tests.spark.pipeline_kit import Kept, Pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


Look = "Callable[[Spec, SparkSession], object]"
LOOKS: dict[str, Look] = {
    "validate": validate,
    "read": read,
    "changes": changes,
    "timeline": timeline,
    "services": lambda spec, spark: run_services(spec, once=True, spark=spark),
    "savepoint": lambda spec, spark: savepoint(spec, spark=spark),
    "register": lambda spec, spark: register(spec, spark, name="gone"),
    "to-utc": lambda spec, spark: to_utc(spec, spark=spark),
}
OTHER = {'"table"': '"other"', '"locks"': '"other-locks"'}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Kept:
    """A pipeline whose table has one commit of stream a."""
    return Kept(written(tmp_path_factory.mktemp("presence") / "pipeline", spark))


def written(folder: Path, spark: SparkSession) -> Pipeline:
    """A pipeline whose table has one commit of stream a."""
    made = Pipeline(folder, spark)
    made.deliver("a", {"k": "N1", "at": 1, "x": 1})
    made.run(made.spec(), streams=["a"])
    return made


@pytest.fixture
def pipeline(kept: Kept) -> Pipeline:
    """The same pipeline for each test."""
    return kept.as_it_was()


def properties_of(pipeline: Pipeline) -> Path:
    """The table's properties."""
    return pipeline.folder / "table" / ".hoodie" / "hoodie.properties"


@pytest.mark.parametrize("look", LOOKS)
def test_a_table_whose_folder_is_gone_is_refused(pipeline: Pipeline, look: str) -> None:
    """The checkpoint of a stream names the table, though the other stream has never run."""
    spec = pipeline.spec()
    table_id = pipeline.timeline(spec).commits[0].table_id
    shutil.rmtree(pipeline.folder / "table")

    with pytest.raises(SpecError, match=f"{table_id} at .*there is no table with commits") as caught:
        LOOKS[look](spec, pipeline.spark)

    assert caught.value.key == "streams.a.checkpoint"
    assert not (pipeline.folder / "table").exists()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("emptied", [True, False])
def test_a_table_without_its_properties_is_refused(pipeline: Pipeline, look: str, *, emptied: bool) -> None:
    """Hudi does not see a table in it; the file is named."""
    spec = pipeline.spec()
    file = properties_of(pipeline)
    if emptied:
        file.write_text("")
    else:
        file.unlink()

    with pytest.raises(ConfigError, match=r"empty or gone.*Nothing was written") as caught:
        LOOKS[look](spec, pipeline.spark)

    assert file.name in str(caught.value)


def test_a_stream_does_not_write_to_a_table_without_its_properties(pipeline: Pipeline) -> None:
    """Under a new checkpoint as well, which knows of no table."""
    spec = pipeline.spec({"checkpoints/a": "checkpoints/new"})
    properties_of(pipeline).unlink()
    before = sorted((pipeline.folder / "table").rglob("*"))

    with pytest.raises(ConfigError, match="empty or gone"):
        pipeline.run(spec, streams=["a"])

    assert sorted((pipeline.folder / "table").rglob("*")) == before


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("damage", ["properties of something else", "no timeline"])
def test_a_table_whose_own_files_are_damaged_is_refused(pipeline: Pipeline, look: str, damage: str) -> None:
    """In one sentence, with what Hudi says of them."""
    spec = pipeline.spec()
    if damage == "no timeline":
        shutil.rmtree(pipeline.folder / "table" / ".hoodie" / "timeline")
    else:
        properties_of(pipeline).write_text("color = blue\n")

    with pytest.raises(ConfigError, match=r"Hudi cannot read its own files .*Nothing was written"):
        LOOKS[look](spec, pipeline.spark)


def test_a_stream_does_not_write_to_a_table_whose_own_files_are_damaged(pipeline: Pipeline) -> None:
    """Nor does its driver try again and again."""
    spec = pipeline.spec()
    properties_of(pipeline).write_text("color = blue\n")
    pipeline.deliver("a", {"k": "N2", "at": 1, "x": 1})

    with pytest.raises(ConfigError, match=r"Hudi cannot read its own files .*Nothing was written"):
        pipeline.run(spec, streams=["a"])


@pytest.mark.parametrize("look", LOOKS)
def test_another_path_under_the_same_checkpoints_is_refused(pipeline: Pipeline, look: str) -> None:
    """A mistyped path: what was read is in the other table."""
    wrong = pipeline.spec(OTHER, name="wrong.toml")

    with pytest.raises(SpecError, match="this checkpoint belongs to the table"):
        LOOKS[look](wrong, pipeline.spark)

    assert not (pipeline.folder / "other").exists()


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Pipeline:
    """A pipeline with another table in the place of its own, which no look changes."""
    pipeline = written(tmp_path_factory.mktemp("replaced"), spark)
    other = pipeline.spec(OTHER | {"checkpoints/a": "checkpoints/new"}, name="other.toml")
    pipeline.run(other, streams=["a"])
    shutil.rmtree(pipeline.folder / "table")
    (pipeline.folder / "other").rename(pipeline.folder / "table")
    return pipeline


@pytest.mark.parametrize("look", LOOKS)
def test_another_table_in_its_place_is_refused(replaced: Pipeline, look: str) -> None:
    """It has commits of asynclock, and of the same streams."""
    with pytest.raises(SpecError):
        LOOKS[look](replaced.spec(), replaced.spark)


def test_a_table_of_somebody_else_in_its_place_is_refused(pipeline: Pipeline) -> None:
    """One that no stream has written."""
    spec = pipeline.spec()
    shutil.rmtree(pipeline.folder / "table")
    pipeline.spark.range(3).selectExpr("id", "id AS _asynclock_key").write.format("hudi").options(
        **{
            "hoodie.table.name": "foreign",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "",
        }
    ).mode("overwrite").save(spec.table.path)

    with pytest.raises(SpecError, match="has no commit of a stream"):
        validate(spec, pipeline.spark)


def test_where_nothing_was_ever_written_there_is_no_table_yet(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Services wait for it, a validation finds nothing wrong, and both say so; a read cannot."""
    pipeline = Pipeline(tmp_path, spark)
    spec = pipeline.spec()

    for verb in (["services", "--once"], ["validate"], ["timeline"], ["report"]):
        code = run_command(["pipeline", verb[0], str(spec.path), *verb[1:]])

        said = capsys.readouterr()
        assert "there is no table yet" in said.out + said.err
        assert code == (0 if verb[0] in {"services", "validate"} else 2)
    with pytest.raises(SpecError, match="there is no table yet"):
        read(spec, spark)


def test_the_command_refuses_a_table_that_is_gone(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one sentence and the code of a spec that does not fit."""
    spec = pipeline.spec()
    shutil.rmtree(pipeline.folder / "table")

    for verb in ("services", "validate", "timeline", "report", "run"):
        once = ["--once"] if verb in {"services", "run"} else []
        assert run_command(["pipeline", verb, str(spec.path), *once]) == 2
        assert "there is no table with commits" in capsys.readouterr().err


def test_a_table_that_moved_with_its_spec_is_read(pipeline: Pipeline) -> None:
    """It is still the table of the checkpoint."""
    (pipeline.folder / "table").rename(pipeline.folder / "moved")
    moved = pipeline.spec({'"table"': '"moved"'})

    assert read(moved, pipeline.spark).count() == 1
    assert validate(moved, pipeline.spark).ok
