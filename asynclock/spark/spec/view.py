"""The names of streams, and the names of their columns in the view."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from asynclock.spark.spec.checked import wrong
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_STREAM_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
COLUMN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

OwnColumn = tuple[str, str]
"""A stream and one of its columns."""


def check_stream_name(name: str) -> None:
    """Refuse a stream name that would make the names of physical columns ambiguous.

    Raises:
        ConfigError: The name is refused; the setting is empty, for the caller to fill in.
    """
    if not _STREAM_NAME.fullmatch(name) or "__" in name or name.endswith("_"):
        reason = "stream names are a-z, 0-9 and single inner _, the first a letter; rename the stream"
        raise wrong("", name, reason)


def check_renamed(renamed: Mapping[str, str], columns: Iterable[str]) -> None:
    """Refuse a new name for a column that a stream does not have in the view, or one that no column has.

    Raises:
        ConfigError: The setting is ``as.`` and the column.
    """
    known = list(columns)
    for name, shown in renamed.items():
        if name not in known:
            raise wrong(f"as.{name}", shown, unknown_name(name, known))
        if not COLUMN_NAME.fullmatch(shown):
            reason = "column names are letters, digits and _, the first a letter"
            raise wrong(f"as.{name}", shown, reason)


def view_names(
    own: Iterable[OwnColumn], renamed: Mapping[OwnColumn, str], shared: Iterable[str]
) -> dict[OwnColumn, str]:
    """Return the name of each column of a stream in the view.

    If only one stream has a name, it stays plain; if several have it, it becomes ``<stream>__<name>``. A
    renamed column counts under its name in the stream, so that a renaming changes no other name.

    Args:
        own: The columns that the streams own, without tombstones.
        renamed: The names that the spec gives to some of them.
        shared: The key and partition columns, which keep their names.

    Raises:
        ConfigError: Two columns would have one name. Names that differ in case only are one name to Spark.
    """
    columns = list(own)
    times = Counter(name.lower() for _, name in columns)
    names = {
        (stream, name): renamed.get((stream, name), name if times[name.lower()] == 1 else f"{stream}__{name}")
        for stream, name in columns
    }
    for (stream, name), others in _collisions(names, shared):
        reason = (
            f"the view would have two columns {names[stream, name]!r}: {name!r} of stream {stream!r} and "
            f"{others}; give one of them another name with as"
        )
        raise wrong(f"streams.{stream}.as.{name}", names[stream, name], reason)
    return names


def _collisions(names: Mapping[OwnColumn, str], shared: Iterable[str]) -> Iterator[tuple[OwnColumn, str]]:
    taken = {name.lower(): "a key or partition column" for name in shared}
    for (stream, name), shown in names.items():
        if shown.lower() in taken:
            yield (stream, name), taken[shown.lower()]
        taken[shown.lower()] = f"{name!r} of stream {stream!r}"
