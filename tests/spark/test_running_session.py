"""The session that a spec gets: the running one, and what is refused because that one cannot do it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import ConfigError, SpecError
from asynclock.spark.hudi.running import session_for, spread
from asynclock.spark.hudi.session import STATIC, _beside
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run
from asynclock.spark.source.files import frame_of
from asynclock.spark.source.reading import _missing_remote
from tests.spark.pipeline_kit import Pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    """An empty pipeline."""
    return Pipeline(tmp_path, spark)


def test_a_run_uses_the_running_spark_and_leaves_it_running(pipeline: Pipeline, spark: SparkSession) -> None:
    """Without a session of the caller, the one of this process serves: it is not stopped at the end."""
    spec = pipeline.spec({"[services]": '[spark]\nmaster = "spark://127.0.0.1:1"\n\n[services]'})
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 5})

    run(spec, streams=["a"], once=True)

    assert [row["x"] for row in read(spec, spark).collect()] == [5]


def test_the_settings_of_the_running_session_stay(pipeline: Pipeline, spark: SparkSession) -> None:
    """The pipeline has a session of its own in the running Spark, since it needs a time zone of its own."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 5})
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with session_for(pipeline.spec()) as found:
            assert found.sparkContext is spark.sparkContext
            assert found.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('path = "table"', 'path = "s3a://bucket/table"', ["table.path", "cannot read s3a://", "hadoop-aws"]),
        ('path = "table"', 'path = "abfss://box@a.dfs.core.windows.net/t"', ["hadoop-azure"]),
        ('"in/a/*"', '"gs://bucket/in/*"', ["streams.a.source", "cannot read gs://", "gcs-connector"]),
        ('"checkpoints/a"', '"s3a://bucket/a"', ["streams.a.checkpoint", "hadoop-aws"]),
    ],
)
def test_a_store_that_spark_cannot_read_is_named(
    pipeline: Pipeline, old: str, new: str, says: list[str]
) -> None:
    """The error has the key and the package to add; nothing is created."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 5})
    spec = pipeline.spec({old: new})
    before = pipeline.everything()

    with pytest.raises(SpecError) as caught:
        pipeline.run(spec)

    assert all(text in str(caught.value) for text in [*says, "nothing was written"])
    assert pipeline.everything() == before


def test_a_missing_lock_client_of_hudi_is_named(pipeline: Pipeline, spark: SparkSession) -> None:
    """Where the store can be read but Hudi cannot lock its commits, the bundle to add is named."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 5})
    spec = pipeline.spec({'path = "table"': 'path = "s3a://bucket/table"'})
    conf = spark._jsc.hadoopConfiguration()
    conf.set("fs.s3a.impl", "org.apache.hadoop.fs.LocalFileSystem")
    try:
        with pytest.raises(SpecError, match=r"S3StorageLockClient; .*org\.apache\.hudi:hudi-aws-bundle"):
            pipeline.run(spec)
    finally:
        conf.unset("fs.s3a.impl")


def test_a_running_spark_without_hudis_settings_is_refused(tmp_path: Path) -> None:
    """Its writes would fail late; one sentence names the setting."""
    (tmp_path / "1.csv").write_text("k,at\n")
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f"""[table]
path = "table"
key = ["k"]
[locks]
url = "locks"
[streams.a]
source = "{tmp_path}/*.csv"
format = "csv"
ordering = "at"
checkpoint = "checkpoint"
columns = {{ at = "bigint" }}
"""
    )
    code = f"""
from pyspark.sql import SparkSession
from asynclock.spark import load_spec, run, session_conf
builder = SparkSession.builder.master("local[1]").appName("mine")
for name, value in session_conf().items():
    if name != "spark.serializer":
        builder = builder.config(name, value)
builder.getOrCreate()
run(load_spec({str(spec)!r}), once=True)
"""

    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert "ConfigError: spark='mine': Spark runs without spark.serializer=" in ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"1.csv", "spec.toml"}


def test_under_spark_submit_its_settings_win() -> None:
    """Jars are loaded already, extensions are joined, and the rest fills what is not given."""
    submitted = {
        "spark.master": "yarn",
        "spark.jars": "a.jar",
        "spark.sql.extensions": "my.Extension",
        "spark.executor.memory": "3g",
    }

    found = _beside(submitted, {"spark.executor.memory": "1g", "spark.x": "y", "spark.jars": "b.jar"})

    assert found["spark.sql.extensions"] == f"{STATIC['spark.sql.extensions']},my.Extension"
    assert found["spark.serializer"] == STATIC["spark.serializer"]
    assert found["spark.x"] == "y"
    assert not {"spark.master", "spark.jars", "spark.executor.memory"} & found.keys()


def test_a_number_of_shuffle_partitions_that_was_given_is_kept(spark: SparkSession) -> None:
    """The tests' session was given one."""
    given = spark.conf.get("spark.sql.shuffle.partitions")

    spread(spark)

    assert spark.conf.get("spark.sql.shuffle.partitions") == given


@pytest.mark.parametrize("rows", [[], [("ä\"'\\\n\0", 1 << 62), (None, None)]])
def test_a_frame_of_a_few_rows_is_made_without_python(
    spark: SparkSession, rows: list[tuple[str | None, int | None]]
) -> None:
    """Texts, numbers and nulls arrive as they are, in their order."""
    frame = frame_of(spark, rows, "_a string, b bigint")

    assert frame.dtypes == [("_a", "string"), ("b", "bigint")]
    assert [tuple(row) for row in frame.collect()] == rows
    assert "Python" not in frame._jdf.queryExecution().toString()


def test_a_running_session_that_is_given_is_used_as_it_is(pipeline: Pipeline, spark: SparkSession) -> None:
    """The caller's session has the caller's settings."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 5})

    with session_for(pipeline.spec(), spark=spark) as found:
        assert found is spark


def test_a_secret_that_is_missing_is_named_before_spark_starts(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is named, and no lock is made."""
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 5})
    monkeypatch.setenv("SOME_SECRET", "s")
    spec = pipeline.spec(
        {'url = "locks"': 'url = "s3://bucket/locks"\naccess_key_id = "a"\n'
         'secret_access_key = { env = "SOME_SECRET" }'}
    )  # fmt: skip
    monkeypatch.delenv("SOME_SECRET")

    with pytest.raises(ConfigError, match="SOME_SECRET"):
        run(spec, once=True)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("empty/*.csv", None),
        ("empty", None),
        ("gone/*.csv", r"there is no .*/gone; create it \(in an object store, an empty object"),
        ("full/*.csv", "nothing in .*/full matches"),
        ("*/*/x.csv", "nothing in .* matches"),
    ],
)
def test_a_remote_source_without_files_is_waited_for_where_its_folder_is_empty(
    tmp_path: Path, spark: SparkSession, pattern: str, says: str | None
) -> None:
    """As with a local source: only a folder that exists and is empty may still get its first file."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.json").touch()
    path = spark._jvm.org.apache.hadoop.fs.Path(str(tmp_path / pattern))
    system = path.getFileSystem(spark._jsc.hadoopConfiguration())

    reason = _missing_remote(path, system)

    assert (reason is None) == (says is None)
    assert reason is None or re.search(says or "", reason)
