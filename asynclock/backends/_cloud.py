"""The parts that the three cloud backends share: a call, its answer, and the text of its errors.

The SDKs find credentials, sign requests and read answers. They send through the session of ``_session``:
its middleware sends each request once, reads the answer within limits and notes status, headers and body in
the running ``BackendCall``. So a backend needs only the documented part of an SDK, and one table of answers
(``_answers``, ``_tables``) decides for all SDKs.

SDK exceptions never leave a backend. Neither do their texts, which quote headers, presigned queries and
signatures. An error of this package contains only the HTTP status, the provider's error code and its own
text.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from abc import ABC, abstractmethod
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from asynclock._codes import Code, coded
from asynclock._log import log
from asynclock.backend import Absent, Entry, Stored, Written
from asynclock.backends._answers import (
    FAILURE,
    FAULTS,
    AnsweredError,
    CredentialsError,
    Fault,
    FaultError,
    Row,
    clocks_differ,
    refusal,
    said,
)
from asynclock.backends._faults import find_fault, proxy_is_unused
from asynclock.backends._http import (
    TOTAL_TIMEOUT,
    http_date,
    read_capped,
    read_object,
    read_page,
    refuse_changed,
    refuse_compressed,
    refuse_web_page,
    server_time,
)
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
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    import aiohttp

    from asynclock.backends._answers import Answers

C = TypeVar("C")
T = TypeVar("T")
_READS: Final = frozenset({"get", "list"})
_WAITED: Final = 0.5
"""A call cancelled after this many seconds without credentials logs that it waited for them."""
_TAGS: Final = 250_000
"""Most tags in a page of a listing: three times those of 1,000 entries. Each takes 100 bytes of memory."""
_UNREADABLE: Final = {
    "list": Fault.NO_LISTING,
    "put": Fault.NO_VERSION,
    "put_if_absent": Fault.NO_VERSION,
    "put_if_match": Fault.NO_VERSION,
}
"""The fault, by operation, if an answer has a status of success but cannot be read."""
_NO_NAME: Final = frozenset({Fault.NO_HOST, Fault.NO_NAME_SERVER})


class Pages:
    """Keeps a listing finite: no page is requested twice, and 10,000 pages is the limit."""

    _MOST: Final = 10_000

    def __init__(self) -> None:
        self._asked: set[int] = set()

    def next(self, token: str) -> str:
        """Return the token of the next page.

        Raises:
            FaultError: This page was requested already, or there are too many.
        """
        if (mark := hash(token)) in self._asked or len(self._asked) >= self._MOST:
            raise FaultError(Fault.ENDLESS, f"after {len(self._asked) + 1} pages")
        self._asked.add(mark)
        return token


def closed(name: str) -> ConfigError:
    """Return the error for a call to a closed backend."""
    return ConfigError(setting="client", value=name, reason="it was closed; connect again")


class SharedFetch(Generic[T]):
    """A fetch that all concurrent callers share. Cancelling one caller does not cancel it.

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
            # Retrieve its error: asyncio logs an error that nobody retrieves, and the next call reports it
            # anyway.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._task

    async def wait(self) -> T:
        """Return the value of the running fetch, or of a new one. Raises what the fetch raises.

        Raises:
            ConfigError: The backend was closed meanwhile.
        """
        fetching = self.start()
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not fetching.cancelled() or task is None or task.cancelling():
                raise  # the caller itself was cancelled
            raise closed("store") from None

    async def aclose(self) -> None:
        """Cancel the running fetch, if any, and wait for its end."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _bounded(self) -> T:
        current_call.set(None)  # in this task only: its requests do not belong to the waiting call
        async with asyncio.timeout(self._limit):
            return await self._fetch()


current_call: Final[ContextVar[BackendCall | None]] = ContextVar("asynclock_call", default=None)
"""The call that the next request belongs to; None: to no call, for example a request for credentials."""


@contextlib.contextmanager
def apart_from_call() -> Iterator[None]:
    """Keep requests in the block, for example for credentials, apart from the running call."""
    outer = current_call.set(None)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # a coroutine that was dropped ends in any context
            current_call.reset(outer)


class BackendCall:
    """One call of a backend. Exceptions in its ``with`` block become errors of this package.

    Attributes:
        operation: Name of the method that was called.
        sent: Whether the transport has the request; from then on the store may write it.
        fault: What the transport found out about a request without an answer; None: nothing.
        where: Host and port that the request went to; empty: not sent yet.
        url: Address that the request went to, perhaps with a signature; empty: not sent yet.
        status: HTTP status of the last answer; 0: none has come.
        headers: Of the last answer; empty: none has come.
        body: The part of its body that has arrived, within limits.
        waits_since: When the call began to wait for credentials, by the monotonic clock; None: it does not
            wait.
    """

    __slots__ = (
        "_backend",
        "_key",
        "_outer",
        "body",
        "fault",
        "headers",
        "operation",
        "sent",
        "status",
        "url",
        "waits_since",
        "where",
    )

    def __init__(self, backend: CloudBackend[Any], operation: str, key: str) -> None:
        self._backend, self._key = backend, key
        self.operation: str = operation
        self.waits_since: float | None = None
        self.sent: bool = False
        self.fault: Fault | None = None
        self.status: int = 0
        self.headers: Mapping[str, str] = {}
        self.body: bytes = b""
        self.where: str = ""
        self.url: str = ""

    @property
    def reads(self) -> bool:
        """Whether the call writes nothing, whatever its outcome."""
        return self.operation in _READS

    @property
    def request_id(self) -> str | None:
        """Id of the last answer for the provider's support; None if there is none."""
        return self._backend.answers.id_of(self.headers)

    @property
    def date(self) -> float | None:
        """``Date`` of the last answer in epoch seconds, or None."""
        return server_time(self.headers)

    async def take(self, answer: aiohttp.ClientResponse) -> bytes:
        """Note an answer and return its body, truncated to the length that this call needs.

        Raises:
            FaultError: The status is a success, but the answer is not what was requested; see ``_http``.
        """
        self.status = 0  # until all of it is here
        self.headers = answer.headers
        if answer.status >= FAILURE:
            self.body = await read_capped(answer)
        elif self.operation == "get":
            self.body = await read_object(answer)
            refuse_changed(answer.headers, self.body)
        elif self.operation == "list":
            self.body = await read_page(answer)
            if self.body.count(b"<") > _TAGS:
                raise FaultError(Fault.TOO_LONG, f"more than {_TAGS:,} tags")
        else:
            refuse_compressed(answer.headers)
            self.body = await read_capped(answer)
            refuse_web_page(answer.headers, self.body)
        self.status = answer.status
        return self.body

    def __enter__(self) -> Self:
        self._outer = current_call.get()
        current_call.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if current_call.get() is self:  # a coroutine that was dropped ends in any context
            current_call.set(self._outer)
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
            operation=self.operation,
            key=self._key,
            detail=detail,
            written=written,
            transient=row.transient,
            request_id=self.request_id,
        )


