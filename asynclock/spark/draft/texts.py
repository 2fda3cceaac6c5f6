"""The type that a column of texts has."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from asynclock.spark.check.strict.values import reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CHANGED_NAME: Final = re.compile(r"(.*_)?(updated|modified|changed|revised)(_.*)?")
TIME_NAME: Final = re.compile(r"(.*_)?(at|ts|time|timestamp|date|when|since|seen|event|epoch|ms|us)(_.*)?")
"""Lower-case names of columns for the time of a change or event."""
# A number that is more than its value: the text 007 would come back as 7.
_CODE: Final = re.compile(r"\+.*|-?0[0-9].*")
_DIGITS: Final = re.compile(r"[+-]?0*([0-9]*)\.?([0-9]*)")
_EXACT_DIGITS: Final = 15  # any double keeps this many
_MOST_DIGITS: Final = 38
_KINDS: Final = ("boolean", "bigint", "date", "timestamp", "double")
_READERS: Final[dict[str, Callable[[str], Any]]] = {kind: reader(kind) for kind in _KINDS}
_TIMES: Final = ("timestamp", "date", "double")
_NUMBERS: Final = frozenset({"bigint", "double"})


class TextColumn:
    """Narrows down the type of a column, text by text.

    Args:
        kinds: The types that are possible besides ``string``.

    Attributes:
        values: Number of texts that it has seen.
        no_time: The first text that is not a date, a time or a number; None if there is none.
    """

    def __init__(self, kinds: Iterable[str] = _KINDS) -> None:
        self._kinds = [kind for kind in _KINDS if kind in set(kinds)]
        self._before = self._after = 0
        self._exponents = self._numbers = self._inexact = False
        self.values = 0
        self.no_time: str | None = None

    def add(self, text: str) -> None:
        """Take in a value that is not null."""
        self.values += 1
        if _CODE.fullmatch(text):
            self._kinds = [kind for kind in self._kinds if kind not in _NUMBERS]
        self._kinds = [kind for kind in self._kinds if _takes(kind, text)]
        if self.no_time is None and not any(_takes(kind, text) for kind in _TIMES):
            self.no_time = text
        if "double" in self._kinds:
            if any(character in "0123456789" for character in text):
                self._numbers = True
            self._exponents = self._exponents or "e" in text.lower()
            self._inexact = self._inexact or not _survives(text)
            if digits := _DIGITS.fullmatch(text):
                self._before = max(self._before, len(digits[1]))
                self._after = max(self._after, len(digits[2]))

    def takes(self, text: str) -> bool:
        """Return whether a text is a value of every remaining type."""
        return bool(text) and all(_takes(kind, text) for kind in self._kinds)

    def kind(self) -> str:
        """The type that takes every value; ``string`` if there was none."""
        if not self.values or not self._kinds:
            return "string"
        kind = self._kinds[0]
        if kind != "double":
            return kind
        if not self._numbers:
            return "string"  # nan and inf alone are words
        if self._exponents or not self._inexact:
            return kind
        fits = self._before + self._after <= _MOST_DIGITS
        return f"decimal({_MOST_DIGITS},{self._after})" if fits else "string"


def _survives(text: str) -> bool:
    """Return whether a double keeps a number's text, apart from zeros at its ends."""
    if len(text) <= _EXACT_DIGITS:
        return True
    value = float(text)
    return not math.isfinite(value) or Decimal(repr(value)) == Decimal(text)


def _takes(kind: str, text: str) -> bool:
    with suppress(ValueError):
        _READERS[kind](text)
        return True
    return False
