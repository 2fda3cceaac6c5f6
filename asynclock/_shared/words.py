"""The parts of every message: codes, text that is safe to show, and what must not be shown."""

from __future__ import annotations

from asynclock._codes import Code, coded
from asynclock._secrets import HIDDEN, is_secret
from asynclock._text import SUFFIX, escaped, printable
from asynclock.backends._url import AZURE_OF_HADOOP, refuse_credentials

__all__ = [
    "AZURE_OF_HADOOP",
    "HIDDEN",
    "SUFFIX",
    "Code",
    "coded",
    "escaped",
    "is_secret",
    "printable",
    "refuse_credentials",
]
