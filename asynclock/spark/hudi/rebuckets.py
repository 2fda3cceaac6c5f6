"""The mark of a rebucket: how far the exchange of two tables is, and who may write meanwhile.

The mark is a file next to the table. While it says that files are on their way, no work on the table begins.
It stays when the rebucket is done, so that a driver which ran before, with the old number of buckets, notices
the new table.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from asynclock.spark import hoodie
from asynclock.spark.errors import UnfinishedRebucketError
from asynclock.spark.hudi.timeline import Timeline
from asynclock.spark.spec.load import misplaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.spark.hadoop import HadoopFiles
    from asynclock.spark.spec.model import Spec

Stage = Literal["copying", "away", "in", "done"]
PROPERTIES: Final = ".hoodie/hoodie.properties"
_MOVING: Final = frozenset({"away", "in"})
_BETWEEN: Final = "its files are between two places; nothing was written"


@dataclass(frozen=True, kw_only=True)
class Rebucket:
    """One rebucket, as its mark says.

    Attributes:
        stage: ``copying`` next to a table that is written as ever; ``away``: the old table leaves its place;
            ``in``: the copy takes it; ``done``.
        before: The old number of buckets.
        buckets: The new one.
        copy: URL of the copy.
        old: URL of the old table once it is away.
    """

    stage: Stage
    before: int
    buckets: int
    copy: str
    old: str

    @property
    def is_moving(self) -> bool:
        """Whether the table is not whole at its place."""
        return self.stage in _MOVING


class RebucketMark:
    """The mark of one table.

    Args:
        spec: The table.
        files: The files of its store.
    """

    def __init__(self, spec: Spec, files: HadoopFiles) -> None:
        self._spec = spec
        self._files = files
        self._url = f"{spec.table.kept}/rebucket.json"

    def found(self) -> Rebucket | None:
        """Return the last rebucket of the table, or None."""
        text = self._files.read(self._url)
        return None if text is None else Rebucket(**json.loads(text))

    def put(self, rebucket: Rebucket) -> None:
        """Note how far a rebucket is."""
        self._files.write(self._url, json.dumps(dataclasses.asdict(rebucket)))

    def remove(self) -> None:
        """Note that there was none."""
        self._files.delete(self._url)

    def refuse(self) -> None:
        """Make sure that the table is at its place with the buckets of the spec.

        Call it only while there is no reservation.

        Raises:
            UnfinishedRebucketError: A rebucket was cut off while it moved the tables.
            SpecError: A rebucket has given the table another number of buckets.
        """
        found = self.refuse_moving()
        table = self._spec.table
        if found is not None and found.stage == "done" and found.buckets != table.buckets:
            # The mark may be older than the table at this place.
            stored = Timeline(self._files.spark, table.path).properties()
            if stored.get(hoodie.BUCKET_INDEX_NUM_BUCKETS) == str(found.buckets):
                reason = (
                    f"a rebucket has given the table at {table.path} {found.buckets} buckets; nothing was "
                    f"written. Set buckets = {found.buckets}, and start this driver again"
                )
                raise misplaced(self._spec, ("table", "buckets"), table.buckets, reason)

    def refuse_moving(self) -> Rebucket | None:
        """Make sure that the table is at its place; return what ``found`` does.

        Raises:
            UnfinishedRebucketError: A rebucket was cut off while it moved the tables.
        """
        found = self.found()
        if found is not None and found.is_moving:
            raise unfinished(self._spec, found, _BETWEEN)
        return found


def unfinished(spec: Spec, rebucket: Rebucket, reason: str) -> UnfinishedRebucketError:
    """Return the error of a rebucket that is to be run again."""
    return UnfinishedRebucketError(
        path=spec.table.path, buckets=rebucket.buckets, reason=reason, spec=str(spec.path)
    )


def move(files: HadoopFiles, source: str, target: str, check: Callable[[], object]) -> None:
    """Move a table, or the rest of it if an earlier call was interrupted.

    On a local disk this is one rename. Object stores have none for a folder, so each file is moved, the
    properties first: without them Hudi sees no table in the rest. They also arrive last.

    Args:
        files: The files of the store of both.
        source: The table; an interrupted call may have moved all of it.
        target: Its new place, where nothing is but what an interrupted call has moved.
        check: Called before each file; raises if this process must not go on.
    """
    last = f"{target}/{PROPERTIES}"
    aside = f"{last}.moving"
    # In an object store a folder may go with its last file, before the properties have arrived.
    if not files.exists(source) and not files.exists(aside):
        return
    check()
    if files.is_local(source):
        if files.exists(target):
            if files.below(target):
                raise FileExistsError(f"{target} exists, so {source} cannot take its place")
            files.delete(target)
        files.move(source, target)
        return
    names = files.below_relative(source) if files.exists(source) else []
    for name in sorted(names, key=lambda name: not name.startswith(PROPERTIES)):
        check()
        url = aside if name == PROPERTIES else f"{target}/{name}"
        _move_file(files, f"{source}/{name}", url)
    if files.exists(aside):
        _move_file(files, aside, last)
    files.delete(source)


def _move_file(files: HadoopFiles, source: str, target: str) -> None:
    """Move a file; a copy that an interrupted call has left counts if it is whole."""
    if files.exists(target):
        if files.size(target) == files.size(source):
            files.delete(source)
            return
        files.delete(target)
    files.move(source, target)
