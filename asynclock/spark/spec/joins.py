"""Views that join some of the streams, and show the first rows of each group."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from asynclock.spark.spec.checked import Switch, Whole, checked, raise_all, wrong
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from asynclock.errors import ConfigError

Join = Literal["full", "inner", "left", "right"]

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN: Final = frozenset({"stored", "splice"})


@checked
class TopRows:
    """The rows of each group that come first.

    Attributes:
        n: Rows of a group.
        by: The column of the view whose greatest values come first; rows without one come last.
        per: The columns of the view whose values make a group; none: all rows are one group.
        ascending: The least values come first instead.
    """

    n: Annotated[Whole, Field(ge=1)]
    by: str
    per: tuple[str, ...] = ()
    ascending: Switch = False


@checked
class ViewSpec:
    """A join of streams over the key, read from the wide table.

    Attributes:
        name: Its name in the catalog is ``<name of the table's view>_<name>``.
        streams: The streams, in the order of the join.
        join: The shown rows: ``full``: those with an event of any of the streams; ``inner``: of all of them;
            ``left``: of the first one; ``right``: of the last one.
        top: Show only some rows of each group; None: all.
    """

    name: SkipJsonSchema[str]
    streams: tuple[str, ...]
    join: Join = "full"
    top: TopRows | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            reason = "names of views are a-z, 0-9 and _, the first a letter; rename the view"
            raise wrong("", self.name, reason)
        if self.name in _TAKEN:
            raise wrong("", self.name, "the table has this name; rename the view")
        if len(set(self.streams)) < len(self.streams) or not self.streams:
            reason = "name at least one stream, and each once"
            raise wrong("streams", list(self.streams), reason)


def check_views(
    views: Iterable[ViewSpec], columns: Mapping[str, Collection[str]], shared: Collection[str], kind: str
) -> None:
    """Refuse views of streams and columns that the table does not have.

    Args:
        views: The views.
        columns: The names in the view of each stream's columns, by the stream.
        shared: The key and partition columns.
        kind: The kind of the table.

    Raises:
        ConfigError: A stream or a column is unknown, or the table has no streams to join.
    """
    raise_all(each for view in views for each in _unknown_names(view, columns, shared, kind))


def _unknown_names(
    view: ViewSpec, columns: Mapping[str, Collection[str]], shared: Collection[str], kind: str
) -> Iterator[ConfigError]:
    setting = f"views.{view.name}"
    if kind == "plain":
        reason = "a plain table has no columns of streams to join; remove the view"
        yield wrong(setting, view.name, reason)
        return
    for stream in view.streams:
        if stream not in columns:
            yield wrong(f"{setting}.streams", stream, unknown_name(stream, columns))
    if view.top is None or not columns.keys() >= set(view.streams):
        return
    known = [*shared, *filter(None, (name for stream in view.streams for name in columns[stream]))]
    for key, names in (("by", (view.top.by,)), ("per", view.top.per)):
        for name in names:
            if name not in known:
                yield wrong(f"{setting}.top.{key}", name, unknown_name(name, known))
