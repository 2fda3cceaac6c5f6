"""What a word without ``://`` may mean where a URL belongs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from asynclock.backends import BUILT_IN
from asynclock.backends._url import wrong_url
from asynclock.errors import ConfigError
from asynclock.names import SUFFIX, is_name

_EXAMPLE: Final = "nightly"


def no_url(setting: str, word: str, *, of_lock: bool) -> ConfigError:
    """Return the error about a word that stands in place of a URL; it proposes one.

    Args:
        setting: How the help names the place.
        word: The word.
        of_lock: Whether the URL is that of a lock, not that of a folder or bucket of locks.
    """
    example = "s3://bucket/locks/nightly" if of_lock else "s3://bucket/locks"
    reason = f"is not a URL such as {example}, gs://…, az://… or file:///…"
    return wrong_url(setting, word, reason + proposal(word, of_lock=of_lock))


def refuse_unfit_file_url(setting: str, url: str, *, of_lock: bool) -> None:
    """Refuse a ``file://`` URL with blanks in it, and propose one that has them as ``%20``.

    Raises:
        ConfigError: It has blanks.
    """
    path = url.removeprefix("file://")
    if path != url and " " in path and path.startswith("/") and "%" not in path:
        reason = f"has a blank, which a URL writes as %20{proposal(path, of_lock=of_lock)}"
        raise ConfigError(setting=setting, value=url, reason=reason)


def proposal(word: str, *, of_lock: bool) -> str:
    """Return the end of a sentence, with the URL that ``word`` may mean; it may be empty."""
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
        return "; in file:///… a # is %23 and a ? is %3F"  # no message shows what follows them in a URL
    try:
        # Not resolve(), which would look at the folder.
        path = Path(os.path.abspath(Path(word).expanduser()))  # noqa: PTH100
    except RuntimeError:  # the home of a user who is not there
        return ""
    if of_lock and word.endswith("/"):
        path /= _EXAMPLE
    elif of_lock:
        path = path.with_name(path.name.removesuffix(SUFFIX))
        if not is_name(path.name):
            return f"; {path.name!r} cannot be the name of a lock: it may have A-Z a-z 0-9 . _ = - only"
    return f"; for a folder of this machine write {path.as_uri()}"
