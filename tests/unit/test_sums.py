"""The refusal of batches that are not those of the table, or that a sum may have counted already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.errors import ConfigError, SpecError
from asynclock.spark.spec.load import load_spec
from asynclock.spark.writer.once import refuse_another_batch, refuse_another_query, refuse_unnumbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

TEXT = """\
table.path = "t"
table.key = ["k"]
[streams.a]
source = "in/departures/*.csv"
ordering = "at"
columns = { at = "bigint", x = "int" }
"""


@pytest.fixture
def spec(write_spec: Callable[[str], Path]) -> Spec:
    """A stream that adds up x."""
    return load_spec(write_spec(TEXT + 'merge = { x = "sum" }\n'))


@pytest.fixture
def other(write_spec: Callable[[str], Path]) -> Spec:
    """A stream without a sum, in which an event that comes again changes nothing."""
    return load_spec(write_spec(TEXT + 'merge = { x = "max" }\n'))


def test_a_batch_without_a_number_is_refused(spec: Spec, other: Spec) -> None:
    """Nothing would recognise it if it came again."""
    with pytest.raises(ConfigError, match="stream 'a' adds up x") as refused:
        refuse_unnumbered(spec.stream("a"), None)

    assert refused.value.setting == "batch_id"
    refuse_unnumbered(spec.stream("a"), 0)
    refuse_unnumbered(other.stream("a"), None)


def test_another_query_is_refused(spec: Spec, other: Spec) -> None:
    """Also one of before: it has not read what the newest one has."""
    for query in ("new", "first"):
        with pytest.raises(
            SpecError, match=f"has the batches of query last, and this is query {query},"
        ) as refused:
            refuse_another_query(spec, spec.stream("a"), ["first", "last"], query)
        assert refused.value.key == "streams.a.checkpoint"
    refuse_another_query(spec, spec.stream("a"), ["first", "last"], "last")
    refuse_another_query(spec, spec.stream("a"), [], "new")
    refuse_another_query(other, other.stream("a"), ["last"], "new")


@pytest.mark.parametrize(
    ("committed", "end"),
    [
        ('{"logOffset":3,"files":"f00d"}', '{"logOffset":3,"files":"beef"}'),
        ('{"logOffset":3,"files":"f00d"}', '{"logOffset":4,"files":"f00d"}'),
        ('{"topic":{"0":5,"1":7}}', '{"topic":{"0":5,"1":8}}'),
    ],
)
def test_a_batch_that_is_another_one_is_refused(spec: Spec, other: Spec, committed: str, end: str) -> None:
    """It ends at another place, or has other files."""
    with pytest.raises(SpecError, match="batch 3 of the checkpoint is not the batch 3 that the table has"):
        refuse_another_batch(spec, spec.stream("a"), 3, committed, end)
    with pytest.raises(SpecError, match=r"its events would be skipped.*or name a new checkpoint"):
        refuse_another_batch(other, other.stream("a"), 3, committed, end)
    for same in (committed, end):
        refuse_another_batch(spec, spec.stream("a"), 3, same, same)


@pytest.mark.parametrize("committed", [None, "", '{"logOffset":3}'])
def test_a_commit_that_does_not_say_its_files_passes(spec: Spec, committed: str | None) -> None:
    """As that of a direct write."""
    refuse_another_batch(spec, spec.stream("a"), 3, committed, '{"logOffset":3,"files":"f00d"}')
