"""The rules for names of locks."""

from __future__ import annotations

import re
from typing import Final

from asynclock._text import SUFFIX
from asynclock.errors import ConfigError

MAX_NAME: Final = 512
PROBE: Final = ".asynclock-probe-"
"""The prefix of the names of a probe's objects."""
# Compiled when they are first used, not by each import; ``re`` keeps them.
_PROBE: Final = rf"(?:.*/)?{re.escape(PROBE)}[0-9a-f-]{{36}}-\d+{re.escape(SUFFIX)}"
_HUDI_LOCKS: Final = r"/\.hoodie/+\.locks/"
_NAME: Final = r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*"


def is_probe(key: str) -> bool:
    """Return whether an object was left by a probe and is not a lock."""
    return re.fullmatch(_PROBE, key) is not None


def in_hudi_table(url: str) -> bool:
    """Return whether the URL of a lock is that of a Hudi table's own lock."""
    return re.search(_HUDI_LOCKS, url) is not None


def checked_name(name: str) -> str:
    """Return ``name``.

    Raises:
        ConfigError: It is not a lock name. If it is the key of a lock's object, the error gives the right
            name.
    """
    if isinstance(name, str) and is_name(name):
        return name
    if isinstance(name, str) and is_name(stem := name.removesuffix(SUFFIX)):
        reason = f"is the object of a lock; the lock's name is {stem!r}, without {SUFFIX}"
    else:
        reason = (
            "a lock name is 1 to 512 characters of A-Z a-z 0-9 . _ = - in segments joined by '/', "
            f"none of them empty, '.' or '..', without {SUFFIX} at the end, and not that of a probe"
        )
    raise ConfigError(setting="name", value=name, reason=reason)


def by_name(text: str, key: str) -> str:
    """Return a sentence about a lock's object with the name of the lock in place of the object's key."""
    return text.replace(repr(key), repr(key.removesuffix(SUFFIX)))


def is_name(text: str) -> bool:
    """Whether a lock can have that name."""
    return (
        len(text) <= MAX_NAME
        and re.fullmatch(_NAME, text) is not None
        and not any(segment in {".", ".."} for segment in text.split("/"))
        # Neither could be listed: the first would be taken for another lock.
        and not text.endswith(SUFFIX)
        and not is_probe(f"{text}{SUFFIX}")
    )
