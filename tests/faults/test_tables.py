"""Every row of the tables of answers and faults, as each operation of each backend meets it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import botocore.exceptions
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

import asynclock
from asynclock import LeaseSettings
from asynclock.backends import open_backend
from asynclock.backends._answers import FAULTS, STATUSES, Answers, Fault, Row
from asynclock.backends._tables import AZURE, GCS, S3
from asynclock.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnsupportedBackendError,
)
from asynclock.testing._proxy import TapProxy, Wire
from tests.faults.scripted import CLOUDS, URLS, options, serving
from tests.faults.test_answers import gcs_body, s3_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.laboratory.servers import Server

TABLES: Final = {"s3": S3, "gcs": GCS, "azure": AZURE}
OPERATIONS: Final[dict[str, Callable[[Any], Awaitable[object]]]] = {
    "get": lambda backend: backend.get("a.json"),
    "put_if_absent": lambda backend: backend.put_if_absent("a.json", b"{}"),
    "put_if_match": lambda backend: backend.put_if_match("a.json", b"{}", "12345"),
}
SETTINGS: Final = LeaseSettings(validity=4.0, max_clock_skew=0.5)
UNNAMED: Final = (418, 423, 424, 444, 498, 500, 502, 503, 504, 301, 302, 303, 307, 308)


def rows(cloud: str) -> Iterator[tuple[int, str]]:
    """Yield a status and a code for each row of a cloud's table that an answer can be."""
    table = TABLES[cloud]
    for status in sorted({*STATUSES, *table.statuses, *UNNAMED}):
        yield status, ""
    for code, row in table.codes.items():
        if not (cloud == "s3" and hasattr(botocore.exceptions, code)):
            yield (403 if row.kind is None else 400), code.replace("*", "SomeException")


def said_by(cloud: str, code: str) -> tuple[str, bytes]:
    """Return headers and body of a refusal with this code; an empty one has none."""
    if cloud == "azure":
        return (f"x-ms-error-code: {code}\r\n" if code else ""), b""
    if not code:
        return "", b""
    return "", s3_body(code) if cloud == "s3" else gcs_body(code)


def meant(table: Answers, status: int, code: str, *, reads: bool) -> tuple[type[BackendError], bool, str]:
    """Return class, ``transient`` and ``written`` of the error that a row stands for."""
    row = table.row(status, code)
    kind = row.kind
    assert kind is not None
    if reads:
        if issubclass(kind, OutcomeUnknownError | PreconditionFailedError):
            kind = BackendUnavailableError
        kind, written = row.read or kind, "no"
    else:
        written = row.written or ("no" if kind._written == "no" else "unknown")
    return kind, kind._transient if row.transient is None else row.transient, written


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_every_row_becomes_its_error(cloud: str, operation: str) -> None:
    """Each answer of the table is one request, and the error that the row says, with its hint and its id."""
    table, wrong = TABLES[cloud], []
    async with serving() as script:
        backend: Any = open_backend(URLS[cloud], **options(cloud, f"http://127.0.0.1:{script.port}"))
        for status, code in rows(cloud):
            headers, body = said_by(cloud, code)
            script.say(status, f"{headers}{table.request_id}: id-of-{status}\r\n", body)
            script.seen.clear()
            expected = meant(table, status, code, reads=operation == "get")
            if operation == "get" and is_absent(cloud, status, code):
                await OPERATIONS[operation](backend)
                continue
            try:
                await OPERATIONS[operation](backend)
            except BackendError as error:
                got = (type(error), error.transient, error.written)
                told = table.row(status, code).hint in str(error) and error.request_id == f"id-of-{status}"
                if got != expected or not told or len(script.seen) != 1 or error.request_id not in str(error):
                    wrong.append((status, code, got, expected, str(error)))
            else:
                wrong.append((status, code, None, expected, "no error"))
        await backend.aclose()

    assert wrong == []


def is_absent(cloud: str, status: int, code: str) -> bool:
    """Return whether an answer to a read says that there is no object."""
    if status != 404:
        return False
    return code == "" if cloud == "s3" else cloud == "gcs"


def test_an_exception_of_the_sdk_has_its_row() -> None:
    """Those that no waiting puts right are denied access, or no store."""
    named = [code for code in S3.codes if hasattr(botocore.exceptions, code)]

    assert len(named) >= 9
    kinds = {S3.row(None, code).kind for code in named}
    assert kinds == {AccessDeniedError, UnsupportedBackendError}


def test_the_known_codes_of_kms_come_before_their_family() -> None:
    """KMS.* is for those that the table does not name; S3's and MinIO's ways to write it are one."""
    assert S3.row(400, "KMS.DisabledException") == S3.row(400, "kms:KeyNotFound") == S3.codes["KMS.*"]
    assert S3.row(503, "KMS.ThrottlingException").kind is BackendUnavailableError


