"""What the three cloud backends share: one request a call, the headers of its answer, and its errors.

Exceptions of the SDKs never leave a backend, and neither do their texts, which quote headers, presigned
queries and signatures. The errors of this package contain the HTTP status, the provider's error code and
a text of this package, nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import re
import ssl
import time
from abc import ABC, abstractmethod
from email.utils import mktime_tz, parsedate_tz
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from asynclock._log import log
from asynclock._text import printable
from asynclock.backend import MAX_BODY
from asynclock.backends._answers import (
    FAULTS,
    AnsweredError,
    CredentialsError,
    Fault,
    FaultError,
    Row,
    clocks_differ,
    is_web_page,
    said,
)
from asynclock.backends._faults import find_fault, proxy_is_unused
from asynclock.errors import (
    AccessDeniedError,
    AsyncLockError,
    BackendError,
    BackendUnavailableError,
    ConfigError,
    OutcomeUnknownError,
    PreconditionFailedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import aiohttp

    from asynclock.backends._answers import Answers

C = TypeVar("C")
T = TypeVar("T")

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for a connection to be made. A lock ends its requests earlier if its lease is short."""
READ_TIMEOUT: Final = 30.0
"""Seconds of silence after which a request ends. A lock ends its requests earlier if its lease is short."""
TOTAL_TIMEOUT: Final = 60.0
"""Seconds after which a request ends whatever comes, so that an answer that trickles ends too."""
MAX_ANSWER: Final = 8 << 20
"""Bytes of the longest answer: a page of a listing, which has 1,000 keys at most."""
_READS: Final = frozenset({"get", "list"})
_WHOLE: Final = 200
_WAITED: Final = 0.5
"""Seconds without credentials from which on a call that was cancelled tells of it."""
_NO_NAME: Final = frozenset({Fault.NO_HOST, Fault.NO_NAME_SERVER})
_PLAIN: Final = frozenset({"", "identity", "aws-chunked"})
"""Values of ``Content-Encoding`` whose body is as it was written."""


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
    try:
        parsed = parsedate_tz(text)
        return None if parsed is None else float(mktime_tz(parsed))
    except (ArithmeticError, LookupError, TypeError, ValueError):
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
        FaultError: It may be a part of it, or something else: the status is not 200, nothing says where the
            body ends, it is compressed, it is a web page.
    """
    headers = answer.headers
    framed = "Content-Length" in headers or "Transfer-Encoding" in headers
    if answer.status != _WHOLE or not framed:
        raise FaultError(Fault.PARTIAL, f"status {answer.status}" if framed else "it has no length")
    refuse_compressed(headers)
    body = await read_capped(answer)
    refuse_web_page(headers, body)
    return body


def refuse_compressed(headers: Mapping[str, str]) -> None:
    """Raise ``FaultError`` if a body is compressed: nothing asks for that, so it is not the store's."""
    encoding = headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _PLAIN:
        raise FaultError(Fault.COMPRESSED, printable(encoding, limit=32))


def refuse_web_page(headers: Mapping[str, str], body: bytes) -> None:
    """Raise ``FaultError`` if the answer to a read or a write is a page for people, such as a sign-in."""
    if headers.get("Content-Type", "").lstrip().lower().startswith("text/html") and is_web_page(body):
        raise FaultError(Fault.WEB_PAGE, f"text/html, {len(body)} bytes")


def refuse_changed(headers: Mapping[str, str], body: bytes) -> None:
    """Raise ``FaultError`` if a whole object has not the MD5 checksum that the store sends beside it."""
    said = headers.get("Content-MD5") or next(
        (each.strip()[4:] for each in headers.get("x-goog-hash", "").split(",") if "md5=" in each[:6]), ""
    )
    if said and len(body) <= MAX_BODY and said != md5_of(body):
        raise FaultError(Fault.CHANGED, f"{len(body)} bytes came, their checksum is another")


