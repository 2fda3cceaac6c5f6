"""Views in a spec: joins of its streams, and the first rows of each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark.spec.joins import TopRows, ViewSpec
from asynclock.spark.spec.load import load_spec
from tests.unit.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VIEWS = """
[views.flown]
join = "inner"
streams = ["arrivals", "departures"]

[views.late]
streams = ["departures"]
top = { n = 3, by = "dep_delay", per = ["origin"] }
"""


def test_views_are_joins_of_all_streams_or_of_those_they_name(write_spec: Callable[[str], Path]) -> None:
    """A view without settings is the full join of all streams, in the order of the spec."""
    spec = load_spec(write_spec(SPEC + "\n[views.everything]\n" + VIEWS))

    assert spec.views == (
        ViewSpec(name="everything", streams=("departures", "arrivals")),
        ViewSpec(name="flown", streams=("arrivals", "departures"), join="inner"),
        ViewSpec(name="late", streams=("departures",), top=TopRows(n=3, by="dep_delay", per=("origin",))),
    )


@pytest.mark.parametrize(
    ("view", "key", "text"),
    [
        ('streams = ["departure"]', "views.v.streams", "did you mean 'departures'?"),
        ('streams = ["arrivals", "arrivals"]', "views.v.streams", "each once"),
        ("streams = []", "views.v.streams", "at least one stream"),
        ('join = "outer"', "views.v.join", "known here: full, inner, left, right"),
        ('top = { n = 0, by = "origin" }', "views.v.top.n", "1 or more"),
        ("top = { n = 1 }", "views.v.top.by", "missing; add by"),
        ('top = { n = 1, by = "delay" }', "views.v.top.by", "unknown name 'delay'"),
        ('streams = ["arrivals"]\ntop = { n = 1, by = "origin" }', "views.v.top.by", "unknown name 'origin'"),
        ('top = { n = 1, by = "origin", per = ["deleted"] }', "views.v.top.per", "unknown name 'deleted'"),
        ('of = ["arrivals"]', "views.v.of", "known here: join, streams, top"),
    ],
)  # fmt: skip
def test_a_view_that_cannot_be_is_refused(
    write_spec: Callable[[str], Path], view: str, key: str, text: str
) -> None:
    """Unknown streams, columns and joins are errors with the key and its line."""
    with pytest.raises(SpecError, match=text) as caught:
        load_spec(write_spec(f"{SPEC}\n[views.v]\n{view}\n"))

    assert caught.value.key == key
    assert caught.value.line > SPEC.count("\n")


@pytest.mark.parametrize(
    ("name", "text"), [("stored", "the table has this name"), ("Late", "a-z, 0-9 and _")]
)
def test_a_view_needs_a_name_of_its_own(write_spec: Callable[[str], Path], name: str, text: str) -> None:
    """Its name follows that of the table in the catalog, where ``_stored`` is taken."""
    with pytest.raises(SpecError, match=text):
        load_spec(write_spec(f"{SPEC}\n[views.{name}]\n"))


def test_a_plain_table_has_no_streams_to_join(write_spec: Callable[[str], Path]) -> None:
    """Its streams write the same columns."""
    text = SPEC.replace("[table]\n", '[table]\nkind = "plain"\n').replace("arrived_at", "departed_at")
    columns = 'origin = "string"\ndep_delay = "double"\ndeleted = "boolean"'
    text = text.replace('landed_in = "string"\ndeleted = "boolean"', columns)
    text = text.replace('dep_delay = "double" }', 'dep_delay = "double", deleted = "boolean" }')
    text = text.replace("compaction = { every_commits = 5 }\n", "")

    with pytest.raises(SpecError, match="a plain table has no columns of streams to join"):
        load_spec(write_spec(f"{text}\n[views.v]\n"))