@pytest.mark.parametrize("status", [100, 199, 206, 302, 399, 418, 499, 500, 599, 600, 999])
def test_every_status_has_a_row(status: int) -> None:
    """What no table names is a redirect, a refusal that may stand, or an open outcome."""
    assert all(table.row(status, "").kind is not None for table in TABLES.values())
    assert all(table.row(status, "Unheard").kind is not None for table in TABLES.values())


def test_every_fault_has_a_row() -> None:
    """No fault is without its error; what was found before a byte was sent says that nothing was written."""
    assert set(FAULTS) == set(Fault)
    assert all(isinstance(row, Row) and row.kind is not None for row in FAULTS.values())
    connecting = [row for row in FAULTS.values() if row.kind is BackendUnavailableError]
    assert all(row.written is None for row in connecting)


@pytest.mark.parametrize(
    ("status", "headers", "body", "says", "not_said"),
    [
        (
            302,
            "Location: https://portal.example/in?token=CANARY\r\n",
            "",
            "302 (to portal.example)",
            "CANARY",
        ),
        (
            400,
            "",
            "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region></Error>",
            "(it is in eu-west-9): the bucket is in another region; set region",
            "clock",
        ),
        (
            301,
            "x-amz-bucket-region: eu-west-9\r\n",
            "<Error><Code>PermanentRedirect</Code></Error>",
            "(it is in eu-west-9)",
            "clock",
        ),
        (403, "", "<Error><Code>RequestTimeTooSkewed</Code></Error>", "this machine's clock is ", "CANARY"),
        (403, "Content-Type: text/html\r\n", "<html>Blocked</html>", "the answer is a web page", "CANARY"),
    ],
    ids=["redirect", "region", "region in a header", "clocks", "a proxy's page"],
)
async def test_an_error_says_what_the_answer_told_besides(
    status: int, headers: str, body: str, says: str, *, not_said: str
) -> None:
    """Where a redirect leads, where the bucket is, how far the clocks are apart, whose page it is."""
    async with serving() as script:
        script.say(status, headers, body.encode())
        backend = open_backend(URLS["s3"], **options("s3", f"http://127.0.0.1:{script.port}"))
        with pytest.raises(BackendError) as caught:
            await backend.get("a.json")
        await backend.aclose()

    assert says in str(caught.value)
    assert not_said not in str(caught.value)
    if "clock" in says:  # the script's Date is of 25 November 2026, 14:00
        assert " s behind the store's" in str(caught.value) or " s ahead of the store's" in str(caught.value)


# Connecting.


class Certificates:
    """An authority of the test's own, and the servers that it signs for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = generate_private_key(SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
        now = datetime.now(UTC)
        authority = (
            self._unsigned(self._name, now - timedelta(days=9), now + timedelta(days=9))
            .public_key(self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, SHA256())
        )
        self.ca_file = str(folder / "ca.pem")
        (folder / "ca.pem").write_bytes(authority.public_bytes(Encoding.PEM))

    def serving(self, *, names: str = "127.0.0.1", begins: int = -1, ends: int = 1) -> ssl.SSLContext:
        """Return what serves with a certificate for an address, valid between these days from now."""
        key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
        import ipaddress  # noqa: PLC0415  only here

        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server")])
        alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(names))])
        certificate = (
            self._unsigned(subject, now + timedelta(days=begins), now + timedelta(days=ends))
            .public_key(key.public_key())
            .add_extension(alternative, critical=False)
            .sign(self._key, SHA256())
        )
        path = self._folder / "server.pem"
        path.write_bytes(
            certificate.public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(path)
        return context

    def _unsigned(self, subject: x509.Name, begins: datetime, ends: datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
        )


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Return an authority that nobody trusts yet."""
    return Certificates(tmp_path)


