"""The pace of each stream, as samples: what its drivers wrote down of each commit."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from asynclock.spark.runs.lines import read_lines
from asynclock.spark.runs.totals import number
from tests.laboratory.soak.leaks import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from asynclock.spark.runs.lines import Line


def paces(folder: Path) -> Sequence[Sample]:
    """Return a sample for each commit that the drivers of one place recorded in ``folder``."""
    commits = defaultdict[str, list["Line"]](list)
    for line in read_lines(folder):
        if line.kind == "batch" and not line.fields.get("skipped") and number(line.fields, "rows"):
            commits[str(line.fields.get("stream"))].append(line)
    return [
        Sample(who=f"stream {stream} on {folder.name}", seconds=line.time, counts=_counts(line))
        for stream, lines in sorted(commits.items())
        for line in sorted(lines, key=lambda each: each.time)
    ]


def _counts(line: Line) -> dict[str, float]:
    seconds = number(line.fields, "seconds")
    return {
        "commit_seconds": seconds,
        "row_seconds": seconds / number(line.fields, "rows"),
        "lock_wait_seconds": number(line.fields, "commit_lock_wait_seconds"),
    }
