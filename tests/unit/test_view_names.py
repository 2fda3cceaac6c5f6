"""The names of the view that commits carry, and the specs that would change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark.hudi.instants import BatchCommit
from asynclock.spark.hudi.view_names import carried_names, check_names
from asynclock.spark.spec.load import load_spec
from tests.unit.specs import TEN_LINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLAIN = TEN_LINES.replace('dest = "string", delay', 'dest = "string", late')
"""No name is shared."""
STORED = ["tailnum", "departures__ts", "departures__origin", "departures__delay"]
CARRIED = {"departures__ts": "departed_at", "arrivals__ts": "arrived_at"}


def test_a_commit_carries_what_the_stored_names_do_not_tell(write_spec: Callable[[str], Path]) -> None:
    """A plain name is the end of the stored one; ordering columns, shared and renamed ones are carried."""
    plain = load_spec(write_spec(PLAIN))
    shared = load_spec(write_spec(TEN_LINES + 'as = { dest = "landed_in" }\n'))

    assert carried_names(plain, {}) == CARRIED
    assert carried_names(plain, {"weather__ts": "measured_at"}) == CARRIED | {"weather__ts": "measured_at"}
    assert carried_names(shared, {}) == CARRIED | {
        "departures__delay": "departures__delay",
        "arrivals__delay": "arrivals__delay",
        "arrivals__dest": "landed_in",
    }


def test_commits_give_the_names_back(write_spec: Callable[[str], Path]) -> None:
    """What is written into the metadata of a commit is read from it."""
    view = carried_names(load_spec(write_spec(TEN_LINES)), {})
    commit = BatchCommit(
        requested="1", completed="2", stream="a", query_id="q", batch_id=0, fencing_token=7, owner="o",
        buckets=4, key=("k",), table_id="t", locks="file:///locks", view=view,
    )  # fmt: skip

    assert BatchCommit.parse("1", "2", commit.metadata()) == commit


def test_a_new_stream_with_a_known_name_is_refused(write_spec: Callable[[str], Path]) -> None:
    """The error has the line of the stream, both names, the cause and what keeps the name."""
    spec = load_spec(write_spec(TEN_LINES))

    with pytest.raises(SpecError) as caught:
        check_names(spec, STORED, {"departures__ts": "departed_at"})

    error = caught.value
    assert (error.key, error.line, error.value) == ("streams.departures.as.delay", 3, "departures__delay")
    assert "calls the column departures__delay 'delay'" in str(error)
    assert "because arrivals has a column 'delay' as well" in str(error)
    assert 'keep the name with as = { delay = "delay" } in [streams.departures]' in str(error)


def test_the_remedy_of_the_error_keeps_the_name(write_spec: Callable[[str], Path]) -> None:
    """With it the spec is accepted, and the new stream has the stream before its name."""
    text = TEN_LINES.replace("[streams.arrivals]", 'as = { delay = "delay" }\n[streams.arrivals]')
    spec = load_spec(write_spec(text))

    check_names(spec, STORED, {"departures__ts": "departed_at"})

    assert spec.view_names()["departures__delay"] == "delay"
    assert spec.view_names()["arrivals__delay"] == "arrivals__delay"


@pytest.mark.parametrize(
    ("old", "new", "key", "before"),
    [
        ("departed_at", "left_at", "streams.departures.as.left_at", "'departed_at'"),
        (
            "[streams.arrivals]",
            'as = { origin = "place" }\n[streams.arrivals]',
            "streams.departures.as.origin",
            "'origin'",
        ),
    ],
)
def test_a_renamed_column_is_refused(
    write_spec: Callable[[str], Path], old: str, new: str, key: str, before: str
) -> None:
    """Another ordering column, or a new name by as."""
    spec = load_spec(write_spec(PLAIN.replace(old, new)))

    with pytest.raises(SpecError, match=before) as caught:
        check_names(spec, STORED, {"departures__ts": "departed_at"})

    assert caught.value.key == key


def test_a_stream_that_goes_does_not_rename_the_other(write_spec: Callable[[str], Path]) -> None:
    """Without the second stream the name would be plain again: the first keeps the one it has had."""
    text = TEN_LINES[: TEN_LINES.index("[streams.arrivals]")]
    known = {"departures__ts": "departed_at", "departures__delay": "departures__delay"}

    with pytest.raises(SpecError, match="with this spec it would be 'delay'"):
        check_names(load_spec(write_spec(text)), STORED, known)


def test_columns_that_the_table_does_not_have_yet_may_have_any_name(
    write_spec: Callable[[str], Path],
) -> None:
    """A name is bound by the commit that first carries it."""
    check_names(load_spec(write_spec(TEN_LINES)), ["tailnum", "departures__origin"], {})
