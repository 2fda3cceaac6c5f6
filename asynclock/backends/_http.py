"""What the three cloud backends share: one request a call, its answer, its failures.

Exceptions of the SDKs never leave a backend, and neither do their texts, which quote headers,
presigned queries and signatures. Our errors contain the status, the provider's code and a text of
this package, nothing else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from abc import ABC, abstractmethod
from contextvars import ContextVar
from email.utils import mktime_tz, parsedate_tz
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar
from urllib.parse import urlsplit

from asynclock._text import printable
from asynclock.backend import MAX_BODY
from asynclock.errors import (
    AccessDeniedError,
    AsyncLockError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import aiohttp

C = TypeVar("C")
T = TypeVar("T")

_logger: Final = logging.getLogger("asynclock")
CONNECT_TIMEOUT: Final = 10.0
"""Seconds to connect. The lock bounds every request by its lease; this bounds other callers."""
READ_TIMEOUT: Final = 30.0
_READS: Final = frozenset({"get", "list"})
_CODE_SHOWN: Final = 64
_REDIRECT: Final = 3

_BY_STATUS: Final[Mapping[int, type[BackendError]]] = {
    400: UnsupportedBackendError,
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: UnsupportedBackendError,
    405: UnsupportedBackendError,
    412: PreconditionFailedError,
    429: BackendUnavailableError,
    501: UnsupportedBackendError,
}


class Exchange:
    """What became of one call's request.

    Attributes:
        sent: The request was handed to the transport; before, nothing can have been written.
        headers: Those of the answer, once there is one.
    """

    __slots__ = ("headers", "sent", "status")

    def __init__(self) -> None:
        self.sent = False
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}


exchange: Final[ContextVar[Exchange | None]] = ContextVar("asynclock_exchange", default=None)


class RedirectRefusedError(Exception):
    """The endpoint answered with a redirect; following it would send the write elsewhere."""


def note_sent() -> None:
    """Record that the running call hands its request to the transport."""
    if (current := exchange.get()) is not None:
        current.sent = True


def without_resend(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """Stop a session from sending a request again after a lost connection, and return it.

    aiohttp repeats a GET, PUT or DELETE once, below every setting of an SDK. A repeated PUT meets
    its own first copy and reports a false conflict (rule 1 of the protocol). There is no public
    switch (aiohttp#10790); this one is in the table of hooks in ``docs/backends``.

    Raises:
        ConfigError: This aiohttp has no such switch.
    """
    if not hasattr(session, "_retry_connection"):
        raise ConfigError(
            setting="aiohttp",
            value=type(session).__module__,
            reason="this aiohttp cannot be kept from sending a write twice; install the pinned one",
        )
    session._retry_connection = False  # noqa: SLF001  aiohttp has no public switch
    return session


@lru_cache(maxsize=64)
def http_date(text: str) -> float | None:
    """Return an HTTP date as epoch seconds, or None if the text is no date."""
    parsed = parsedate_tz(text)
    try:
        return None if parsed is None else float(mktime_tz(parsed))
    except (OverflowError, ValueError):
        return None


def server_time(headers: Mapping[str, str]) -> float | None:
    """Return the ``Date`` of an answer; None without one, or beside an ``Age`` (a cache's copy)."""
    text = headers.get("date") or headers.get("Date")
    if text is None or "age" in headers or "Age" in headers:
        return None
    return http_date(text)


async def read_capped(read: Callable[[int], Awaitable[bytes]], close: Callable[[], object]) -> bytes:
    """Read a body of at most ``MAX_BODY`` + 1 bytes; drop the connection where there is more."""
    chunks: list[bytes] = []
    left = MAX_BODY + 1
    while left > 0:
        chunk = await read(left)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        left -= len(chunk)
    close()
    return b"".join(chunks)


def is_loopback(host: str | None) -> bool:
    """Return whether a host name is this machine, by its form alone; no look-up."""
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_endpoint(setting: str, value: str, *, allow_http: bool, with_path: bool = False) -> str:
    """Check the address of a service and return it without a trailing slash.

    Raises:
        ConfigError: It is no plain http(s) address, or would send secrets over plain http.
    """

    def refuse(reason: str) -> NoReturn:
        # The value is left out: an address may contain a password or a token.
        raise ConfigError(setting=setting, value="...", reason=reason)

    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  raises where the port is no number
    except ValueError:
        parts = None  # refused below, so that this error, which may quote a secret, is not its context
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        refuse("must be like https://host:443")
    if "@" in parts.netloc or parts.query or parts.fragment:
        refuse("must bear no user, password, ? or #; give credentials by their options")
    if parts.path.strip("/") and not with_path:
        refuse("must have no path; the bucket and prefix belong into the URL")
    if parts.scheme == "http" and not (allow_http or is_loopback(parts.hostname)):
        refuse("is plain http and not this machine; use https, or allow_http=True to accept the risk")
    return value.rstrip("/")


class Joined(Generic[T]):
    """One shared fetch at a time, for credentials: a waiter's cancellation never reaches it.

    Args:
        fetch: Gets a new value.
        limit: Seconds after which a fetch that hangs is cancelled, so that the next caller starts a new one.
    """

    def __init__(self, fetch: Callable[[], Awaitable[T]], *, limit: float = 30.0) -> None:
        self._fetch = fetch
        self._limit = limit
        self._task: asyncio.Task[T] | None = None

    def start(self) -> asyncio.Task[T]:
        """Return the running fetch, or start one."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._bounded())
            # If nobody waits for the fetch, its failure needs no report: the next call fails again.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._task

    async def join(self) -> T:
        """Wait for the running fetch, or for a new one."""
        return await asyncio.shield(self.start())

    async def aclose(self) -> None:
        """Cancel a running fetch and wait for its end."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _bounded(self) -> T:
        async with asyncio.timeout(self._limit):
            return await self._fetch()


class _Call:
    """One call of a backend: holds its exchange, and turns its failure into an error of this package."""

    __slots__ = ("_backend", "_current", "_key", "_operation")

    def __init__(self, backend: CloudBackend[Any], operation: str, key: str) -> None:
        self._backend, self._operation, self._key = backend, operation, key
        self._current = Exchange()

    def __enter__(self) -> Exchange:
        exchange.set(self._current)
        return self._current

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if isinstance(error, asyncio.CancelledError):
                self._backend.note_cancelled(self._current)
            elif isinstance(error, Exception) and not isinstance(error, AsyncLockError):
                failure = self._backend.failure(self._operation, self._key, error, self._current)
                try:
                    raise failure from None
                finally:
                    failure.__context__ = None  # the SDK's text may contain secrets
                    del failure, error  # their tracebacks refer to this frame: a reference cycle
        finally:
            exchange.set(None)  # reset() would fail if a loop ends in the middle of the call


class CloudBackend(ABC, Generic[C]):
    """A bucket behind an SDK, whose client is made on first use, on the loop that uses it.

    Attributes:
        name: Name of the backend in errors.
        clock_resolution: 1.0, since HTTP dates have whole seconds.
        codes: What the provider's error codes become.
        hints: What to do, by error code or status.
    """

    name: str
    clock_resolution = 1.0
    codes: Mapping[str, type[BackendError]]
    hints: Mapping[str, str]

    sends_dates = True
    versions_may_repeat = False

    def __init__(self, *, prefix: str, min_write_interval: float) -> None:
        self.min_write_interval = min_write_interval
        self._prefix = prefix
        self._client: C | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        self._warned = False

    async def aclose(self) -> None:
        """Free connections and descriptors; twice is a no-op."""
        self._closed = True
        async with self._opening:
            client, self._client = self._client, None
            if client is not None:
                await self._close(client)

    @abstractmethod
    async def _open(self) -> C: ...

    @abstractmethod
    async def _close(self, client: C) -> None: ...

    @abstractmethod
    def _read_failure(self, error: Exception) -> tuple[int | None, str, Exception | None]:
        """Return status, provider's code and the transport's error of a vendor exception."""

    async def _ready(self) -> C:
        if self._client is None:
            async with self._opening:
                if self._closed:
                    raise ConfigError(setting="client", value=self.name, reason="it is closed; connect again")
                if self._client is None:
                    self._client = await self._open()
        return self._client

    def _call(self, operation: str, key: str) -> _Call:
        """Turn every failure of the SDK inside of a ``with`` block into an error of this package."""
        return _Call(self, operation, key)

    def note_cancelled(self, current: Exchange) -> None:
        """Log, once, that a call was cancelled before anything was sent."""
        if not (current.sent or self._warned):
            # The SDKs retry a fetch of credentials for longer than a request may take.
            self._warned = True
            _logger.warning("%s: no credentials came in time, nothing was sent", self.name)

    def failure(self, operation: str, key: str, error: Exception, current: Exchange) -> BackendError:
        """Return the error for a failure of the SDK; it contains nothing of the SDK's text."""
        status, code, transport = self._read_failure(error)
        if isinstance(error, RedirectRefusedError) or (status or 0) // 100 == _REDIRECT:
            kind: type[BackendError] = UnsupportedBackendError
            detail = "the endpoint answered with a redirect, which is not followed; check region and endpoint"
        elif status is not None or code:
            kind, detail = self._answered(status, code)
        elif not current.sent:
            kind = BackendUnavailableError
            detail = f"no credentials or no connection ({type(error).__name__}), nothing was sent"
        elif _failed_to_connect(transport or error):
            kind, detail = BackendUnavailableError, f"cannot connect ({type(transport or error).__name__})"
        else:
            kind, detail = OutcomeUnknownError, f"the answer was lost ({type(transport or error).__name__})"
        if operation in _READS and issubclass(kind, OutcomeUnknownError | PreconditionFailedError):
            kind = BackendUnavailableError
        return kind(backend=self.name, operation=operation, key=key, detail=detail)

    def _answered(self, status: int | None, code: str) -> tuple[type[BackendError], str]:
        # The code first: S3 reports a lost race as 200, 409, 412 or 500, always with the code.
        kind = self.codes.get(code)
        if kind is None:
            kind = _BY_STATUS.get(status or 0, OutcomeUnknownError)
        said = f"{status or ''} {printable(code, limit=_CODE_SHOWN)}".strip()
        hint = self.hints.get(code) or self.hints.get(str(status))
        return kind, f"{said}: {hint}" if hint else said


def _failed_to_connect(error: BaseException) -> bool:
    import aiohttp  # noqa: PLC0415  comes with the SDKs; asynclock is imported without it

    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)


def options_left(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the given ones of ``names``, for a constructor's keyword arguments."""
    return {name: options[name] for name in names if name in options}
