"""The view that the real ``hudi`` package reads from the files of a table.

``hudi_table.zip`` is a table that asynclock wrote with Spark: a batch of stream a, one of stream b, a
compaction, and a slow batch of stream a that began before the compaction and was complete after it.
"""

from __future__ import annotations

import datetime as dt
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hudi import HudiTableBuilder

from asynclock.errors import ConfigError
from asynclock.spark import arrow
from asynclock.spark.spec.load import load_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asynclock.spark.spec.model import Spec

SPEC: Final = """\
table.path = "table"
table.key = ["k"]
table.buckets = 1
[streams.a]
source = "a"
format = "csv"
ordering = "at"
columns = { at = "bigint", x = "int", note = "string" }
default = { note = "none" }
[streams.b]
source = "b"
format = "csv"
ordering = "seen"
columns = { seen = "timestamp", y = "double", deleted = "boolean" }
"""
SLOW: Final = r"20261126082221909"
COMPACTION: Final = r"20261126082223423"
SEEN: Final = dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)
COMPACTED: Final = [
    ("N1", 1, 1, "first", SEEN, 0.5),
    ("N2", 1, 1, "first", None, None),
    ("N4", None, None, "none", SEEN, 0.5),
]


def unpacked(folder: Path, *without: str) -> Spec:
    """The spec of the table, without the files of some instants, as before they began."""
    with zipfile.ZipFile(Path(__file__).with_name("hudi_table.zip")) as files:
        names = [name for name in files.namelist() if not any(map(name.count, without))]
        files.extractall(folder / "table", names)
    for stream in ("a", "b"):
        (folder / stream).mkdir()
    path = folder / "spec.toml"
    path.write_text(SPEC)
    return load_spec(path)


def rows(spec: Spec, options: dict[str, str] | None = None, **given: bool) -> list[tuple[Any, ...]]:
    """The rows of the view, in the order of their keys."""
    builder = HudiTableBuilder.from_base_uri(spec.table.path)
    for option in (options or {}).items():
        builder = builder.with_hudi_option(*option)
    return cells(arrow.view(spec, builder.build(), **given).to_pylist())


def cells(found: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The cells of rows."""
    return sorted(tuple(row.values()) for row in found)


def test_before_the_first_compaction_the_view_is_refused(tmp_path: Path) -> None:
    """Hudi's own read-optimized mode shows no row then."""
    spec = unpacked(tmp_path, SLOW, COMPACTION)

    with pytest.raises(ConfigError, match="1 of 1 file slices have events that are not compacted yet"):
        rows(spec)
    with pytest.raises(ConfigError, match="1 of 1 file slices were never compacted"):
        rows(spec, compacted=True)
    optimized = {"hoodie.read.use.read_optimized.mode": "true"}
    with pytest.raises(ConfigError, match="shows no row before the first compaction"):
        rows(spec, optimized)
    builder = HudiTableBuilder.from_base_uri(spec.table.path).with_hudi_option(*next(iter(optimized.items())))
    assert sum(batch.num_rows for batch in builder.build().read()) == 0


def test_after_a_compaction_the_rows_are_those_of_the_view(tmp_path: Path) -> None:
    """With its names, the values of the merge, and the default of a stream without an event."""
    spec = unpacked(tmp_path, SLOW)

    assert rows(spec) == rows(spec, compacted=True) == COMPACTED


def test_an_event_after_the_compaction_is_refused_or_left_out(tmp_path: Path) -> None:
    """It began before the compaction, and is in no base file."""
    spec = unpacked(tmp_path)

    with pytest.raises(ConfigError, match=re.escape("1 of 1 file slices have events that are not compacted")):
        rows(spec)
    assert rows(spec, compacted=True) == COMPACTED


def test_the_reader_that_hudi_advises_is_refused(tmp_path: Path) -> None:
    """It shows a key several times, or one stream of it."""
    spec = unpacked(tmp_path, SLOW, COMPACTION)

    with pytest.raises(ConfigError, match="merges without asynclock's merger"):
        rows(spec, {"hoodie.read.file.group.reader.version": "1"})