def md5_of(data: bytes) -> str:
    """Return a checksum as the headers of the clouds have it."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def version_in(text: str | None, name: str) -> str:
    """Return the version in an answer, which is text that can be sent back.

    Args:
        text: Value of the header or field; None: there is none.
        name: Of the header or field.

    Raises:
        FaultError: There is none, or it is no printable ASCII.
    """
    if not text:
        raise FaultError(Fault.NO_VERSION, f"no {name}")
    if not (text.isascii() and text.isprintable()):
        raise FaultError(Fault.NO_VERSION, f"an {name} that cannot be sent back")
    return text


async def read_capped(answer: aiohttp.ClientResponse, limit: int = MAX_BODY + 1) -> bytes:
    """Return the first ``limit`` bytes of a body at most; the connection of a longer one is closed."""
    chunks: list[bytes] = []
    left = limit
    while left > 0:
        chunk = await answer.content.read(left)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        left -= len(chunk)
    answer.close()
    return b"".join(chunks)


async def read_page(answer: aiohttp.ClientResponse) -> bytes:
    """Return the whole body of a page of a listing.

    Raises:
        FaultError: It is longer than any page, compressed, or a web page.
    """
    refuse_compressed(answer.headers)
    body = await read_capped(answer, MAX_ANSWER + 1)
    if len(body) > MAX_ANSWER:
        raise FaultError(Fault.TOO_LONG, f"more than {MAX_ANSWER >> 20} MiB")
    refuse_web_page(answer.headers, body)
    return body


class Pages:
    """Keeps a listing from going on forever: no page is asked for twice, and there are 10,000 at most."""

    _MOST: Final = 10_000

    def __init__(self) -> None:
        self._asked: set[int] = set()

    def next(self, token: str) -> str:
        """Return the token of the next page.

        Raises:
            FaultError: That page was there already, or there are too many.
        """
        if (mark := hash(token)) in self._asked or len(self._asked) >= self._MOST:
            raise FaultError(Fault.ENDLESS, f"after {len(self._asked) + 1} pages")
        self._asked.add(mark)
        return token


def check_certificates(ca_file: str) -> None:
    """Refuse a ``ca_file`` that cannot be read, or is no PEM file of certificates, with a ``ConfigError``."""
    if not Path(ca_file).is_file():
        raise ConfigError(setting="ca_file", value=ca_file, reason="there is no such file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
    except OSError:
        raise ConfigError(setting="ca_file", value=ca_file, reason="it is no PEM certificate") from None


def trusting(ca_file: str | None) -> ssl.SSLContext | None:
    """Return a context that trusts these certificates besides those of the machine; None: no others."""
    if ca_file is None:
        return None
    context = ssl.create_default_context()
    context.load_verify_locations(ca_file)
    return context


def is_loopback(host: str | None) -> bool:
    """Return whether a host name or address means this machine. Decided without looking the name up."""
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


_BLANK: Final = r"[\x00-\x20\x7f]"


def check_endpoint(setting: str, value: str, *, allow_http: bool, with_path: bool = False) -> str:
    """Check the address of a service and return it, the scheme in small letters, without a trailing slash.

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

    if re.search(_BLANK, value):  # the parser would leave it out, even within the scheme
        refuse("must have no blanks or control characters")
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
    return f"{parts.scheme}{value[len(parts.scheme) :]}".rstrip("/")


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
        fault: What the transport has found out about a request without an answer; None: nothing.
        request_id: Id of the answer for the provider's support; None: there is none.
        date: The answer's ``Date`` in epoch seconds, or None.
        where: Host and port that the request went to; empty: nowhere yet.
        waits_since: By the monotonic clock, from when on credentials are waited for; None: they are not.
    """

    __slots__ = (
        "_backend",
        "_key",
        "_operation",
        "date",
        "fault",
        "request_id",
        "sent",
        "waits_since",
        "where",
    )

    def __init__(self, backend: CloudBackend[Any], operation: str, key: str) -> None:
        self._backend, self._operation, self._key = backend, operation, key
        self.waits_since: float | None = None
        self.sent = False
        self.fault: Fault | None = None
        self.request_id: str | None = None
        self.date: float | None = None
        self.where = ""

    @property
    def reads(self) -> bool:
        """Whether it writes nothing, whatever becomes of it."""
        return self._operation in _READS

    def note_answer(self, headers: Mapping[str, str]) -> None:
        """Keep what an error says of the answer."""
        self.request_id = self._backend.answers.id_of(headers)
        self.date = server_time(headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, asyncio.CancelledError):
            if not self.sent:
                self._backend.note_cancelled(self.waits_since)
        elif isinstance(error, Exception) and not isinstance(error, AsyncLockError):
            failure = self._failure(error)
            try:
                raise failure from None
            finally:
                failure.__context__ = None  # the SDK's text may contain secrets
                del failure, error  # their tracebacks refer to this frame: a reference cycle

    def _failure(self, error: Exception) -> BackendError:
        """Return the error of this package for an exception, without that exception's text."""
        row, detail = self._backend.explain(self, error)
        kind, written = row.kind or OutcomeUnknownError, row.written
        if self.reads:
            written = "no"
            if row.read is not None:
                kind = row.read
        elif not self.sent:
            written = "no"
        if (self.reads or not self.sent) and issubclass(kind, OutcomeUnknownError | PreconditionFailedError):
            kind = BackendUnavailableError
        return kind(
            backend=self._backend.name,
            operation=self._operation,
            key=self._key,
            detail=detail,
            written=written,
            transient=row.transient,
            request_id=self.request_id,
        )


