"""The codes of errors and messages: stable numbers to search for, to alert on and to look up.

``docs/reference/codes.md`` has the cause, the check and the cure of each; ``asynclock explain`` prints them.
A code keeps its meaning. If a sentence is reworded, it keeps its code; a code that is no longer used is not
given again.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final


class Code(StrEnum):
    """A code of an error or a message."""

    # Use.
    USAGE = "AL-001"
    CONFIG = "AL-002"
    SPEC = "AL-003"
    NOT_INSTALLED = "AL-004"
    OUTPUT = "AL-005"
    # Locks.
    ACQUIRE_TIMEOUT = "AL-010"
    LEASE_LOST = "AL-011"
    LEASE_EXPIRED = "AL-012"
    LEASE_TAKEN_OVER = "AL-013"
    LOCK_CHANGED = "AL-014"
    TICKET_SPENT = "AL-015"
    STALE_TOKEN = "AL-016"
    RECORD_CORRUPT = "AL-017"
    # Stores.
    STORE = "AL-020"
    PRECONDITION_FAILED = "AL-021"
    OUTCOME_UNKNOWN = "AL-022"
    STORE_UNAVAILABLE = "AL-023"
    ACCESS_DENIED = "AL-024"
    STORE_UNSUPPORTED = "AL-025"
    # The log and `asynclock run`.
    WAITING = "AL-030"
    ACQUIRING_FAILS = "AL-031"
    NO_ANSWER = "AL-032"
    RENEWAL_FAILS = "AL-033"
    LOSS = "AL-034"
    RELEASE_UNCONFIRMED = "AL-035"
    LEADER_FAILED = "AL-036"
    WAITS_FOR_ITSELF = "AL-037"
    CALLBACK_FAILED = "AL-038"
    # Other commands.
    CMD_NOT_STARTED = "AL-040"
    NO_LOCK_HERE = "AL-041"
    NOT_BROKEN = "AL-042"
    ONE_PROCESS = "AL-043"
    SECRET_SHOWN = "AL-044"
    HUDI_LOCK = "AL-045"
    RIGHTS_NOT_TESTED = "AL-046"
    OPTIONS_LEFT_OUT = "AL-047"
    # `asynclock doctor`.
    DOCTOR_UNAVAILABLE = "AL-050"
    NOT_SAFE = "AL-051"
    DOCTOR_LEFT = "AL-052"
    DOCTOR_FAILED = "AL-053"
    CONDITIONS_IGNORED = "AL-054"
    CONDITIONS_INVERTED = "AL-055"
    NOT_ATOMIC = "AL-056"
    NODES_APART = "AL-057"
    REFUSES_SHOWN = "AL-058"
    CHANGED_ON_THE_WAY = "AL-059"
    DELETE_MARKER = "AL-060"
    WRITES_REFUSED = "AL-061"
    STALE_READS = "AL-062"
    VERSIONS_REPEAT = "AL-063"
    NO_DATES = "AL-064"
    WRONG_CLOCK = "AL-065"
    ONE_WRITE_A_SECOND = "AL-066"
    # Pipelines.
    BAD_ROWS = "AL-080"
    STREAM_FAILED = "AL-081"
    UNFINISHED_RESTORE = "AL-082"
    TIMELINE_AHEAD = "AL-083"
    CHANGES_LOST = "AL-084"
    CLUSTERING_PLAN = "AL-085"
    CUT_FILES = "AL-086"
    STRAY_FILES = "AL-087"
    TABLE_BUSY = "AL-088"
    UNFINISHED_REBUCKET = "AL-089"


_GIVEN: Final = re.compile(r" ?\[(AL-\d{3})\]")


def coded(text: str, code: str | None) -> str:
    """Return a sentence with one code, at its end.

    Args:
        text: The sentence. An error that it quotes loses its code: the reader looks one code up.
        code: The sentence's own code; None: that of the first error in it, if there is one.
    """
    if (quoted := _GIVEN.search(text)) is not None:
        text = _GIVEN.sub("", text)
        code = code or quoted[1]
    return text if code is None else f"{text} [{code}]"
