"""What the AWS SDK says of a bucket is what requests do: addresses, signatures, certificates."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import aiobotocore
import aiohttp
import botocore.loaders
import pytest
from aiohttp import web

import asynclock.backends._aws
from asynclock.backend import Absent, Stored
from asynclock.backends import open_backend
from asynclock.errors import BackendError, BackendUnavailableError, ConfigError, UnsupportedBackendError
from asynclock.testing._proxy import TapProxy, Wire
from tests.faults.credentials import Machine
from tests.faults.scripted import options as options_of
from tests.faults.scripted import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from tests.laboratory.servers import Server

    Compose = Callable[..., "Composed"]

OPTIONS: Final = {
    "region": "eu-west-1",
    "access_key_id": "AKID",
    "secret_access_key": "secret",
    "session_token": "token",
}
OUTPOST: Final = "test-accessp-o0b1d075431d83bebde8xz5w8ijx1qzlbp3i3kuse10--op-s3"
EXPRESS: Final = "locks--usw2-az1--x-s3"
MAKES_SESSIONS_AGAIN: Final = tuple(int(part) for part in aiobotocore.__version__.split(".")[:2]) >= (3, 9)
of_new_releases = pytest.mark.xfail(
    not MAKES_SESSIONS_AGAIN, raises=ConfigError, strict=True, reason="this release is refused"
)
ODD: Final = "a b+c%2Fd~é*'()!&=?#;:@,$[]{}|^`\"<>\\.json"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """Return a machine whose configuration says nothing of AWS."""
    for name in (
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
    return Machine(monkeypatch, tmp_path)


class Composed:
    """Keeps the request that the SDK has composed, in place of the session that would send it.

    Attributes:
        url: Where it would go.
        headers: All of them, their names in small letters.
    """

    def __init__(self) -> None:
        self.url = ""
        self.headers: dict[str, str] = {}

    async def request(self, _: str, url: object, *, headers: Mapping[str, str], **__: object) -> None:
        """Keep a request and answer none."""
        self.url = str(url)
        self.headers = {name.lower(): value for name, value in headers.items()}
        raise aiohttp.ClientConnectionError

    async def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def compose(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Compose:  # noqa: ARG001  first of all
    """Return what gives the request of a write of ``a.json`` in a bucket, which is sent to nobody."""

    def compose(bucket: str, **changed: Any) -> Composed:  # noqa: ANN401  options are of any type
        composed = Composed()
        monkeypatch.setattr(asynclock.backends._aws, "new_session", lambda *_, **__: composed)

        async def write() -> None:
            backend = open_backend(f"s3://{bucket}", **OPTIONS | changed)
            try:
                with pytest.raises(BackendError):
                    await backend.put_if_match("a.json", b"body", '"1"')
            finally:
                await backend.aclose()

        asyncio.run(write())
        return composed

    return compose


@pytest.mark.parametrize(
    ("bucket", "variables", "config", "url"),
    [
        ("bucket", {}, "", "https://bucket.s3.eu-west-1.amazonaws.com"),
        ("with.dots", {}, "", "https://s3.eu-west-1.amazonaws.com/with.dots"),
        ("bucket", {"AWS_USE_FIPS_ENDPOINT": "true"}, "", "https://bucket.s3-fips.eu-west-1.amazonaws.com"),
        (
            "bucket",
            {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
            "",
            "https://bucket.s3.dualstack.eu-west-1.amazonaws.com",
        ),
        (
            "bucket",
            {"AWS_USE_DUALSTACK_ENDPOINT": "true", "AWS_USE_FIPS_ENDPOINT": "true"},
            "",
            "https://bucket.s3-fips.dualstack.eu-west-1.amazonaws.com",
        ),
        (
            "bucket",
            {},
            "s3 =\n  use_accelerate_endpoint = true\n",
            "https://bucket.s3-accelerate.amazonaws.com",
        ),
        ("name-abcdefgh-s3alias", {}, "", "https://name-abcdefgh-s3alias.s3.eu-west-1.amazonaws.com"),
        (OUTPOST, {}, "", f"https://{OUTPOST}.op-0b1d075431d83bebd.s3-outposts.eu-west-1.amazonaws.com"),
        (
            "bucket",
            {"AWS_ENDPOINT_URL": "https://store.example:9000"},
            "",
            "https://store.example:9000/bucket",
        ),
        ("bucket", {"AWS_ENDPOINT_URL": "https://10.0.0.7"}, "", "https://10.0.0.7/bucket"),
        ("bucket", {}, "endpoint_url = https://10.0.0.7\n", "https://10.0.0.7/bucket"),
        (
            "bucket",
            {"AWS_ENDPOINT_URL_S3": "https://store.example"},
            "s3 =\n  addressing_style = virtual\n",
            "https://bucket.store.example",
        ),
        ("bucket", {}, "s3 =\n  addressing_style = path\n", "https://s3.eu-west-1.amazonaws.com/bucket"),
        ("bucket", {}, "s3 =\n  signature_version = s3\n", "https://bucket.s3.eu-west-1.amazonaws.com"),
    ],
    ids=[
        "plain",
        "dots",
        "FIPS",
        "dual-stack",
        "FIPS and dual-stack",
        "accelerated",
        "access point",
        "outpost",
        "endpoint",
        "endpoint by number",
        "endpoint of the file",
        "style of the file, in the host",
        "style of the file, in the path",
        "an older signature",
    ],
)
def test_a_bucket_is_where_the_sdk_says(  # noqa: PLR0917  a row of the table
    machine: Machine, compose: Compose, bucket: str, variables: dict[str, str], config: str, url: str
) -> None:
    """Its address follows the SDK's rules, with what the environment and the configuration file say."""
    machine.write("config", f"[default]\n{config}")
    machine.set(**variables)

    assert compose(bucket).url == f"{url}/a.json"


