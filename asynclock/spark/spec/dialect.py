"""The CSV dialect of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from asynclock.errors import ConfigError
from asynclock.spark.spec.toml import unknown_name

# Python and Java agree on what their bytes mean.
ENCODINGS: Final = (
    "utf-8", "utf-16", "utf-16le", "utf-16be", "us-ascii", "iso-8859-1", "iso-8859-15",
    "windows-1250", "windows-1251", "windows-1252",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CsvDialect:
    """How the CSV files of a stream are written; by default as in RFC 4180.

    Attributes:
        separator: Character between two fields.
        quote: Character around a field that contains separators, quotes or line ends; empty: no quoting.
        escape: Character before a quote inside quotes; None: the quote is doubled.
        encoding: Encoding of the files.
        null: Text that, unquoted, means null.
        multiline: Whether a quoted field may contain line ends. If False, broken quoting makes its line a
            bad row, else it makes the whole file a bad file.
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
        """Return the dialect as settings of the reader in the JVM."""
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
