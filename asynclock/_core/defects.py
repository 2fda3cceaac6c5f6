"""The known ways in which a store, or a proxy in front of it, breaks the conditions of writes."""

from __future__ import annotations

from enum import StrEnum

from asynclock._codes import Code


class Defect(StrEnum):
    """A defect that makes a store unsafe for locks."""

    CREATES_TWICE = "if-none-match-ignored"
    REPLACES_ANY = "if-match-ignored"
    NO_CONDITIONS = "conditions-ignored"
    INVERTED = "conditions-inverted"
    NOT_ATOMIC = "not-atomic"
    NODES_APART = "nodes-apart"
    REFUSES_SHOWN = "refuses-what-it-shows"
    VERSION_CHANGED = "version-changed"
    DELETE_MARKER = "delete-marker"
    CREATES_BY_REPLACING = "if-match-creates"
    UNSUPPORTED = "no-conditional-writes"
    WRITES_REFUSED = "refused-but-written"
    STALE_READS = "stale-reads"
    BODY_CHANGED = "body-changed"
    VERSIONS_REPEAT = "versions-repeat"
    NO_DATES = "no-dates"
    WRONG_CLOCK = "wrong-clock"
    ONE_WRITE_A_SECOND = "one-write-a-second"

    @property
    def remedy(self) -> str:
        """The remedy, one sentence without a period."""
        return _REMEDIES[self]

    @property
    def code(self) -> str:
        """The code under which the reference explains it."""
        return _CODES[self]


_ANOTHER = "use another store, or a release of it that keeps conditions"
_DROPPED = (
    "let what stands before the store pass If-None-Match and If-Match on; if nothing does, the store ignores "
    f"them: {_ANOTHER}"
)
_ON_THE_WAY = (
    "switch off compression, caching and changes of ETags in what stands before the store, or ask it directly"
)
_REMEDIES = {
    Defect.CREATES_TWICE: _DROPPED,
    Defect.REPLACES_ANY: _DROPPED,
    Defect.NO_CONDITIONS: _DROPPED,
    Defect.INVERTED: f"conditions mean the opposite there: {_ANOTHER}",
    Defect.NOT_ATOMIC: (
        "the store, or a gateway before it, checks a condition and writes in two steps, or each node "
        f"checks for itself: {_ANOTHER}"
    ),
    Defect.NODES_APART: "each node or address keeps conditions for itself; use one address for all clients",
    Defect.REFUSES_SHOWN: (
        "the store does not match the version that it shows (as older Ceph with quoted ETags), or something "
        "before it changes or answers requests: ask the store directly, or use another one"
    ),
    Defect.VERSION_CHANGED: _ON_THE_WAY,
    Defect.DELETE_MARKER: (
        "delete no lock's object, also not by prune or a lifecycle rule, or switch versioning off; else use "
        "another store"
    ),
    Defect.CREATES_BY_REPLACING: f"a deleted lock would come back: {_ANOTHER}",
    Defect.UNSUPPORTED: f"the store has no conditional writes: {_ANOTHER}",
    Defect.WRITES_REFUSED: f"a write that is refused is written all the same: {_ANOTHER}",
    Defect.STALE_READS: "switch caching off in what stands before the store, or read from its primary",
    Defect.BODY_CHANGED: "let what stands before the store leave bodies as they are",
    Defect.VERSIONS_REPEAT: f"a write that comes late could undo a newer one: {_ANOTHER}",
    Defect.NO_DATES: "let what stands before the store leave the Date header in answers",
    Defect.ONE_WRITE_A_SECOND: (
        "set min_write_interval=1: the store answers 429 to more than about one write a second of one object"
    ),
    Defect.WRONG_CLOCK: "put the clocks of this machine and of the store's nodes right",
}
_CODES = {
    Defect.CREATES_TWICE: Code.CONDITIONS_IGNORED,
    Defect.REPLACES_ANY: Code.CONDITIONS_IGNORED,
    Defect.NO_CONDITIONS: Code.CONDITIONS_IGNORED,
    Defect.CREATES_BY_REPLACING: Code.CONDITIONS_IGNORED,
    Defect.UNSUPPORTED: Code.CONDITIONS_IGNORED,
    Defect.INVERTED: Code.CONDITIONS_INVERTED,
    Defect.NOT_ATOMIC: Code.NOT_ATOMIC,
    Defect.NODES_APART: Code.NODES_APART,
    Defect.REFUSES_SHOWN: Code.REFUSES_SHOWN,
    Defect.VERSION_CHANGED: Code.CHANGED_ON_THE_WAY,
    Defect.BODY_CHANGED: Code.CHANGED_ON_THE_WAY,
    Defect.DELETE_MARKER: Code.DELETE_MARKER,
    Defect.WRITES_REFUSED: Code.WRITES_REFUSED,
    Defect.STALE_READS: Code.STALE_READS,
    Defect.VERSIONS_REPEAT: Code.VERSIONS_REPEAT,
    Defect.NO_DATES: Code.NO_DATES,
    Defect.WRONG_CLOCK: Code.WRONG_CLOCK,
    Defect.ONE_WRITE_A_SECOND: Code.ONE_WRITE_A_SECOND,
}
