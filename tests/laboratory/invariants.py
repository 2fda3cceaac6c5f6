"""What must hold in every simulated history."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Invariant(StrEnum):
    """What must hold in every history."""

    ONE_BELIEVER = "at-most-one-believer"
    """At no instant do more leases say ``held`` than may: one of a lock, and of a semaphore one a slot."""
    HEADS_CHAIN = "believer-heads-chain"
    """The record of a believer is the one in the store: its version, or a later write of its own."""
    LOSS_IS_FINAL = "loss-is-final"
    """A lease that has told its user that it is lost is never held again."""
    LOSS_ENDS_BODY = "loss-ends-the-body"
    """The body of ``hold`` is cancelled soon after a loss, and ``hold`` says why."""
    ONE_WRITE = "one-write-at-a-time"
    """No lease sends a write beside another of its own (``break_lock``, an operator's, aside)."""
    END_IS_KEPT = "no-renewal-after-the-end"
    """For a lease that has ended no record is sent that claims the lock."""
    NO_FALSE_LOSS = "no-false-loss"
    """No lease is reported taken over while its own record stands in the store."""
    TOKEN_RISES = "token-rises"  # noqa: S105  a fencing token
    """Each acquisition hands out a higher fencing token than every earlier one."""
    NO_WRITE_LOST = "no-fenced-write-lost"
    """Every acknowledged fenced write is in the object, and its tokens never fall."""
    TAKEOVER_BOUND = "takeover-bound"
    """After the faults have stopped, somebody acquires within the bound."""
    NOTHING_LEFT = "nothing-left-behind"
    """After ``aclose`` no task or timer of a client is left, and no lock is held."""
    CLOSED = "closed-is-closed"
    """Once any call of ``aclose`` has returned no lease believes, and nothing touches the backend."""
    READABLE = "our-records-are-readable"
    """No record that a client of ours wrote is corrupt to any client."""
    LOSS_IS_TOLD = "loss-at-release-is-told"
    """A release that finds the lock gone raises."""
    LOSS_IS_TRUE = "loss-at-release-is-true"
    """A release tells of a takeover only where somebody else displaced the lease's live record."""
    KEPT = "kept-at-least"
    """Nobody acquires a lock that is to be kept for a time before that time is up."""
    LEADERS = "leaders-are-told"
    """A candidate learns of real leaders only, in the order of their terms, and of its own term."""
    STEPS_DOWN = "a-leader-steps-down"
    """A leader that steps down holds the lock until its work has ended, and then stands back."""
    CAPPED = "ends-at-most"
    """No lease is believed for longer than it may be, and its records promise the margin more at most."""
    TICKETS = "a-ticket-works-once"
    """A ticket makes one lease at most, over the record that offers the lock, which nobody else may take."""
    NOT_AHEAD = "token-not-from-the-future"
    """No token that is handed out is later than the store's latest clock."""
    TOGETHER = "all-or-none"
    """Several locks are held all or not at all, within one deadline; the first loss is that of all."""
    ONE_RUN = "one-run-a-period"
    """Nothing runs that was marked as done before its lease, and one call returns a result in a period."""
    RUN_AGAIN = "what-is-not-done-is-run-again"
    """A call is skipped for what is done, or without ``wait`` held; only a run that returned is marked."""
    PERIODS = "periods-go-on"
    """A mark is of a period that all clocks of the store showed, and none stands before an older one."""
    LEAVING_IS_SHORT = "leaving-is-short"
    """Leaving ``hold`` ends within the bound, whatever the store answers."""
    BESIDE = "no-writer-beside-a-reader"
    """At no instant does the writer of a reader-writer lock believe while a reader does."""
    SLOTS = "no-slot-beyond-the-number"
    """No slot is handed out that the store has not had since the slot was acquired."""
    FAIR = "fair"
    """Nobody waits while others take turn after turn."""
    REFUSALS = "refusals-are-told"
    """A store is called broken for its refusals if, and only if, it refuses again and again what it shows."""
    NO_ERROR = "no-unexpected-error"
    """Only documented errors are raised, and none in the background."""


class Violation(NamedTuple):
    """An invariant that did not hold.

    Attributes:
        at: True time, in seconds.
        invariant: Which one.
        detail: Who and what.
    """

    at: float
    invariant: Invariant
    detail: str
