"""Which planted mistakes the specification must refuse by the history that shows them."""

from __future__ import annotations

from typing import Final

REFUSED: Final = (
    "treat an unknown renewal as done",
    "believe until the record ends",
    "count a renewal from its answer",
    "count an acquisition from its answer",
    "count belief on the monotonic clock only",
    "count belief on the wall clock only",
    "never look at the deadline",
    "revive a lost lease",
    "trust a Date without a witness",
    "free by Dates that outvote the wall clock",
    "trust the local wall clock",
    "drop S + R from the takeover",
    "trust a last_modified from before its write",
    "count another's lease as long as one's own",
    "observe for one's own validity only",
    "end at most: cut only what is published",
    "treat an unknown acquisition as done",
    "go on believing while the release is sent",
    "hand over before belief has ended",
    "take over without a condition",
    "go on observing when the version changes",
    "observe from the sending of the first request",
)
"""Most others are about what the specification leaves out: tokens, turns, Hudi, what users are told."""
