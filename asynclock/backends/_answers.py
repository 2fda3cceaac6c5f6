"""The meaning of each answer of a store and of each fault on the way to it: one table for each store.

Nothing here depends on a transport or an SDK. An answer is a status, an error code and headers. A fault is
found in the chain of causes of any exception. Each row says which error it becomes, whether the same call may
succeed later (``transient``), what may have been written, and what the user can do.

The row of an error code takes precedence over that of the status: S3 reports a lost race with status 200,
409, 412 or 500, and always with a code. A read writes nothing, so its outcome is never unknown. An answer
that leaves the outcome of a write open means "unavailable" for a read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from asynclock._text import printable
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind: TypeAlias = type[BackendError]
FAILURE: Final = 300
"""The lowest status that is not a success; redirects are included, since they are not followed."""
_CODE_SHOWN: Final = 64
_ID_SHOWN: Final = 128
_CLOCKS_DIFFER: Final = 60.0
"""If the clocks of machine and store differ by this many seconds, a refusal of access says so."""


@dataclass(frozen=True, slots=True)
class Row:
    """The meaning of one answer or one fault.

    Attributes:
        kind: The error it becomes. None, for an error code: the error of the status.
        hint: What the user can do; empty: nothing but wait.
        transient: Whether the same call may succeed later; None: as the error's class says.
        written: What may have been written by a write; None: as the error's class says.
        read: The error of a read; None: ``kind``, but ``BackendUnavailableError`` for an open outcome.
    """

    kind: Kind | None = None
    hint: str = ""
    transient: bool | None = None
    written: Literal["no", "unknown"] | None = None
    read: Kind | None = None


class AnsweredError(Exception):
    """An answer that is not a success. It never leaves the backends.

    Attributes:
        status: Its HTTP status.
        code: The provider's error code; empty: there was none.
        more: Anything else that the answer says, for the text of the error; no secret.
        fault: What the answer really is, if not the store's; None: a refusal of the store.
    """

    def __init__(self, status: int, code: str, more: str = "", *, fault: Fault | None = None) -> None:
        super().__init__(status, code)
        self.status, self.code, self.more, self.fault = status, code, more, fault


class FaultError(Exception):
    """An answer that is unusable although its status is a success. It never leaves the backends.

    Attributes:
        fault: What is wrong with it.
        more: What arrived, for the text of the error; no secret.
    """

    def __init__(self, fault: Fault, more: str = "") -> None:
        super().__init__(fault.name, more)
        self.fault, self.more = fault, more


class CredentialsError(Exception):
    """There are no credentials, and waiting will not help. It never leaves the backends.

    Attributes:
        sentence: Why, without secrets.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


_UNKNOWN: Final = OutcomeUnknownError
_LATER: Final = BackendUnavailableError
_NEVER: Final = UnsupportedBackendError
_DENIED: Final = AccessDeniedError

STATUSES: Final[Mapping[int, Row]] = {
    400: Row(_NEVER, "it does not understand the request; check endpoint and bucket"),
    401: Row(_DENIED),
    402: Row(_DENIED, "payment is required; see the account's billing"),
    403: Row(_DENIED),
    404: Row(_NEVER, "nothing is there; check endpoint and bucket"),
    405: Row(_NEVER),
    407: Row(_DENIED, "the proxy asks for a user and a password; trust_env=True sends those in HTTPS_PROXY"),
    408: Row(_UNKNOWN),
    409: Row(_UNKNOWN),
    410: Row(_NEVER),
    411: Row(_NEVER),
    412: Row(PreconditionFailedError),
    413: Row(
        _NEVER,
        "a lock has a few hundred bytes; raise the limit of the proxy or gateway in front of the store",
    ),
    414: Row(_NEVER),
    415: Row(_NEVER),
    417: Row(_NEVER),
    421: Row(_NEVER, "the server is not the one of this host name; check endpoint"),
    425: Row(_LATER),
    426: Row(_NEVER),
    428: Row(_NEVER),
    429: Row(_LATER, "it accepts fewer writes per second to one object; set min_write_interval=1"),
    431: Row(_NEVER),
    451: Row(_DENIED, "a law or a rule of the network forbids it"),
    460: Row(_UNKNOWN),  # the client has gone, says AWS's load balancer
    499: Row(_UNKNOWN),  # the client has gone, says nginx
    501: Row(_NEVER),
    505: Row(_NEVER),
    507: Row(_UNKNOWN, "the store is full"),
    511: Row(_DENIED, "the network wants a sign-in first"),
}
REDIRECT: Final = Row(_NEVER, "a redirect is not followed; check region and endpoint")
OTHER_4XX: Final = Row(
    _NEVER, "stores do not answer like this; perhaps a proxy or a gateway did", written="unknown"
)
OTHER: Final = Row(_UNKNOWN)


