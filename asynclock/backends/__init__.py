"""Opens the backend for a URL: asynclock's own from a table, all others through an entry-point group."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from asynclock.backends._url import AZURE, split_url
from asynclock.errors import BackendNotInstalledError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock.backend import Backend

GROUP: Final = "asynclock.backends"
"""Entry points of other packages: the name is the URL scheme, the value ``factory(url, **options)``."""
BUILT_IN: Final = {
    "memory": "_memory:open_memory",
    "file": "_local:open_local",
    "s3": "_s3:open_s3",
    "s3a": "_s3:open_s3",
    "gs": "_gcs:open_gcs",
    **dict.fromkeys(AZURE, "_azure:open_azure"),
}
"""Module and factory by URL scheme. The module of a cloud is named after the extra that installs its SDK."""


def open_backend(url: str, **options: object) -> Backend:
    """Return the backend for a URL. It sends and writes nothing until its first use.

    Args:
        url: For example ``s3://bucket/prefix``.
        options: Options of that backend; see ``docs/backends``. Their defaults come from its environment.

    Raises:
        ConfigError: No backend has the URL's scheme, or the URL or an option is wrong.
        BackendNotInstalledError: The SDK that the backend needs is not installed; the error names the
            extra to install.
    """
    scheme = split_url(url).scheme
    factory = _built_in(scheme) if scheme in BUILT_IN else _installed(scheme, url)
    return cast("Backend", factory(url, **options))


def _built_in(scheme: str) -> Callable[..., Any]:
    module, _, factory = BUILT_IN[scheme].partition(":")
    try:
        found: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), factory)
    except ImportError as error:
        raise BackendNotInstalledError(scheme=scheme, extra=module.removeprefix("_")) from error
    except AttributeError as error:  # the import has not come that far
        raise RuntimeError(
            f"a signal handler opened {scheme}:// within its import; connect before you set a handler"
        ) from error
    return found


def _installed(scheme: str, url: str) -> Callable[..., Any]:
    from importlib.metadata import entry_points  # noqa: PLC0415  it also imports parsers for archives and mail

    found = {point.name: point for point in entry_points(group=GROUP)}
    if scheme not in found:
        known = ", ".join(f"{name}://" for name in sorted({*BUILT_IN, *found}))
        raise ConfigError(setting="url", value=url, reason=f"unknown scheme; known are {known}")
    factory: Callable[..., Any] = found[scheme].load()
    return factory
