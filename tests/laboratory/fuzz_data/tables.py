"""The tables that the files are for: keys, partitions, streams, types and dialects."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

Typed = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One stream of a table.

    Attributes:
        name: Its name.
        format: csv, json or parquet.
        ordering: Its ordering column and type.
        columns: Its other columns and their types.
        dialect: What the spec says of its CSV, RFC 4180 where it says nothing.
        sources: The names in its files of the columns that have another one there.
    """

    name: str
    format: str
    ordering: Typed
    columns: tuple[Typed, ...]
    dialect: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def owned(self) -> tuple[Typed, ...]:
        """Its columns, the ordering one first."""
        return (self.ordering, *self.columns)

    def source(self, name: str) -> str:
        """The name of a column in the files."""
        return self.sources.get(name, name)

    def setting(self, name: str) -> Any:  # noqa: ANN401  texts and a truth value
        """One setting of its dialect."""
        default = {"separator": ",", "quote": '"', "encoding": "utf-8", "null": "", "multiline": True}
        if name == "escape":
            return self.dialect.get("escape", self.setting("quote"))
        return self.dialect.get(name, default[name])


@dataclass(frozen=True, kw_only=True)
class Table:
    """One splice table.

    Attributes:
        key: Key columns and their types.
        partitions: Partition columns, all of type string.
        streams: Its streams.
    """

    key: tuple[Typed, ...]
    streams: tuple[Stream, ...]
    partitions: tuple[str, ...] = ()

    @property
    def shared(self) -> tuple[Typed, ...]:
        """The columns of every stream."""
        return (*self.key, *((name, "string") for name in self.partitions))

    def spec(self) -> str:
        """The text of its spec."""
        lines = [
            "[table]",
            'path = "table"',
            f"key = {[name for name, _ in self.key]}",
            f"partition_by = {list(self.partitions)}",
            "buckets = 2",
            "[locks]",
            'url = "locks"',
            "max_clock_skew = 0.0",
            "[services]",
            "compaction = { every_commits = 1 }",
        ]
        for stream in self.streams:
            shared = [one for one in self.shared if one[1] != "string" or one[0] in stream.sources]
            columns = [_column(stream, name, kind) for name, kind in (*shared, *stream.owned)]
            lines += [
                f"[streams.{stream.name}]",
                f'source = "in/{stream.name}/*"',
                f'format = "{stream.format}"',
                f'ordering = "{stream.ordering[0]}"',
                f'checkpoint = "checkpoints/{stream.name}"',
                'on_bad_row = "quarantine"',
                f"columns = {{ {', '.join(columns)} }}",
            ]
            if stream.dialect:
                lines.append(
                    f"csv = {{ {', '.join(f'{k} = {_quoted(v)}' for k, v in stream.dialect.items())} }}"
                )
        return "\n".join([*lines, ""])


def _column(stream: Stream, name: str, kind: str) -> str:
    if name not in stream.sources:
        return f"{name} = {_quoted(kind)}"
    source = json.dumps(stream.source(name), ensure_ascii=False)
    return f"{name} = {{ type = {_quoted(kind)}, from = {source} }}"


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") + '"'


_NUMBERS: Final = (("i", "int"), ("d", "double"), ("m", "decimal(38,10)"))
_TIMES: Final = (("day", "date"), ("t", "timestamp"), ("yes", "boolean"))
_REST: Final = (("f", "float"), ("c", "decimal(9,2)"), ("n", "decimal(18,0)"))


def _columns(prefix: str, *groups: tuple[Typed, ...]) -> tuple[Typed, ...]:
    text = (f"{prefix}_text", "string")
    return (text, *((f"{prefix}_{name}", kind) for group in groups for name, kind in group))


TABLES: Final = (
    Table(
        key=(("k", "string"),),
        streams=(
            Stream(
                name="rfc", format="csv", ordering=("at", "bigint"), columns=_columns("a", _NUMBERS, _TIMES)
            ),
            Stream(
                name="lines",
                format="json",
                ordering=("seen", "timestamp"),
                columns=_columns("b", _NUMBERS, _REST),
            ),
            Stream(
                name="arrow",
                format="parquet",
                ordering=("day", "date"),
                columns=_columns("c", _NUMBERS, _TIMES),
            ),
            Stream(
                name="semi",
                format="csv",
                ordering=("rev", "string"),
                columns=_columns("d", _REST),
                dialect={"separator": ";", "quote": "'", "escape": "\\", "null": "NULL"},
            ),
        ),
    ),
    Table(
        key=(("k", "string"), ("group", "string")),
        partitions=("p",),
        streams=(
            Stream(name="rfc", format="csv", ordering=("rank", "string"), columns=_columns("a", _TIMES)),
            Stream(name="lines", format="json", ordering=("newest", "bigint"), columns=_columns("b", _TIMES)),
            Stream(name="arrow", format="parquet", ordering=("n", "timestamp"), columns=_columns("c", _REST)),
            Stream(
                name="one_line",
                format="csv",
                ordering=("at", "int"),
                columns=_columns("d", _NUMBERS),
                dialect={"multiline": False, "encoding": "iso-8859-1"},
            ),
        ),
    ),
    Table(
        key=(("day", "date"), ("number", "bigint")),
        partitions=("p", "q"),
        streams=(
            Stream(
                name="tabs",
                format="csv",
                ordering=("at", "timestamp"),
                columns=_columns("a", _NUMBERS),
                dialect={"separator": "\t", "quote": "", "null": "\\N"},
            ),
            Stream(name="lines", format="json", ordering=("seen", "date"), columns=_columns("b", _REST)),
            Stream(name="arrow", format="parquet", ordering=("rank", "int"), columns=_columns("c", _TIMES)),
            Stream(
                name="wide",
                format="csv",
                ordering=("rev", "bigint"),
                columns=_columns("d", _TIMES),
                dialect={"encoding": "utf-16", "separator": "|"},
            ),
        ),
    ),
)
"""One after the other, round by round."""
