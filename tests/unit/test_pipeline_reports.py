"""What a run prints for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asynclock.spark.cli.pipeline_reports import print_batch, print_run
from asynclock.spark.results import BatchReport, RunReport, StreamReport, Wasted

if TYPE_CHECKING:
    import pytest


def test_a_run_prints_what_conflicts_have_wasted(capsys: pytest.CaptureFixture[str]) -> None:
    """Number and seconds, of the batch and of the stream; nothing where no write conflicted."""
    wasted = Wasted(conflicts=2, seconds=3.25)
    for lost in (Wasted(), wasted):
        batch = BatchReport(
            stream="a", batch_id=7, rows=5, skipped=False, seconds=1.5, reservation_seconds=0.0, wasted=lost
        )
        print_batch(batch)
    streams = tuple(StreamReport(stream=name, rows=5, batches=1, wasted=wasted) for name in ("a", "b"))
    report = RunReport(streams=streams, seconds=1.0)
    print_run(report)

    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "a: batch 7: 5 events read in 1.5 s",
        "a: batch 7: 5 events read in 1.5 s, 2 conflicts wasted 3.2 s",
    ]
    assert [line.endswith(", 2 conflicts wasted 3.2 s") for line in lines[2:]] == [True, True, False]
    assert report.wasted == Wasted(conflicts=4, seconds=6.5)