@pytest.mark.parametrize(
    ("changed", "url"),
    [
        ({"region": "us-east-1"}, "https://bucket.s3.amazonaws.com"),
        ({"region": "cn-north-1"}, "https://bucket.s3.cn-north-1.amazonaws.com.cn"),
        ({"region": "us-gov-west-1"}, "https://bucket.s3.us-gov-west-1.amazonaws.com"),
        ({"path_style": False}, "https://bucket.s3.eu-west-1.amazonaws.com"),
        ({"path_style": True}, "https://s3.eu-west-1.amazonaws.com/bucket"),
        ({"endpoint_url": "https://store.example"}, "https://store.example/bucket"),
        ({"endpoint_url": "https://store.example", "path_style": False}, "https://bucket.store.example"),
        ({"endpoint_url": "http://[::1]:9000"}, "http://[::1]:9000/bucket"),
    ],
)
def test_options_lead_to_the_bucket(compose: Compose, changed: dict[str, object], url: str) -> None:
    """Region, endpoint and path style decide together."""
    assert compose("bucket", **changed).url == f"{url}/a.json"


@pytest.mark.parametrize(
    ("bucket", "region", "scope"),
    [
        ("bucket", "eu-west-1", "eu-west-1/s3/aws4_request"),
        (OUTPOST, "eu-west-1", "eu-west-1/s3-outposts/aws4_request"),
        *([(EXPRESS, "us-west-2", "us-west-2/s3express/aws4_request")] if MAKES_SESSIONS_AGAIN else []),
    ],
    ids=["bucket", "outpost", "directory bucket without a session"][: 2 + MAKES_SESSIONS_AGAIN],
)
def test_requests_are_signed_for_where_they_go(
    machine: Machine, compose: Compose, bucket: str, region: str, scope: str
) -> None:
    """Region and service of the signature are those that the SDK signs for; the session token is signed."""
    machine.set(AWS_S3_DISABLE_EXPRESS_SESSION_AUTH="true")

    headers = compose(bucket, region=region).headers

    credential, names, _ = headers["authorization"].split(", ")
    assert credential.endswith(scope)
    assert {"host", "if-match", "x-amz-content-sha256", "x-amz-security-token"} <= set(
        names.removeprefix("SignedHeaders=").split(";")
    )
    assert headers["x-amz-security-token"] == "token"
    assert headers["x-amz-content-sha256"] == hashlib.sha256(b"body").hexdigest()