async def _cannot_connect(cloud: str, endpoint: str, **others: object) -> BackendError:
    """Return the error of an acquisition without a timeout, which is raised at once; nothing was written."""
    async with asynclock.connect(
        URLS[cloud], settings=SETTINGS, renewal="loop", **options(cloud, endpoint, **others)
    ) as client:
        with pytest.raises(BackendError) as caught:
            async with asyncio.timeout(30):
                await client.lock("a").acquire()
    assert caught.value.written == "no"
    assert caught.value.transient is False
    assert "nothing was written" in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("server", "fault", "says"),
    [
        ({}, Fault.UNTRUSTED, "set ca_file"),
        ({"begins": -3, "ends": -1}, Fault.EXPIRED, "clock"),
        ({"begins": 1, "ends": 3}, Fault.NOT_YET_VALID, "clock"),
        ({"names": "127.0.0.2"}, Fault.WRONG_NAME, "endpoint"),
    ],
    ids=["untrusted", "expired", "not yet valid", "another name"],
)
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_certificate_that_is_refused_is_told_at_once(
    cloud: str,
    server: dict[str, Any],
    fault: Fault,
    says: str,
    certificates: Certificates,
) -> None:
    """No waiting makes a certificate good: the error names host, port, which check failed, and what to do."""
    async with serving(certificates.serving(**server)) as script:
        others = {} if fault is Fault.UNTRUSTED else {"ca_file": certificates.ca_file}
        error = await _cannot_connect(cloud, f"https://127.0.0.1:{script.port}", **others)

    assert type(error) is BackendUnavailableError
    assert f"cannot connect to 127.0.0.1:{script.port}: {fault.value} (" in str(error)
    assert says in str(error)
    assert script.seen == []


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_certificate_of_ca_file_is_trusted(cloud: str, certificates: Certificates) -> None:
    """With the authority's certificate the store is reached."""
    async with serving(certificates.serving()) as script:
        script.say(403)
        backend = open_backend(
            URLS[cloud],
            **options(cloud, f"https://127.0.0.1:{script.port}", ca_file=certificates.ca_file),
        )
        with pytest.raises(AccessDeniedError):
            await backend.get("a.json")
        await backend.aclose()

    assert len(script.seen) == 1


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_https_to_a_port_that_speaks_http_is_told_at_once(cloud: str) -> None:
    """The answer to the handshake is no TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await _cannot_connect(cloud, f"https://127.0.0.1:{port}")

    assert f"127.0.0.1:{port}: the port speaks plain http" in str(error)


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_http_to_a_port_that_speaks_https_is_told(cloud: str, certificates: Certificates) -> None:
    """A server that hangs up without a word is asked whether it speaks TLS."""
    async with serving(certificates.serving()) as script:
        error = await _cannot_connect(cloud, f"http://127.0.0.1:{script.port}")

    assert f"127.0.0.1:{script.port}: the port speaks https" in str(error)
    assert "use https://" in str(error)


@pytest.mark.parametrize(
    "said",
    [
        b"Client sent an HTTP request to an HTTPS server.\n",
        b"<html><h1>400 Bad Request</h1>The plain HTTP request was sent to HTTPS port</html>",
        b"Reason: You're speaking plain HTTP to an SSL-enabled server port.",
    ],
    ids=["Go", "nginx", "Apache"],
)
@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_server_that_asks_for_https_is_understood(cloud: str, said: bytes) -> None:
    """Those that answer plain http on a port of TLS say so in their own words."""
    async with serving() as script:
        script.say(400, "", said)
        error = await _cannot_connect(cloud, f"http://127.0.0.1:{script.port}")

    assert "the port speaks https: use https://" in str(error)


async def test_a_version_of_tls_that_nobody_speaks_is_told_at_once(certificates: Certificates) -> None:
    """A server with TLS 1.1 only is refused."""
    context = certificates.serving()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(context) as script:
        error = await _cannot_connect("gcs", f"https://127.0.0.1:{script.port}", ca_file=certificates.ca_file)

    assert "TLS" in str(error)


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_an_unknown_host_beside_a_proxy_names_the_option(
    cloud: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only the proxy knows the names of the world, the error says how it is used."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    error = await _cannot_connect(cloud, "https://no-such-host.invalid:9000")

    assert "no-such-host.invalid:9000" in str(error)
    assert "trust_env=True" in str(error)


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_refused_connection_and_an_unknown_host_pass(
    cloud: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may come back: they are tried again until the timeout, and each time told with host and port."""
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    for endpoint, says in (
        ("http://127.0.0.1:9", "127.0.0.1:9: connection refused"),
        ("https://no-such-host.invalid:9000", "no-such-host.invalid:9000: no such host"),
    ):
        events: list[asynclock.Event] = []
        patient = LeaseSettings(validity=30.0, max_clock_skew=0.5)
        async with asynclock.connect(
            URLS[cloud], settings=patient, renewal="loop", events=events.append, **options(cloud, endpoint)
        ) as client:
            with pytest.raises(asynclock.AcquireTimeoutError, match=says) as caught:
                await client.lock("a").acquire(timeout=3)
        assert isinstance(caught.value.__cause__, BackendUnavailableError)
        assert [event for event in events if event.kind == "acquire_failed" and says in event.detail]


# A lease that is held.


async def test_no_answer_loses_a_lease_before_its_deadline(cloud: Server) -> None:
    """Renewals meet every answer that does not pass, one after the other, and the lease is held on."""
    settings = LeaseSettings(validity=30.0, max_clock_skew=0.5)
    page = b"<html>Please sign in</html>"
    async with TapProxy(cloud.endpoint) as proxy:
        through = cloud.through(proxy.url) | {"min_write_interval": 0.0}
        async with (
            asynclock.connect(f"{cloud.url}/held", settings=settings, renewal="loop", **through) as client,
            client.lock("a").hold(timeout=5) as lease,
        ):
            for status in (*UNNAMED, 400, 401, 403, 404, 405, 407, 413, 451, 511, 200):
                kind = {"Content-Type": "text/html", "ETag": '"1"', "X-Goog-Generation": "1"}
                proxy.inject(Wire.ANSWER, times=2, status=status, headers=kind, body=page)
                for _ in range(3):
                    with contextlib.suppress(BackendError):
                        await lease.confirm()
                assert lease.held, status
            await lease.confirm()
