"""How the CSV files of a stream are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from asynclock.errors import ConfigError
from asynclock.spark.spec_toml import unknown_name

# Python and Java agree on what their bytes mean.
ENCODINGS: Final = (
    "utf-8", "utf-16", "utf-16le", "utf-16be", "us-ascii", "iso-8859-1", "iso-8859-15",
    "windows-1250", "windows-1251", "windows-1252",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CsvDialect:
    """RFC 4180, unless something else is said.

    Attributes:
        separator: Stands between two fields.
        quote: Stands around a field that holds separators, quotes or line ends; empty: nothing does.
        escape: Stands before a quote inside quotes; None: a quote does.
        encoding: How characters are written as bytes.
        null: The text which, unquoted, is null.
        multiline: Whether a quoted field may hold line ends. If not, a line with broken quoting is one bad
            row, else it makes its file a bad one.
    """

    separator: str = ","
    quote: str = '"'
    escape: str | None = None
    encoding: str = "utf-8"
    null: str = ""
    multiline: bool = True

    def __post_init__(self) -> None:
        _check_character("separator", self.separator)
        if self.quote:
            _check_character("quote", self.quote)
        if self.escape is not None and (self.quote or self.escape):
            _check_character("escape", self.escape)
            if not self.quote:
                raise _wrong("escape", self.escape, "nothing is escaped where there are no quotes; drop it")
        for setting, value in (("quote", self.quote), ("escape", self.escape)):
            if value == self.separator:
                raise _wrong(setting, value, "the separator is the same character; choose another")
        if self.encoding not in ENCODINGS:
            raise _wrong("encoding", self.encoding, unknown_name(self.encoding, ENCODINGS))
        if any(character in self.null for character in (self.separator, self.quote or "\n", "\r", "\n")):
            reason = "must have no separator, quote or line end, which an unquoted field cannot hold"
            raise _wrong("null", self.null, reason)

    def settings(self) -> dict[str, str]:
        """The dialect as the reader in the JVM takes it."""
        return {
            "separator": self.separator,
            "quote": self.quote,
            "escape": self.quote if self.escape is None else self.escape,
            "encoding": self.encoding,
            "null": self.null,
            "multiline": str(self.multiline).lower(),
        }


def _check_character(setting: str, value: str) -> None:
    # Java counts a character beyond U+FFFF as two.
    if len(value) != 1 or value > "\uffff" or value in "\r\n":
        raise _wrong(setting, value, "must be one character, no line end, up to U+FFFF")


def _wrong(setting: str, value: object, reason: str) -> ConfigError:
    return ConfigError(setting=f"csv.{setting}", value=value, reason=reason)
