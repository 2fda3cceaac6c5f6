"""The kinds of events: what each means for a lease, and whether it is news in itself."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal[
    "waiting",
    "acquire_failed",
    "acquired",
    "adopted",
    "not_acquired",
    "renewed",
    "renewal_failed",
    "stalled",
    "lost",
    "release_pending",
    "released",
    "release_unconfirmed",
    "reaped",
    "updated",
]


class Traits(NamedTuple):
    """One kind of event.

    Attributes:
        lease: What it does with a lease: it begins or renews it, writes under it, troubles it while it lasts,
            leaves it (belief ends, the release goes on), or ends it; None: it has no lease.
        level: The level on which a narrator tells it of its own accord; None: only if it ends such news.
    """

    lease: Literal["begins", "renews", "writes", "troubles", "leaves", "ends"] | None = None
    level: int | None = None


KINDS: Final[Mapping[Kind, Traits]] = {
    "waiting": Traits(level=logging.INFO),
    "acquire_failed": Traits(level=logging.WARNING),
    "acquired": Traits("begins"),
    "adopted": Traits("begins"),
    "not_acquired": Traits(),
    "renewed": Traits("renews"),
    "renewal_failed": Traits("troubles", logging.WARNING),
    "stalled": Traits("troubles"),
    "lost": Traits("ends", logging.WARNING),
    "release_pending": Traits("leaves", logging.WARNING),
    "released": Traits("ends"),
    "release_unconfirmed": Traits("ends", logging.WARNING),
    "reaped": Traits(),
    "updated": Traits("writes"),
}
"""Each kind. ``narration`` has a sentence for it, ``telemetry`` its measurements."""


def _that(*lease: str) -> frozenset[str]:
    return frozenset(kind for kind, traits in KINDS.items() if traits.lease in lease)


NEWS: Final[Mapping[str, int]] = {
    kind: traits.level for kind, traits in KINDS.items() if traits.level is not None
}
"""The kinds that are news in themselves, and on which level."""
BEGINS: Final = _that("begins")
"""The caller has the lock from now on."""
ENDS: Final = _that("ends")
"""Nothing more comes of the lease."""
ENDS_BELIEF: Final = _that("leaves", "ends")
"""The holder does not believe any more that it holds the lock."""
TROUBLES: Final = _that("troubles", "leaves")
"""What happened to a lease that has not ended."""
OF_LEASES: Final = _that("begins", "renews", "writes", "leaves", "ends")
"""Kinds that together tell who believed what, and when."""
BAD_ENDS: Final = ENDS_BELIEF & NEWS.keys()
"""Ends of belief, other than a release that the store has confirmed."""
