"""The stores, found by URL scheme through the entry-point group ``asynclock.backends``."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, cast

from asynclock.backends._url import split_url
from asynclock.errors import BackendNotInstalledError, ConfigError

if TYPE_CHECKING:
    from asynclock.backend import Backend

GROUP: Final = "asynclock.backends"
_EXTRAS: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "wasb": "azure",
    "wasbs": "azure",
}


def open_backend(url: str, **options: object) -> Backend:
    """Open the store behind a URL; no I/O.

    Args:
        url: For example ``s3://bucket/prefix``.
        options: Options of that backend; see ``docs/backends``.

    Raises:
        ConfigError: The URL or an option is wrong.
        BackendNotInstalledError: The backend's package is missing; names the extra.
    """
    scheme = split_url(url).scheme
    found = {point.name: point for point in entry_points(group=GROUP)}
    if scheme not in found:
        known = ", ".join(f"{name}://" for name in sorted(found))
        raise ConfigError(setting="url", value=url, reason=f"unknown scheme; known are {known}")
    try:
        factory = found[scheme].load()
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        if extra is None:
            raise
        raise BackendNotInstalledError(scheme=scheme, extra=extra) from error
    return cast("Backend", factory(url, **options))
