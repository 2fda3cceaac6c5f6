"""Columns that are functions of the time of an event, computed with Python's own calendar and time zones."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.spark.spec.derive import Derived

_1970: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH: Final = _1970.date().toordinal()


def derivation(derived: Derived, kind: str) -> Callable[[int], int]:
    """The function from the time of an event to the value of a derived column.

    Both are as in ``values``: a date is a number of days, a timestamp one of microseconds.

    Args:
        derived: The column.
        kind: The type of the time.

    Returns:
        A function that raises ``ValueError`` if the year is not from 1 to 9999.
    """
    zone = dt.UTC if derived.zone == "UTC" else zoneinfo.ZoneInfo(derived.zone)
    return partial(_derived, function=derived.function, kind=kind, zone=zone)


def _derived(value: int, *, function: str, kind: str, zone: dt.tzinfo) -> int:
    try:
        if kind == "date":
            when = dt.datetime.combine(dt.date.fromordinal(value + _EPOCH), dt.time())
        else:
            when = (_1970 + dt.timedelta(microseconds=value)).astimezone(zone)
    except OverflowError as error:
        raise ValueError(value) from error
    if function == "date":
        return when.toordinal() - _EPOCH
    found: int = getattr(when, function)  # year, month and hour
    return found
