"""Writes that the store refuses although nobody else has written (rule 23)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from asynclock._text import printable
from asynclock.errors import PreconditionFailedError, UnsupportedBackendError

if TYPE_CHECKING:
    from asynclock.errors import BackendError

REFUSALS: Final = 3
"""With this many refusals in a row over an unchanged object, contention is not the cause."""
_COMPRESSED: Final = r'.*[-;](gzip|br|deflate|zstd|df)"?'
_SHOWN: Final = 80


Shown: TypeAlias = tuple[str | None, object]
"""The version of an object, None without one; and what tells two writes apart even if the version was changed
on the way, None if unknown."""


class Refusals:
    """Counts how often in a row writes of one object were refused over what the next read still showed.

    Attributes:
        count: How often; 0 after another object was shown.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self._base: Shown = (None, None)
        self._back: Shown = (None, None)

    @property
    def final(self) -> bool:
        """Whether there have been too many for contention."""
        return self.count >= REFUSALS

    def note(self, base: Shown, back: Shown) -> bool:
        """Note a refused write on ``base`` and the read after it; return whether that showed the same."""
        if not _is_still(back, base):
            self.count = 0
            return False
        self.count = self.count + 1 if _is_still(base, self._base) else 1
        self._base, self._back = base, back
        return True

    def error(self, refused: BackendError, *, url: str) -> BackendError:
        """Return the error for the last refusal noted. The third in a row is not contention.

        Args:
            refused: The store's refusal.
            url: Where the objects are.
        """
        times = "once" if self.count == 1 else f"{self.count} times in a row"
        version = self._base[0]
        shown = "no object" if version is None else f"still {printable(version, limit=_SHOWN)}"
        detail = (
            f"refused {times} ({refused.detail}), but nobody else has written (reads show {shown}); "
            f"run: asynclock doctor {url}; {_cause(version, self._back[0])}"
        )
        kind = UnsupportedBackendError if self.final else PreconditionFailedError
        return kind(
            backend=refused.backend,
            operation=refused.operation,
            key=refused.key,
            detail=detail,
            written="no",
        )


def _is_still(back: Shown, base: Shown) -> bool:
    """Whether ``back`` equals ``base``: no other write came in between."""
    return back[0] == base[0] or (back[1] is not None and back[1] == base[1])


def _cause(base: str | None, back: str | None) -> str:
    """Return a possible reason, from the version that a write was based on and the one that a read showed."""
    if base is None:
        return "a delete marker may refuse If-None-Match, or a cache or a node that lags behind answers reads"
    if base.startswith("W/"):
        return "the ETag is weak, so no If-Match matches it: something before the store has changed it"
    if back != base or re.fullmatch(_COMPRESSED, base):
        return "ETags are changed on the way, as by a proxy that compresses answers"
    quoted = "the store may not match a quoted ETag (as older Ceph), or " if base.startswith('"') else ""
    return f"{quoted}a proxy may change versions, or a cache or a node that lags behind answers reads"
