"""What the cloud backends use of their SDKs that no SDK documents.

Each row of the table in ``docs/backends`` has its tests here: one fails when a release takes the
hook away, one when the hook is not needed any more.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import botocore.exceptions
import botocore.handlers
import pytest
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioRefreshableCredentials
from aiobotocore.session import get_session
from gcloud.aio.auth import Token
from gcloud.aio.auth.token import TokenResponse

from asynclock.backends import _gcs_token, open_backend
from asynclock.backends._aws import AwsCredentials
from asynclock.backends._gcs_token import GcsToken, checked_token
from asynclock.backends._resolver import Resolver
from asynclock.backends._session import new_session
from asynclock.errors import UnsupportedBackendError
from asynclock.testing._proxy import TapProxy, Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.laboratory.servers import Server

ROOT: Final = Path(__file__).parents[2]
MODULES: Final = (
    "_s3",
    "_gcs",
    "_azure",
    "_aws",
    "_gcs_token",
    "_azure_account",
    "_azure_token",
    "_answers",
    "_cloud",
    "_credentials",
    "_faults",
    "_http",
    "_resolver",
    "_session",
    "_tables",
)
SDKS: Final = ("aiobotocore", "aiohttp", "azure", "botocore", "gcloud", "yarl")


def rows() -> list[list[str]]:
    """Return the table's rows: SDK, hook, why, rule, tests."""
    page = (ROOT / "docs/backends/index.md").read_text()
    _, _, section = page.partition("## Hooks into SDKs\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def private_names(module: str) -> Iterator[str]:
    """Yield the private names of others that a backend's module uses."""
    for node in ast.walk(ast.parse((ROOT / f"asynclock/backends/{module}.py").read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in {"self", "cls", "super()"}:
            yield from (each for each in (node.attr,) if re.match(r"_[^_]", each))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SDKS):
            path = f"{node.module}.{node.names[0].name}"
            yield from (each for each in path.split(".") if each.startswith("_"))


def test_the_backends_use_no_private_name() -> None:
    """What an SDK calls private may change with any release."""
    assert [name for module in MODULES for name in private_names(module)] == []


def test_every_row_has_its_rule_and_its_tests() -> None:
    """A hook without a rule that needs it, or without a test that watches it, is no hook to keep."""
    assert len(rows()) == 4
    for _, _, why, rule, tests in rows():
        assert why
        assert re.match(r"\d+:", rule)
        names = re.findall(r"`(\w+)`", tests)
        assert len(names) >= 2
        assert all(callable(globals().get(name)) for name in names), tests


# aiohttp


@pytest.fixture
async def hanging_up() -> AsyncIterator[tuple[str, list[str]]]:
    """Return a server that answers a GET, hangs up on everything else, and lists what it was sent."""
    methods: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := (await reader.readline()).decode():
            methods.append(head.split(" ")[0])
            if methods[-1] != "GET":
                break
            while await reader.readline() != b"\r\n":
                pass
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", methods


async def _put_on_an_open_connection(session: aiohttp.ClientSession, url: str) -> None:
    async with session:
        (await session.get(url)).release()
        with pytest.raises(aiohttp.ClientError):
            await session.put(url, data=b"body")


async def test_aiohttp_sends_once_through_the_middleware(hanging_up: tuple[str, list[str]]) -> None:
    """A PUT whose connection is lost reaches the server once."""
    url, methods = hanging_up

    await _put_on_an_open_connection(new_session(Resolver()), url)

    assert methods == ["GET", "PUT"]


async def test_aiohttp_sends_twice_without_the_middleware(hanging_up: tuple[str, list[str]]) -> None:
    """Aiohttp sends the PUT again by itself: while it does, the middleware is needed."""
    url, methods = hanging_up

    await _put_on_an_open_connection(aiohttp.ClientSession(), url)

    assert methods == ["GET", "PUT", "PUT"]


# botocore and aiobotocore


async def _by_the_sdk(server: Server, endpoint: str, **config: Any) -> Any:  # noqa: ANN401  the SDK has no types
    """Return a client of the SDK; enter it."""
    return get_session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id=server.options["access_key_id"],
        aws_secret_access_key=server.options["secret_access_key"],
        config=AioConfig(request_checksum_calculation="when_required", **config),
    )


ELSEWHERE: Final = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region></Error>"


async def test_botocore_asks_us_before_it_sends_again(minio: Server) -> None:
    """Our handler is the first of those that decide whether a request is sent again, and raises a refusal."""
    async with TapProxy(minio.endpoint) as proxy:
        proxy.inject(Wire.ANSWER, times=9, status=400, body=ELSEWHERE)
        backend = open_backend(f"{minio.url}/{uuid.uuid4()}", **minio.through(proxy.url))
        with pytest.raises(UnsupportedBackendError, match="set region"):
            await backend.put_if_absent("a.json", b"body")
        await backend.aclose()

    assert [tap.method for tap in proxy.journal] == ["PUT"]


async def test_botocore_lets_us_send_a_body_at_once(minio: Server) -> None:
    """Our handler is the last of those before a call, and no body waits for the server's consent."""
    async with TapProxy(minio.endpoint) as proxy:
        backend = open_backend(f"{minio.url}/{uuid.uuid4()}", **minio.through(proxy.url))
        await backend.put_if_absent("a.json", b"body")
        await backend.aclose()

    assert ["expect" in tap.headers for tap in proxy.journal] == [False]


async def test_botocore_waits_for_consent_to_a_body(minio: Server) -> None:
    """Its client asks for it: while it does, the handler is needed."""
    asked: list[object] = []

    async def nothing() -> bytes:
        return b""

    def answer(request: Any, **_: object) -> AioAWSResponse:  # noqa: ANN401  the SDK has no types
        asked.append(request.headers.get("Expect"))
        return AioAWSResponse(request.url, 200, {}, SimpleNamespace(read=nothing))

    async with await _by_the_sdk(minio, minio.endpoint) as client:
        client.meta.events.register("before-send.s3", answer)
        await client.put_object(Bucket="locks", Key="a.json", Body=b"body")

    assert asked == [b"100-continue"]


async def test_botocore_sends_a_refused_write_again(minio: Server) -> None:
    """It looks for another region whatever its retry settings: while it does, the handler is needed."""
    async with TapProxy(minio.endpoint) as proxy:
        proxy.inject(Wire.ANSWER, times=9, status=400, body=ELSEWHERE)
        async with await _by_the_sdk(minio, proxy.url, retries={"total_max_attempts": 1}) as client:
            client.meta.events.unregister("before-call.s3", botocore.handlers.add_expect_header)
            with pytest.raises(botocore.exceptions.ClientError):
                await client.put_object(Bucket="locks", Key="a.json", Body=b"body")

    assert [tap.method for tap in proxy.journal].count("PUT") > 1


class Fetched:
    """Credentials of the SDK that are fetched from the test, and end in ten minutes."""

    def __init__(self) -> None:
        self.fetches = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.of_the_sdk = AioRefreshableCredentials.create_from_metadata(
            self._metadata(), refresh_using=self._fetch, method="test", mandatory_timeout=0
        )

    def _metadata(self) -> dict[str, str]:
        ends = datetime.now(UTC) + timedelta(minutes=10)
        return {
            "access_key": f"key {self.fetches}",
            "secret_key": "s",
            "token": "t",
            "expiry_time": ends.isoformat(),
        }

    async def _fetch(self) -> dict[str, str]:
        self.fetches += 1
        await self.go_on.wait()
        return self._metadata()


async def test_botocore_says_when_credentials_need_a_refresh() -> None:
    """A fetch that hangs is beside the requests; once it has ended, they have what it brought."""
    fetched = Fetched()
    shared = AwsCredentials(fetched.of_the_sdk, contextlib.nullcontext)
    assert (await shared.get_frozen_credentials()).access_key == "key 1"

    fetched.go_on.clear()
    assert [(await shared.get_frozen_credentials()).access_key for _ in range(3)] == ["key 1"] * 3
    await asyncio.sleep(0)
    assert fetched.fetches == 2
    fetched.go_on.set()
    await asyncio.sleep(0.01)
    assert (await shared.get_frozen_credentials()).access_key == "key 2"
    await shared.aclose()


async def test_botocore_refreshes_inside_of_a_request() -> None:
    """Its credentials wait for a fetch while the present ones are valid: while they do, ours are needed."""
    fetched = Fetched()
    fetched.go_on.clear()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await fetched.of_the_sdk.get_frozen_credentials()


# gcloud-aio-auth


class Grants(Token):  # type: ignore[misc]
    """The SDK's token, whose grants the test makes; ``refresh`` is where its kinds of credentials differ."""

    def __init__(self) -> None:
        super().__init__()
        self.granted = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def refresh(self, *, timeout: int) -> TokenResponse:  # noqa: ARG002  the SDK's signature
        """Grant a token once the test lets it."""
        await self.go_on.wait()
        self.granted += 1
        return TokenResponse(value=f"token {self.granted}", expires_in=3600)


@pytest.fixture
def grants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Grants:
    """Return a token of the SDK on a machine without credentials."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Grants()


def _later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(_gcs_token, "time", SimpleNamespace(time=lambda: time.time() + seconds))


async def test_gcloud_tells_how_long_a_token_is_valid(
    grants: Grants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token serves until it ends; from half of its life on, the next one is fetched beside it."""
    shared = GcsToken(grants)
    assert [await shared.get() for _ in range(3)] == ["token 1"] * 3
    assert grants.granted == 1

    _later(monkeypatch, 1790)
    assert await shared.get() == "token 1"
    await asyncio.sleep(0)
    assert grants.granted == 1

    grants.go_on.clear()  # a fetch that hangs
    _later(monkeypatch, 3590)
    assert [await shared.get() for _ in range(3)] == ["token 1"] * 3
    _later(monkeypatch, 3610)
    waiting = asyncio.create_task(shared.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    grants.go_on.set()
    assert await waiting == "token 2"
    await shared.aclose()


async def test_gcloud_lets_one_cancelled_caller_fail_the_others(grants: Grants) -> None:
    """The SDK's own sharing does so, and ours does not: while it does, ours is needed."""
    for get, outcome in ((grants.get, asyncio.CancelledError), (GcsToken(grants).get, str)):
        grants.go_on.clear()
        first, second = (asyncio.create_task(get()) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0.01)
        grants.go_on.set()
        outcomes: Any = await asyncio.gather(second, return_exceptions=True)
        assert isinstance(outcomes[0], outcome)


async def test_a_token_with_a_get_of_its_own_is_asked_as_it_is(grants: Grants) -> None:
    """A subclass of the SDK's token that overrides ``get`` knows better than its base class."""

    class Vault(Grants):
        async def get(self) -> str:
            """Return a token of another kind."""
            return "from the vault"

    assert isinstance(checked_token(grants), GcsToken)
    vault: Any = checked_token(Vault())

    assert await vault.get() == "from the vault"
