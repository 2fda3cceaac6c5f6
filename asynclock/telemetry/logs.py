"""Log records as JSON, one object per line."""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from typing import Final

from asynclock._secrets import clean_text
from asynclock._text import printable

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message", "taskName"}
"""Attributes of every log record, without extra fields."""


class JsonFormatter(logging.Formatter):
    """Writes each record as one JSON object on one line of ASCII, with its extra fields.

    Every object has ``timestamp`` (RFC 3339, UTC), ``severity``, ``logger`` and ``message``; with an
    exception also ``exception``. Extra fields other than text, numbers and booleans become text. It works for
    the records of any logger, not only asynclock's.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its newline."""
        told: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "severity": record.levelname,
            "logger": record.name,
            "message": clean_text(record.getMessage()),
        }
        if record.exc_info:
            told["exception"] = clean_text(self.formatException(record.exc_info))
        extra = {
            name: _plain(value) for name, value in vars(record).items() if name not in _OWN | told.keys()
        }
        return json.dumps(told | extra, allow_nan=False)


def _plain(value: object) -> str | int | float | bool | None:
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return clean_text(printable(value))
