"""The ``KEY=VALUE`` words of ``-o``, and the sources of their secrets."""

from __future__ import annotations

import base64
import binascii
import getpass
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock._cli.durations import parse_duration
from asynclock._cli.output import tell
from asynclock._codes import Code
from asynclock._secrets import HIDDEN, is_secret
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_FLAGS: Final = frozenset({"allow_http", "fsync", "path_style", "requester_pays", "trust_env", "verify"})
_DURATIONS: Final = frozenset({"min_write_interval"})
_OF_COMMANDS: Final = frozenset({"validity", "wait", "at_least", "max_clock_skew"})
_BYTES: Final = frozenset({"sse_customer_key"})
_WORDS: Final = {"true": True, "false": False}
_LONGEST: Final = 65_536
_ENVIRONMENT, _FILE, _INPUT = "env:", "file:", "-"
_PREFIX: Final = "ASYNCLOCK_OPTION_"


def parse_options(words: Iterable[str]) -> dict[str, object]:
    """Read the ``KEY=VALUE`` words of ``-o``.

    The value of a secret option may name a source: ``env:NAME`` is an environment variable, ``file:PATH`` a
    file, ``-`` the next line of the standard input (a terminal prompts for it). A secret in plain text is
    accepted with a warning.

    Raises:
        ConfigError: A word is not ``KEY=VALUE``, its value does not have the option's type, or the named
            source has no secret.
    """
    options: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key == "url" or not _NAME.fullmatch(key):
            # Show none of it: it may be a secret that ends in "=", given without its key.
            raise ConfigError(
                setting="-o",
                value=HIDDEN,
                reason="must be KEY=VALUE, as in -o fsync=false; KEY has only a-z 0-9 _",
            )
        if key in _OF_COMMANDS:
            option = f"--{key.replace('_', '-')}"
            raise ConfigError(
                setting=key, value=HIDDEN, reason=f"is not an option of a store; write {option} TIME"
            )
        options[key] = _typed(key, _secret(key, value) if is_secret(key) else value)
    return options


def environment_names(given: Container[str] = ()) -> list[str]:
    """Return the environment variables that set an option which is not ``given`` on the command line."""
    return [
        variable
        for variable, value in os.environ.items()
        if variable.startswith(_PREFIX) and value and variable.removeprefix(_PREFIX).lower() not in given
    ]


def environment_options(given: Container[str] = ()) -> dict[str, object]:
    """Read options from environment variables: ``ASYNCLOCK_OPTION_REGION=eu`` is ``region=eu``.

    The value of a secret option may name a source, as in ``parse_options``. Options that are ``given`` on the
    command line are ignored.

    Raises:
        ConfigError: A value does not have the option's type, or the named source has no secret.
    """
    options: dict[str, object] = {}
    for variable in environment_names(given):
        key, value = variable.removeprefix(_PREFIX).lower(), os.environ[variable]
        if not _NAME.fullmatch(key) or key == "url":
            reason = "an option cannot have this name; the URL itself is ASYNCLOCK_URL"
            raise ConfigError(setting=variable, value=HIDDEN, reason=reason)
        in_the_clear = not value.startswith((_ENVIRONMENT, _FILE))
        options[key] = _typed(key, value if in_the_clear or not is_secret(key) else _secret(key, value))
    return options


def _typed(key: str, value: str) -> object:
    # An option of any name may hold a secret, so messages show no values.
    if key in _FLAGS:
        if value not in _WORDS:
            raise ConfigError(setting=key, value=HIDDEN, reason="must be true or false")
        return _WORDS[value]
    if key in _DURATIONS:
        try:
            return parse_duration(value)
        except ValueError as error:
            raise ConfigError(setting=key, value=HIDDEN, reason=str(error)) from None
    if key in _BYTES:
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            raise ConfigError(setting=key, value=HIDDEN, reason="must be in base64") from None
    return value


def _secret(key: str, value: str) -> str:
    if value == _INPUT:
        found, missing = _next_line(key), "the standard input has no line for it, or the line is empty"
    elif value.startswith(_ENVIRONMENT):
        found = os.environ.get(value.removeprefix(_ENVIRONMENT), "")
        missing = "the environment has no variable of that name, or it is empty"
    elif value.startswith(_FILE):
        found, missing = _content(key, value.removeprefix(_FILE)), "the file is empty"
    else:
        tell(
            f"{key} was given on the command line, which every user of this machine can read (ps) and "
            f"shells "
            f"save in a file; give -o {key}=env:NAME, -o {key}=file:PATH or -o {key}=- (standard "
            "input)",
            Code.SECRET_SHOWN,
        )
        return value
    if not found:
        raise ConfigError(setting=key, value=HIDDEN, reason=missing)
    return found


def _content(key: str, path: str) -> str:
    """Return the content of a file without its final newline."""
    try:
        with Path(path).expanduser().open("rb") as file:  # a pipe too: file:/dev/fd/3
            content = file.read(_LONGEST + 1)
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no such file"
        raise ConfigError(setting=key, value=HIDDEN, reason=f"the file cannot be read: {why}") from None
    return _text(key, content)


def _next_line(key: str) -> str:
    """Return the next line of the standard input and leave the rest unread, for CMD and for questions."""
    if sys.stdin is not None and sys.stdin.isatty():
        return getpass.getpass(f"{key}: ")
    line = b""
    try:
        while not line.endswith(b"\n") and len(line) <= _LONGEST and (each := os.read(0, 1)):
            line += each
    except OSError:
        return ""
    return _text(key, line)


def _text(key: str, content: bytes) -> str:
    if len(content) > _LONGEST:
        raise ConfigError(setting=key, value=HIDDEN, reason="it is longer than 64 KiB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.isprintable():
        raise ConfigError(setting=key, value=HIDDEN, reason="it is not one line of text")
    return text
