"""Values beside the ways in which files write them, and what no file can be taken to mean."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st

EPOCH: Final = dt.date(1970, 1, 1).toordinal()
DAY: Final = 86_400_000_000
DECIMALS: Final = {"decimal(38,10)": (38, 10), "decimal(9,2)": (9, 2), "decimal(18,0)": (18, 0)}
INTEGERS: Final = {"int": 31, "bigint": 63}

NASTY: Final = (
    '"', '""', 'say "hi"', "x,y\\", "\\", "a\\", '\\"', "a\\nb", "'", ";", "|", "\t", " ", " x", "x ",
    "#x", "=1+1",
    "null", "NULL", "\\N", "NaN", "None", "true", "{}", "[]", "é", "ß", "😀", "\u2028", "\u0085", "\ufffd",
    "\ue000", "urn:a:b,c", "::,", "x,k2:y", "a:b", "k:1", "a/b", "..", "../../esc", "/abs", "a=b", "p=1",
    "a%2Fb",
    "a//b", "%", "__HIVE_DEFAULT_PARTITION__", "__null__", "__empty__", "default", "1.10", "0x10", "a b",
    "+", "*",
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


@cache
def texts(*, lines: bool = True) -> st.SearchStrategy[str]:
    """Texts of every kind; with line ends only if ``lines``."""
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="" if lines else "\r\n")
    pools = [st.sampled_from(NASTY), st.text(letters, min_size=1, max_size=6), st.just("plain")]
    return st.one_of(*pools, st.sampled_from(LINES)) if lines else st.one_of(*pools)


def _string(*, lines: bool) -> st.SearchStrategy[Cell]:
    def spelled(draw: Any) -> Cell:  # noqa: ANN401  Hypothesis gives it no type
        value = draw(st.one_of(st.just(""), texts(lines=lines), texts(lines=lines)))
        return Cell(value, value, json.dumps(value, ensure_ascii=draw(st.booleans())))

    tokens = (
        "1.10",
        "1e3",
        "0.1000",
        "true",
        "12345678901234567890.10",
        '{"a": 1.10}',
        "[1, 2.0]",
        "NaN",
        "-0",
    )
    only_json = st.sampled_from(tokens).map(lambda token: Cell(token, token, token))
    return st.one_of(st.composite(spelled)(), only_json)


def _boolean() -> st.SearchStrategy[Cell]:
    good = [Cell(text.lower() == "true", text, token) for text, token in
            (("true", "true"), ("false", "false"), ("TRUE", '"TRUE"'), ("False", '"False"'))]  # fmt: skip
    return st.sampled_from(good)


def _integer(bits: int) -> st.SearchStrategy[Cell]:
    edge = 1 << bits
    numbers = st.one_of(
        st.integers(-3, 300), st.sampled_from([-edge, edge - 1, 0]), st.integers(-edge, edge - 1)
    )

    def spelled(value: int, style: str) -> Cell:
        text = {"plus": f"+{abs(value)}", "zeros": f"{'-' if value < 0 else ''}000{abs(value)}"}.get(
            style, str(value)
        )
        if style == "plus":
            value = abs(value) if abs(value) < edge else value
            text = f"+{value}" if value >= 0 else str(value)
        token = str(value) if style in {"plain", "number"} else json.dumps(text)
        return Cell(value, text, token)

    return st.builds(spelled, numbers, st.sampled_from(["plain", "number", "plus", "zeros"]))


def _float(*, short: bool) -> st.SearchStrategy[Cell]:
    width = 32 if short else 64
    numbers = st.one_of(
        st.floats(allow_nan=False, allow_infinity=False, width=width),
        st.sampled_from([0.0, -0.0, 0.1, 1e-7, 1e22]),
    )

    def spelled(value: float, style: str) -> Cell:
        value = single(value) if short else value
        text = repr(value)
        if style == "upper":
            text = text.upper()
        elif style == "long":
            text = format(Decimal(value), "f") if 1e-6 < abs(value) < 1e15 else text
        elif style == "plus" and math.copysign(1, value) > 0:
            text = f"+{text}"
        return Cell(value, text, text if style in {"plain", "long"} else json.dumps(text))

    names = [
        ("nan", math.nan),
        ("NaN", math.nan),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("+INF", math.inf),
    ]
    named = st.sampled_from([Cell(value, text, json.dumps(text)) for text, value in names])
    bare = st.sampled_from([Cell(math.nan, "NaN", "NaN"), Cell(-math.inf, "-Infinity", "-Infinity")])
    styles = st.sampled_from(["plain", "upper", "long", "plus"])
    built = st.builds(spelled, numbers, styles)
    return st.one_of(built, built, built, named, bare)


def _decimal(precision: int, scale: int) -> st.SearchStrategy[Cell]:
    def spelled(digits: int, style: str) -> Cell:
        value = Decimal(digits).scaleb(-scale) if digits else Decimal(0)
        value = Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))
        text = format(value, "f")
        if style == "zeros":
            text = f"{text}{'.' if '.' not in text else ''}000"
        elif style == "exponent":
            text = f"{digits}e-{scale}"
        return Cell(value, text, text if style != "exponent" else json.dumps(text))

    edge = 10**precision - 1
    numbers = st.one_of(st.integers(-edge, edge), st.sampled_from([edge, -edge, 0, 110 if scale else 11]))
    return st.builds(spelled, numbers, st.sampled_from(["plain", "zeros", "exponent"]))


FIRST_DAY: Final = dt.date.min.toordinal() - EPOCH
LAST_DAY: Final = dt.date.max.toordinal() - EPOCH


def _date() -> st.SearchStrategy[Cell]:
    edges = [
        dt.date(*day).toordinal() - EPOCH
        for day in ((1500, 1, 1), (1582, 10, 10), (1899, 12, 31), (2024, 2, 29))
    ]
    days = st.one_of(st.integers(FIRST_DAY, LAST_DAY), st.sampled_from([*edges, 0, -1, FIRST_DAY, LAST_DAY]))
    return days.map(lambda day: Cell(day, day_text(day), json.dumps(day_text(day))))


def _timestamp() -> st.SearchStrategy[Cell]:
    def spelled(micros: int, style: str) -> Cell:
        text = instant_text(micros)
        if style == "blank":
            text = instant_text(micros, separator=" ", zone="")
        elif style == "zone" and FIRST_DAY + 2 < micros // DAY < LAST_DAY - 2:
            text = instant_text(micros + 5_400_000_000, zone="+01:30")
        elif style == "west" and FIRST_DAY + 2 < micros // DAY < LAST_DAY - 2:
            text = instant_text(micros - 36_000_000_000, zone="-1000")
        elif style == "nanos":
            days, rest = divmod(micros, DAY)
            clock = instant_text(days * DAY + rest // 1_000_000 * 1_000_000, zone="")
            text = f"{clock}.{rest % 1_000_000:06}000Z"
        elif style == "day":
            micros = micros // DAY * DAY
            text = day_text(micros // DAY)
        return Cell(micros, text, json.dumps(text))

    first, last = FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1
    micros = st.one_of(
        st.integers(first, last),
        st.sampled_from([first, last, 0, -1, -5_000_000_000_000_001, 1_714_564_800_000_000]),
    )
    return st.builds(spelled, micros, st.sampled_from(["plain", "blank", "zone", "west", "nanos", "day"]))


BAD: Final = {
    "boolean": [bad(text) for text in ("1", "yes", "t", "truex", " true")],
    "int": [bad(text) for text in ("2147483648", "-2147483649", "5.0", "1e3", "0x1", " 1", "1 ", "abc",
      "\u0661", "1_0")],
    "bigint": [bad(text) for text in ("9223372036854775808", "-9223372036854775809", "1.5", "1L", "--1",
      "+")],
    "float": [bad(text) for text in ("1e39", "1e-50", "1d", "1f", "0x1p3", "1,5", ".", "nanx", "1 ")],
    "double": [bad(text) for text in ("1e400", "-1e400", "1e-400", "1d", "1.5f", "Inf1", "e5", "1__0")],
    "date": [bad(text) for text in ("2024-01-01 junk", "2024-02-30", "2024-1-1", "20240101",
      "2024-01-01T00:00:00",
                                    "12:30", "0000-01-01", "+2024-01-01", "10000-01-01", "epoch")],
    "timestamp": [bad(text) for text in ("10:30:00", "2024-01-01 junk", "2024-01-01T24:00:00",
      "2024-01-01T10:00:60",
                                         "2024-01-01T10:00:00.1234567Z", "2024-01-01T10:00:00 UTC",
                                         "2024-01-01T1:00",
                                         "1714564800", "2024-01-01T10:00:00.", "2024-01-01T10:00+18:01",
                                         "now",
                                         "2024-01-01T10:00:00Europe/Paris", "2024-13-01",
                                         "2024-01-01T10:00:00z")],
}  # fmt: skip


def bad_cells(kind: str) -> list[Cell]:
    """What costs its row in a column of that type."""
    if kind in DECIMALS:
        precision, scale = DECIMALS[kind]
        too_long = "1" + "0" * (precision - scale)
        too_fine = "0." + "0" * scale + "1"
        names = [too_long, too_fine, f"1e{precision}", "NaN", "inf", "1,0", "1d", f"1e-{scale + 1}"]
        return [bad(text) for text in names]
    return [*BAD.get(kind, []), *([Cell(None, "[1]", "[1]", good=False)] if kind != "string" else [])]


@cache
def cells(kind: str, *, lines: bool = True) -> st.SearchStrategy[Cell]:
    """Values of a type that a row may have; a column that may have null adds it."""
    if kind in DECIMALS:
        return _decimal(*DECIMALS[kind])
    if kind in INTEGERS:
        return _integer(INTEGERS[kind])
    made: dict[str, st.SearchStrategy[Cell]] = {
        "string": _string(lines=lines),
        "boolean": _boolean(),
        "float": _float(short=True),
        "double": _float(short=False),
        "date": _date(),
        "timestamp": _timestamp(),
    }
    return made[kind]
