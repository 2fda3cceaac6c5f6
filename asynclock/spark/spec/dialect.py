"""The CSV dialect of a stream."""

from __future__ import annotations

from typing import Final, Literal, get_args

from asynclock.spark.spec.checked import Switch, checked, run_all, wrong

# Python and Java agree on what their bytes mean.
Encoding = Literal[
    "utf-8", "utf-16", "utf-16le", "utf-16be", "us-ascii", "iso-8859-1", "iso-8859-15",
    "windows-1250", "windows-1251", "windows-1252",
]  # fmt: skip

ENCODINGS: Final = get_args(Encoding)


@checked
class CsvDialect:
    """The format of a stream's CSV files; by default that of RFC 4180.

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
    encoding: Encoding = "utf-8"
    null: str = ""
    multiline: Switch = True

    def __post_init__(self) -> None:
        run_all(self._check_characters, self._check_null)

    def _check_characters(self) -> None:
        _check_character("separator", self.separator)
        if self.quote:
            _check_character("quote", self.quote)
        if self.escape is not None and (self.quote or self.escape):
            _check_character("escape", self.escape)
            if not self.quote:
                raise wrong("escape", self.escape, "nothing is escaped where there are no quotes; drop it")
        for setting, value in (("quote", self.quote), ("escape", self.escape)):
            if value == self.separator:
                raise wrong(setting, value, "the separator is the same character; choose another")

    def _check_null(self) -> None:
        if any(character in self.null for character in (self.separator, self.quote or "\n", "\r", "\n")):
            reason = "must have no separator, quote or line end, which an unquoted field cannot hold"
            raise wrong("null", self.null, reason)

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
        raise wrong(setting, value, "must be one character, no line end, up to U+FFFF")
