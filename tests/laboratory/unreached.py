"""Why some branches of ``asynclock/protocol/`` are reached by no simulated history."""

from __future__ import annotations

from typing import Final

_ONE_THREAD: Final = (
    "Only another thread can end or renew the lease between two looks; a history has one thread."
)
WHY: Final[dict[tuple[str, str], str]] = {
    ("acquisition.py", "if token is None:"): "No Java writer is put beside a store that never sends a Date.",
    (
        "acquisition.py",
        "if valid_until is None:",
    ): "A Date that made a token a moment before is still there to publish by.",
    (
        "judgement.py",
        "if not self.is_of(seen):",
    ): "Every answer that is judged was noted by the observation first.",
    ("tenure.py", "if (left := self._left()) > 0:"): _ONE_THREAD,
    ("tenure.py", "if self._ended:"): _ONE_THREAD,
    ("tenure.py", "if threading.get_ident() == self._thread:"): _ONE_THREAD,
    (
        "tenure.py",
        "if flight is None:",
    ): "A lease is asked whether it is held in the step that asks for a renewal.",
    (
        "tenure.py",
        "if self.remaining() <= 0:",
    ): "Who starts a renewal has asked in the same step whether the lease is held.",
    (
        "tenure.py",
        "if self.end_belief():",
    ): "An exit whose loop is closed opens the store anew, on a real loop.",
    ("tenure.py", "if self._handing is not None:"): "Asked only of a lease that was handed on.",
    ("tenure.py", "elif freed is None:"): "The store answers before L and a request timeout are over.",
    (
        "terms.py",
        "if settings.validity < settings.max_clock_skew + resolution:",
    ): "A client with such settings is refused when it is made, and takes no part in a history.",
}
"""By file and the line that branches."""