class Item(NamedTuple):
    """An object in a page of a listing: whole name, bytes, and time of the last write in epoch seconds."""

    name: str
    size: int
    written: float | None


class CloudBackend(ABC, Generic[C]):
    """A bucket behind an SDK. The SDK's client is made by the first call, on the event loop of that call.

    A subclass calls the SDK once in each of ``_read``, ``_write``, ``_page`` and ``_remove``. Conditions are
    arguments of the SDK's own methods.

    Args:
        prefix: Put before every key.
        min_write_interval: Seconds that a lock leaves between two writes of one object.
        trust_env: Whether the proxies of the environment are used.

    Attributes:
        name: Name of the backend in errors.
        clock_resolution: 1.0, because HTTP dates have whole seconds.
        answers: What the store's answers mean.
        if_absent: The condition that there is no object.
    """

    name: str
    clock_resolution: float = 1.0
    answers: Answers
    if_absent: Mapping[str, Any]

    sends_dates = True
    versions_may_repeat = False
    verify = True
    """Whether a store at an address other than the provider's is probed before the first lock."""
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
        """Whether the SDK's client is still being made, so nothing was sent. A busy machine takes long."""
        return self._client is None and not self._closed

    async def aclose(self) -> None:
        """Free connections and descriptors. A second call does nothing; requests now fail."""
        self._closed = True
        await self._opening.aclose()
        client, self._client = self._client, None
        if client is not None:
            await self._close(client)

    async def get(self, key: str) -> Stored | Absent:
        """Read an object; see ``Backend.get``."""
        with BackendCall(self, "get", key) as call:
            found = await self._read(call, await self._ready(), self._prefix + key)
            if found is None:
                return Absent(call.date)
            body, version = found
            return Stored(body, version, http_date(call.headers.get("Last-Modified", "")), call.date)

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create an object; see ``Backend.put_if_absent``."""
        return await self._put("put_if_absent", key, body, self.if_absent)

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Replace one version of an object; see ``Backend.put_if_match``."""
        return await self._put("put_if_match", key, body, self._if_match(version))

    async def put(self, key: str, body: bytes) -> Written:
        """Write without a condition; see ``Backend.put``."""
        return await self._put("put", key, body, {})

    async def _put(self, operation: str, key: str, body: bytes, condition: Mapping[str, Any]) -> Written:
        with BackendCall(self, operation, key) as call:
            version = await self._write(call, await self._ready(), self._prefix + key, body, condition)
            return Written(version, call.date)

    async def list(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield the objects under ``prefix``; see ``Backend.list``."""
        pages, token = Pages(), None
        while True:
            with BackendCall(self, "list", prefix):
                items, token = await self._page(await self._ready(), self._prefix + prefix, token)
                if token is not None:
                    pages.next(token)
            for item in items:
                yield Entry(item.name[len(self._prefix) :], item.size, item.written)
            if token is None:
                return

    async def delete(self, key: str) -> None:
        """Delete an object; see ``Backend.delete``."""
        await self._delete("delete", key, {})

    async def delete_if_match(self, key: str, version: str) -> None:
        """Delete one version of an object; see ``ConditionalDelete``. Some stores ignore the condition."""
        await self._delete("delete_if_match", key, self._if_match(version))

    async def _delete(self, operation: str, key: str, condition: Mapping[str, Any]) -> None:
        with BackendCall(self, operation, key) as call:
            await self._remove(call, await self._ready(), self._prefix + key, condition)

    @abstractmethod
    def _if_match(self, version: str) -> Mapping[str, Any]:
        """Return the condition that an object still has this version."""

    @abstractmethod
    async def _read(self, call: BackendCall, client: C, name: str) -> tuple[bytes, str] | None:
        """Return body and version of an object; None: there is none."""

    @abstractmethod
    async def _write(
        self, call: BackendCall, client: C, name: str, body: bytes, condition: Mapping[str, Any]
    ) -> str:
        """Write an object and return its version."""

    @abstractmethod
    async def _page(self, client: C, prefix: str, token: str | None) -> tuple[Sequence[Item], str | None]:
        """Return a page of a listing, and the token of the next one. ``token`` None: the first page."""

    @abstractmethod
    async def _remove(self, call: BackendCall, client: C, name: str, condition: Mapping[str, Any]) -> None:
        """Delete an object. A missing one is not an error."""

    @abstractmethod
    async def _open(self) -> C: ...

    @abstractmethod
    async def _close(self, client: C) -> None: ...

    def _read_failure(self, error: Exception) -> tuple[int | None, str]:  # noqa: ARG002  for subclasses
        """Return the HTTP status and the error code in an exception of the SDK; (None, ""): it has none.

        If the store answered, only the code counts, because ``BackendCall`` has the status. Otherwise both
        come from the service that hands out credentials, or the SDK has no credentials to send.
        """
        return None, ""

    def _code(self, call: BackendCall, error: Exception) -> str:  # noqa: ARG002  for subclasses
        """Return the error code of the store's answer; default: the one that the SDK read."""
        return self._read_failure(error)[1]

    def _region(self, call: BackendCall, error: Exception) -> str | None:  # noqa: ARG002  for subclasses
        """Return the bucket's region if a refusal says that it is another one."""
        return None

    @abstractmethod
    def _location(self, client: C) -> tuple[str, str]:
        """Return the address that requests go to, and the bucket."""

    async def place(self) -> str | None:
        """Return a text that identifies this bucket; None at an address of the provider itself.

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
                raise closed(self.name)
            # All callers share one opening. If one of them gives up, it goes on for the others.
            self._client = await self._opening.wait()
        return self._client

    async def _open_once(self) -> C:
        client = self._client = await self._open()
        return client

    def note_cancelled(self, waits_since: float | None) -> None:
        """Log, once for each backend, that a call was cancelled while it waited for credentials.

        Args:
            waits_since: When the call began to wait for credentials, by the monotonic clock; None: it did
                not.
        """
        since = self._opening_waits_since if waits_since is None else waits_since
        if since is not None and time.monotonic() - since >= _WAITED and not self._warned:
            self._warned = True
            text = f"{self.name}: no credentials in time, nothing was sent"
            log.warning(coded(text, Code.STORE_UNAVAILABLE))

    def explain(self, call: BackendCall, error: Exception) -> tuple[Row, str]:
        """Return the meaning of an exception of a call, and the text of its error."""
        if isinstance(error, CredentialsError):
            return Row(AccessDeniedError), f"no credentials: {error.sentence}"
        if (answered := self._answered(call, error)) is not None:
            return self._refused(call, answered)
        if 0 < call.status < FAILURE and not isinstance(error, FaultError):
            # The whole body arrived, so the SDK or its caller found something unexpected in it.
            error = FaultError(_UNREADABLE.get(call.operation, Fault.LOST), "it cannot be read")
        status, code = (None, "") if call.sent else self._without_answer(error)
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

    def _answered(self, call: BackendCall, error: Exception) -> AnsweredError | None:
        """Return the store's refusal behind an exception; None: the exception has another cause."""
        if call.sent and isinstance(error, AnsweredError):
            return error
        if call.status == 0 or isinstance(error, FaultError):
            return None
        code = self._code(call, error)
        if call.status < FAILURE and not code:
            return None
        return refusal(
            call.url,
            call.status,
            code,
            headers=call.headers,
            body=call.body,
            region=self._region(call, error),
        )

    def _refused(self, call: BackendCall, error: AnsweredError) -> tuple[Row, str]:
        if error.fault is not None:
            row = FAULTS[error.fault]
            return row, f"{error.status}: {error.fault.value}: {row.hint}"
        row = self.answers.row(error.status, error.code)
        detail = said(error.status, error.code, row, error.more)
        denied = row.kind is not None and issubclass(row.kind, AccessDeniedError)
        return row, detail + (clocks_differ(call.date) if denied else "")

    def _without_answer(self, error: Exception) -> tuple[int | None, str]:
        if isinstance(error, AnsweredError):  # a redirect of the service that hands out credentials
            return error.status, error.code
        return self._read_failure(error)


def _without_credentials(status: int | None, code: str, row: Row) -> tuple[Row, str]:
    """Return the meaning of an answer of the credentials service, or of an SDK without credentials."""
    kind = row.kind or OutcomeUnknownError
    if status is None:
        return row, f"no credentials: {said(status, code, row)}"
    detail = f"no credentials: the service that hands them out answered {said(status, code, Row())}"
    if issubclass(kind, OutcomeUnknownError | BackendUnavailableError):
        return Row(BackendUnavailableError), f"{detail}, nothing was sent"
    return Row(AccessDeniedError), detail
