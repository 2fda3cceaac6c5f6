"""The store, lock and settings that a command line names."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from asynclock._cli.option_words import environment_names, environment_options
from asynclock._cli.output import tell_once
from asynclock._cli.proposals import no_url, proposal, refuse_unfit_file_url
from asynclock._codes import Code
from asynclock._core.client import default_holder
from asynclock._core.names import is_name
from asynclock._text import SUFFIX
from asynclock.backend import Stored
from asynclock.backends import open_backend
from asynclock.backends._url import split_url
from asynclock.client import LockClient
from asynclock.errors import BackendError, ConfigError
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asynclock.events import Event

_HUDI_PROPERTIES: Final = ".hoodie/hoodie.properties"
_LOOK_SECONDS: Final = 2.0
_ONE_CLOCK: Final = frozenset({"file", "memory"})
_SAME_STORE: Final = {"s3a": "s3"}
DEFAULT_URL: Final = "ASYNCLOCK_URL"
"""The environment variable with the default URL."""


def full_target(target: str) -> str:
    """Return ``URL/NAME`` for a target that may be the name of a lock under ``ASYNCLOCK_URL``.

    Raises:
        ConfigError: It is neither a URL, nor a name while the variable is set; the error suggests a URL.
    """
    if "://" in target:
        refuse_unfit_file_url("URL/NAME", target, of_lock=True)
        return target
    url = os.environ.get(DEFAULT_URL)
    if not url and is_name(target):
        reason = f"has no URL, as in s3://bucket/locks/{target}, and {DEFAULT_URL} is not set"
        raise ConfigError(setting="URL/NAME", value=target, reason=reason + proposal(target, of_lock=True))
    if not url or not is_name(target):
        raise no_url("URL/NAME", target, of_lock=True)
    full_url(url)
    return f"{url.rstrip('/')}/{target}" if not url.endswith("://") else url + target


def full_url(url: str) -> str:
    """Return the URL of the locks, checked.

    Raises:
        ConfigError: It is not a URL; the error suggests the URL of a folder.
    """
    if "://" not in url:
        setting = DEFAULT_URL if url == os.environ.get(DEFAULT_URL) else "URL/"
        raise no_url(setting, url, of_lock=False)
    if url.endswith(SUFFIX):
        reason = f"is the object of a lock; the lock itself is {url.removesuffix(SUFFIX)}"
        raise ConfigError(setting="URL/", value=url, reason=reason)
    refuse_unfit_file_url("URL/", url, of_lock=False)
    return url


def with_environment(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options plus those of the environment, which are only for the store of ``ASYNCLOCK_URL``.

    For another store, a message names the variables that are left out.

    Raises:
        ConfigError: An option of the environment is wrong.
    """
    default = os.environ.get(DEFAULT_URL)
    if not default or _store(default) != _store(url):
        if left := environment_names(options):
            are = "is" if len(left) == 1 else "are"
            why = "is another" if default else "is not set"
            tell_once(
                f"warning: {', '.join(left)} {are} not used here: the options of the environment are for the "
                f"store of {DEFAULT_URL}, which {why}; give -o, or set {DEFAULT_URL}",
                Code.OPTIONS_LEFT_OUT,
            )
        return dict(options)
    return {**environment_options(options), **options}


def _store(url: str) -> tuple[str, str]:
    parts = split_url(url)
    return _SAME_STORE.get(parts.scheme, parts.scheme), parts.netloc


def split_target(target: str) -> tuple[str, str]:
    """Split ``URL/NAME`` at its last slash. A split at another slash would name the same object.

    Raises:
        ConfigError: There is no URL, or no name after it.
    """
    parts = split_url(target)
    folder, slash, name = parts.path.rpartition("/")
    stem = target.removesuffix(SUFFIX)
    if stem != target:
        reason = f"is the object of a lock; the lock itself is {stem}"
        raise ConfigError(setting="URL/NAME", value=target, reason=reason)
    if not slash or not name:
        raise ConfigError(
            setting="URL/NAME",
            value=target,
            reason=f"names no lock; write a name, as in {target.rstrip('/')}/nightly; asynclock list "
            "shows all",
        )
    return f"{parts.scheme}://{parts.netloc}{folder}", name


def connect_to(
    url: str,
    options: Mapping[str, object],
    *,
    validity: float | None = None,
    max_clock_skew: float | None = None,
    holder: str | None = None,
    events: Callable[[Event], object] | None = None,
) -> LockClient:
    """Return a client of the locks under ``url``; no I/O.

    Args:
        url: URL of the locks.
        options: Options of the backend; they override those of the environment.
        validity: Seconds; None: the default.
        max_clock_skew: Seconds; None: 0 if the store uses this machine's clock (``file://``,
            ``memory://``), else the default.
        holder: As for ``asynclock.connect``.
        events: As for ``asynclock.connect``.

    Raises:
        ConfigError: The URL, an option or a setting is wrong.
        BackendNotInstalledError: The backend's package is missing.
    """
    scheme = split_url(url).scheme
    if scheme == "memory":
        tell_once(
            "warning: memory:// is a store of this process only: it keeps no other process out",
            Code.ONE_PROCESS,
        )
    if max_clock_skew is None and scheme in _ONE_CLOCK:
        max_clock_skew = 0.0
    times = {"validity": validity, "max_clock_skew": max_clock_skew}
    settings = LeaseSettings(**{name: value for name, value in times.items() if value is not None})
    # Not connect(): an option of the backend may have the name of one of its own arguments.
    backend = open_backend(url, **with_environment(url, options))
    return LockClient(url=url, backend=backend, settings=settings, holder=holder, events=events)


def holder_with_note(holder: str | None, note: str | None) -> str | None:
    """Return the holder that others see: ``holder`` or the default, and a note in parentheses.

    Raises:
        ConfigError: The note is empty or not printable.
    """
    if note is None:
        return holder
    if not note or not note.isprintable():
        raise ConfigError(setting="note", value=note, reason="must be printable characters")
    return f"{holder or default_holder()} ({note})"


async def refuse_hudi_table(client: LockClient, name: str, target: str) -> None:
    """Refuse a lock next to a Hudi table, because it would keep none of the table's writers out.

    Raises:
        ConfigError: ``target`` is the path of a Hudi table.
    """
    key = f"{name}/{_HUDI_PROPERTIES}" if name else _HUDI_PROPERTIES
    found: object = None
    with contextlib.suppress(BackendError, TimeoutError):  # the command itself reports the failure
        async with asyncio.timeout(_LOOK_SECONDS):
            found = await client._core.run(lambda: client._core.request("get", key, client.backend.get(key)))
    if isinstance(found, Stored):
        reason = "is a Hudi table: a lock next to it keeps none of its writers out; see asynclock hudi --help"
        raise ConfigError(setting="URL", value=target, reason=reason)
