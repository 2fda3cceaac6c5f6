"""Values that the view shows in place of null."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Final

from asynclock.spark.spec.checked import raise_all, wrong
from asynclock.spark.spec.column import sql_type
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from asynclock.errors import ConfigError

_EXPECTED: Final = {
    "string": "a string",
    "boolean": "true or false",
    "int": "a whole number of 32 bits",
    "bigint": "a whole number of 64 bits",
    "float": "a number",
    "double": "a number",
    "date": "a date such as 2026-01-31, without quotes",
    "timestamp": "a time with its offset such as 2026-01-31T12:00:00Z, without quotes",
}
_PLAIN: Final = re.compile(r"[ !#-&(-\[\]-~]*")  # ASCII without quotes and backslashes


def check_defaults(
    defaults: Mapping[str, object], columns: Mapping[str, str], unfit: Mapping[str, str]
) -> None:
    """Refuse a default of a column that a stream does not show, and one of another type than its column.

    Args:
        defaults: The values by the names of their columns.
        columns: The types of the stream's columns, by their names.
        unfit: Columns that cannot have a default, and why.

    Raises:
        ConfigError: The settings are ``default.`` and the column.
    """
    raise_all(_problems(defaults, columns, unfit))


def _problems(
    defaults: Mapping[str, object], columns: Mapping[str, str], unfit: Mapping[str, str]
) -> Iterator[ConfigError]:
    for name, value in defaults.items():
        setting = f"default.{name}"
        if name in unfit:
            yield wrong(setting, value, f"{unfit[name]}; take it out")
        elif name not in columns:
            yield wrong(setting, value, unknown_name(name, columns.keys() - unfit.keys()))
        else:
            try:
                _text(value, columns[name])
            except (ValueError, InvalidOperation):
                kind = columns[name]
                expected = _EXPECTED.get(kind, f'a number that {kind} holds, in quotes, such as "1.50"')
                yield wrong(setting, value, f"the column is of type {kind}; give {expected}")


def sql_literal(value: object, kind: str) -> str:
    """Return a default as SQL that means the same in every session.

    Args:
        value: The value.
        kind: The type of the column.

    Raises:
        ValueError: The value is of another type.
    """
    text = _text(value, kind)
    quoted = f"'{text}'" if _PLAIN.fullmatch(text) else f"CAST(X'{text.encode().hex()}' AS STRING)"
    return quoted if kind == "string" else f"CAST({quoted} AS {sql_type(kind)})"


def _text(value: object, kind: str) -> str:
    """Return the value as text that Spark casts to the type without a loss."""
    text = _TEXTS.get(kind, partial(_decimal, kind=kind))(value)
    if text is None:
        raise ValueError(kind)
    return text


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _boolean(value: object) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None


def _whole(value: object, bits: int) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return str(value) if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def _real(value: object) -> str | None:
    return repr(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _date(value: object) -> str | None:
    return value.isoformat() if isinstance(value, dt.date) and not isinstance(value, dt.datetime) else None


def _timestamp(value: object) -> str | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return value.astimezone(dt.UTC).isoformat(" ", "microseconds")


def _decimal(value: object, kind: str) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None  # a float is binary: 0.1 is another number
    digits, scale = map(int, re.findall(r"\d+", kind))
    number = Decimal(value)
    if not number.is_finite():
        return None
    exponent = int(number.normalize().as_tuple().exponent)
    return f"{number:f}" if -exponent <= scale and abs(number) < Decimal(10) ** (digits - scale) else None


_TEXTS: Final[Mapping[str, Callable[[object], str | None]]] = {
    "string": _string,
    "boolean": _boolean,
    "int": partial(_whole, bits=32),
    "bigint": partial(_whole, bits=64),
    "float": _real,
    "double": _real,
    "date": _date,
    "timestamp": _timestamp,
}
