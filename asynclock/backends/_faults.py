"""Finds out what went wrong on the way to a store, from the exception of any transport or SDK."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.request import getproxies

from asynclock._text import printable
from asynclock.backends._answers import Fault, FaultError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH: Final = 20
"""Number of causes to look at; they may form a circle."""
_SERVER: Final = 500
_OFTEN: Final = 429
_UNREACHABLE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_RESET: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})
# The numbers of OpenSSL's X509_V_ERR_….
_CERTIFICATES: Final = {
    9: Fault.NOT_YET_VALID,
    10: Fault.EXPIRED,
    18: Fault.UNTRUSTED,
    19: Fault.UNTRUSTED,
    20: Fault.UNTRUSTED,
    21: Fault.UNTRUSTED,
    62: Fault.WRONG_NAME,
    64: Fault.WRONG_NAME,
}
# Words in OpenSSL's reasons; the first match counts.
_TLS: Final = (
    ("WRONG_VERSION_NUMBER", Fault.PLAIN_HTTP),
    ("HTTP_REQUEST", Fault.PLAIN_HTTP),
    ("RECORD_LAYER_FAILURE", Fault.PLAIN_HTTP),
    ("PACKET_LENGTH_TOO_LONG", Fault.PLAIN_HTTP),
    ("PROTOCOL_VERSION", Fault.TLS_VERSION),
    ("UNSUPPORTED_PROTOCOL", Fault.TLS_VERSION),
    ("NO_PROTOCOLS_AVAILABLE", Fault.TLS_VERSION),
    ("VERSION_TOO_LOW", Fault.TLS_VERSION),
    ("EOF", Fault.CONNECT_LOST),
)
_CONNECTING: Final[tuple[tuple[type[BaseException], Fault], ...]] = (
    (ConnectionRefusedError, Fault.REFUSED),
    (ConnectionError, Fault.CONNECT_LOST),
    (TimeoutError, Fault.CONNECT_TIMEOUT),
    (OSError, Fault.CONNECT_FAILED),
)


class Found(NamedTuple):
    """A fault and where it happened.

    Attributes:
        fault: What went wrong.
        where: Host and port, or an empty string.
        more: What the operating system or OpenSSL says, without secrets; may be empty.
        connecting: Whether it happened before a byte of the request was sent.
    """

    fault: Fault
    where: str = ""
    more: str = ""
    connecting: bool = False


def find_fault(error: BaseException) -> Found:
    """Return what went wrong with a request that got no answer."""
    import aiohttp  # noqa: PLC0415  installed with the SDKs only

    where, connecting = "", False
    for each in _chain(error):
        if isinstance(each, FaultError):
            return Found(each.fault, more=each.more)
        if isinstance(each, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError):
            proxy = "the proxy " if isinstance(each, aiohttp.ClientProxyConnectionError) else ""
            where, connecting = proxy + _at(each.host, each.port), True
        elif isinstance(each, aiohttp.ConnectionTimeoutError):
            return Found(Fault.CONNECT_TIMEOUT, where, connecting=True)
        elif isinstance(each, aiohttp.ClientHttpProxyError):
            failed = each.status >= _SERVER or each.status == _OFTEN
            fault = Fault.PROXY_FAILED if failed else Fault.PROXY_REFUSED
            return Found(fault, where, str(each.status), connecting=True)
        elif (found := _connecting(each) if connecting else _sent(each)) is not None:
            return Found(found, where, _said(each), connecting)
    return Found(Fault.CONNECT_FAILED if connecting else Fault.LOST, where, connecting=connecting)


def proxy_is_unused(scheme: str) -> bool:
    """Return whether the environment names a proxy for addresses of this scheme."""
    return bool(getproxies().get(scheme))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, as transports and SDKs keep them."""
    waiting: list[object] = [error]
    seen: list[object] = []
    while waiting and len(seen) < _DEPTH:
        each = waiting.pop(0)
        # Several attributes lead to the same cause.
        if not isinstance(each, BaseException) or any(each is one for one in seen):
            continue
        seen.append(each)
        yield each
        kept = ("certificate_error", "os_error", "inner_exception", "__cause__", "__context__")
        waiting += [getattr(each, name, None) for name in kept]
        details = getattr(each, "kwargs", None)  # of botocore's exceptions
        waiting.append(details.get("error") if isinstance(details, dict) else None)


def _connecting(error: BaseException) -> Fault | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CERTIFICATES.get(error.verify_code, Fault.BAD_CERTIFICATE)
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "").upper()
        return next((fault for word, fault in _TLS if word in reason), Fault.TLS_REFUSED)
    if isinstance(error, socket.gaierror):
        return Fault.NO_NAME_SERVER if error.errno == socket.EAI_AGAIN else Fault.NO_HOST
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return Fault.UNREACHABLE
    return next((fault for kind, fault in _CONNECTING if isinstance(error, kind)), None)


def _said(error: BaseException) -> str:
    """Return the words of OpenSSL or the operating system, if they add something to the fault."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return printable(error.verify_message)
    if isinstance(error, ssl.SSLError):
        return printable((error.reason or "in the handshake").lower().replace("_", " "))
    return errno.errorcode.get(error.errno or 0, "") if type(error) is OSError else ""


def _sent(error: BaseException) -> Fault | None:
    """Return what happened to a request that may have been sent."""
    import aiohttp  # noqa: PLC0415  as above

    kinds: tuple[tuple[type[BaseException], Fault], ...] = (
        (TimeoutError, Fault.SILENCE),
        (aiohttp.ClientPayloadError, Fault.CUT),
        (aiohttp.ServerDisconnectedError, Fault.CLOSED),
        (aiohttp.ClientResponseError, Fault.NO_HTTP),
        (ConnectionError, Fault.RESET),
    )
    if isinstance(error, OSError) and error.errno in _RESET:
        return Fault.RESET
    return next((fault for kind, fault in kinds if isinstance(error, kind)), None)


def _at(host: str, port: int | None) -> str:
    shown = printable(host)
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"
