"""Durations: how a command line gives them, and how people say them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRITTEN: Final = re.compile(r"(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})([smhd]?)", re.ASCII)
_UNITS: Final[Mapping[str, float]] = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
REFUSED: Final = "must be a duration: seconds, or a number with its unit, as in 90, 90s, 5m, 1h or 30d"
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def parse_duration(word: str) -> float:
    """Return the seconds of ``90``, ``90s``, ``5m``, ``1.5h`` or ``30d``.

    Raises:
        ValueError: It is no such duration; negative numbers, ``nan`` and ``inf`` are none.
    """
    found = _WRITTEN.fullmatch(word)
    if found is None:
        raise ValueError(REFUSED)
    return float(found[1]) * _UNITS[found[2]]


def duration(word: str | float) -> float:
    """Return the seconds of a word on the command line; a default is a number already.

    Raises:
        click.BadParameter: It is no duration.
    """
    if isinstance(word, int | float):
        return float(word)
    try:
        return parse_duration(word)
    except ValueError as error:
        raise click.BadParameter(f"{word!r} {error}") from None


def spoken(seconds: float) -> str:
    """Return a time as people say it, such as ``0.4 s``, ``4 min 58 s``, ``43 min`` or ``12 days``."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:  # noqa: PLR2004  below, a tenth is told
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < 10 * _MINUTE:
        return _of_two(whole, _MINUTE, "min", "s")
    if (minutes := round(seconds / _MINUTE)) < _HOUR // _MINUTE:
        return f"{minutes} min"
    if minutes < 2 * _DAY // _MINUTE:
        return _of_two(minutes, _HOUR // _MINUTE, "h", "min")
    return f"{round(seconds / _DAY)} days"


def _of_two(value: int, ratio: int, larger: str, smaller: str) -> str:
    whole, rest = divmod(value, ratio)
    return f"{whole} {larger} {rest} {smaller}" if rest else f"{whole} {larger}"
