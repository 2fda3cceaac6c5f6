"""Opens the backend of a URL: the entry-point group ``asynclock.backends`` maps URL schemes to them."""

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
    """Return the backend for a URL. Nothing is sent or written; a backend connects when it is first used.

    Args:
        url: For example ``s3://bucket/prefix``.
        options: Options of that backend; see ``docs/backends``. Default: what its environment says.

    Raises:
        ConfigError: No backend has the URL's scheme, or the URL or an option is wrong.
        BackendNotInstalledError: The SDK that the backend needs is not installed; the error names the
            extra to install.
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
