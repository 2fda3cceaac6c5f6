"""A splice table as its files lie on disk, read without Spark: what is in flight, and what became of it."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

DELTA_COMMIT: Final = "deltacommit"
ROLLBACK: Final = "rollback"
# <requested>.<action>.requested|inflight, at completion <requested>_<completed>.<action>
_INSTANT: Final = re.compile(r"(?P<requested>\d{17})(_(?P<completed>\d{17}))?\.(?P<action>[a-z]+)[.a-z]*")
# .<file id>_<instant>.log.<version>_<write token>
_LOG_FILE: Final = re.compile(r"\..+_(?P<instant>\d{17})\.log\.\d+_[\d-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Instant:
    """One action on the timeline; ``completed`` is None while it is pending."""

    requested: str
    action: str
    completed: str | None


class TableFiles:
    """The timeline and the log files of a table on this machine.

    Instants are remembered, since archival takes old ones off the folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._timeline = path / ".hoodie" / "timeline"
        self._seen: dict[tuple[str, str], Instant] = {}

    @property
    def instants(self) -> list[Instant]:
        """Every instant seen so far, in the order of the requests."""
        return sorted(self._seen.values(), key=lambda instant: instant.requested)

    def look(self) -> None:
        """Take in what the timeline shows now."""
        for name in _names(self._timeline):
            if (match := _INSTANT.fullmatch(name)) is None:
                continue
            # A compaction completes as a commit, under the instant of its plan.
            action = "compaction" if match["action"] == "commit" else match["action"]
            key = match["requested"], action
            if key not in self._seen or match["completed"]:
                requested, completed = match["requested"], match["completed"]
                self._seen[key] = Instant(requested=requested, action=action, completed=completed)

    def completed(self) -> Counter[str]:
        """How many instants of each action have completed."""
        return Counter(instant.action for instant in self._seen.values() if instant.completed)

    def is_in_flight(self, instant: str) -> bool:
        """Whether a delta commit has begun and not completed."""
        begun = (self._timeline / f"{instant}.{DELTA_COMMIT}.inflight").exists()
        return begun and not self.is_completed(instant)

    def is_completed(self, instant: str) -> bool:
        """Whether a delta commit has completed."""
        return any(self._timeline.glob(f"{instant}_*.{DELTA_COMMIT}"))

    def written_by(self, process: int) -> tuple[str, str] | None:
        """The instant in flight that a process is writing, and the log file that it has open; else None."""
        for target in _open_files(process):
            match = _LOG_FILE.fullmatch(target.name)
            if match and target.is_relative_to(self._path) and self.is_in_flight(match["instant"]):
                return match["instant"], target.name
        return None

    def log_files(self, instant: str) -> list[str]:
        """The log files that an instant has left."""
        return sorted(name for name in _names(self._path) if f"_{instant}.log." in name)

    def rollback_of(self, instant: str) -> Instant | None:
        """The completed rollback of a delta commit that is gone from the timeline; None until then."""
        if any(self._timeline.glob(f"{instant}*.{DELTA_COMMIT}*")):
            return None
        for path in self._timeline.glob(f"*.{ROLLBACK}"):
            # Its metadata is an Avro file, whose strings are stored as they are.
            if instant.encode() in path.read_bytes():
                requested, _, completed = path.name.removesuffix(f".{ROLLBACK}").partition("_")
                return Instant(requested=requested, action=ROLLBACK, completed=completed)
        return None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  a list of Path objects is slow to make at every look
    except FileNotFoundError:
        return []


def _open_files(process: int) -> Iterator[Path]:
    folder = Path(f"/proc/{process}/fd")
    for name in _names(folder):
        try:
            yield (folder / name).readlink()
        except FileNotFoundError:  # closed meanwhile
            continue
