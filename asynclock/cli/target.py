"""The store, lock and settings that a command line names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.backends import open_backend
from asynclock.backends._url import split_url
from asynclock.client import LockClient
from asynclock.errors import ConfigError
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

_ONE_CLOCK: Final = frozenset({"file", "memory"})


def split_target(target: str) -> tuple[str, str]:
    """Split ``URL/NAME`` at its last slash; a split at any other slash would name the same object.

    Raises:
        ConfigError: There is no URL, or no name after it.
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


def connect_to(
    url: str,
    options: Mapping[str, object],
    *,
    validity: float | None = None,
    max_clock_skew: float | None = None,
) -> LockClient:
    """Return a client of the locks under ``url``; no I/O.

    Args:
        url: Where the locks are.
        options: Options of the backend.
        validity: Seconds; None: the default.
        max_clock_skew: Seconds; None: 0 if the store uses this machine's clock (``file://``,
            ``memory://``), else the default.

    Raises:
        ConfigError: The URL, an option or a setting is wrong.
        BackendNotInstalledError: The backend's package is missing.
    """
    if max_clock_skew is None and split_url(url).scheme in _ONE_CLOCK:
        max_clock_skew = 0.0
    times = {"validity": validity, "max_clock_skew": max_clock_skew}
    settings = LeaseSettings(**{name: value for name, value in times.items() if value is not None})
    # Not connect(), whose own arguments would be taken for options of the backend.
    return LockClient(url=url, backend=open_backend(url, **options), settings=settings)
