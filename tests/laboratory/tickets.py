"""Tickets by which a lock passes from one process to another, and what became of each (rule 29)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from asynclock._core.ticket import read_ticket
from tests.laboratory.names import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from asynclock.testing._store import Operation, SimulatedStore

_NONE: Final = 0.5
_NEWEST: Final = 0.7
"""Share of the draws that give the newest ticket; the others may be spent."""


@dataclass
class Given:
    """One ticket.

    Attributes:
        offer: The owner in the offer's record.
        until: True time until which nobody may take the lock without the ticket.
        by: Who tried to use it: the name of the machine.
        made: The owners of the leases that it made, and whose they are.
    """

    text: str
    offer: str
    until: float
    by: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)


class Tickets:
    """The tickets of one history.

    Args:
        store: Its journal says what was written over what.
    """

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._given: list[Given] = []
        self._early: list[str] = []

    def give(self, who: str, text: str, until: float) -> None:
        """Take in a ticket that was returned just now: its offer stands, or has stood."""
        given = Given(text, read_ticket(text).offer, until)
        self._given.append(given)
        if not any(_owner(each) == given.offer for each in self._writes()):
            self._early.append(f"{who} was given a ticket, and its offer was not written")

    def draw(self, rng: Random, machine: str) -> Given | None:
        """Return a ticket to use on a machine, perhaps one that was used before; or None, as often."""
        if not self._given or rng.random() < _NONE:
            return None
        given = self._given[-1] if rng.random() < _NEWEST else rng.choice(self._given)
        given.by.append(machine)
        return given

    def violations(self) -> list[str]:
        """Return at the end what a ticket did that it must not."""
        writes = [*self._writes()]
        found = [*self._early]
        for given in self._given:
            if len(given.made) > 1:
                found.append(f"a ticket made {len(given.made)} leases, of {', '.join(given.made.values())}")
            for owner, machine in given.made.items():
                if not _replaced_offer(writes, owner, given.offer, machine):
                    found.append(f"{machine} used a ticket, and replaced something else than its offer")
            at = next((index for index, each in enumerate(writes) if _owner(each) == given.offer), None)
            after = None if at is None else next(iter(writes[at + 1 :]), None)
            stolen = after is not None and after.at < given.until and after.client not in given.by
            if (
                after is not None and stolen and not _record(after).get("expired")
            ):  # else an operator broke it
                found.append(
                    f"{after.client} took what was offered for another {given.until - after.at:.2f} s"
                )
        return found

    def _writes(self) -> Iterator[Operation]:
        return (
            each for each in self._store.journal if each.key == KEY and each.kind != "get" and each.applied
        )


def _record(write: Operation) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(write.body or b"{}")
    except ValueError:
        return {}
    return found


def _owner(write: Operation) -> str | None:
    return _record(write).get("owner")


def _replaced_offer(writes: list[Operation], owner: str, offer: str, machine: str) -> bool:
    """Whether the first record of ``owner`` was written over a live offer, by way of the machine's own."""
    by_version = {each.version: each for each in writes}
    write = next((each for each in writes if _owner(each) == owner), None)
    while write is not None and write.client == machine and _owner(write) != offer:
        write = by_version.get(write.base)
    return write is not None and _owner(write) == offer and not _record(write)["expired"]
