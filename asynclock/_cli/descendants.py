"""Finds and signals every process that a command started, in any process group or session.

A signal to the command's process group is not enough: ``timeout``, ``setsid`` and shells with job control
start new groups that it does not reach.

``guard`` runs this file as a program, so it imports only small parts of the standard library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_PROC = "/proc"
_LONGEST_SLEEP = 1.0
_LOOK_SECONDS = 0.02
_STANDARD_INPUT = 0


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants, so that it can still find them.

    Source: prctl(2), PR_SET_CHILD_SUBREAPER. Does nothing on other systems than Linux.
    """
    import ctypes  # noqa: PLC0415  the guard does not need it

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_all(number: int, *, group: int, root: int, spare: int) -> int:
    """Send a signal once to each process of a group and each descendant; return how many are alive.

    Args:
        number: The signal; 0 only counts.
        group: A process group; 0: not known yet.
        root: The process whose descendants get the signal.
        spare: A descendant that gets no signal, nor do its own descendants.
    """
    if number and group:
        # First the whole group at once, so that none of its processes can escape by a fork.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    alive = list(_descendants(root, spare))
    for pid, its_group in alive if number else ():
        if its_group != group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
    return len(alive)


def ended_children(parent: int) -> set[int]:
    """Return the children of a process that have ended and were not reaped."""
    return {pid for pid, state, its_parent, _ in _processes() if its_parent == parent and state == "Z"}


def _descendants(root: int, spare: int) -> list[tuple[int, int]]:
    """Return process id and group of every living descendant."""
    children: dict[int, list[tuple[int, str, int]]] = {}
    for pid, state, parent, group in _processes():
        children.setdefault(parent, []).append((pid, state, group))
    front, found = [root], []
    while front:
        for pid, state, group in children.get(front.pop(), ()):
            if pid == spare:
                continue
            front.append(pid)
            if state not in "ZX":
                found.append((pid, group))
    return found


def _processes() -> list[tuple[int, str, int, int]]:
    """Return id, state, parent and group of every process; empty on systems without ``/proc``."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for pid in filter(str.isdigit, os.listdir(_PROC)):  # noqa: PTH208  pathlib is slow to import
            with (
                contextlib.suppress(OSError),
                open(f"{_PROC}/{pid}/stat", encoding="utf-8", errors="replace") as stat,  # noqa: PTH123  as above
            ):
                # The program's name is in parentheses and may contain any character.
                fields = stat.read().rpartition(")")[2].split()
                found.append((int(pid), fields[0], int(fields[1]), int(fields[2])))
    return found


def boot_seconds() -> float:
    """Return the seconds since this machine booted, including time suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _Watchman:
    """The guard's program: it ends a command if the lease ends and the wrapper does not act.

    It reads lines: ``group N``: guard that process group; ``lease T K``: SIGTERM at boot time T and SIGKILL
    at K; ``ending K``: the wrapper has sent SIGTERM; ``well``: the command has ended. If the input ends
    without ``well``, the wrapper died: the guard sends SIGTERM at once.
    """

    def __init__(self, wrapper: int, grace: float) -> None:
        self._wrapper = wrapper
        self._grace = grace
        self._group = 0
        self._term_at = self._kill_at = float("inf")

    def run(self) -> None:
        rest = b""
        while True:
            left = min(self._term_at, self._kill_at) - boot_seconds()
            # Timers stop while the machine is suspended, so keep reading the clock.
            if select.select([_STANDARD_INPUT], [], [], max(0.0, min(left, _LONGEST_SLEEP)))[0]:
                received = os.read(_STANDARD_INPUT, 4096)
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    self._take(line.decode().split())
                if b"well" in lines or not self._group:
                    if not received or b"well" in lines:
                        return
                elif not received:
                    self._end()
                    return
            self._act()

    def _take(self, words: list[str]) -> None:
        if words[0] == "group":
            self._group = int(words[1])
        elif words[0] == "lease":
            self._term_at, self._kill_at = float(words[1]), float(words[2])
        elif words[0] == "ending":
            self._term_at, self._kill_at = float("inf"), float(words[1])

    def _act(self) -> None:
        now = boot_seconds()
        if now >= self._kill_at:
            while self._signal(signal.SIGKILL):
                time.sleep(_LOOK_SECONDS)
            self._term_at = self._kill_at = float("inf")
        elif now >= self._term_at:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process handles SIGTERM only after SIGCONT
            self._term_at = float("inf")

    def _end(self) -> None:
        """End the group of a dead wrapper. It still believed in the lease, so there is a grace period."""
        now = boot_seconds()
        kill_at = min(self._kill_at, now + self._grace)
        if kill_at > now:
            self._signal_group(signal.SIGTERM)
            self._signal_group(signal.SIGCONT)
        while self._signal_group(0) and boot_seconds() < kill_at:
            time.sleep(_LOOK_SECONDS)
        self._signal_group(signal.SIGKILL)

    def _signal(self, number: int) -> int:
        return signal_all(number, group=self._group, root=self._wrapper, spare=os.getpid())

    def _signal_group(self, number: int) -> bool:
        # Only the group: another process may have the wrapper's id by now.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)
            return True
        return False


if __name__ == "__main__":
    _Watchman(int(sys.argv[1]), float(sys.argv[2])).run()
