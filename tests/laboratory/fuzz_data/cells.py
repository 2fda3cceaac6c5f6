"""Values beside the ways in which files write them, and what no file can be taken to mean."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from hypothesis import strategies as st

EPOCH: Final = dt.date(1970, 1, 1).toordinal()
DAY: Final = 86_400_000_000
DECIMALS: Final = {"decimal(38,10)": (38, 10), "decimal(9,2)": (9, 2), "decimal(18,0)": (18, 0)}
INTEGERS: Final = {"int": 31, "bigint": 63}

NASTY: Final = (
    '"', '""', 'say "hi"', "x,y\\", "\\", "a\\", '\\"', "a\\nb", "'", ";", "|", "\t", " ", " x", "x ", "#x", "=1+1",
    "null", "NULL", "\\N", "NaN", "None", "true", "{}", "[]", "é", "ß", "😀", "\u2028", "\u0085", "\ufffd",
    "\ue000", "urn:a:b,c", "::,", "x,k2:y", "a:b", "k:1", "a/b", "..", "../../esc", "/abs", "a=b", "p=1", "a%2Fb",
    "a//b", "%", "__HIVE_DEFAULT_PARTITION__", "__null__", "__empty__", "default", "1.10", "0x10", "a b", "+", "*",
)  # fmt: skip
LINES: Final = ("a\nb", "\n", "a\r\nb", 'x\n"y"', "a\n\nb", ',\n"')


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of one row.

    Attributes:
        value: As the table has it: dates are days, timestamps microseconds since 1970; None: null.
        text: As CSV has it, unquoted; None: nothing stands there.
        token: As JSON has it.
        good: Whether a row may have it; if not, ``value`` says nothing.
    """

    value: Any
    text: str | None
    token: str
    good: bool = True


NULL: Final = Cell(None, None, "null")


def bad(text: str, token: str | None = None) -> Cell:
    """A cell that must cost its row."""
    return Cell(None, text, json.dumps(text) if token is None else token, good=False)


def single(value: float) -> float:
    """The nearest value of Spark's ``float``."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def day_text(days: int) -> str:
    """A date as ISO 8601 has it."""
    return dt.date.fromordinal(EPOCH + days).isoformat()


def instant_text(micros: int, *, separator: str = "T", zone: str = "Z") -> str:
    """A point in time as ISO 8601 has it, with as many digits as it needs."""
    days, rest = divmod(micros, DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{day_text(days)}{separator}{clock}{digits}{zone}"