class CloudBackend(ABC, Generic[C]):
    """A bucket behind an SDK. The SDK's client is made by the first call, on the event loop of that call.

    Args:
        prefix: Put before every key.
        min_write_interval: Seconds that a lock leaves between two writes of one object.
        trust_env: Whether the proxies of the environment are used.

    Attributes:
        name: Name of the backend in errors.
        clock_resolution: 1.0, because HTTP dates have whole seconds.
        answers: What the store's answers mean.
    """

    name: str
    clock_resolution = 1.0
    answers: Answers

    sends_dates = True
    versions_may_repeat = False
    verify = True
    """Whether a store at an address that is not the provider's is tried out before the first lock."""
    own_hosts: str
    """Pattern of the provider's own hosts."""

    def __init__(self, *, prefix: str, min_write_interval: float, trust_env: bool = False) -> None:
        self.min_write_interval = min_write_interval
        self._prefix = prefix
        self._trust_env = trust_env
        self._client: C | None = None
        self._opening: SharedFetch[C] = SharedFetch(self._open_once, limit=TOTAL_TIMEOUT)
        self._closed = False
        self._warned = False
        self._opening_waits_since: float | None = None  # for credentials

    @property
    def opening(self) -> bool:
        """Whether its client is still to be made, which takes a busy machine long; nothing was sent then."""
        return self._client is None and not self._closed

    async def aclose(self) -> None:
        """Free connections and descriptors. A second call does nothing; requests now fail."""
        self._closed = True
        await self._opening.aclose()
        client, self._client = self._client, None
        if client is not None:
            await self._close(client)

    @abstractmethod
    async def _open(self) -> C: ...

    @abstractmethod
    async def _close(self, client: C) -> None: ...

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:  # noqa: ARG002  for subclasses
        """Return status and error code of what an SDK raises that fetches credentials; (None, ""): none."""
        return None, ""

    @abstractmethod
    def _location(self, client: C) -> tuple[str, str]:
        """Return the address that requests go to, and the bucket."""

    async def place(self) -> str | None:
        """Return what tells this bucket from others; None at an address of the provider itself.

        Raises:
            BackendError: The SDK could not be set up.
        """
        with BackendCall(self, "get", ""):
            address, bucket = self._location(await self._ready())
            parts = urlsplit(address)
            if parts.scheme == "https" and re.fullmatch(self.own_hosts, parts.hostname or ""):
                return None
            return f"{self.name} {parts.scheme}://{parts.hostname}:{parts.port}{parts.path} {bucket}"

    async def _ready(self) -> C:
        if self._client is None:
            if self._closed:
                raise ConfigError(setting="client", value=self.name, reason="it is closed; connect again")
            # One opening for all callers; one whose time is up leaves it to those that come next.
            self._client = await self._opening.wait()
        return self._client

    async def _open_once(self) -> C:
        client = self._client = await self._open()
        return client

    def note_cancelled(self, waits_since: float | None) -> None:
        """Log that a call was cancelled while credentials did not come for it; once for each backend.

        Args:
            waits_since: By the monotonic clock, from when on the call waited for credentials, if it did.
        """
        since = self._opening_waits_since if waits_since is None else waits_since
        if since is not None and time.monotonic() - since >= _WAITED and not self._warned:
            self._warned = True
            log.warning("%s: no credentials in time, nothing was sent", self.name)

    def explain(self, call: BackendCall, error: Exception) -> tuple[Row, str]:
        """Return what an exception of a call means, and how an error says it."""
        if isinstance(error, CredentialsError):
            return Row(AccessDeniedError), f"no credentials: {error.sentence}"
        if isinstance(error, AnsweredError):
            if error.fault is not None:
                row = FAULTS[error.fault]
                return row, f"{error.status}: {error.fault.value}: {row.hint}"
            row = self.answers.row(error.status, error.code)
            detail = said(error.status, error.code, row, error.more)
            denied = row.kind is not None and issubclass(row.kind, AccessDeniedError)
            return row, detail + (clocks_differ(call.date) if denied else "")
        status, code = (None, "") if call.sent else self._read_failure(error)
        if status is not None or code:
            return _without_credentials(status, code, self.answers.row(status, code))
        found = find_fault(error)
        fault = call.fault or found.fault
        if fault in _NO_NAME and not self._trust_env and proxy_is_unused("https"):
            fault = Fault.NO_HOST_BUT_A_PROXY
        row = FAULTS[fault]
        reason = f"{fault.value} ({found.more})" if found.more and fault is found.fault else fault.value
        if found.connecting or row.kind is BackendUnavailableError:
            detail = f"cannot connect to {found.where or call.where or 'the store'}: {reason}"
        elif isinstance(error, FaultError):
            detail = reason
        elif not call.sent:
            return Row(BackendUnavailableError), f"no credentials ({type(error).__name__}), nothing was sent"
        else:
            detail = f"the answer was lost: {reason} ({type(error).__name__}, {call.where})"
        if not call.sent:
            detail = f"no credentials: {detail}"
        return row, f"{detail}; {row.hint}" if row.hint else detail


def _without_credentials(status: int | None, code: str, row: Row) -> tuple[Row, str]:
    """Return what an answer of a service that hands out credentials means, or that the SDK has none."""
    kind = row.kind or OutcomeUnknownError
    if status is None:
        return row, f"no credentials: {said(status, code, row)}"
    detail = f"no credentials: the service that hands them out answered {said(status, code, Row())}"
    if issubclass(kind, OutcomeUnknownError | BackendUnavailableError):
        return Row(BackendUnavailableError), f"{detail}, nothing was sent"
    return Row(AccessDeniedError), detail
