"""What the words of a command line name: a store, a lock in it, options and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.backends import open_backend
from asynclock.backends._url import split_url
from asynclock.client import LockClient
from asynclock.errors import ConfigError
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

_ONE_CLOCK: Final = frozenset({"file", "memory"})
_FLAGS: Final = frozenset({"allow_http", "fsync", "path_style", "requester_pays", "trust_env"})
_NUMBERS: Final = frozenset({"min_write_interval"})
_WORDS: Final = {"true": True, "false": False}


def split_target(target: str) -> tuple[str, str]:
    """Split ``URL/NAME`` at its last slash, where the object is the same wherever it is split.

    Raises:
        ConfigError: There is no URL, or no name behind it.
    """
    parts = split_url(target)
    folder, slash, name = parts.path.rpartition("/")
    if not slash or not name:
        raise ConfigError(
            setting="URL/NAME",
            value=target,
            reason="names no lock; use for example s3://bucket/locks/nightly",
        )
    return f"{parts.scheme}://{parts.netloc}{folder}", name


def parse_options(words: Iterable[str]) -> dict[str, object]:
    """Read the ``KEY=VALUE`` words of ``-o``.

    Raises:
        ConfigError: A word is not like that, or its value is not of the option's type.
    """
    options: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key in {"", "url"}:
            raise ConfigError(setting="-o", value=key, reason="must be KEY=VALUE, for example -o fsync=false")
        options[key] = _typed(key, value)
    return options


def _typed(key: str, value: str) -> object:
    # Values may be secrets, so no message shows them.
    if key in _FLAGS:
        if value not in _WORDS:
            raise ConfigError(setting=key, value="...", reason="must be true or false")
        return _WORDS[value]
    if key in _NUMBERS:
        try:
            return float(value)
        except ValueError:
            raise ConfigError(setting=key, value="...", reason="must be a number") from None
    return value


def connect_to(
    url: str,
    options: Iterable[str],
    *,
    validity: float | None = None,
    max_clock_skew: float | None = None,
) -> LockClient:
    """Return a client of the locks under ``url``; no I/O.

    Args:
        url: Where the locks are.
        options: ``KEY=VALUE`` words for the backend.
        validity: Seconds; None: the default.
        max_clock_skew: Seconds; None: 0 where one machine's clock is the store's
            (``file://``, ``memory://``), else the default.

    Raises:
        ConfigError: The URL, an option or a setting is wrong.
        BackendNotInstalledError: The backend's package is missing.
    """
    if max_clock_skew is None:
        one_clock = split_url(url).scheme in _ONE_CLOCK
        max_clock_skew = 0.0 if one_clock else LeaseSettings.max_clock_skew
    settings = LeaseSettings(
        validity=LeaseSettings.validity if validity is None else validity, max_clock_skew=max_clock_skew
    )
    # Not by connect(): its own arguments are no options of a backend.
    return LockClient(url=url, backend=open_backend(url, **parse_options(options)), settings=settings)
