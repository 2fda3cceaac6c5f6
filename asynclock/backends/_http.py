"""What the three cloud backends share: one request a call, the headers of its answer, and its errors.

Exceptions of the SDKs never leave a backend, and neither do their texts, which quote headers, presigned
queries and signatures. The errors of this package contain the HTTP status, the provider's error code and
a text of this package, nothing else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from abc import ABC, abstractmethod
from email.utils import mktime_tz, parsedate_tz
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

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
"""Seconds for a connection to be made. A lock ends its requests earlier if its lease is short."""
READ_TIMEOUT: Final = 30.0
"""Seconds of silence after which a request ends. A lock ends its requests earlier if its lease is short."""
_READS: Final = frozenset({"get", "list"})
FAILURE: Final = 300
"""The lowest status that is not a success; redirects are included, since they are not followed."""
_WHOLE: Final = 200
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


class AnsweredError(Exception):
    """An answer that is no success. It never leaves the backends.

    Attributes:
        status: Its HTTP status.
        code: The provider's error code; empty: there was none.
    """

    def __init__(self, status: int, code: str) -> None:
        super().__init__(status, code)
        self.status, self.code = status, code


def without_resend(session: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """Keep a session from sending a request again after a lost connection, and return the session.

    aiohttp repeats a GET, PUT or DELETE once, whatever the retry settings of an SDK. If the first copy of
    a conditional PUT was written, the second one is refused because of it, and the caller believes that
    somebody else has written. aiohttp has no public switch for this (aiohttp#10790); the private one used
    here is in the table of hooks in ``docs/backends``.

    Raises:
        ConfigError: This release of aiohttp does not have the switch.
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
    """Return the ``Date`` of an answer in epoch seconds.

    Returns:
        None if the answer has no Date, or has an ``Age``: then a cache sent it, with the Date of its copy.
    """
    text = headers.get("date") or headers.get("Date")
    if text is None or "age" in headers or "Age" in headers:
        return None
    return http_date(text)


def environment_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for an address, perhaps with a user and password, or None.

    In place of aiohttp's ``trust_env``, which also sends what ``~/.netrc`` has for the host of the store.
    """
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


async def read_object(answer: aiohttp.ClientResponse) -> bytes:
    """Return the first ``MAX_BODY`` + 1 bytes at most of an object that was read.

    Raises:
        ValueError: It may be a part of it: the status is not 200, or nothing says where the body ends.
    """
    framed = "Content-Length" in answer.headers or "Transfer-Encoding" in answer.headers
    if answer.status != _WHOLE or not framed:
        raise ValueError("the answer may be a part of the object")
    return await read_capped(answer)


async def read_capped(answer: aiohttp.ClientResponse) -> bytes:
    """Return the first ``MAX_BODY`` + 1 bytes of a body at most; the connection of a longer one is closed."""
    chunks: list[bytes] = []
    left = MAX_BODY + 1
    while left > 0:
        chunk = await answer.content.read(left)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        left -= len(chunk)
    answer.close()
    return b"".join(chunks)


def is_loopback(host: str | None) -> bool:
    """Return whether a host name or address means this machine. Decided without looking the name up."""
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_endpoint(setting: str, value: str, *, allow_http: bool, with_path: bool = False) -> str:
    """Check the address of a service and return it without a trailing slash.

    Args:
        setting: Named in the error.
        value: The address.
        allow_http: Whether plain http is allowed to other machines than this one.
        with_path: Whether the address may have a path; default False.

    Raises:
        ConfigError: It is not such an address, or secrets would be sent over plain http.
    """

    def refuse(reason: str) -> NoReturn:
        # The value is not shown: an address may contain a password or a token.
        raise ConfigError(setting=setting, value="...", reason=reason)

    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  raises where the port is no number
    except ValueError:
        parts = None  # refused below: this error may quote a secret, so it must not become the context
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        refuse("must be like https://host:443")
    if "@" in parts.netloc or parts.query or parts.fragment:
        refuse("must contain no user, password, ? or #; give credentials by their options")
    if parts.path.strip("/") and not with_path:
        refuse("must have no path; the bucket and prefix belong into the URL")
    if parts.scheme == "http" and not (allow_http or is_loopback(parts.hostname)):
        refuse("is plain http and not this machine; use https, or allow_http=True to accept the risk")
    return value.rstrip("/")


class SharedFetch(Generic[T]):
    """A fetch of credentials that all concurrent callers share. Cancelling one caller does not cancel it.

    Args:
        fetch: Gets a new value.
        limit: Seconds after which a fetch is cancelled, so that the next caller starts a new one; default 30.
    """

    def __init__(self, fetch: Callable[[], Awaitable[T]], *, limit: float = 30.0) -> None:
        self._fetch = fetch
        self._limit = limit
        self._task: asyncio.Task[T] | None = None

    def start(self) -> asyncio.Task[T]:
        """Return the running fetch, or start one."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._bounded())
            # Retrieve its error: asyncio would log one that nobody waits for, and the next call fails anyway.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._task

    async def wait(self) -> T:
        """Return the value of the running fetch, or of a new one. Raises what the fetch raises."""
        return await asyncio.shield(self.start())

    async def aclose(self) -> None:
        """Cancel the running fetch, if any, and wait for its end."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _bounded(self) -> T:
        async with asyncio.timeout(self._limit):
            return await self._fetch()


class BackendCall:
    """One call of a backend. What is raised in its ``with`` block becomes an error of this package.

    Attributes:
        sent: Whether its request was handed to the transport; from then on it may be written.
    """

    __slots__ = ("_backend", "_key", "_operation", "sent")

    def __init__(self, backend: CloudBackend[Any], operation: str, key: str) -> None:
        self._backend, self._operation, self._key = backend, operation, key
        self.sent = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._backend.note_cancelled(sent=self.sent)
        elif isinstance(error, Exception) and not isinstance(error, AsyncLockError):
            failure = self._backend.failure(self._operation, self._key, error, sent=self.sent)
            try:
                raise failure from None
            finally:
                failure.__context__ = None  # the SDK's text may contain secrets
                del failure, error  # their tracebacks refer to this frame: a reference cycle


class CloudBackend(ABC, Generic[C]):
    """A bucket behind an SDK. The SDK's client is made by the first call, on the event loop of that call.

    Args:
        prefix: Put before every key.
        min_write_interval: Seconds that a lock leaves between two writes of one object.

    Attributes:
        name: Name of the backend in errors.
        clock_resolution: 1.0, because HTTP dates have whole seconds.
        codes: The class of error for each of the provider's error codes.
        hints: What the user can do, by error code or HTTP status; part of the error's text.
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
        """Free connections and descriptors. A second call does nothing; requests now fail."""
        self._closed = True
        async with self._opening:
            client, self._client = self._client, None
            if client is not None:
                await self._close(client)

    @abstractmethod
    async def _open(self) -> C: ...

    @abstractmethod
    async def _close(self, client: C) -> None: ...

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:
        """Return the HTTP status, None if there was no answer, and the provider's error code, or ``""``."""
        return (error.status, error.code) if isinstance(error, AnsweredError) else (None, "")

    async def _ready(self) -> C:
        if self._client is None:
            async with self._opening:
                if self._closed:
                    raise ConfigError(setting="client", value=self.name, reason="it is closed; connect again")
                if self._client is None:
                    self._client = await self._open()
        return self._client

    def note_cancelled(self, *, sent: bool) -> None:
        """Log that a call was cancelled before its request was sent; once for each backend."""
        if not (sent or self._warned):
            # The SDK is still trying to fetch credentials, or all connections of the pool are in use.
            self._warned = True
            _logger.warning("%s: no credentials or no connection in time, nothing was sent", self.name)

    def failure(self, operation: str, key: str, error: Exception, *, sent: bool) -> BackendError:
        """Return the error of this package for an exception of a call, without that exception's text."""
        status, code = self._read_failure(error)
        if (status or 0) // 100 == _REDIRECT:
            kind: type[BackendError] = UnsupportedBackendError
            detail = "the endpoint answered with a redirect, which is not followed; check region and endpoint"
        elif status is not None or code:
            kind, detail = self._answered(status, code)
            if not sent and issubclass(kind, OutcomeUnknownError):
                # The answer came from a service that hands out credentials.
                kind, detail = BackendUnavailableError, f"no credentials ({detail}), nothing was sent"
        elif not sent:
            kind = BackendUnavailableError
            detail = f"no credentials or no connection ({type(error).__name__}), nothing was sent"
        elif _failed_to_connect(error):
            kind, detail = BackendUnavailableError, f"cannot connect ({type(error).__name__})"
        else:
            kind, detail = OutcomeUnknownError, f"the answer was lost ({type(error).__name__})"
        if operation in _READS and issubclass(kind, OutcomeUnknownError | PreconditionFailedError):
            kind = BackendUnavailableError
        return kind(backend=self.name, operation=operation, key=key, detail=detail)

    def _answered(self, status: int | None, code: str) -> tuple[type[BackendError], str]:
        # The error code decides before the status: S3 reports a lost race with status 200, 409, 412 or 500,
        # and always with a code.
        kind = self.codes.get(code)
        if kind is None:
            kind = _BY_STATUS.get(status or 0, OutcomeUnknownError)
        said = f"{status or ''} {printable(code, limit=_CODE_SHOWN)}".strip()
        hint = self.hints.get(code) or self.hints.get(str(status))
        return kind, f"{said}: {hint}" if hint else said


def _failed_to_connect(error: BaseException) -> bool:
    import aiohttp  # noqa: PLC0415  installed with the SDKs only

    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
