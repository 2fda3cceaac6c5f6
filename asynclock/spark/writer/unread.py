"""Warns of files of a source that Spark will not read, or not read again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asynclock.spark.source.checkpoint import Checkpoint

log = logging.getLogger(__name__)

_CHANGED: Final = "has changed after it was read, and a file is read once: deliver what is new as a new file"
_HIDDEN: Final = "is never read, because its name begins with _ or .: rename it"


class UnreadChanges:
    """The files of a stream that are not read, each of which is reported once.

    Args:
        stream: Name of the stream.
        checkpoint: Knows what was read.
    """

    def __init__(self, stream: str, checkpoint: Checkpoint) -> None:
        self._stream = stream
        self._checkpoint = checkpoint
        self._reported: set[str] = set()

    def tell(self) -> None:
        """Look over the source, and warn of each file that was not reported yet."""
        try:
            found = self._checkpoint.unread_changes()
        except Exception:  # a failed look is no reason to stop
            log.warning("stream %s: cannot look over the source", self._stream, exc_info=True)
            return
        for files, what in ((found.changed, _CHANGED), (found.hidden, _HIDDEN)):
            for file in files:
                if file not in self._reported:
                    log.warning("stream %s: %s %s", self._stream, file, what)
        self._reported.update(found.changed, found.hidden)
