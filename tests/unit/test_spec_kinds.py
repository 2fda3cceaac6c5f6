"""The kinds of a table: what goes together, and what is refused with its line and reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark.spec.load import load_spec
from tests.unit.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLAIN = """\
[table]
path = "table"
key = ["tailnum"]
kind = "plain"
type = "mor"
merge = "event_time"
concurrency = "occ"
markers = "direct"
buckets = 2

[locks]
url = "locks"

[services]
compaction = { every_commits = 5 }

[streams.departures]
source = "in/departures/*.csv"
format = "csv"
ordering = "departed_at"
checkpoint = "checkpoints/departures"
columns = { departed_at = "timestamp", origin = "string", ts = "int" }

[streams.revisions]
source = "in/arrivals/*.csv"
format = "csv"
ordering = "departed_at"
checkpoint = "checkpoints/revisions"
columns = { departed_at = "timestamp", origin = "string", ts = "int" }
"""

CLUSTERED = [
    ('"mor"', '"cow"'),
    ("buckets = 2", "buckets = 0"),
    ("compaction = { every_commits = 5 }", 'clustering = { every_commits = 4, sort_by = ["origin"] }'),
    (PLAIN[PLAIN.index("[streams.revisions]") :], ""),
]


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """The text with changes, each of which must apply."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def test_a_plain_table_has_its_columns_once_and_under_their_plain_names(
    write_spec: Callable[[str], Path],
) -> None:
    """Streams of whole rows have no columns of their own, so a column may be named ts, too."""
    spec = load_spec(write_spec(PLAIN))

    assert spec.physical_types() == {
        "tailnum": "string", "departed_at": "timestamp", "origin": "string", "ts": "int",
    }  # fmt: skip


def test_a_plain_table_of_one_stream_may_be_clustered(write_spec: Callable[[str], Path]) -> None:
    """Copy-on-write without buckets: its files may be joined and sorted at will."""
    services = load_spec(write_spec(replaced(PLAIN, *CLUSTERED))).services

    assert (services.cluster_every_commits, services.cluster_by) == (4, ("origin",))


def test_a_plain_table_is_by_default_what_hudi_makes(write_spec: Callable[[str], Path]) -> None:
    """Copy-on-write under OCC, merged by event time, with as many buckets as a splice table."""
    settings = 'type = "mor"\nmerge = "event_time"\nconcurrency = "occ"\nmarkers = "direct"\nbuckets = 2\n'
    text = replaced(PLAIN, (settings, ""), ("compaction = { every_commits = 5 }\n", ""))

    table = load_spec(write_spec(text)).table

    assert (table.type, table.merge, table.concurrency) == ("cow", "event_time", "occ")
    assert (table.markers, table.buckets) == ("direct", 4)


@pytest.mark.parametrize(
    "settings",
    [
        'type = "mor"\nmerge = "splice"\nconcurrency = "nbcc"',
        'kind = "splice"',
        'markers = "timeline-server"',
    ],
)
def test_a_splice_table_may_say_what_it_is(write_spec: Callable[[str], Path], settings: str) -> None:
    """To name the only possible value is no mistake."""
    table = load_spec(write_spec(replaced(SPEC, ("buckets = 2", f"buckets = 2\n{settings}")))).table

    assert (table.kind, table.type, table.merge, table.concurrency) == ("splice", "mor", "splice", "nbcc")


def test_streams_that_update_parts_of_a_row_may_have_different_columns(
    write_spec: Callable[[str], Path],
) -> None:
    """A null keeps the older value, so a column that a stream lacks is safe."""
    text = replaced(PLAIN, ('"event_time"', '"partial_update"'), (', origin = "string", ts = "int" }', " }"))

    spec = load_spec(write_spec(text))

    assert set(spec.physical_types()) == {"tailnum", "departed_at", "origin", "ts"}


NBCC = ('"occ"', '"nbcc"')
NO_COMPACTION = ("compaction = { every_commits = 5 }\n", "")
COLUMNS = 'columns = { departed_at = "timestamp", origin = "string", ts = "int" }'
NO_TS = COLUMNS.replace(', ts = "int"', "")
FIRST, SECOND = "checkpoints/departures", "checkpoints/revisions"

