"""What a splice must give, said without merging: per stream the greatest (ordering value, arrival).

Uses nothing of asynclock and nothing of Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Event:
    """What one write says of one key.

    Attributes:
        stream: The stream it comes from.
        ts: Its ordering value: anything that compares.
        values: The stream's other columns, without the stream's name.
    """

    stream: str
    ts: Any
    values: dict[str, Any] = field(default_factory=dict)

    def columns(self) -> dict[str, Any]:
        """The event as physical columns."""
        return {
            f"{self.stream}__ts": self.ts,
            **{f"{self.stream}__{name}": value for name, value in self.values.items()},
        }


@dataclass(frozen=True)
class Delete:
    """A Hudi delete of the key."""


Arrival = Event | Delete


def splice(arrivals: Sequence[Arrival]) -> dict[str, Any] | None:
    """The columns of the key after the arrivals, in this order; None if it is not in the table.

    Columns no event speaks of are left out: they are null.
    """
    deletes = [index for index, arrival in enumerate(arrivals) if isinstance(arrival, Delete)]
    alive = [
        arrival for arrival in arrivals[deletes[-1] + 1 if deletes else 0 :] if isinstance(arrival, Event)
    ]
    if not alive:
        return None
    row: dict[str, Any] = {}
    for stream in {event.stream for event in alive}:
        newest = max((event.ts, index) for index, event in enumerate(alive) if event.stream == stream)
        row.update(alive[newest[1]].columns())
    return row
