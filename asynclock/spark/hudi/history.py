"""The instants of a table with their work: who wrote how much, and how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asynclock.spark.hudi.instants import METADATA_PREFIX, SAVEPOINT, Instant
from asynclock.spark.hudi.meta import active_timeline, dumped
from asynclock.spark.jvm import classes
from asynclock.spark.retry import READ, retry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asynclock.spark.hudi.timeline import Timeline


class History:
    """The history of one table.

    Not thread-safe.

    Args:
        timeline: The timeline that is read.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._java = classes(timeline.spark).io.asynclock.timeline.Instants
        self._meta = timeline.meta()
        self._utc = self.exists and timeline.is_utc()
        self._known: set[tuple[str, str, str]] = set()

    @property
    def exists(self) -> bool:
        """Whether there was a table when this object was made."""
        return self._meta is not None

    def archived(self) -> list[Instant]:
        """Return the archived instants, in the order of their completion."""
        found = retry(lambda: list(dumped(lambda file: self._java.archived(self._meta, file))), READ)
        return in_order(_parsed(line, archived=True, utc=self._utc) for line in found)

    def news(self) -> list[Instant]:
        """Return the instants of the active timeline that are new, or in a new state, since the last call.

        The first call returns all of them. They are in the order of completion, pending ones last.
        """
        found, first = retry(self._read, READ)
        # An instant that is no longer on the active timeline need not be remembered.
        self._known = {one for one in self._known if one[0] >= first}
        self._known.update((one.requested, one.action, one.state) for one in found)
        return in_order(found)

    def _read(self) -> tuple[list[Instant], str]:
        active: Any = active_timeline(self._meta)
        known = [" ".join(one) for one in self._known]
        lines = dumped(lambda file: self._java.active(self._meta, active, known, file))
        found = [_parsed(line, archived=False, utc=self._utc) for line in lines]
        first = active.firstInstant()
        return found, first.get().requestedTime() if first.isPresent() else ""


def in_order(instants: Iterable[Instant]) -> list[Instant]:
    """Return instants in the order of completion, pending ones last in the order of their requests."""
    return sorted(instants, key=lambda one: (one.completed is None, one.completed or one.requested))


def _parsed(line: dict[str, Any], *, archived: bool, utc: bool) -> Instant:
    said = line.get("metadata", {})
    batch = int(said.get(METADATA_PREFIX + "batch_id", -1))
    token = said.get(METADATA_PREFIX + "fencing_token")
    # A savepoint has the request time of the commit that it keeps.
    took = line.get("latencyMs") if line["action"] != SAVEPOINT else None
    return Instant(
        requested=line["requested"],
        completed=line["completed"],
        action=line["action"],
        state=line["state"],
        stream=said.get(METADATA_PREFIX + "stream"),
        batch=batch if batch >= 0 else None,
        token=None if token is None else int(token),
        rows=line.get("rows"),
        bytes=line.get("bytes"),
        latency=None if took is None else took / 1000,
        archived=archived,
        utc=utc,
    )