def test_a_certificate_of_the_environment_that_is_missing_is_told(machine: Machine, compose: Compose) -> None:
    """AWS_CA_BUNDLE that names no file of certificates is an error that says so."""
    machine.set(AWS_CA_BUNDLE="/nowhere.pem")

    with pytest.raises(ConfigError, match="AWS_CA_BUNDLE"):
        compose("bucket")


async def test_models_and_configuration_are_read_beside_the_event_loop(
    minio: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK reads them for up to half a second: a thread of its own does it, not the one of the loop."""
    threads: list[str] = []
    load = botocore.loaders.Loader.load_service_model

    def noted(loader: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401  the SDK has no types
        threads.append(threading.current_thread().name)
        return load(loader, *given, **named)

    monkeypatch.setattr(botocore.loaders.Loader, "load_service_model", noted)
    backend = open_backend(f"{minio.url}/{uuid.uuid4()}", **minio.options)
    written = await backend.put_if_absent("a.json", b"1")
    await backend.put_if_match("a.json", b"2", written.version)
    await backend.get("a.json")
    await backend.aclose()

    assert set(threads) == {"asynclock-s3-1"}


async def test_a_certificate_of_the_environment_is_trusted(minio_tls: Server, machine: Machine) -> None:
    """AWS_CA_BUNDLE counts where the option ca_file is not given."""
    machine.set(AWS_CA_BUNDLE=minio_tls.ca_file)
    backend = open_backend(f"{minio_tls.url}/trusted", **minio_tls.options | {"ca_file": None})

    assert isinstance(await backend.get("nothing.json"), Absent)
    await backend.aclose()


async def test_a_request_bears_what_stores_ask_for(minio: Server, machine: Machine) -> None:
    """A write has the checksum that retaining buckets need; each request has the SDK's user agent."""
    machine.set(AWS_SDK_UA_APP_ID="nightly-locks")
    async with TapProxy(minio.endpoint) as proxy:
        backend = open_backend(f"{minio.url}/headers-{uuid.uuid4()}", **minio.through(proxy.url))
        await backend.put_if_absent("a.json", b"body")
        await backend.get("a.json")
        await backend.aclose()

    write, read = (tap.headers for tap in proxy.journal)
    assert write["content-md5"] == base64.b64encode(hashlib.md5(b"body").digest()).decode()  # noqa: S324
    assert (write["content-type"], write["if-none-match"]) == ("application/json", "*")
    assert "content-md5" not in read
    for headers in (write, read):
        assert "Botocore" in headers["user-agent"]
        assert "app/nightly-locks" in headers["user-agent"]
        assert headers["accept-encoding"] == "identity"
        assert "expect" not in headers


@pytest.fixture(params=["minio", "moto"])
def moto_or_minio(request: pytest.FixtureRequest) -> Server:
    """Return each of two dialects of S3."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("folder", ["odd", "folder with blank", "per%20cent"])
async def test_keys_of_any_characters_are_one_object_for_all(moto_or_minio: Server, folder: str) -> None:
    """A key is encoded once, as the SDK does it: both see the same object, and listings name it."""
    from aiobotocore.session import get_session  # noqa: PLC0415  only here

    prefix = f"{folder}-{uuid.uuid4()}"
    keys = moto_or_minio.options
    backend = open_backend(f"{moto_or_minio.url}", **keys)
    for key in (f"{prefix}/{ODD}", f"{prefix}/+ +.json"):
        written = await backend.put_if_absent(key, b"1")
        await backend.put_if_match(key, b"2", written.version)
    async with get_session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=moto_or_minio.endpoint,
        aws_access_key_id=keys["access_key_id"],
        aws_secret_access_key=keys["secret_access_key"],
    ) as sdk:
        body = (await sdk.get_object(Bucket="locks", Key=f"{prefix}/{ODD}"))["Body"]
        assert await body.read() == b"2"
    found = await backend.get(f"{prefix}/{ODD}")
    listed = [entry.key async for entry in backend.list(f"{prefix}/")]
    for key in listed:
        await backend.delete(key)
    left = [entry.key async for entry in backend.list(f"{prefix}/")]
    await backend.aclose()

    assert isinstance(found, Stored)
    assert sorted(listed) == sorted([f"{prefix}/{ODD}", f"{prefix}/+ +.json"])
    assert left == []


async def test_a_listing_goes_on_over_pages(minio: Server) -> None:
    """Where a listing has more than one page, each entry comes once, with its size and time."""
    backend = open_backend(f"{minio.url}/pages-{uuid.uuid4()}", **minio.options)
    names = [f"{number:04}.json" for number in range(1003)]
    for start in range(0, len(names), 100):
        await asyncio.gather(*(backend.put(name, b"12345") for name in names[start : start + 100]))

    entries = [entry async for entry in backend.list("")]
    await backend.aclose()

    assert [entry.key for entry in entries] == names
    assert {entry.size for entry in entries} == {5}
    now = datetime.now(UTC).timestamp()
    assert all(
        entry.last_modified is not None and now - 300 < entry.last_modified < now + 5 for entry in entries
    )


@pytest.mark.usefixtures("machine")
async def test_an_error_that_drips_in_keeps_its_code() -> None:
    """The code decides what an answer means, so that it is awaited even where its bytes come one by one."""
    ended = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<Error><Code>SlowDown</Code></Error>"
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body))
        for byte in body:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0.001)
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        backend = open_backend(
            "s3://bucket",
            endpoint_url=f"http://127.0.0.1:{port}",
            access_key_id="key",
            secret_access_key="secret",  # noqa: S106
        )
        with pytest.raises(UnsupportedBackendError, match="SlowDown"):
            await backend.get("a.json")
        await backend.aclose()
        await ended.wait()


class Directory:
    """A directory bucket: makes sessions, and notes the headers of each other request."""

    def __init__(self) -> None:
        self.sessions = 0
        self.lasts = 300.0
        self.refuses = False
        self.seen: list[dict[str, str]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        await request.read()
        if "session" not in request.query:
            self.seen.append({name.lower(): value for name, value in request.headers.items()})
            return web.Response(headers={"ETag": '"1"'})
        if self.refuses:
            return web.Response(status=503)
        await self.go_on.wait()
        self.sessions += 1
        ends = datetime.now(UTC) + timedelta(seconds=self.lasts)
        fields = {"SessionToken": f"session {self.sessions}", "SecretAccessKey": "s", "AccessKeyId": "k"}
        fields["Expiration"] = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
        return web.Response(
            text=f"<CreateSessionResult><Credentials>{inner}</Credentials></CreateSessionResult>",
            content_type="application/xml",
        )


def test_a_release_that_loses_a_directory_bucket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 3.9 aiobotocore keeps a session that failed forever; other buckets work with it."""
    monkeypatch.setattr(aiobotocore, "__version__", "3.8.0")

    with pytest.raises(ConfigError, match=r"aiobotocore.*install 3\.9 or later"):
        open_backend(f"s3://{EXPRESS}/locks")
    open_backend("s3://locks")


@pytest.fixture
async def directory(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Directory, dict[str, object]]]:
    """Return a directory bucket and the options that lead to it."""
    monkeypatch.delenv("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", raising=False)
    service = Directory()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", service.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    options = {"access_key_id": "a", "secret_access_key": "b", "session_token": "c", "region": "us-west-2"}
    yield service, {"endpoint_url": f"http://127.0.0.1:{port}", **options}
    await runner.cleanup()