class Fault(Enum):
    """Faults that leave no answer of the store; the value is the text in an error."""

    # Connecting: nothing was sent.
    REFUSED = "connection refused"
    UNREACHABLE = "the network or host is unreachable"
    NO_HOST = "no such host"
    NO_HOST_BUT_A_PROXY = "no such host here"
    NO_NAME_SERVER = "no name server answered"
    CONNECT_TIMEOUT = "no connection in time"
    CONNECT_LOST = "the connection ended while it was made"
    CONNECT_FAILED = "no connection"
    PROXY_REFUSED = "the proxy refused to connect"
    PROXY_FAILED = "the proxy could not connect"
    UNTRUSTED = "TLS: the certificate is not trusted"
    EXPIRED = "TLS: the certificate has expired"
    NOT_YET_VALID = "TLS: the certificate is not valid yet"
    WRONG_NAME = "TLS: the certificate is for another host name"
    BAD_CERTIFICATE = "TLS: the certificate was refused"
    TLS_VERSION = "TLS: the server speaks no version in common"
    TLS_REFUSED = "TLS: the handshake failed"
    PLAIN_HTTP = "the port speaks plain http"
    NEEDS_TLS = "the port speaks https"
    # After the request was sent.
    CLOSED = "the connection was closed"
    RESET = "the connection was reset"
    SILENCE = "no answer in time"
    CUT = "the answer was cut off"
    NO_HTTP = "the answer is not HTTP"
    TOO_LONG = "the answer is too long"
    LOST = "no answer"
    # An answer to something else than the request.
    PARTIAL = "the answer may be a part of the object"
    CHANGED = "the object was changed on the way here"
    COMPRESSED = "the answer is compressed, but no request asked for that"
    WEB_PAGE = "the answer is a web page, not the store's"
    NO_VERSION = "the answer has no version of the object"
    NO_LISTING = "the answer is not a listing"
    ENDLESS = "the listing has no end"


_ON_THE_WAY: Final = "something in front of the store sent or changed it: a proxy, a gateway, a sign-in"
FAULTS: Final[Mapping[Fault, Row]] = {
    Fault.REFUSED: Row(_LATER, "check endpoint; is the store running?"),
    Fault.UNREACHABLE: Row(_LATER),
    Fault.NO_HOST: Row(_LATER, "check the name (endpoint, region, account) and this machine's name servers"),
    Fault.NO_HOST_BUT_A_PROXY: Row(
        _LATER, "the environment names a proxy, which is only used with trust_env=True", transient=False
    ),
    Fault.NO_NAME_SERVER: Row(_LATER),
    Fault.CONNECT_TIMEOUT: Row(_LATER, "check endpoint, its port, and what may block it"),
    Fault.CONNECT_LOST: Row(_LATER),
    Fault.CONNECT_FAILED: Row(_LATER),
    Fault.PROXY_REFUSED: Row(
        _LATER, "see the proxy's rules, and the user and password in HTTPS_PROXY", transient=False
    ),
    Fault.PROXY_FAILED: Row(_LATER),
    Fault.UNTRUSTED: Row(
        _LATER,
        "set ca_file to the certificates of the authority that signed it, if you trust that one",
        transient=False,
    ),
    Fault.EXPIRED: Row(_LATER, "renew it, or check this machine's clock", transient=False),
    Fault.NOT_YET_VALID: Row(_LATER, "check this machine's clock", transient=False),
    Fault.WRONG_NAME: Row(_LATER, "check endpoint and path_style", transient=False),
    Fault.BAD_CERTIFICATE: Row(_LATER, "see what the server presents", transient=False),
    Fault.TLS_VERSION: Row(_LATER, "the server needs TLS 1.2 or later", transient=False),
    Fault.TLS_REFUSED: Row(_LATER, "check endpoint and its port", transient=False),
    Fault.PLAIN_HTTP: Row(
        _LATER,
        "check the port, or use http://, and allow_http=True if it is not this machine",
        transient=False,
    ),
    Fault.NEEDS_TLS: Row(_LATER, "use https:// in the endpoint", transient=False),
    Fault.CLOSED: Row(_UNKNOWN),
    Fault.RESET: Row(_UNKNOWN),
    Fault.SILENCE: Row(_UNKNOWN),
    Fault.CUT: Row(_UNKNOWN),
    Fault.NO_HTTP: Row(_UNKNOWN, "check endpoint and its port"),
    Fault.TOO_LONG: Row(_UNKNOWN),
    Fault.LOST: Row(_UNKNOWN),
    Fault.PARTIAL: Row(_UNKNOWN),
    Fault.CHANGED: Row(_UNKNOWN, _ON_THE_WAY),
    Fault.COMPRESSED: Row(_UNKNOWN, _ON_THE_WAY, read=_NEVER),
    Fault.WEB_PAGE: Row(_UNKNOWN, _ON_THE_WAY, read=_NEVER),
    Fault.NO_VERSION: Row(_UNKNOWN, "the store sends none, or a proxy drops it", read=_NEVER),
    Fault.NO_LISTING: Row(_UNKNOWN),
    Fault.ENDLESS: Row(_UNKNOWN, read=_NEVER),
}


