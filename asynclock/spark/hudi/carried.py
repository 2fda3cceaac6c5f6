"""The commits of a table before it was copied into other buckets.

The copy has one commit of all rows. A file in its metadata lists the batches that the rows come from. So no
batch is written again, and a validation knows what it expects. The file moves with the table.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from asynclock.spark.hadoop import HadoopFiles

_FILE: Final = ".hoodie/asynclock-carried.jsonl"


def write_carried(files: HadoopFiles, path: str, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write what the table at a path carries: batches with ``metadata``, and others with ``statement``."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    files.write(f"{path}/{_FILE}", text)


def carried_lines(files: HadoopFiles, path: str) -> list[dict[str, Any]]:
    """Return what the table at a path carries; nothing unless it is the copy of a rebucket."""
    text = files.read(f"{path}/{_FILE}") or ""
    return [json.loads(line) for line in text.splitlines()]


def carried_commits(files: HadoopFiles, path: str) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield request, completion and metadata of the batches that the table at a path carries."""
    for line in carried_lines(files, path):
        if "metadata" in line:
            yield line["requested"], line["completed"], line["metadata"]
