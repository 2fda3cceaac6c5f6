"""Text from stores and files is escaped wherever a pipeline shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from asynclock import sync
from asynclock.spark.errors import BadRowsError
from asynclock.spark.writer.splice import Splice
from tests.spark.pipeline_kit import Background, Pipeline, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

HOSTILE = "\x1b]0;owned\x07\u202eroot"


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    """A pipeline of its own."""
    return Pipeline(tmp_path, spark)


def test_a_hostile_holder_is_escaped_in_the_log(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """The name of a reservation writes no escape sequences into the log of a stream that waits."""
    caplog.set_level("INFO", logger="asynclock")
    pipeline.deliver("a", {"k": "N1", "at": 1, "x": 1})
    spec = pipeline.spec()
    record = pipeline.folder / "locks" / "reservation" / "table.json"
    with sync.connect(spec.locks.url, settings=spec.locks.settings) as client:
        with client.lock("reservation/table").hold():
            found = json.loads(record.read_text())
        hostile = {"holder": HOSTILE, "expired": False, "nonce": "0" * 32, "leaseMs": 600_000}
        record.write_text(json.dumps(found | hostile))
        running = Background(lambda: pipeline.run(spec, streams=["a"]))
        wait_for(lambda: "stream a waits: the table is reserved, held by" in caplog.text)
        client.lock("reservation/table").break_lock(client.lock("reservation/table").status(), force=True)
    running.result()

    told = [each.getMessage() for each in caplog.records if each.name.startswith("asynclock")]
    assert any("owned" in text for text in told)
    assert all(text.isprintable() for text in told)


def test_a_hostile_query_id_is_escaped_in_the_log(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """The id of a query comes from a commit's metadata, which any writer of the table makes."""
    frame = pipeline.spark.createDataFrame([("N1", 1, 1, "n")], "k string, at bigint, x int, note string")
    splice = Splice(pipeline.spec(), pipeline.spark)

    for query in (HOSTILE, "other"):
        splice.write(frame, "a", batch_id=0, query_id=query)

    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert any("owned" in text for text in told)
    assert all(text.isprintable() for text in told)


def test_a_hostile_row_is_escaped_in_the_error(pipeline: Pipeline) -> None:
    """The sample of a bad row names its file and shows its record, printable and in part."""
    hidden = pipeline.deliver("a", {"k": f"N1{HOSTILE}", "at": "noon", "x": 1, "note": "n" * 5000})
    hidden.rename(hidden.with_name(f"1{HOSTILE[0]}owned.csv"))

    with pytest.raises(BadRowsError) as caught:
        pipeline.run(pipeline.spec(), streams=["a"])

    text = str(caught.value)
    assert text.isprintable()
    assert "owned" in text
    assert len(text) < 2000
