"""Why some branches of ``asynclock/_core/protocol/`` are reached by no simulated history."""

from __future__ import annotations

from typing import Final

_ONE_THREAD: Final = (
    "Only another thread can end or renew the lease between two looks; a history has one thread."
)
_NOT_TRIED_OUT: Final = (
    "The store of a history has no address, so no client tries it out before its first lock."
)
_NO_ETAG: Final = "The versions of a history's store are no ETags, and nothing changes them on the way."
WHY: Final[dict[tuple[str, str], str]] = {
    (
        "issuer.py",
        "if (token := next_token_without_dates(predecessor, now.wall)) is not None:",
    ): "No Java writer is put beside a store that never sends a Date.",
    ("acquire.py", "if self._objects.verifier.needed:"): _NOT_TRIED_OUT,
    ("objects.py", "if self.verifier.needed:"): _NOT_TRIED_OUT,
    ("verifier.py", "if self.needed:"): _NOT_TRIED_OUT,
    ("verifier.py", "if self._trial is None or self._trial.done():"): _NOT_TRIED_OUT,
    ("verifier.py", "if trial.done() and not trial.cancelled():"): _NOT_TRIED_OUT,
    ("verifier.py", "if self._failure is not None:"): _NOT_TRIED_OUT,
    ("verifier.py", "if place is not None:"): _NOT_TRIED_OUT,
    ("refusals.py", 'if base.startswith("W/"):'): _NO_ETAG,
    ("refusals.py", "if back != base or re.fullmatch(_COMPRESSED, base):"): _NO_ETAG,
    (
        "belief.py",
        "elif self.tenure.refusals.final:",
    ): "A lease has to meet refusals only, a dozen in a row, until its deadline.",
    (
        "decisions.py",
        "if not self.is_of(seen):",
    ): "Every answer that is judged was noted by the observation first.",
    ("belief.py", "if (left := self.left()) > 0:"): _ONE_THREAD,
    ("belief.py", "if self.phase is not Phase.HELD:"): _ONE_THREAD,
    ("belief.py", "elif first is end:"): _ONE_THREAD,
    (
        "renewer.py",
        "if (renewal := self.start()) is None:",
    ): "A lease is asked whether it is held in the step that asks for a renewal.",
    (
        "release.py",
        "if self._stop(loss) or self in self._in_flight.unfreed:",
    ): "An exit whose loop is closed opens the store again, on a real loop.",
    (
        "ending.py",
        "if not self.future.done() and not self.loop.is_closed():",
    ): "A lease is released twice only if its client is closed while its token settles.",
    (
        "claim.py",
        "if kept_until > objects.clock.boot() and not objects.issuer.knows_time():",
    ): "The leases that a history keeps are renewed more often than a Date is too old to be carried.",
    (
        "schedule.py",
        "for held in self.held:",
    ): "A lease outlasts the exit bound of its client only if the store does not answer its release.",
    (
        "schedule.py",
        "if held.body.is_gone:",
    ): "A history has one event loop, which is not closed before its end.",
    ("release.py", "elif freed is None:"): "The store answers before L and a request timeout are over.",
    (
        "decisions.py",
        "if latest - earliest - timing.resolution > timing.longest_trip_for_future:",
    ): "With a lease that is long enough not to be refused, requests time out before a trip is that long.",
    (
        "objects.py",
        "if expired:",
    ): "The store of a history fails as a backend does; no SDK below it cancels a call or raises otherwise.",
    (
        "timing.py",
        "if settings.validity < self.slack:",
    ): "A client with such settings is refused when it is made, and takes no part in a history.",
}
"""By file and the line that branches."""
