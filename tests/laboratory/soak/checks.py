"""What must hold of the tables of a soak, as judgements on what was observed: no Spark, no files, no clock.

Each judgement returns a sentence for every difference between what was observed and what must be.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

Cells = tuple[Any, ...]
"""What a stream says of a key, the ordering value first."""


class States:
    """The states of one stream that a reader may see: that after each whole number of its files.

    Args:
        stream: Its name, for messages.
    """

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._files: dict[int, list[int]] = {hash(frozenset()): [0]}
        self._newest: Mapping[Any, Cells] = {}
        self._count = 0
        self._least = 0
        self._seen: dict[Any, Any] = {}

    def add(self, state: Mapping[Any, Cells]) -> None:
        """Note the state after one more file, before a reader can see it."""
        self._count += 1
        self._newest = dict(state)
        self._files.setdefault(hash(frozenset(state.items())), []).append(self._count)

    @property
    def files(self) -> int:
        """How many files there are."""
        return self._count

    def look(self, rows: Mapping[Any, Cells]) -> list[str]:
        """Judge a snapshot: no ordering value goes back, and it has whole files, no fewer than the last."""
        found = self._gone_back(rows)
        files = self._files.get(hash(frozenset(rows.items())))
        if files is None:
            wrong = self._unlike_newest(rows)[:5]
            what = f"a snapshot is no whole number of files; after {self._count}, {wrong} are otherwise"
            return [*found, f"{self._stream}: {what}"]
        if files[-1] < self._least:
            found.append(f"{self._stream}: {self._least} files were seen, and then {files[-1]}")
        self._least = max(self._least, files[0])
        return found

    def last(self, rows: Mapping[Any, Cells]) -> list[str]:
        """Judge the last snapshot, which must have every file."""
        if dict(rows) == dict(self._newest):
            return []
        wrong = self._unlike_newest(rows)
        return [f"{self._stream}: {len(wrong)} keys differ from the last file's state, such as {wrong[:5]}"]

    def _unlike_newest(self, rows: Mapping[Any, Cells]) -> list[str]:
        keys = rows.keys() | self._newest.keys()
        return sorted(str(key) for key in keys if rows.get(key) != self._newest.get(key))

    def _gone_back(self, rows: Mapping[Any, Cells]) -> list[str]:
        found = [
            f"{self._stream}: {key} was at {before} and is at {rows[key][0] if key in rows else 'nothing'}"
            for key, before in self._seen.items()
            if key not in rows or rows[key][0] < before
        ]
        self._seen |= {key: cells[0] for key, cells in rows.items()}
        return found


class Tokens:
    """The fencing tokens of locks, as they are seen one after the other: each new owner has a larger one."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, str]] = {}

    def look(self, lock: str, owner: str, token: int) -> list[str]:
        """Judge one more look at a lock."""
        before, owner_before = self._newest.get(lock, (-1, ""))
        self._newest[lock] = (token, owner)
        if owner == owner_before and token != before:
            return [f"{lock}: the token of {owner} was {before} and is {token}"]
        if owner != owner_before and token <= before:
            return [f"{lock}: {owner} has token {token} after {owner_before} with {before}"]
        return []


def doubled(keys: Iterable[Hashable]) -> list[str]:
    """Judge a snapshot's keys, each of which must be there once."""
    return [f"{key} has {number} rows" for key, number in Counter(keys).items() if number > 1]


def committed_once(batches: Iterable[tuple[str, int]], ended: Mapping[str, int]) -> list[str]:
    """Judge the batches on the timeline: each that a checkpoint has is there once, and no other."""
    times = Counter(batches)
    expected = {(stream, number) for stream, count in ended.items() for number in range(count)}
    return [
        *(f"batch {batch[1]} of {batch[0]} is committed {n} times" for batch, n in times.items() if n > 1),
        *(f"batch {batch[1]} of {batch[0]} is not committed" for batch in sorted(expected - times.keys())),
        *(f"batch {batch[1]} of {batch[0]} is in no checkpoint" for batch in sorted(times.keys() - expected)),
    ]


def tokens_fall(commits: Iterable[tuple[str, int]]) -> list[str]:
    """Judge the streams and tokens of commits in the order of their completion: no token is smaller."""
    newest: dict[str, int] = {}
    found = []
    for stream, token in commits:
        if token < newest.get(stream, token):
            found.append(f"{stream} commits under token {token} after {newest[stream]}")
        newest[stream] = token
    return found


def lost(seen: Iterable[str], left: Iterable[str]) -> list[str]:
    """Judge the completed instants that were seen at any time: in the end each of them is still there."""
    return [f"the completed instant {one} is gone" for one in sorted(set(seen) - set(left))]
