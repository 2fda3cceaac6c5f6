"""A refresh of credentials that fails, hangs or is cancelled costs no lease while time remains."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Self

import pytest
from azure.core.credentials import AccessToken
from gcloud.aio.auth import Token

import asynclock
from asynclock import LeaseSettings
from asynclock.backends import open_backend
from asynclock.backends._http import Joined
from asynclock.backends.azure import _SharedCredential
from asynclock.backends.gcs import _SharedToken
from asynclock.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asynclock.testing.servers import Server

Mood = Literal["serve", "fail", "hang"]


class MetadataServer:
    """Hands out credentials over HTTP like a cloud's metadata server, in the mood it is told."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.mood: Mood = "serve"
        self.asked = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            if self.mood == "hang":
                await asyncio.sleep(3600)
            status, body = ("200 OK", self.answer) if self.mood == "serve" else ("500 Broken", b"")
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)


@pytest.fixture
async def metadata(minio: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MetadataServer]:
    """Return a metadata server whose credentials MinIO takes, and which expire in 14 minutes.

    That is within the quarter of an hour in which the SDK wants new ones with every request.
    """
    expires = datetime.now(UTC) + timedelta(minutes=14)
    answer = {
        "AccessKeyId": minio.options["access_key_id"],
        "SecretAccessKey": minio.options["secret_access_key"],
        "Token": "",
        "Expiration": expires.isoformat(),
    }
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    async with MetadataServer(json.dumps(answer).encode()) as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/credentials")
        yield server


def _without_keys(server: Server) -> dict[str, object]:
    return {name: value for name, value in server.options.items() if "key" not in name}


@pytest.mark.parametrize("mood", ["serve", "fail", "hang"])
async def test_a_lease_outlives_a_refresh_gone_wrong(
    minio: Server, metadata: MetadataServer, mood: Mood
) -> None:
    """While the present credentials serve, renewals go on beside a refresh, however it ends."""
    settings = LeaseSettings(validity=3.0, max_clock_skew=0.5)
    async with (
        asynclock.connect(
            f"{minio.url}/refresh-{mood}", settings=settings, renewal="loop", **_without_keys(minio)
        ) as client,
        client.lock("a").hold(timeout=10) as lease,
    ):
        metadata.mood = mood
        for _ in range(20):
            await lease.confirm()
        await asyncio.sleep(0.7)  # renewals of the scheduler, too
        lease.check()

    assert metadata.asked > 1


async def test_credentials_that_never_come_are_no_write(minio: Server, metadata: MetadataServer) -> None:
    """Without any credentials nothing is sent, and the error says that nothing was written."""
    metadata.mood = "fail"
    backend = open_backend(f"{minio.url}/refresh", **_without_keys(minio))

    with pytest.raises(BackendUnavailableError) as caught:
        await backend.put_if_absent("a.json", b"body")
    await backend.aclose()

    assert caught.value.written == "no"


async def test_a_cancelled_waiter_takes_nobody_with_it() -> None:
    """Of ten that wait for one fetch one is cancelled: the others get the value of the same fetch."""
    gate, fetches = asyncio.Event(), 0

    async def fetch() -> str:
        nonlocal fetches
        fetches += 1
        await gate.wait()
        return "token"

    joined = Joined(fetch)
    waiters = [asyncio.create_task(joined.join()) for _ in range(10)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    await asyncio.sleep(0)
    gate.set()
    outcomes = await asyncio.gather(*waiters, return_exceptions=True)

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == ["token"] * 9
    assert fetches == 1


async def test_a_hanging_fetch_is_given_up() -> None:
    """A fetch that hangs ends after its limit, and the next call starts a new one."""
    fetches = 0

    async def fetch() -> str:
        nonlocal fetches
        fetches += 1
        if fetches == 1:
            await asyncio.sleep(3600)
        return "token"

    joined = Joined(fetch, limit=0.05)
    with pytest.raises(TimeoutError):
        await joined.join()

    assert await joined.join() == "token"


async def test_closing_ends_a_running_fetch() -> None:
    """No task is left of a fetch that hangs when the backend is closed."""
    joined = Joined(lambda: asyncio.sleep(3600))
    task = joined.start()

    await joined.aclose()

    assert task.cancelled()


async def test_a_google_token_serves_while_its_refresh_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the last twentieth of its life a token is given at once, the SDK would wait for the next."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    inner = Token(session=None, scopes=["any"])
    refreshes = 0

    async def hang(timeout: int) -> object:  # noqa: ARG001
        nonlocal refreshes
        refreshes += 1
        return await asyncio.sleep(3600)

    inner.refresh = hang
    inner.access_token, inner.access_token_duration = "old", 3600
    inner.access_token_acquired_at = datetime.now(UTC) - timedelta(seconds=3550)
    token = _SharedToken(inner)

    async with asyncio.timeout(1):
        assert [await token.get() for _ in range(5)] == ["old"] * 5
        await asyncio.sleep(0.01)
    await token.close()

    assert refreshes == 1


class HangingCredential:
    """Gives one token that expires in four minutes, and hangs ever after."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_token(self, *scopes: str) -> AccessToken:  # noqa: ARG002
        """Return a token the first time."""
        self.asked += 1
        if self.asked > 1:
            await asyncio.sleep(3600)
        return AccessToken("old", int(datetime.now(UTC).timestamp()) + 240)


async def test_an_azure_token_serves_while_its_refresh_hangs() -> None:
    """In the last five minutes of its life a token is given at once, the SDK would wait for the next."""
    inner = HangingCredential()
    credential = _SharedCredential(inner)

    async with asyncio.timeout(1):
        tokens = [(await credential.get_token("scope")).token for _ in range(5)]
        await asyncio.sleep(0.01)
    await credential.aclose()

    assert tokens == ["old"] * 5
    assert inner.asked == 2
