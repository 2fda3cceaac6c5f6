"""Durations on a command line: seconds, or a number with its unit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRITTEN: Final = re.compile(r"(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})([smhd]?)", re.ASCII)
_UNITS: Final[Mapping[str, float]] = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
REFUSED: Final = "must be a duration: seconds, or a number with its unit, as in 90, 90s, 5m, 1h or 30d"


def parse_duration(word: str) -> float:
    """Return the seconds of ``90``, ``90s``, ``5m``, ``1.5h`` or ``30d``.

    Raises:
        ValueError: The text is not a duration. Negative numbers, ``nan`` and ``inf`` are not allowed.
    """
    found = _WRITTEN.fullmatch(word)
    if found is None:
        raise ValueError(REFUSED)
    return float(found[1]) * _UNITS[found[2]]


def duration(word: str | float) -> float:
    """Return the seconds of a word on the command line. A number, such as a default, stays as it is.

    Raises:
        click.BadParameter: The word is not a duration.
    """
    if isinstance(word, int | float):
        return float(word)
    try:
        return parse_duration(word)
    except ValueError as error:
        raise click.BadParameter(f"{word!r} {error}") from None
