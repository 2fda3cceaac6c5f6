"""A lock in words: since when and until when it is held, and whether its holder is alive."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from asynclock._core.narration import span
from asynclock._core.status import RENEWALS_PER_VALIDITY
from asynclock._text import clock, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock._core.status import LockStatus

_DEAD: Final = 3
"""A holder with this many missed renewals is called dead. One renewal may take as long as two."""
_DEFAULT_HOLDER: Final = r"([^:\s]+):\d+:(.+)"
_REASON: Final = 1000
"""Characters of a reason that are shown."""
_NO_TIMES: Final = "unknown: the store sends no time, or this machine's clock does not agree with it"


def is_overdue(status: LockStatus) -> bool:
    """Whether a lock is held, and its holder is probably dead."""
    return status.state == "held" and (status.missed_renewals or 0) >= _DEAD


def holder_cell(status: LockStatus) -> str:
    """Return the holder of a lock, or a note if it has none."""
    if status.state == "corrupt":
        return printable(status.reason or "")
    if status.kept and status.store_time is not None and status.remaining is not None:
        return f"kept until {clock(status.store_time + status.remaining)}"
    if status.kept:
        return "kept"
    if status.state in {"held", "expired"}:
        return _holder(status)
    return "-" if status.holder is None else f"last {printable(status.holder)}"


def free_in_cell(status: LockStatus) -> str:
    """Return the time until others may take a lock."""
    if status.state == "expired":
        return "now"
    if status.state != "held":
        return "-"
    return "?" if status.remaining is None else span(status.remaining)


def last_write_cell(status: LockStatus) -> str:
    """Return how long ago a lock was written, and how many renewals are overdue."""
    if status.age is None:
        return "-"
    missed = f", {status.missed_renewals} missed" if status.state == "held" and status.missed_renewals else ""
    return f"{span(status.age)} ago{missed}"


def since_cell(status: LockStatus) -> str:
    """Return how long ago a lock was acquired."""
    if status.since_ms is None or status.state not in {"held", "expired"}:
        return "-"
    since = status.since_ms / 1000
    return clock(since) if status.store_time is None else f"{span(status.store_time - since)} ago"


def overdue_words(status: LockStatus) -> str | None:
    """Return a sentence about the renewals that the holder missed; None if it is on time."""
    missed = status.missed_renewals
    if status.state != "held" or not missed:
        return None
    guess = "probably dead" if missed >= _DEAD else "late, or the store is slow"
    free = ""
    if status.store_time is not None and status.remaining is not None:
        free = f"; free at {clock(status.store_time + status.remaining)}"
        free += "" if missed >= _DEAD else " unless it is renewed"
    return f"{missed} renewal{'s' if missed > 1 else ''} missed: the holder is {guess}{free}"


def facts(status: LockStatus, *, break_command: str) -> Iterator[tuple[str, str]]:
    """Yield the known facts of a lock, each with its name.

    Args:
        status: The lock.
        break_command: The command that breaks it.
    """
    if status.state == "absent":
        yield "", "there is no object: it was never taken, or the URL or name is wrong"
    elif status.state == "corrupt":
        yield "reason", printable(status.reason, limit=_REASON)
        yield "", "neither held nor free: nobody can take it until it is replaced"
        yield "next", f"{break_command} shows its first bytes; with --force it replaces them with a free lock"
    elif status.state == "free":
        yield from _of_a_free_lock(status)
    elif status.kept:
        yield from _of_a_kept_lock(status)
    else:
        yield from _of_a_held_lock(status)
    yield "url", status.url
    if status.owner is not None:
        yield ("owner" if status.state in {"held", "expired"} else "last owner"), printable(status.owner)
    if status.fencing_token is not None:
        yield "token", str(status.fencing_token)


def _of_a_free_lock(status: LockStatus) -> Iterator[tuple[str, str]]:
    if status.holder is not None:
        yield "last holder", printable(status.holder)
    if status.store_time is None:
        return
    if status.remaining is not None:  # it was kept, and that time has passed
        yield "free since", _ago(status, status.store_time + status.remaining)
    elif status.age is not None:
        yield "free since", _ago(status, status.store_time - status.age)


def _of_a_kept_lock(status: LockStatus) -> Iterator[tuple[str, str]]:
    yield "kept until", _until(status)
    yield "", "by --at-least, or for a ticket: its work is done, and nobody works under it"
    if status.holder is not None:
        found = re.fullmatch(_DEFAULT_HOLDER, status.holder)
        # Without the process id, because that process has ended.
        yield "last holder", printable(f"{found[1]}:{found[2]}" if found else status.holder)
    yield from _since(status)


def _of_a_held_lock(status: LockStatus) -> Iterator[tuple[str, str]]:
    yield "holder", _holder(status)
    yield from _since(status)
    if status.age is not None:
        due = ""
        if status.validity is not None and status.state == "held":
            due = f", due every {span(status.validity / RENEWALS_PER_VALIDITY)}"
        yield "last renewal", f"{span(status.age)} ago{due}"
    if (overdue := overdue_words(status)) is not None:
        yield "overdue", overdue
    if status.state == "held":
        yield "free at", _until(status) + ("" if is_overdue(status) else " unless it is renewed")
    elif status.store_time is not None and status.remaining is not None:
        yield "free since", _ago(status, status.store_time + status.remaining)
        yield "", "not released: its holder died or lost contact; others may take it"


def _holder(status: LockStatus) -> str:
    return printable(status.holder) if status.holder is not None else f"Hudi writer {printable(status.owner)}"


def _since(status: LockStatus) -> Iterator[tuple[str, str]]:
    if status.since_ms is not None:
        yield "since", _ago(status, status.since_ms / 1000)


def _ago(status: LockStatus, epoch: float) -> str:
    ago = "" if status.store_time is None else f" ({span(status.store_time - epoch)} ago)"
    return clock(epoch) + ago


def _until(status: LockStatus) -> str:
    if status.store_time is None or status.remaining is None:
        return _NO_TIMES
    return f"{clock(status.store_time + status.remaining)} (in {span(status.remaining)})"