Changes = list[tuple[str, str]]
BAD: dict[str, tuple[Changes, int, str, str]] = {
    "kind": ([('"plain"', '"plane"')], 4, "table.kind", "did you mean 'plain'"),
    "type": ([('"mor"', '"row"')], 5, "table.type", "known here: cow, mor"),
    "merge": ([('"event_time"', '"event"')], 6, "table.merge", "did you mean 'event_time'"),
    "concurrency": ([('"occ"', '"occ_early"')], 7, "table.concurrency", "did you mean 'occ-early'"),
    "markers": ([('"direct"', '"timeline"')], 8, "table.markers", "did you mean 'timeline-server'"),
    "a metadata table of text": (
        [("buckets = 2", 'buckets = 2\nmetadata_table = "yes"')],
        10,
        "table.metadata_table",
        "true or false",
    ),
    "services mode": (
        [("[services]\n", '[services]\nmode = "outside"\n')],
        15,
        "services.mode",
        "known here: elected, inline",
    ),
    "the splice merge": ([('"event_time"', '"splice"')], 6, "table.merge", "one ordering for the whole row"),
    "nbcc on copy-on-write": (
        [NBCC, ('"mor"', '"cow"'), NO_COMPACTION],
        7,
        "table.concurrency",
        "needs merge-on-read",
    ),
    "nbcc by commit time": (
        [NBCC, ('"event_time"', '"commit_time"')],
        7,
        "table.concurrency",
        "commits that overlap have no order",
    ),
    "nbcc with partial updates": (
        [NBCC, ('"event_time"', '"partial_update"')],
        7,
        "table.concurrency",
        "commits that overlap have no order",
    ),
    "nbcc with services in the writes": (
        [NBCC, ("[services]\n", '[services]\nmode = "inline"\n')],
        15,
        "services.mode",
        "compact the same files at the same time",
    ),
    "merge-on-read without buckets": (
        [("buckets = 2", "buckets = 0")],
        9,
        "table.buckets",
        "hides rows that are committed",
    ),
    "two streams without buckets": (
        [("buckets = 2", "buckets = 0"), ('"mor"', '"cow"'), NO_COMPACTION],
        9,
        "table.buckets",
        "put it into two files",
    ),
    "clustering of buckets": (
        [*CLUSTERED, ("buckets = 0", "buckets = 2")],
        15,
        "services.clustering",
        "every later write of a table with buckets fail; remove it, or set buckets = 0",
    ),
    "clustering by a column that is not there": (
        [*CLUSTERED, ('["origin"]', '["orign"]')],
        15,
        "services.clustering.sort_by",
        "did you mean 'origin'",
    ),
    "clustering without a number": (
        [*CLUSTERED, ("every_commits = 4, ", "")],
        15,
        "services.clustering.every_commits",
        "missing",
    ),
    "compaction of copy-on-write": ([('"mor"', '"cow"')], 15, "services.compaction", "no logs to compact"),
    "two orderings": (
        [(f'ordering = "departed_at"\ncheckpoint = "{SECOND}"', f'ordering = "ts"\ncheckpoint = "{SECOND}"')],
        27,
        "streams.revisions.ordering",
        "one ordering, and that of stream 'departures' is departed_at",
    ),
    "another name in the view": (
        [(FIRST + '"', FIRST + '"\nas = { origin = "start" }')],
        22,
        "streams.departures.as.origin",
        "under their own names",
    ),
    "two types": (
        [(f'{SECOND}"\n{COLUMNS}', f'{SECOND}"\n{COLUMNS}'.replace("int", "bigint"))],
        29,
        "streams.revisions.columns.ts",
        "'departures' has ts as int",
    ),
    "half rows": (
        [(f'{SECOND}"\n{COLUMNS}', f'{SECOND}"\n{NO_TS}')],
        29,
        "streams.revisions.columns",
        "'revisions' lacks the column ts of stream 'departures'",
    ),
    "half rows of the first stream": (
        [(f'{FIRST}"\n{COLUMNS}', f'{FIRST}"\n{NO_TS}')],
        22,
        "streams.departures.columns",
        "'departures' lacks the column ts of stream 'revisions'",
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_what_hudi_refuses_or_what_loses_data_is_refused_here(
    write_spec: Callable[[str], Path], tmp_path: Path, case: tuple[Changes, int, str, str]
) -> None:
    """The reason comes with file, line and key, before anything exists."""
    changes, line, key, text = case
    path = write_spec(replaced(PLAIN, *changes))
    before = set(tmp_path.rglob("*"))

    with pytest.raises(SpecError) as caught:
        load_spec(path)

    assert (caught.value.line, caught.value.key) == (line, key), caught.value
    assert text in str(caught.value)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("setting", "key", "text"),
    [
        ('merge = "event_time"', "table.merge", "an ordering of its own"),
        ('concurrency = "occ"', "table.concurrency", "would starve"),
        ('concurrency = "occ-early"', "table.concurrency", "would starve"),
    ],
)
def test_a_splice_table_takes_no_other_merge_and_no_conflicts_on_merge_on_read(
    write_spec: Callable[[str], Path], setting: str, key: str, text: str
) -> None:
    """The sentence says which kind takes it."""
    with pytest.raises(SpecError, match=text) as caught:
        load_spec(write_spec(replaced(SPEC, ("buckets = 2", f"buckets = 2\n{setting}"))))

    assert (caught.value.line, caught.value.key) == (5, key)
    assert 'set kind = "plain"' in str(caught.value)


def test_a_splice_table_has_no_services_inside_its_writes(write_spec: Callable[[str], Path]) -> None:
    """Its writers run at the same time and would compact the same files."""
    with pytest.raises(SpecError, match="compact the same files") as caught:
        load_spec(write_spec(replaced(SPEC, ("[services]", '[services]\nmode = "inline"'))))

    assert (caught.value.line, caught.value.key) == (11, "services.mode")


@pytest.mark.parametrize(
    ("given", "concurrency"), [("", "occ"), ('\nconcurrency = "occ-early"', "occ-early")]
)
def test_a_splice_table_may_merge_at_each_write(
    write_spec: Callable[[str], Path], given: str, concurrency: str
) -> None:
    """Copy-on-write takes optimistic concurrency control, also where the spec does not say so."""
    text = replaced(SPEC, ("buckets = 2", f'buckets = 2\ntype = "cow"{given}'), NO_COMPACTION)
    table = load_spec(write_spec(text)).table

    assert (table.kind, table.type, table.merge) == ("splice", "cow", "splice")
    assert table.concurrency == concurrency


@pytest.mark.parametrize(
    ("ordering", "kind", "key", "sentence"),
    [
        ('["departed_at", "ts"]', "int", "ordering", "Hudi gives a null no place among several"),
        ('"ts"', "double", "columns.ts", "a plain table is not ordered by double; use one of timestamp"),
        ('["ts"]', "decimal(9,2)", "columns.ts", "a plain table is not ordered by decimal(9,2)"),
    ],
)
def test_a_plain_table_is_ordered_by_a_column_whose_order_hudi_has(
    write_spec: Callable[[str], Path], ordering: str, kind: str, key: str, sentence: str
) -> None:
    """One, of a type whose values Hudi compares as a splice table does."""
    text = PLAIN.replace('ordering = "departed_at"', f"ordering = {ordering}").replace(
        'ts = "int"', f'ts = "{kind}"'
    )

    with pytest.raises(SpecError) as refused:
        load_spec(write_spec(text))

    assert refused.value.key == f"streams.departures.{key}"
    assert sentence in str(refused.value)


def test_a_stream_of_a_plain_table_deletes_rows_anyway(write_spec: Callable[[str], Path]) -> None:
    """So it need not say so, and cannot."""
    text = replaced(PLAIN, ('checkpoint = "checkpoints/departures"', 'checkpoint = "c"\ndeletes = "row"'))

    with pytest.raises(SpecError, match="removes the whole row already") as caught:
        load_spec(write_spec(text))

    assert caught.value.key == "streams.departures.deletes"


@pytest.mark.parametrize(
    ("changed", "key", "says"),
    [
        (
            ('deleted = "boolean"', 'deleted = { type = "boolean", from = "gone" }'),
            "columns.deleted.from",
            "the envelope says what is deleted",
        ),
        (
            ('landed_in = "string"', 'landed_in = { type = "string", from = "__lsn" }'),
            "columns.landed_in.from",
            "no such field; use one of __op, __ts_ms, __ts_us, __ts_ns, __source_<name>",
        ),
    ],
)
def test_columns_of_an_envelope_are_from_its_row_or_its_own_fields(
    write_spec: Callable[[str], Path], changed: tuple[str, str], key: str, says: str
) -> None:
    """Only ``op`` says what is deleted, and a misspelt field is found before anything is read."""
    ordered = '\nordering = "arrived_at"'
    json = (f'format = "csv"{ordered}', f'format = "json"\nenvelope = "debezium"{ordered}')
    load_spec(write_spec(replaced(SPEC, json)))

    with pytest.raises(SpecError, match=says) as caught:
        load_spec(write_spec(replaced(SPEC, json, changed)))

    assert caught.value.key == f"streams.arrivals.{key}"
