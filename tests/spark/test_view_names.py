"""Column names that several streams use, and names of the view that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from asynclock.errors import SpecError
from asynclock.spark.reader.snapshot import read
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec

BOTH_X = {", y = ": ", x = "}
ROW_A = {"k": "k1", "at": 1, "x": 1, "note": "n"}
ROW_B = "k,seen,x\nk1,2024-01-01,2.5\n"
WITHOUT_B = "[streams.b]"


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    """Two streams over empty folders."""
    return Pipeline(tmp_path, spark)


def only_a(pipeline: Pipeline) -> Spec:
    """A table that stream a alone has written."""
    text = pipeline.spec().path.read_text()
    path = pipeline.folder / "only-a.toml"
    path.write_text(text[: text.index(WITHOUT_B)])
    spec = load_spec(path)
    pipeline.deliver("a", ROW_A)
    assert pipeline.run(spec).rows == 1
    return spec


def view(pipeline: Pipeline, spec: Spec) -> list[dict[str, Any]]:
    """The rows of the view, as dictionaries."""
    return [row.asDict() for row in read(spec, pipeline.spark).collect()]


def test_streams_may_use_the_same_column_name(pipeline: Pipeline) -> None:
    """In the view the name of two streams has the stream before it, and one of a single stream is plain."""
    text = {**BOTH_X, "deleted = ": "also = ", "double": "int", '"boolean"': '"string"'}
    spec = pipeline.spec(text | {"seen": "at", "timestamp": "bigint"})
    pipeline.deliver("a", ROW_A)
    pipeline.place("b", "csv", "k,at,x,also\nk1,7,2,more\n")
    pipeline.run(spec)

    assert view(pipeline, spec) == [
        {"k": "k1", "a__at": 1, "a__x": 1, "note": "n", "b__at": 7, "b__x": 2, "also": "more"}
    ]


def test_as_renames_in_the_view_alone(pipeline: Pipeline) -> None:
    """A renamed column is read and stored under its name in the files."""
    spec = pipeline.spec({**BOTH_X, ', deleted = "boolean" }': ' }\nas = { x = "size" }'})
    pipeline.deliver("a", ROW_A)
    pipeline.place("b", "csv", ROW_B)
    pipeline.run(spec)

    (row,) = view(pipeline, spec)
    assert (row["a__x"], row["size"]) == (1, 2.5)
    stored = pipeline.spark.read.format("hudi").options(
        **{"hoodie.write.record.merge.custom.implementation.classes": "io.asynclock.hudi.SpliceMerger"}
    )
    assert "b__x" in stored.load(spec.table.path).columns


def test_a_new_stream_does_not_rename_a_column_of_the_view(pipeline: Pipeline) -> None:
    """Writers and readers refuse it and say how to keep the name, and then it is kept."""
    only_a(pipeline)
    renaming = {**BOTH_X, ', deleted = "boolean"': ""}
    spec = pipeline.spec(renaming)
    pipeline.place("b", "csv", ROW_B)
    files = pipeline.everything()

    for refused in (lambda: Splice(spec, pipeline.spark), lambda: read(spec, pipeline.spark)):
        with pytest.raises(SpecError) as caught:
            refused()
        assert caught.value.key == "streams.a.as.x"
        assert "calls the column a__x 'x', and with this spec it would be 'a__x'" in str(caught.value)
        assert "because b has a column 'x' as well" in str(caught.value)
        assert 'as = { x = "x" } in [streams.a]' in str(caught.value)
    assert pipeline.everything() == files

    kept = pipeline.spec({**renaming, 'note = "string" }': 'note = "string" }\nas = { x = "x" }'})
    pipeline.run(kept)
    (row,) = view(pipeline, kept)
    assert (row["x"], row["b__x"]) == (1, 2.5)
    with pytest.raises(SpecError, match="calls the column a__x 'x'"):
        Splice(spec, pipeline.spark)


def test_the_name_of_an_ordering_column_stays(pipeline: Pipeline) -> None:
    """It is stored as ts whatever it is called, so only the commits know its name in the view."""
    only_a(pipeline)
    spec = pipeline.spec({' at = "bigint"': ' since = "bigint"', 'ordering = "at"': 'ordering = "since"'})

    with pytest.raises(
        SpecError, match="calls the column a__ts 'at', and with this spec it would be 'since'"
    ):
        read(spec, pipeline.spark)


def test_an_older_driver_does_not_forget_the_names_of_a_newer_one(pipeline: Pipeline) -> None:
    """A commit carries the names of columns that its own spec does not have."""
    old = only_a(pipeline)
    renamed = pipeline.spec({', deleted = "boolean" }': ' }\nas = { y = "size" }'})
    pipeline.place("b", "csv", "k,seen,y\nk1,2024-01-01,2.5\n")
    pipeline.run(renamed)
    pipeline.deliver("a", {"k": "k2", "at": 2, "x": 2, "note": "n"})
    pipeline.run(old)

    newest = pipeline.timeline(old).newest()

    assert newest is not None
    assert newest.view == {"a__ts": "at", "b__ts": "seen", "b__y": "size"}
    with pytest.raises(SpecError, match="calls the column b__y 'size'"):
        Splice(pipeline.spec({', deleted = "boolean"': ""}), pipeline.spark)
