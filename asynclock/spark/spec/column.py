"""A column of a stream, and the types that it can have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from asynclock.errors import ConfigError
from asynclock.spark.spec.view import COLUMN_NAME

COLUMN_TYPES: Final = (
    "string", "boolean", "int", "bigint", "float", "double", "date", "timestamp", "decimal(p,s)",
)  # fmt: skip

_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_MAX_DECIMAL_DIGITS: Final = 38


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column under its plain name, and its Spark type."""

    name: str
    type: str

    def __post_init__(self) -> None:
        if not COLUMN_NAME.fullmatch(self.name):
            raise _wrong(self.name, self.name, "column names are letters, digits and _, the first a letter")
        if not _is_column_type(self.type):
            raise _wrong(self.name, self.type, f"unknown type; use one of {', '.join(COLUMN_TYPES)}")


def _is_column_type(name: str) -> bool:
    if digits := _DECIMAL.fullmatch(name):
        return 0 <= int(digits[2]) <= int(digits[1]) <= _MAX_DECIMAL_DIGITS and int(digits[1]) > 0
    return name in COLUMN_TYPES[:-1]


def _wrong(setting: str, value: object, reason: str) -> ConfigError:
    return ConfigError(setting=setting, value=value, reason=reason)
