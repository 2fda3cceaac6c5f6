"""A splice table as its files lie there, read without Spark: what is in flight, and what became of it."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from asynclock.backend import Stored
from asynclock.backends import open_backend

if TYPE_CHECKING:
    from collections.abc import Mapping

DELTA_COMMIT: Final = "deltacommit"
ROLLBACK: Final = "rollback"
_TIMELINE: Final = ".hoodie/timeline"
# <requested>.<action>.requested|inflight, at completion <requested>_<completed>.<action>
_INSTANT: Final = re.compile(r"(?P<requested>\d{17})(_(?P<completed>\d{17}))?\.(?P<action>[a-z]+)[.a-z]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Instant:
    """One action on the timeline; ``completed`` is None while it is pending."""

    requested: str
    action: str
    completed: str | None


class Folder(Protocol):
    """What is needed of the folder that a table is."""

    def names(self, below: str) -> list[str]:
        """Names of the files in a folder below; none if it does not exist."""
        ...

    def read(self, path: str) -> bytes:
        """Content of a file."""
        ...


class LocalFolder:
    """A table on this machine.

    Args:
        path: Its path, or its ``file://`` URL.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(str(path).removeprefix("file://"))

    def names(self, below: str) -> list[str]:
        """Names of the files in a folder below; none if it does not exist."""
        return _names(self._path / below)

    def read(self, path: str) -> bytes:
        """Content of a file."""
        return (self._path / path).read_bytes()


class StoreFolder:
    """A table in an object store.

    Args:
        url: Its URL.
        options: Of the store.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._backend = open_backend(url, **options)

    def names(self, below: str) -> list[str]:
        """Names of the objects in a folder below; none if there are none."""
        folder = f"{below}/" if below else ""

        async def listed() -> list[str]:
            keys = [entry.key async for entry in self._backend.list(folder)]
            return [key.removeprefix(folder) for key in keys]

        return [name for name in self._loop.run_until_complete(listed()) if "/" not in name]

    def read(self, path: str) -> bytes:
        """Content of an object of at most 64 KiB."""
        found = self._loop.run_until_complete(self._backend.get(path))
        assert isinstance(found, Stored)  # noqa: S101  it was listed
        return found.body

    def write(self, path: str, body: bytes) -> None:
        """Write an object."""
        self._loop.run_until_complete(self._backend.put(path, body))

    def close(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self._backend.aclose())
        self._loop.close()


class TableFiles:
    """The timeline and the log files of a table.

    Instants are remembered, since archival takes old ones off the folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._seen: dict[tuple[str, str], Instant] = {}

    @property
    def instants(self) -> list[Instant]:
        """Every instant seen so far, in the order of the requests."""
        return sorted(self._seen.values(), key=lambda instant: instant.requested)

    def look(self) -> None:
        """Take in what the timeline shows now."""
        for name in self._folder.names(_TIMELINE):
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

    def is_completed(self, instant: str) -> bool:
        """Whether a delta commit has completed."""
        return _is_completed(instant, self._folder.names(_TIMELINE))

    def is_half_written(self, instant: str) -> bool:
        """Whether a delta commit has left a log file and has not completed."""
        names = self._folder.names(_TIMELINE)
        in_flight = f"{instant}.{DELTA_COMMIT}.inflight" in names and not _is_completed(instant, names)
        return in_flight and bool(self.log_files(instant))

    def log_files(self, instant: str) -> list[str]:
        """The log files that an instant has left."""
        return sorted(name for name in self._folder.names("") if f"_{instant}.log." in name)

    def rollback_of(self, instant: str) -> Instant | None:
        """The completed rollback of a delta commit that is gone from the timeline; None until then."""
        names = self._folder.names(_TIMELINE)
        if any(name.startswith(instant) and f".{DELTA_COMMIT}" in name for name in names):
            return None
        for name in names:
            # Its metadata is an Avro file, whose strings are stored as they are.
            if name.endswith(f".{ROLLBACK}") and instant.encode() in self._folder.read(f"{_TIMELINE}/{name}"):
                requested, _, completed = name.removesuffix(f".{ROLLBACK}").partition("_")
                return Instant(requested=requested, action=ROLLBACK, completed=completed)
        return None


def _is_completed(instant: str, names: list[str]) -> bool:
    return any(name.startswith(f"{instant}_") and name.endswith(f".{DELTA_COMMIT}") for name in names)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  a list of Path objects is slow to make at every look
    except FileNotFoundError:
        return []