@of_new_releases
async def test_a_directory_bucket_is_used_through_a_session(
    directory: tuple[Directory, dict[str, object]],
) -> None:
    """Many requests share a session; its token is signed in place of the caller's, without a checksum."""
    service, options = directory
    backend = open_backend(f"s3://{EXPRESS}/locks", **options)
    await backend.put_if_absent("a.json", b"1")
    made = service.sessions
    for _ in range(3):
        await backend.put_if_match("a.json", b"2", '"1"')
    await backend.aclose()

    assert service.sessions == made
    for headers in service.seen:
        assert headers["x-amz-s3session-token"] == f"session {made}"
        assert "/us-west-2/s3express/aws4_request" in headers["authorization"]
        assert "x-amz-s3session-token" in headers["authorization"]
        assert not {"x-amz-security-token", "content-md5"} & headers.keys()


@of_new_releases
async def test_a_session_that_ends_is_followed_by_another(
    directory: tuple[Directory, dict[str, object]],
) -> None:
    """Before a session ends the SDK makes the next one; while it cannot, the present one serves on."""
    service, options = directory
    service.lasts = 40.0  # the SDK wants the next one 45 s before the end, and insists 10 s before it
    backend = open_backend(f"s3://{EXPRESS}/locks", **options)
    await backend.put_if_absent("a.json", b"1")
    made = service.sessions
    service.refuses = True
    for _ in range(3):
        await backend.put_if_match("a.json", b"2", '"1"')
        await asyncio.sleep(0.05)
    assert {headers["x-amz-s3session-token"] for headers in service.seen} == {f"session {made}"}

    service.refuses = False
    async with asyncio.timeout(10):
        while service.seen[-1]["x-amz-s3session-token"] == f"session {made}":
            await backend.put_if_match("a.json", b"2", '"1"')
    await backend.aclose()


