"""Find and signal every process that a command has started, in any process group or session.

A signal to the command's process group is not enough: ``timeout``, ``setsid`` and shells with job
control start new groups, which it does not reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PR_SET_CHILD_SUBREAPER: Final = 36
_PROC: Final = Path("/proc")


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent ends, so that they can still be found.

    Source: prctl(2), PR_SET_CHILD_SUBREAPER. Does nothing on systems other than Linux.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_descendants(number: int, *, spare: int) -> int:
    """Send a signal to every living descendant of this process; returns how many there were.

    Args:
        number: The signal; 0 only counts.
        spare: A descendant that gets no signal, nor do its own descendants.
    """
    alive = list(_descendants(os.getpid(), spare))
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return len(alive)


def _descendants(root: int, spare: int) -> Iterator[int]:
    children: dict[int, list[tuple[int, str]]] = {}
    for pid, state, parent in _processes():
        children.setdefault(parent, []).append((pid, state))
    front = [root]
    while front:
        for pid, state in children.get(front.pop(), ()):
            if pid == spare:
                continue
            front.append(pid)
            if state not in "ZX":
                yield pid


def _processes() -> Iterator[tuple[int, str, int]]:
    """Yield pid, state and parent of every process; nothing on systems without ``/proc``."""
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The program's name is in parentheses and may contain any character.
            fields = (
                (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            )
            yield int(folder.name), fields[0], int(fields[1])
