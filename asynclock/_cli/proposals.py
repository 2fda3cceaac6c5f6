"""Suggestions for a word without ``://`` in place of a URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from asynclock._core.names import is_name
from asynclock._text import SUFFIX
from asynclock.backends import BUILT_IN
from asynclock.backends._url import wrong_url
from asynclock.errors import ConfigError

_EXAMPLE: Final = "nightly"


def no_url(setting: str, word: str, *, of_lock: bool) -> ConfigError:
    """Return the error for a word in place of a URL; it suggests a URL.

    Args:
        setting: The argument's name in the help.
        word: The word.
        of_lock: Whether a lock's URL is needed, not that of a folder or bucket of locks.
    """
    example = "s3://bucket/locks/nightly" if of_lock else "s3://bucket/locks"
    reason = f"is not a URL such as {example}, gs://…, az://… or file:///…"
    return wrong_url(setting, word, reason + proposal(word, of_lock=of_lock))


def refuse_unfit_file_url(setting: str, url: str, *, of_lock: bool) -> None:
    """Refuse a ``file://`` URL with blanks in it, and suggest one with ``%20``.

    Raises:
        ConfigError: It has blanks.
    """
    path = url.removeprefix("file://")
    if path != url and " " in path and path.startswith("/") and "%" not in path:
        reason = f"has a blank, which a URL writes as %20{proposal(path, of_lock=of_lock)}"
        raise ConfigError(setting=setting, value=url, reason=reason)


def proposal(word: str, *, of_lock: bool) -> str:
    """Return the end of a sentence with the URL that ``word`` may mean, or an empty string."""
    scheme, colon, rest = word.partition(":")
    if "@" in word or not word.isprintable() or not word.strip("/"):
        return ""  # perhaps a secret, or nothing to work on
    if not colon:
        return _in_folder(word, of_lock=of_lock)
    if not rest.strip("/") or scheme not in BUILT_IN:
        return ""
    return _in_folder(rest, of_lock=of_lock) if scheme == "file" else f"; write {scheme}://{rest.strip('/')}"


def _in_folder(word: str, *, of_lock: bool) -> str:
    if {"#", "?"} & set(word):
        return "; in file:///… a # is %23 and a ? is %3F"  # no message shows the part of a URL after them
    try:
        # Not resolve(), which would look at the folder.
        path = Path(os.path.abspath(Path(word).expanduser()))  # noqa: PTH100
    except RuntimeError:  # the home of a user who does not exist
        return ""
    if of_lock and word.endswith("/"):
        path /= _EXAMPLE
    elif of_lock:
        path = path.with_name(path.name.removesuffix(SUFFIX))
        if not is_name(path.name):
            return f"; {path.name!r} cannot be the name of a lock: it may only have A-Z a-z 0-9 . _ = -"
    return f"; for a folder on this machine write {path.as_uri()}"
