"""Which names a lock can have."""

from __future__ import annotations

import re
from typing import Final

from asynclock.errors import ConfigError
from asynclock.probe import is_probe

MAX_NAME: Final = 512
SUFFIX: Final = ".json"
"""Follows the name of a lock in the key of its object."""
_NAME: Final = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")


def checked_name(name: str) -> str:
    """Return ``name``.

    Raises:
        ConfigError: It is no lock name; names the right one if it is the key of a lock's object.
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


def is_name(text: str) -> bool:
    """Whether a lock can have that name."""
    return (
        len(text) <= MAX_NAME
        and _NAME.fullmatch(text) is not None
        and not any(segment in {".", ".."} for segment in text.split("/"))
        # Neither could be listed: the first would be taken for another lock.
        and not text.endswith(SUFFIX)
        and not is_probe(f"{text}{SUFFIX}")
    )
