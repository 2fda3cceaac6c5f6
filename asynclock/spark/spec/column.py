"""A column of a stream, and the types that it can have."""

from __future__ import annotations

import json
import re
import unicodedata
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
    """A column of a stream.

    Attributes:
        name: Its plain name, in the spec, the table and the view.
        type: Its Spark type.
        from_: Its name in the files or records, which may be any text; in the spec ``from``. None: ``name``.
    """

    name: str
    type: str
    from_: str | None = None

    def __post_init__(self) -> None:
        if not COLUMN_NAME.fullmatch(self.name):
            mapped = f'{plain_name(self.name)} = {{ type = "...", from = {_quoted(self.name)} }}'
            reason = (
                "column names are letters, digits and _, the first a letter; for such a name in the files "
                f"write {mapped}"
            )
            raise _wrong(self.name, self.name, reason)
        if self.from_ == "":
            reason = "a column without a name cannot be mapped; name the column in the files, or drop from"
            raise _wrong(f"{self.name}.from", self.from_, reason)
        if not _is_column_type(self.type):
            raise _wrong(self.name, self.type, f"unknown type; use one of {', '.join(COLUMN_TYPES)}")

    @property
    def source(self) -> str:
        """The name in the files or records."""
        return self.name if self.from_ is None else self.from_


def sql_type(kind: str) -> str:
    """Return a type for SQL that means the same in every session: ``timestamp`` may be one without a zone."""
    return "timestamp_ltz" if kind == "timestamp" else kind


def plain_name(text: str) -> str:
    """Return a name that a column can have in a spec, made of any text: ``Order ID`` gives ``order_id``."""
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "_", folded).strip("_")
    return words if re.match(r"[a-z]", words) else f"c_{words}".rstrip("_")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _is_column_type(name: str) -> bool:
    if digits := _DECIMAL.fullmatch(name):
        return 0 <= int(digits[2]) <= int(digits[1]) <= _MAX_DECIMAL_DIGITS and int(digits[1]) > 0
    return name in COLUMN_TYPES[:-1]


def _wrong(setting: str, value: object, reason: str) -> ConfigError:
    return ConfigError(setting=setting, value=value, reason=reason)
