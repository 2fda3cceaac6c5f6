"""The kinds of a table, and the types, merges, concurrencies and markers that go together.

A *splice* table has buckets and the splice merge. On merge-on-read its streams append under non-blocking
concurrency control; on copy-on-write each write merges, under optimistic concurrency control, for readers
without the merger. A *plain* table is an ordinary Hudi table whose streams write whole rows. This module
refuses combinations that Hudi refuses or that would lose data, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from asynclock.spark.spec.checked import raise_all, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asynclock.errors import ConfigError

TableKind = Literal["splice", "plain"]
TableType = Literal["mor", "cow"]
Merge = Literal["splice", "event_time", "commit_time", "partial_update"]
Concurrency = Literal["nbcc", "occ", "occ-early"]
Markers = Literal["direct", "timeline-server"]

CHOICES: Final = ("kind", "type", "merge", "concurrency", "markers")
_NEEDS_PLAIN: Final = 'drop the key, or set kind = "plain" for a table of whole rows'
_ORDERING_TYPES: Final = ("timestamp", "date", "int", "bigint", "string")
_NEEDS_MOR: Final = (
    "Hudi's non-blocking concurrency control needs merge-on-read, so that writers append to the same files"
)


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """The values of a spec that leaves them out.

    Attributes:
        type: Merge-on-read or copy-on-write.
        merge: Which of two records of a key wins.
        concurrency: How writers at the same time treat each other.
    """

    type: TableType
    merge: Merge
    concurrency: Concurrency


DEFAULTS: Final[Mapping[str, Defaults]] = {
    "splice": Defaults(type="mor", merge="splice", concurrency="nbcc"),
    "plain": Defaults(type="cow", merge="event_time", concurrency="occ"),
}


NAME_ENDS: Final[Mapping[TableKind, str]] = {"splice": "_splice", "plain": ""}
"""What follows the folder's name in Hudi's name of a new table."""


def default_concurrency(kind: str, type_: str) -> Concurrency:
    """Return the concurrency unless the spec sets it; non-blocking needs merge-on-read."""
    return "occ" if type_ == "cow" else DEFAULTS[kind].concurrency


def check_combination(given: Mapping[str, str], buckets: int) -> None:
    """Refuse a combination that Hudi refuses or that loses data.

    Args:
        given: The value of each of ``CHOICES``.
        buckets: Hash buckets per partition; 0: none, and Hudi looks for the file of a key.

    Raises:
        ConfigError: The setting that has to change, and why.
    """
    if given["kind"] == "plain":
        _check_plain(given, buckets)
        return
    if given["merge"] != "splice":
        reason = f"in a splice table each stream has an ordering of its own; {_NEEDS_PLAIN}"
        raise wrong("merge", given["merge"], reason)
    _check_blocking(given)
    if given["type"] == "mor" and given["concurrency"] != "nbcc":
        reason = (
            "under optimistic concurrency control streams of a merge-on-read splice table would starve; drop "
            'the key, set type = "cow", where each write merges, or set kind = "plain" for whole rows'
        )
        raise wrong("concurrency", given["concurrency"], reason)


def _check_blocking(given: Mapping[str, str]) -> None:
    if given["concurrency"] == "nbcc" and given["type"] != "mor":
        raise wrong("concurrency", given["concurrency"], f'{_NEEDS_MOR}: set type = "mor", or use occ')


def _check_plain(given: Mapping[str, str], buckets: int) -> None:
    merge, concurrency = given["merge"], given["concurrency"]
    if merge == "splice":
        reason = 'a plain table has one ordering for the whole row; choose another merge, or kind = "splice"'
        raise wrong("merge", merge, reason)
    if given["type"] == "mor" and not buckets:
        reason = (
            "without buckets Hudi puts new keys into base files, and one of an unfinished write hides rows "
            'that are committed; use 1 or more, or type = "cow"'
        )
        raise wrong("buckets", buckets, reason)
    if concurrency != "nbcc":
        return
    _check_blocking(given)
    if merge != "event_time":
        reason = (
            f"under {merge} the later commit wins, and commits that overlap have no order: which of the two "
            'survives would be random; use merge = "event_time", or occ'
        )
        raise wrong("concurrency", concurrency, reason)


def check_whole_rows(
    streams: Mapping[str, Mapping[str, str]],
    orderings: Mapping[str, Sequence[str]],
    *,
    merge: str,
    buckets: int,
) -> None:
    """Refuse streams of a plain table whose events are not rows of one table.

    Args:
        streams: For each stream the types of its columns, without key and partition columns.
        orderings: For each stream its ordering columns.
        merge: The merge of the table.
        buckets: Its hash buckets per partition; 0: none.

    Raises:
        ConfigError: The setting that has to change, and why.
    """
    raise_all(_misfits(streams, orderings, merge=merge, buckets=buckets))


def _misfits(
    streams: Mapping[str, Mapping[str, str]],
    orderings: Mapping[str, Sequence[str]],
    *,
    merge: str,
    buckets: int,
) -> Iterator[ConfigError]:
    if len(streams) > 1 and not buckets:
        reason = (
            "without buckets two streams that bring a new key at the same time put it into two files, and "
            "Hudi sees no conflict; use 1 or more, or one stream"
        )
        yield wrong("table.buckets", buckets, reason)
    first, expected = next(iter(streams.items()))
    known: dict[str, tuple[str, str, str]] = {}
    for stream, types in streams.items():
        if orderings[stream] != orderings[first]:
            reason = (
                f"a plain table has one ordering, and that of stream {first!r} is "
                f"{', '.join(orderings[first])}; use the same in each stream"
            )
            yield wrong(f"streams.{stream}.ordering", ", ".join(orderings[stream]), reason)
        yield from _unordered(stream, orderings[stream], types)
        for name, type_ in types.items():
            other, spelled, found = known.setdefault(name.lower(), (stream, name, type_))
            if (spelled, found) != (name, type_):
                reason = f"stream {other!r} has {spelled} as {found}, and a plain table has one for both"
                yield wrong(f"streams.{stream}.columns.{name}", type_, f"{reason}; declare the same")
        if merge != "partial_update" and (lacking := sorted(expected.keys() ^ types.keys())):
            name = lacking[0]
            having, lacks = (first, stream) if name in expected else (stream, first)
            reason = (
                f"stream {lacks!r} lacks the column {name} of stream {having!r}: its events are whole rows "
                'and would turn the value to null; add the column, or set merge = "partial_update"'
            )
            yield wrong(f"streams.{lacks}.columns", sorted(streams[lacks]), reason)


def _unordered(stream: str, ordering: Sequence[str], types: Mapping[str, str]) -> Iterator[ConfigError]:
    """Yield what Hudi, which compares the rows of a plain table, has no sure order for."""
    if len(ordering) > 1:
        reason = (
            "a plain table has one ordering column, since Hudi gives a null no place among several; name "
            'one, or set kind = "splice"'
        )
        yield wrong(f"streams.{stream}.ordering", ", ".join(ordering), reason)
    elif (kind := types.get(ordering[0], _ORDERING_TYPES[0])) not in _ORDERING_TYPES:
        reason = (
            f"a plain table is not ordered by {kind}; use one of {', '.join(_ORDERING_TYPES)}, or set "
            'kind = "splice"'
        )
        yield wrong(f"streams.{stream}.columns.{ordering[0]}", kind, reason)
