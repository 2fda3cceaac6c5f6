"""Text turned into values of the declared types, by the rules of the document alone.

Dates are whole days since 1970-01-01, and timestamps are whole microseconds since its start in UTC. So they
compare exactly, in any year, and no time zone matters.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"([+-]?)(nan|inf|infinity)", re.IGNORECASE)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9])"
    r"(?::(?P<second>[0-5][0-9])(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"(?:Z|(?P<sign>[+-])(?P<zone_hour>[0-9]{2})(?::?(?P<zone_minute>[0-5][0-9]))?)?)?"
)
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_TEN_HOURS: Final = dt.timedelta(hours=10)
_DAY: Final = 86_400_000_000
FIRST_INSTANT: Final = (dt.date.min.toordinal() - _EPOCH) * _DAY
LAST_INSTANT: Final = (dt.date.max.toordinal() - _EPOCH + 1) * _DAY - 1
_LONGEST_NUMBER: Final = 1000
_LARGEST_ZONE: Final = 18 * 60
_BITS: Final = {"int": 31, "bigint": 63}
_SMALLEST_NORMAL_SINGLE: Final = 2.0**-126


def reader(kind: str) -> Callable[[str], Any]:
    """The function that turns a text into a value of type ``kind``; ``ValueError`` if the text is unfit."""
    if found := _DECIMAL.fullmatch(kind):
        return partial(decimal, precision=int(found[1]), scale=int(found[2]))
    if kind in _BITS:
        return partial(integer, bits=_BITS[kind])
    return _READERS[kind]


def boolean(text: str) -> bool:
    """``true`` or ``false``, in any case."""
    # Not lower(): it would accept the Kelvin sign and the like as letters.
    if not text.isascii() or text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


def integer(text: str, *, bits: int) -> int:
    """An optional sign, and digits."""
    if len(text) > _LONGEST_NUMBER or not _INTEGER.fullmatch(text):
        raise ValueError(text)
    value = int(text)
    if not -(1 << bits) <= value < 1 << bits:
        raise ValueError(text)
    return value


def double(text: str) -> float:
    """The nearest double; a number that becomes infinite or zero on the way is refused."""
    if found := _NO_NUMBER.fullmatch(text):
        return float(text) if text.isascii() else _refuse(found[0])
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        raise ValueError(text)
    value = float(text)
    _check_kept(text, value)
    return value


def single(text: str) -> float:
    """The nearest value of four bytes; rounded once, not through a double."""
    value = double(text)
    if value == 0 or not math.isfinite(value):
        return value
    try:
        near: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        raise ValueError(text) from None
    if near != value and (_halfway(value) or abs(value) < _SMALLEST_NORMAL_SINGLE):
        exact = Fraction(text)
        near = min(_neighbours(near), key=lambda one: (abs(Fraction(one) - exact), _single_bits(one) & 1))
    _check_kept(text, near)
    return near


def decimal(text: str, *, precision: int, scale: int) -> Decimal:
    """The exact number, with ``scale`` places after the point."""
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        raise ValueError(text)
    if not text.lower().partition("e")[0].strip("+-.0"):
        return Decimal(0)
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        raise ValueError(text) from None
    return fitted(sign, "".join(map(str, digits)), int(exponent), precision=precision, scale=scale)


def fitted(sign: int, digits: str, exponent: int, *, precision: int, scale: int) -> Decimal:
    """``digits`` times ten to the ``exponent`` as a decimal of that precision and scale, if it is one."""
    short = digits.rstrip("0")
    exponent += len(digits) - len(short)
    short = short.lstrip("0")
    if not short:
        return Decimal(0)
    if -exponent > scale or len(short) + exponent > precision - scale:
        raise ValueError(digits)
    whole = short + "0" * (exponent + scale)
    return Decimal((sign, tuple(map(int, whole)), -scale))


def date(text: str) -> int:
    """``YYYY-MM-DD``, a day of the calendar."""
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    return dt.date.fromisoformat(text).toordinal() - _EPOCH


def timestamp(text: str) -> int:
    """A date, or a date and a time, in UTC if it names no offset."""
    found = _TIMESTAMP.fullmatch(text)
    if not found:
        raise ValueError(text)
    micros = date(found["date"]) * _DAY
    if found["hour"]:
        minutes = int(found["hour"]) * 60 + int(found["minute"])
        fraction = (found["fraction"] or "").ljust(9, "0")
        if fraction[6:] != "000":
            raise ValueError(text)
        micros += (minutes * 60 + int(found["second"] or 0)) * 1_000_000 + int(fraction[:6])
    if found["sign"]:
        zone = int(found["zone_hour"]) * 60 + int(found["zone_minute"] or 0)
        if zone > _LARGEST_ZONE:
            raise ValueError(text)
        micros -= (zone if found["sign"] == "+" else -zone) * 60_000_000
    if not FIRST_INSTANT <= micros <= LAST_INSTANT:
        raise ValueError(text)
    return micros


def shown(value: object, kind: str) -> str | None:
    """A value as text, for people."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind in {"date", "timestamp"} and isinstance(value, int):
        days, micros = (value, 0) if kind == "date" else divmod(value, _DAY)
        if not 1 <= days + _EPOCH <= dt.date.max.toordinal():
            return f"{value} {'days' if kind == 'date' else 'microseconds'} from 1970"
        day = dt.date.fromordinal(days + _EPOCH).isoformat()
        clock = dt.timedelta(microseconds=micros)
        return day if kind == "date" else f"{day} {'0' if clock < _TEN_HOURS else ''}{clock}"
    return str(value)


def _check_kept(text: str, value: float) -> None:
    zero = not text.lower().partition("e")[0].strip("+-.0")
    if math.isinf(value) or (value == 0 and not zero):
        raise ValueError(text)


def _refuse(text: str) -> float:
    raise ValueError(text)


def _halfway(value: float) -> bool:
    """Whether a double is exactly between two normal singles."""
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return bits & 0x1FFFFFFF == 0x10000000  # noqa: PLR2004  the 29 bits that a single lacks


def _neighbours(value: float) -> list[float]:
    bits = _single_bits(abs(value))
    return [
        math.copysign(struct.unpack("<f", struct.pack("<I", near))[0], value)
        for near in (bits - 1, bits, bits + 1)
        if 0 <= near < 0x7F800000  # noqa: PLR2004  infinity
    ]


def _single_bits(value: float) -> int:
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "string": str,
    "boolean": boolean,
    "float": single,
    "double": double,
    "date": date,
    "timestamp": timestamp,
}
