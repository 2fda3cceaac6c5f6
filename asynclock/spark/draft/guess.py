"""Guesses for things that are not in the files: the key of the table and the ordering of each stream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from asynclock.errors import ConfigError
from asynclock.spark.draft.texts import CHANGED_NAME, TIME_NAME
from asynclock.spark.spec.column_groups import TOMBSTONE
from asynclock.spark.spec.model import KEY_TYPES
from asynclock.spark.spec.ordering import ORDERING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asynclock.spark.draft.sample import Sample

_NEARLY: Final = 0.99
_WIDEST_KEY: Final = 3
_MOST_COMMON: Final = 8
_IDENTIFIER: Final = re.compile(
    r"(.*_)?(id|key|uuid|guid|code|no|nr|num|number|sku|iata|icao)|.*(id|num|key)"
)
_VERSION: Final = re.compile(r"(.*_)?(version|revision|rev|seq|sequence|offset|lsn|scn|xid)(_.*)?")


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A guess and its reason, for the comment.

    Attributes:
        names: The columns.
        reason: The reason for them.
        warning: The thing that a person should check first; empty if nothing speaks against them.
    """

    names: tuple[str, ...]
    reason: str
    warning: str = ""


class Streams:
    """The samples of all streams by name, and the facts that their rows show.

    Attributes:
        types: Type by column, by stream; a column of several streams that may be a key has one type.
    """

    def __init__(self, samples: Mapping[str, Sample]) -> None:
        self._samples = samples
        self.types = {stream: dict(sample.types) for stream, sample in samples.items()}
        self._unify()
        self._columns: dict[str, dict[str, list[Any]]] = {}
        for stream, sample in samples.items():
            rows = list(sample.rows(self.types[stream]))
            cells = zip(*rows, strict=True) if rows else ([] for _ in self.types[stream])
            self._columns[stream] = dict(zip(self.types[stream], map(list, cells), strict=True))

    def ordering(self, stream: str, key: Iterable[str]) -> Guess | None:
        """Guess the ordering column of a stream by types and names; None if no column looks like one."""
        left = [name for name in self._orderings(stream) if name not in set(key)]
        timed = [name for name in left if self._looks_like_time(stream, name)]
        return self._best(stream, timed)

    def any_ordering(self, stream: str, key: Iterable[str]) -> Guess:
        """Guess the ordering column among all that are possible.

        Raises:
            ConfigError: No column is possible.
        """
        left = [name for name in self._orderings(stream) if name not in set(key)]
        guess = self._best(stream, left)
        if guess is None:
            reason = (
                "no column says which of two events of a key is the newer one: a timestamp, date or whole "
                f"number that every row has (there are: {self._shown(stream)}). Nothing was written"
                + self._noted(stream)
            )
            raise ConfigError(setting="folder", value=str(self._samples[stream].folder), reason=reason)
        return Guess(names=guess.names, reason=f"A weak guess: no column looks like a time. {guess.reason}")

    def key(self, taken: Mapping[str, str], given: Sequence[str]) -> Guess:
        """Guess the key, or check the one that was given.

        Args:
            taken: The ordering column by stream.
            given: The columns that the user names; empty: none.

        Raises:
            ConfigError: No column of all streams could be a key.
        """
        common = self._common(taken)
        for name in given:
            if name not in common:
                reason = (
                    "no key column: every folder must have it, as "
                    f"{', '.join(KEY_TYPES)}, in every row; there are: {', '.join(common) or 'none'}"
                )
                raise ConfigError(setting="key", value=name, reason=reason)
        if given:
            return Guess(names=tuple(given), reason=f"As given. {self._evidence(tuple(given))}")
        if not common:
            reason = (
                "no column is in every folder, with a value in every row: "
                + "; ".join(f"{stream} has {self._shown(stream)}" for stream in self.types)
                + ". Streams of one table share its key; nothing was written"
                + self._noted(*self.types)
            )
            raise ConfigError(setting="key", value=None, reason=reason)
        key = self._likeliest(common[:_MOST_COMMON])
        others = [name for name in common if name not in key]
        hint = f" Also in every row of all streams: {', '.join(others)}." if others else ""
        return Guess(names=key, reason=f"A guess. {self._evidence(key)}{hint}", warning=self._merged(key))

    def share(self, stream: str, names: tuple[str, ...]) -> tuple[int, int]:
        """Return the number of different values of columns, and the number of rows."""
        columns = [self._columns[stream][name] for name in names]
        return len(set(zip(*columns, strict=True))), len(columns[0])

    def nulls(self, stream: str, name: str) -> int:
        """Return the number of rows without a value."""
        return sum(value is None or value == "" for value in self._columns[stream][name])

    def _unify(self) -> None:
        """Give a column one type in all streams, if it has different ones that could be a key."""
        first, *others = self.types.values()
        for name in first:
            kinds = {types.get(name, "") for types in self.types.values()}
            if len(kinds) > 1 and kinds <= {"int", "bigint", "string"}:
                one = "string" if "string" in kinds else "bigint"
                for types in (first, *others):
                    types[name] = one

    def _common(self, taken: Mapping[str, str]) -> list[str]:
        first = next(iter(self.types.values()))
        return [
            name
            for name, kind in first.items()
            if kind in KEY_TYPES
            and "__" not in name
            and name.lower() not in {TOMBSTONE, ORDERING}
            and all(types.get(name) == kind for types in self.types.values())
            and name not in taken.values()
            and all(self._columns[stream][name] and not self.nulls(stream, name) for stream in self.types)
        ]

    def _likeliest(self, common: list[str]) -> tuple[str, ...]:
        singles = [(name,) for name in common]
        named = [key for key in singles if _IDENTIFIER.fullmatch(key[0].lower())]
        wider = [key for size in range(2, _WIDEST_KEY + 1) for key in combinations(common, size)]
        for keys, everywhere in ((named, True), (named, False), (singles, True), (singles, False)):
            if unique := self._unique(keys, everywhere=everywhere):
                return unique
        if named:
            return named[0]
        for everywhere in (True, False):
            if unique := self._unique(wider, everywhere=everywhere):
                return unique
        return max(singles, key=self._mean)

    def _unique(self, keys: Iterable[tuple[str, ...]], *, everywhere: bool) -> tuple[str, ...] | None:
        """Return the first key that is nearly unique in every stream, or in one of them."""
        decide = all if everywhere else any
        for key in keys:
            shares = [self.share(stream, key) for stream in self.types]
            if decide(different >= _NEARLY * rows for different, rows in shares):
                return key
        return None

    def _mean(self, key: tuple[str, ...]) -> float:
        shares = [self.share(stream, key) for stream in self.types]
        return sum(different / rows for different, rows in shares)

    def _evidence(self, key: tuple[str, ...]) -> str:
        shares = {stream: self.share(stream, key) for stream in self.types}
        said = (f"{rows:,} rows of {name} become {different:,}" for name, (different, rows) in shares.items())
        return f"{', '.join(said)}."

    def _merged(self, key: tuple[str, ...]) -> str:
        """Return a warning if rows share a value of the guessed key, so that only the newest one stays."""
        shares = [self.share(stream, key) for stream in self.types]
        if all(different == rows for different, rows in shares):
            return ""
        unique = [name for name in self._common({}) if self._unique([(name,)], everywhere=True)]
        choice = f", such as {', '.join(unique[:3])}" if unique else ""
        return (
            f"the key {', '.join(key)} is a guess: {self._evidence(key)} If these are not updates of the "
            f"same things, choose another key with --key{choice}"
        )

    def _orderings(self, stream: str) -> list[str]:
        types = self.types[stream]
        named = [name for name in types if name.lower() == ORDERING]
        names = named or list(types)
        return [name for name in names if types[name] in {"timestamp", "date", "int", "bigint"}]

    def _looks_like_time(self, stream: str, name: str) -> bool:
        kind, lower = self.types[stream][name], name.lower()
        if kind in {"timestamp", "date"} or lower == ORDERING:
            return True
        return any(pattern.fullmatch(lower) for pattern in (CHANGED_NAME, TIME_NAME, _VERSION))

    def _best(self, stream: str, names: list[str]) -> Guess | None:
        kinds = ("timestamp", "date", "bigint", "int")

        def rank(name: str) -> tuple[Any, ...]:
            lower = name.lower()
            return (
                -(self.nulls(stream, name) > 0),
                -kinds.index(self.types[stream][name]),
                bool(CHANGED_NAME.fullmatch(lower)),
                bool(_VERSION.fullmatch(lower) or TIME_NAME.fullmatch(lower)),
                self.share(stream, (name,))[0],
            )

        full = [name for name in names if self.nulls(stream, name) < len(self._columns[stream][name])]
        if not full:
            return None
        best = max(full, key=rank)
        others = [name for name in full if name != best]
        reason = "By type and name: the newer value wins."
        if others:
            reason += f" Also possible: {', '.join(others)}."
        if missing := self.nulls(stream, best):
            reason += f" {missing} rows have none, and are bad rows."
        return Guess(names=(best,), reason=reason)

    def _noted(self, *streams: str) -> str:
        return "".join(f". {stream}: {note}" for stream in streams for note in self._samples[stream].notes)

    def _shown(self, stream: str) -> str:
        left_out = self._samples[stream].left_out
        why = f"; left out: {', '.join(f'{n!r} ({r})' for n, r in left_out.items())}" if left_out else ""
        return (", ".join(self.types[stream]) or "none") + why
