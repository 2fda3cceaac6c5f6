"""Parses and checks the URLs and options of backends, before anything is opened."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from asynclock._secrets import clean_url
from asynclock.backends._names import name_problem
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from urllib.parse import SplitResult

# Compiled on first use, not on import; ``re`` caches them.
_CONTROL: Final = r"[\x00-\x20\x7f\\]"
_LIKE: Final = "must be like s3://bucket/prefix, file:///folder or memory://name"
_CREDENTIALS: Final = (
    "must contain no user or password; give credentials as options (an '@' is only allowed between an Azure "
    "container, 3 to 63 characters a-z 0-9 -, and its account)"
)
_URL: Final = r"(?s)(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>[^/]*)(?P<path>.*)"
_NO_PORT: Final = r"[^\[:]*:(?!\d+$)"
_ANYWHERE: Final = frozenset({"trust_env", "verify"})
AZURE_OF_HADOOP: Final = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes by which Hadoop names Azure."""
AZURE: Final = ("az", *AZURE_OF_HADOOP)
"""Schemes of Azure Blob Storage."""


def split_url(url: str) -> SplitResult:
    """Parse the URL of a store.

    Raises:
        ConfigError: The URL has no scheme, contains credentials or a query, or characters that no URL has.
    """
    if not isinstance(url, str):
        raise ConfigError(setting="url", value=_shown(url), reason=_LIKE)
    from urllib.parse import urlsplit  # noqa: PLC0415  an eighth of ``import asynclock``

    refuse_credentials("url", url)
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None  # refused below: this error may quote a secret, so it must not become the context
    if (
        parts is None
        or not parts.scheme
        or not url.startswith("://", len(parts.scheme))
        or re.search(_CONTROL, url)
    ):
        raise wrong_url("url", url, _LIKE)
    if parts.query or parts.fragment:
        raise wrong_url("url", url, "must have no ? or #; give options by name")
    return parts


def _shown(given: object) -> object:
    """Return the part of a value that an error may show: an object's repr may contain a secret."""
    if isinstance(given, os.PathLike):
        return os.fspath(given)
    return given if given is None or isinstance(given, bytes) else type(given).__name__


def refuse_credentials(setting: str, url: str) -> None:
    """Refuse a URL that contains a user or a password, or something that may be part of one.

    The slash in the secret of ``s3://KEY:SEC/RET@bucket`` makes a URL parser see the host ``KEY:SEC`` and a
    path. So every "@" is refused, except the one between an Azure container and its account, and those in the
    path of a ``file://`` URL.

    Args:
        setting: Named in the error.
        url: URL of a store, or one that Spark or Hudi will open. Text that is not a URL is accepted.

    Raises:
        ConfigError: The URL may contain credentials; they are not shown.
    """
    found = re.match(_URL, url)
    if found is None:
        return
    scheme, host, path = found["scheme"].lower(), found["host"], found["path"]
    user, at, service = host.rpartition("@")
    if scheme in AZURE and (not user or name_problem("az", user) is None):
        at = ""
    in_path = "@" in path and (scheme != "file" or host not in {"", "localhost"})
    if at or in_path or re.match(_NO_PORT, service):
        raise wrong_url(setting, url, _CREDENTIALS)


def wrong_url(setting: str, url: str, reason: str) -> ConfigError:
    """Return a ``ConfigError`` about a URL; parts of the URL that may be a secret are not shown."""
    return ConfigError(setting=setting, value=clean_url(url), reason=reason)


def object_prefix(url: SplitResult) -> str:
    """Return the prefix of every key under ``url``: an empty string, or ``folder/…/``.

    Raises:
        ConfigError: The path has an empty segment, ``.`` or ``..``.
    """
    from urllib.parse import unquote  # noqa: PLC0415  as in ``split_url``

    segments = url.path.strip("/").split("/")
    if segments == [""]:
        return ""
    if any(unquote(segment) in {"", ".", ".."} for segment in segments):
        raise wrong_url("url", url.geturl(), "the path must have no empty segment, '.' or '..'")
    return "/".join(segments) + "/"


def bucket_of(url: SplitResult, provider: str) -> str:
    """Return the bucket that a URL names.

    Args:
        url: The URL.
        provider: The provider whose rules for bucket names apply: ``s3`` or ``gs``.

    Raises:
        ConfigError: The URL names no bucket, or breaks the provider's rules for names.
    """
    if (problem := name_problem(provider, url.netloc)) is not None:
        raise wrong_url("url", url.geturl(), f"must be like {url.scheme}://bucket/prefix; {problem}")
    return url.netloc


def take_options(options: dict[str, object], **allowed: type) -> dict[str, Any]:
    """Check the options of a backend by name and type, and return those that were given.

    Args:
        options: By name; one with the value None counts as not given. ``trust_env`` and
            ``verify`` are accepted for every backend; those without a network ignore them.
        allowed: The type of each allowed option. An int is accepted for a float and returned as a float.

    Raises:
        ConfigError: An option is unknown (the error lists the allowed ones) or has a value of another type,
            or ``min_write_interval`` is not 0 to 60.
    """
    taken: dict[str, Any] = {}
    for name, value in options.items():
        if name not in allowed and name not in _ANYWHERE:
            reason = f"no such option here; there are: {known_options(name, allowed)}"
            raise ConfigError(setting=name, value="...", reason=reason)
        if value is None or name not in allowed:
            continue
        kind = allowed[name]
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(setting=name, value="...", reason=f"must be of type {kind.__name__}")
        taken[name] = float(value) if isinstance(value, int | float) and kind is float else value
    interval = taken.get("min_write_interval")
    if interval is not None and not 0 <= interval < 60:  # noqa: PLR2004  more than a minute is surely a mistake
        raise ConfigError(setting="min_write_interval", value=interval, reason="must be 0 to 60 s")
    return taken


def known_options(name: str, known: Iterable[str]) -> str:
    """Return the existing options for an error, with a suggestion for the wrong ``name``."""
    from difflib import get_close_matches  # noqa: PLC0415  for an error only

    options = sorted(known)
    alike = get_close_matches(name, options, n=1) or [each for each in options if name and name in each]
    return (", ".join(options) or "none") + (f"; did you mean {alike[0]}?" if alike else "")
