"""URLs and options of backends, checked before anything is opened."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_CONTROL: Final = re.compile(r"[\x00-\x20\x7f\\]")
_LIKE: Final = "must be like s3://bucket/prefix, file:///folder or memory://name"


def split_url(url: str) -> SplitResult:
    """Parse the URL of a store.

    Raises:
        ConfigError: It has no scheme, bears a password, a query or characters that URLs have not.
    """
    if not isinstance(url, str):
        raise ConfigError(setting="url", value=url, reason=_LIKE)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(setting="url", value=url, reason=str(error)) from None
    if "@" in parts.netloc and ":" in parts.netloc.rpartition("@")[0]:
        # The value is left out: it bears a secret.
        raise ConfigError(setting="url", value="...", reason="a URL must not bear a password; use options")
    if not parts.scheme or not url.startswith("://", len(parts.scheme)) or _CONTROL.search(url):
        raise ConfigError(setting="url", value=url, reason=_LIKE)
    if parts.query or parts.fragment:
        raise ConfigError(setting="url", value=url, reason="must have no ? or #; give options by name")
    return parts


def object_prefix(url: SplitResult) -> str:
    """Return what stands before every key under ``url``: empty, or ``folder/…/``.

    Raises:
        ConfigError: The path has an empty segment, ``.`` or ``..``.
    """
    segments = url.path.strip("/").split("/")
    if segments == [""]:
        return ""
    if any(unquote(segment) in {"", ".", ".."} for segment in segments):
        raise ConfigError(
            setting="url", value=url.geturl(), reason="the path must have no empty segment, '.' or '..'"
        )
    return "/".join(segments) + "/"


def take_options(options: dict[str, object], **allowed: type) -> dict[str, Any]:
    """Check backend options by name and type and return them; None means not given.

    ``trust_env`` is an option of every backend; those without a network ignore it.

    Raises:
        ConfigError: An unknown option, or a value of another type; names the allowed ones.
    """
    taken: dict[str, Any] = {}
    for name, value in options.items():
        if name not in allowed and name != "trust_env":
            known = ", ".join(sorted(allowed)) or "none"
            raise ConfigError(setting=name, value="...", reason=f"no such option here; there are: {known}")
        if value is None or name not in allowed:
            continue
        kind = allowed[name]
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(setting=name, value="...", reason=f"must be of type {kind.__name__}")
        taken[name] = float(value) if isinstance(value, int | float) and kind is float else value
    interval = taken.get("min_write_interval")
    if interval is not None and not 0 <= interval < 60:  # noqa: PLR2004  a minute is no pacing any more
        raise ConfigError(setting="min_write_interval", value=interval, reason="must be 0 to 60 s")
    return taken