@of_new_releases
async def test_a_session_that_does_not_come_is_no_write(
    directory: tuple[Directory, dict[str, object]],
) -> None:
    """Where no session can be made nothing is sent to the bucket."""
    service, options = directory
    service.refuses = True
    backend = open_backend(f"s3://{EXPRESS}/locks", **options)

    with pytest.raises(BackendUnavailableError) as caught:
        await backend.put_if_absent("a.json", b"1")
    await backend.aclose()

    assert caught.value.written == "no"
    assert service.seen == []


@of_new_releases
async def test_a_hanging_session_ends_with_its_request(
    directory: tuple[Directory, dict[str, object]],
) -> None:
    """A request that waits for a session is cancelled as any, and the next one makes a session."""
    service, options = directory
    service.go_on.clear()
    backend = open_backend(f"s3://{EXPRESS}/locks", **options)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await backend.put_if_absent("a.json", b"1")
    service.go_on.set()
    await backend.put_if_absent("a.json", b"1")
    await backend.aclose()

    assert len(service.seen) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"<html/>", b"<ListBucketResult><Contents/></ListBucketResult>"],
    ids=["nothing", "broken", "another document", "an entry without a key"],
)
async def test_what_is_no_listing_of_s3_is_refused(body: bytes) -> None:
    """A gateway's page is no empty bucket."""
    async with serving() as script:
        script.say(200, "", body)
        backend = open_backend("s3://locks", **options_of("s3", f"http://127.0.0.1:{script.port}"))
        with pytest.raises(BackendUnavailableError, match="the answer is not a listing"):
            [entry async for entry in backend.list("")]
        await backend.aclose()


@pytest.mark.parametrize("times", [1, 9], ids=["once", "always"])
@pytest.mark.parametrize("status", [301, 400])
@pytest.mark.parametrize(
    "code", ["AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException", ""]
)
async def test_a_refused_write_goes_to_no_other_region(
    minio: Server, code: str, status: int, times: int
) -> None:
    """The SDK would look for the bucket's region and sign the write for that; we say to set it."""
    told = f"<Error><Code>{code}</Code><Region>eu-west-9</Region></Error>".encode() if code else b""
    async with TapProxy(minio.endpoint) as proxy:
        proxy.inject(Wire.ANSWER, times=times, status=status, body=told)
        backend = open_backend(f"{minio.url}/{uuid.uuid4()}", **minio.through(proxy.url))
        with pytest.raises(UnsupportedBackendError, match="region" if code or status == 301 else "400"):
            await backend.put_if_absent("a.json", b"body")
        with contextlib.suppress(UnsupportedBackendError):
            await backend.get("a.json")
        await backend.aclose()

    assert [tap.method for tap in proxy.journal] == ["PUT", "GET"]
    assert all("/us-east-1/s3/" in tap.headers["authorization"] for tap in proxy.journal)
