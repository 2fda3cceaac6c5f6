"""What a power loss or a bad copy leaves: files that are cut, of the table, and empty, of a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.errors import CutFilesError
from asynclock.spark.hudi.table import Table
from asynclock.spark.services.work import Compaction
from tests.spark.pipeline_kit import Kept, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Kept:
    """A table of two batches."""
    made = Pipeline(tmp_path_factory.mktemp("kept") / "cut", spark)
    made.deliver("a", {"k": "N1", "at": 1, "x": 1}, {"k": "N2", "at": 1, "x": 2})
    made.deliver("a", {"k": "N1", "at": 2, "x": 3})
    made.deliver("b", {"k": "N1", "seen": "2024-05-01T12:00:00Z", "y": 0.5})
    made.run(made.spec())
    return Kept(made)


@pytest.fixture
def pipeline(kept: Kept) -> Pipeline:
    """The pipeline of that table."""
    return kept.as_it_was()


@pytest.mark.parametrize("left", [0.0, 0.5, 0.99])
def test_a_log_file_that_was_cut_is_named(pipeline: Pipeline, spark: SparkSession, left: float) -> None:
    """Hudi passes over what is missing; validation and services say which file, and write nothing."""
    spec = pipeline.spec()
    assert validate(spec, spark).cut_files == ()
    log = max(pipeline.folder.glob("table/.*.log.*"), key=lambda path: path.stat().st_size)
    log.write_bytes(log.read_bytes()[: int(log.stat().st_size * left)])
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)

    report = validate(spec, spark)

    assert not report.ok
    (named,) = report.cut_files
    assert named.startswith(log.name)
    with pytest.raises(CutFilesError, match=r"1 files of the table .* are cut") as refused:
        Compaction(Table(spec, spark)).step()
    assert refused.value.files == report.cut_files
    assert not [one for one in pipeline.timeline(spec).instants() if one.action == "compaction"]


@pytest.mark.parametrize("content", [b"", bytes(200)])
@pytest.mark.parametrize(
    ("folder", "remedy"),
    [
        ("offsets", "Name a new checkpoint"),
        ("commits", "Delete that file"),
        ("sources/0", "Name a new checkpoint"),
    ],
)
def test_an_empty_file_of_a_checkpoint_is_named_with_the_way_out(
    pipeline: Pipeline, spark: SparkSession, folder: str, remedy: str, content: bytes
) -> None:
    """A run and a validation refuse it before anything is written; and the way out works."""
    spec = pipeline.spec()
    newest = max((pipeline.folder / "checkpoints/a" / folder).glob("[0-9]*"), key=lambda path: int(path.stem))
    newest.write_bytes(content)
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    before = pipeline.everything()

    for refused in (lambda: pipeline.run(spec), lambda: validate(spec, spark)):
        with pytest.raises(SpecError, match=f"{folder}/{newest.name} is empty or damaged.*{remedy}"):
            refused()
    assert pipeline.everything() == before

    if remedy == "Delete that file":
        newest.unlink()
    else:
        spec = pipeline.spec({'"checkpoints/a"': '"checkpoints/new"'})
    pipeline.deliver("a", {"k": "N3", "at": 1, "x": 9})
    pipeline.run(spec)
    assert validate(spec, spark).ok


def test_empty_metadata_of_a_checkpoint_is_named(pipeline: Pipeline) -> None:
    """Without the id of its query nobody knows which batches are committed."""
    path = pipeline.folder / "checkpoints/a/metadata"
    path.write_bytes(b"")
    path.with_name(".metadata.crc").unlink(missing_ok=True)

    with pytest.raises(SpecError, match=r"metadata is empty or damaged.*Name a new checkpoint"):
        pipeline.run(pipeline.spec())