@dataclass(frozen=True, slots=True)
class Answers:
    """The meaning of the answers of one store.

    Attributes:
        request_id: The header that names a request for the provider's support.
        codes: Rows by error code; the key ``KMS.*`` is for each code of that family.
        statuses: Rows by status that differ from the rows of all stores.
    """

    request_id: str
    codes: Mapping[str, Row]
    statuses: Mapping[int, Row]

    def row(self, status: int | None, code: str) -> Row:
        """Return the meaning of an answer; its kind is never None.

        Args:
            status: Its HTTP status; None: the SDK itself refused, and ``code`` says why.
            code: The provider's error code; empty: there was none.
        """
        by_status = self._by_status(status or 0)
        family = code.replace(":", ".", 1).partition(".")[0].upper()
        by_code = self.codes.get(code) or self.codes.get(f"{family}.*")
        if by_code is None:
            return by_status
        if by_code.kind is None:
            return replace(by_status, hint=by_code.hint or by_status.hint)
        return by_code

    def _by_status(self, status: int) -> Row:
        row = self.statuses.get(status) or STATUSES.get(status)
        if row is not None:
            return row
        if 300 <= status < 400:  # noqa: PLR2004  a class of HTTP statuses
            return REDIRECT
        return OTHER_4XX if 400 <= status < 500 else OTHER  # noqa: PLR2004  as above

    def id_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the id by which the provider's support finds a request, or None."""
        found = headers.get(self.request_id)
        return printable(found, limit=_ID_SHOWN) if found else None


def refusal(
    url: str, status: int, code: str, *, headers: Mapping[str, str], body: bytes, region: str | None = None
) -> AnsweredError:
    """Return the error for an answer that is not a success.

    Args:
        url: Where the request went.
        status: As in HTTP.
        code: The provider's error code; empty: there was none.
        headers: Of the answer, their names in any case.
        body: The first bytes of the answer.
        region: Where the bucket is, if the answer says so.
    """
    if not code and status == 400 and url.startswith("http:") and _asks_for_tls(body):  # noqa: PLR2004
        return AnsweredError(status, code, fault=Fault.NEEDS_TLS)
    if 300 <= status < 400 and (host := _host_of(headers.get("Location"))):  # noqa: PLR2004
        return AnsweredError(status, code, f" (to {host})")
    if region:
        return AnsweredError(status, code, f" (it is in {printable(region, limit=_CODE_SHOWN)})")
    if not code and is_web_page(body):
        return AnsweredError(status, code, " (the answer is a web page: a proxy or gateway may have sent it)")
    return AnsweredError(status, code)


def said(status: int | None, code: str, row: Row, more: str = "") -> str:
    """Return the text of an answer in an error: status, code and hint."""
    told = f"{status or ''} {printable(code, limit=_CODE_SHOWN)}".strip() + more
    return f"{told}: {row.hint}" if row.hint else told


def clocks_differ(date: float | None) -> str:
    """Return a note if the store's ``Date`` is far from this machine's clock, else an empty string."""
    if date is None or abs(ahead := date - time.time()) < _CLOCKS_DIFFER:
        return ""
    return f"; this machine's clock is {abs(ahead):.0f} s {'behind' if ahead > 0 else 'ahead of'} the store's"


def is_web_page(body: bytes) -> bool:
    """Return whether a body begins like HTML."""
    start = body[:512].lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html"))


def _asks_for_tls(body: bytes) -> bool:
    """Whether a server says that its port expects TLS; nginx, Go and Apache say so in different words."""
    start = body[:2048].lower()
    return b"plain http" in start or b"http request to an https server" in start


def _host_of(location: str | None) -> str:
    try:
        return printable(urlsplit(location or "").hostname or "")
    except ValueError:
        return ""
