"""The result of every format: rows of the spec's columns, good or bad, or a bad file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark.check.strict.values import reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_CHARACTERS: Final = 16_777_216
"""Most characters of one record; a longer one makes the file bad."""
UNDECODABLE: Final = "\udcff"
"""Replaces bytes that the encoding does not allow; no decoder gives this character by itself."""
MALFORMED: Final = "it has bytes that its encoding does not allow"


_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_NAME: Final = 255
_ENCODED: Final = re.compile(r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]""")


class BadFileError(Exception):
    """The file gives no rows; the text has the reason."""


class BadRowError(Exception):
    """The row goes to the quarantine; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Good:
    """An event.

    Attributes:
        line: Line or row on which it begins, from 1.
        values: Values of the key, partition and own columns, in that order.
    """

    line: int
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Bad:
    """A row for the quarantine.

    Attributes:
        line: Line or row on which it begins, from 1.
        reason: The reason.
    """

    line: int
    reason: str


Row = Good | Bad


class Layout:
    """The columns that the spec names, and how their texts become values.

    Args:
        types: Type by name: the key and partition columns, then the stream's own.
        required: Names of the columns that every event has.
        partitions: The required columns that name folders.
        optional: The columns that a CSV or parquet file may lack.
        sources: The names in the file of columns with another name there.
        enveloped: Whether the rows of JSON are in Debezium's envelope.
        derived: The columns that no file has: the column that each is a function of, and the function, which
            raises ``ValueError`` if there is no value.
        stored: The order of all columns in an event; none: that of ``types``.

    Attributes:
        sources: The names in the file, by column.
        names: The columns in the file.
        stored: The columns of an event.
    """

    def __init__(
        self,
        types: dict[str, str],
        required: Sequence[str],
        partitions: Sequence[str] = (),
        optional: Sequence[str] = (),
        sources: Mapping[str, str] = MappingProxyType({}),
        *,
        enveloped: bool = False,
        derived: Mapping[str, tuple[str, Callable[[Any], Any]]] = MappingProxyType({}),
        stored: tuple[str, ...] = (),
    ) -> None:
        self.types = types
        self.stored = stored or tuple(types)
        self._derived = derived
        self.enveloped = enveloped
        self.sources = {name: sources.get(name, name) for name in types}
        self._wanted = frozenset(self.sources.values())
        self._optional = frozenset(optional)
        self.names = tuple(types)
        self._required = frozenset(required)
        self._readers: list[tuple[str, str, bool, Callable[[str], Any]]] = [
            (name, kind, name in self._required, reader(kind)) for name, kind in types.items()
        ]
        self._partitions = [
            (place, name)
            for place, name in enumerate(types)
            if name in partitions and types[name] == "string"
        ]
        # A mapped name must match exactly.
        self._by_lower_case = {name.lower(): name for name in types if self.sources[name] == name}

    def good(self, line: int, texts: Sequence[str | None]) -> Row:
        """The event of one row of texts in the order of ``names``; None is null."""
        values: list[Any] = []
        for text, (name, kind, required, read) in zip(texts, self._readers, strict=True):
            if text is None or (text == "" and required):
                if required:
                    return Bad(line, f"{name} is missing")
                values.append(None)
                continue
            try:
                values.append(read(text))
            except ValueError:
                return Bad(line, f"{name} is no {kind}: {text}")
        return self._stored(line, values)

    def complete(self, line: int, values: Sequence[Any]) -> Row:
        """The event of one row of values that have their types already."""
        for name, value in zip(self.names, values, strict=True):
            if name in self._required and (value is None or value == ""):
                return Bad(line, f"{name} is missing")
        return self._stored(line, values)

    def _stored(self, line: int, values: Sequence[Any]) -> Row:
        for place, name in self._partitions:
            value = values[place]
            if value == _NULL_PARTITION or "\0" in value or len(_folder(name, value)) > _LONGEST_NAME:
                return Bad(line, f"{name} cannot be the name of a folder: {value}")
        if not self._derived:
            return Good(line, tuple(values))
        named = dict(zip(self.names, values, strict=True))
        for name, (source, derive) in self._derived.items():
            try:
                named[name] = derive(named[source])
            except ValueError:
                return Bad(line, f"{source} has no {name}, since its year is not from 1 to 9999")
        return Good(line, tuple(named[name] for name in self.stored))

    def miswritten(self, name: str) -> str | None:
        """The column whose name differs from ``name`` in case alone."""
        column = self._by_lower_case.get(name.lower())
        return None if name in self._wanted else column

    def places(self, header: Sequence[str]) -> list[int | None]:
        """The place of each column in a header; None for an optional one that is missing.

        Raises:
            BadFileError: A column is missing, exists twice, or is written in another case.
        """
        for name in header:
            if (column := self.miswritten(name)) is not None:
                raise BadFileError(f"its column {name!r} differs from {column!r} in case alone")
        for name, source in self.sources.items():
            if (times := header.count(source)) != 1 and (times or name not in self._optional):
                raise BadFileError(f"it has the column {source!r} {f'{times} times' if times else 'not'}")
        return [header.index(source) if source in header else None for source in self.sources.values()]


def _folder(name: str, value: str) -> bytes:
    """The name of a partition's folder, in which Hudi writes some characters as three."""
    return f"{name}={_ENCODED.sub('%00', value)}".encode()
