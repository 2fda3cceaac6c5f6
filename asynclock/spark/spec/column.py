"""A column of a stream, and the types that it can have."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from asynclock.errors import ConfigError
from asynclock.spark.spec.checked import checked, problems_of, raise_all, read, wrong
from asynclock.spark.spec.view import COLUMN_NAME

COLUMN_TYPES: Final = (
    "string", "boolean", "int", "bigint", "float", "double", "date", "timestamp", "decimal(p,s)",
)  # fmt: skip

_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_MAX_DECIMAL_DIGITS: Final = 38
_TYPE_SCHEMA: Final = WithJsonSchema(
    {"type": "string", "pattern": rf"^({'|'.join(COLUMN_TYPES[:-1])}|{_DECIMAL.pattern})$"}
)


@checked
class Column:
    """A column of a stream.

    Attributes:
        name: Its plain name, in the spec, the table and the view.
        type: Its Spark type.
        from_: Its name in the files or records, which may be any text; in the spec ``from``. None: ``name``.
    """

    name: SkipJsonSchema[str]
    type: Annotated[str, _TYPE_SCHEMA]
    from_: str | None = Field(default=None, alias="from")

    def __post_init__(self) -> None:
        if not COLUMN_NAME.fullmatch(self.name):
            mapped = f'{plain_name(self.name)} = {{ type = "...", from = {_quoted(self.name)} }}'
            reason = (
                "column names are letters, digits and _, the first a letter; for such a name in the files "
                f"write {mapped}"
            )
            raise wrong("", self.name, reason)
        if self.from_ == "":
            reason = "a column without a name cannot be mapped; name the column in the files, or drop from"
            raise wrong("from", self.from_, reason)
        if not _is_column_type(self.type):
            raise wrong("", self.type, f"unknown type; use one of {', '.join(COLUMN_TYPES)}")

    @property
    def source(self) -> str:
        """The name in the files or records."""
        return self.name if self.from_ is None else self.from_


def sql_type(kind: str) -> str:
    """Return a type for SQL that means the same in every session; a plain ``timestamp`` may lack a zone."""
    return "timestamp_ltz" if kind == "timestamp" else kind


def plain_name(text: str) -> str:
    """Return a column's name for a spec, made from any text: ``Order ID`` gives ``order_id``."""
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "_", folded).strip("_")
    return words if re.match(r"[a-z]", words) else f"c_{words}".rstrip("_")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _is_column_type(name: str) -> bool:
    if digits := _DECIMAL.fullmatch(name):
        return 0 <= int(digits[2]) <= int(digits[1]) <= _MAX_DECIMAL_DIGITS and int(digits[1]) > 0
    return name in COLUMN_TYPES[:-1]


def _columns(values: object) -> object:
    """Return the columns of a table of TOML; any other value stays unchanged."""
    if not isinstance(values, dict):
        return values
    columns: list[Column] = []
    found: list[ConfigError] = []
    for name, given in values.items():
        try:
            columns.append(read(Column, given if isinstance(given, dict) else {"type": given}, name=name))
        except ConfigError as error:
            for each in problems_of(error):
                inner = each.setting if isinstance(given, dict) else ""
                found += problems_of(wrong(inner, each.value, each.reason), name)
    raise_all(found)
    return tuple(columns)


Columns = Annotated[
    tuple[Column, ...],
    BeforeValidator(_columns, json_schema_input_type=dict[str, Annotated[str, _TYPE_SCHEMA] | Column]),
]
"""The columns of a stream; in a file a table of their types by their names."""
