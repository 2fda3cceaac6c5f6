"""Each kind of fault, on a server, is said once and then rarely, with the lock and the reason.

To add a kind, add a ``Row``: what is asked, and the words that the sentence must have.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

import asynclock
from asynclock import LeaseSettings
from asynclock._core.defects import Defect
from asynclock.testing._proxy import TapProxy, Wire
from tests.faults.scripted import CLOUDS, URLS, options, serving
from tests.faults.test_answers import gcs_body, s3_body
from tests.faults.test_tables import TABLES, Certificates, is_absent, meant, rows, said_by
from tests.servers.scripted import Quirk, ScriptedStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from asynclock.client import LockClient
    from asynclock.lease import Lease
    from tests.laboratory.servers import Server

    Servers: TypeAlias = "Mapping[str, Server]"
    Place: TypeAlias = "Callable[[Servers, Path], AbstractAsyncContextManager[tuple[str, dict[str, Any]]]]"

SETTINGS: Final = LeaseSettings(validity=20.0, max_clock_skew=1.0, poll_interval=0.1)
"""A round each tenth of a second, so that a flood is seen soon."""
SLOW: Final = LeaseSettings(validity=20.0, max_clock_skew=1.0, poll_interval=0.4)
WATCHED: Final = 1.0
"""Seconds for which nothing more may be said after the first sentence."""
DEADLINE: Final = 20.0
ALWAYS: Final = 1_000_000


@dataclass(frozen=True)
class Row:
    """One kind of fault.

    Attributes:
        name: Of the test.
        place: Opens the place with the fault, given real servers and an empty folder; gives URL and options.
        says: What the sentence has in it.
        passes: The client goes on trying; else the call ends with this very sentence.
    """

    name: str
    place: Place
    says: tuple[str, ...]
    passes: bool = True


def answered(cloud: str, status: int, body: bytes = b"", **headers: str) -> Place:
    """Return a real server behind a proxy that answers everything so."""

    @asynccontextmanager
    async def place(servers: Servers, _: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        real = servers[cloud]
        async with TapProxy(real.endpoint) as proxy:
            proxy.inject(Wire.ANSWER, times=ALWAYS, status=status, headers=headers, body=body)
            yield real.url, real.through(proxy.url)

    return place


def broken(cloud: str, fault: Wire) -> Place:
    """Return a real server behind a proxy that spoils every request so."""

    @asynccontextmanager
    async def place(servers: Servers, _: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        real = servers[cloud]
        async with TapProxy(real.endpoint) as proxy:
            proxy.inject(fault, times=ALWAYS, seconds=DEADLINE)
            yield real.url, real.through(proxy.url)

    return place


def nobody(cloud: str) -> Place:
    """Return a port at which nobody listens."""

    @asynccontextmanager
    async def place(servers: Servers, _: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        real = servers[cloud]
        yield real.url, real.through(f"http://127.0.0.1:{port}")

    return place


def untrusted(cloud: str) -> Place:
    """Return a server whose certificate nobody trusts."""

    @asynccontextmanager
    async def place(servers: Servers, _: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        server = servers[f"{cloud}-tls"]
        yield server.url, {name: value for name, value in server.options.items() if name != "ca_file"}

    return place


def folder(prepare: Callable[[Path], object]) -> Place:
    """Return a folder in which something is wrong."""

    @asynccontextmanager
    async def place(_: Servers, path: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        prepare(path)
        yield f"file://{path}/locks", {}

    return place


def defective(cloud: str, quirk: Quirk) -> Place:
    """Return a scripted store that has a known defect."""

    @asynccontextmanager
    async def place(_: Servers, __: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        async with ScriptedStore(cloud, quirk) as store:
            yield store.url, store.options

    return place


def refused_certificate() -> Place:
    """Return a server whose certificate nobody trusts."""

    @asynccontextmanager
    async def place(_: Servers, path: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        context = await asyncio.to_thread(lambda: Certificates(path).serving())
        async with serving(context) as script:
            yield URLS["s3"], options("s3", f"https://127.0.0.1:{script.port}")

    return place


ROWS: Final = [
    Row("nobody listens, S3", nobody("s3"), ("cannot connect",)),
    Row("nobody listens, Cloud Storage", nobody("gcs"), ("cannot connect",)),
    Row("nobody listens, Azure", nobody("azure"), ("cannot connect",)),
    Row("throttled", answered("s3", 429, s3_body("SlowDown")), ("SlowDown",)),
    Row("unavailable, S3", answered("s3", 503, s3_body("SlowDown")), ("SlowDown",)),
    Row("unavailable, Cloud Storage", answered("gcs", 503, gcs_body("backendError")), ("503",)),
    Row("unavailable, Azure", answered("azure", 503, **{"x-ms-error-code": "ServerBusy"}), ("ServerBusy",)),
    Row("a bad gateway", answered("s3", 502, b"<html>bad gateway</html>"), ("502",)),
    Row("cut off", broken("s3", Wire.CUT_BEFORE), ()),
    Row("silent", broken("s3", Wire.SWALLOW), ("no answer from the store for 2 s",)),
    Row(
        "a wrong key, S3", answered("s3", 403, s3_body("InvalidAccessKeyId")), ("InvalidAccessKeyId",), False
    ),
    Row("no permission, Cloud Storage", answered("gcs", 403, gcs_body("forbidden")), ("forbidden",), False),
    Row("no bucket", answered("s3", 404, s3_body("NoSuchBucket")), ("NoSuchBucket",), False),
    Row("a proxy wants a password", answered("s3", 407), ("407", "trust_env"), False),
    Row("a law", answered("azure", 451), ("451",), False),
    Row("a status that no table names", answered("gcs", 418), ("418", "gateway"), False),
    Row(
        "a sign-in page",
        answered("s3", 200, b"<html>Please sign in</html>", **{"Content-Type": "text/html"}),
        ("web page",),
        False,
    ),
    Row("a KMS key", answered("s3", 400, s3_body("KMS.DisabledException")), ("KMS key",), False),
    Row("a certificate, S3", untrusted("s3"), ("not trusted", "ca_file"), False),
    Row("a certificate, Azure", untrusted("azure"), ("not trusted", "ca_file"), False),
    *(
        Row(f"{quirk}, {cloud}", defective(cloud, quirk), (f"{defect}: ", "run: asynclock doctor "), False)
        for cloud in CLOUDS
        for quirk, defect in (
            (Quirk.DROPS_CONDITIONS, Defect.NO_CONDITIONS),
            (Quirk.INVERTED, Defect.INVERTED),
            (Quirk.TWO_STEPS, Defect.NOT_ATOMIC),
            (Quirk.REFUSES_SHOWN, Defect.REFUSES_SHOWN),
        )
    ),
    Row(
        "a file in place of the folder", folder(lambda path: (path / "locks").touch()), ("Not a dir",), False
    ),
]


class Log:
    """What the log ``asynclock`` says of one lock on level INFO and above."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def note(self, record: logging.LogRecord) -> bool:
        """Take a record."""
        if f"/{self.name}: " in (line := record.getMessage()):
            (self.notes if record.levelno == logging.INFO else self.warnings).append(line)
        return True

    async def until_warned(self) -> None:
        """Wait for the first warning."""
        async with asyncio.timeout(DEADLINE):
            while not self.warnings:  # noqa: ASYNC110  a log tells nobody
                await asyncio.sleep(0.02)


async def watched(client: LockClient, log: Log) -> bool:
    """Let a leader have the fault until after the first warning; returns whether ``lead`` has ended."""
    leading = asyncio.create_task(client.lock(log.name).lead(nothing))
    await log.until_warned()
    await asyncio.sleep(WATCHED)
    ended = leading.done()
    leading.cancel()
    await asyncio.wait([leading])
    return ended


@contextlib.contextmanager
def logged(name: str) -> Iterator[Log]:
    """Give the log of a lock while the body runs."""
    log, logger = Log(name), logging.getLogger("asynclock")
    logger.addFilter(log.note)
    logger.setLevel(logging.INFO)
    try:
        yield log
    finally:
        logger.removeFilter(log.note)
        logger.setLevel(logging.NOTSET)


@pytest.fixture
def servers(
    minio: Server, fake_gcs: Server, azurite: Server, minio_tls: Server, azurite_tls: Server
) -> Servers:
    """Return a real server for each cloud, and of two one that serves https."""
    plain = {"s3": minio, "gcs": fake_gcs, "azure": azurite}
    return plain | {"s3-tls": minio_tls, "azure-tls": azurite_tls}


@pytest.fixture
def name() -> str:
    """Return a name that no other test uses."""
    return f"narrated-{uuid.uuid4()}"


@pytest.fixture
def log(name: str) -> Iterator[Log]:
    """Return the log of that lock."""
    with logged(name) as log:
        yield log


async def nothing(_: Lease) -> None:
    """Do no work."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_fault_is_said_once_and_then_rarely(
    row: Row, name: str, log: Log, servers: Servers, tmp_path: Path
) -> None:
    """A leader that does not get its lock: one warning with the URL of the lock and the reason."""
    async with (
        row.place(servers, tmp_path) as (url, options),
        asynclock.connect(url, settings=SETTINGS, **options) as client,
    ):
        ended = await watched(client, log)

    (line,) = log.warnings
    assert line.startswith(f"{url}/{name}: ")
    assert [words for words in row.says if words not in line] == []
    assert ended is not row.passes
    assert ("trying again" in line or "no answer" in line) is row.passes
    assert log.notes == []


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_refusals_that_nobody_explains_end_the_wait_in_two_sentences(cloud: str, log: Log) -> None:
    """The first is said at the first refusal, the second as the leader ends; both name the doctor."""
    async with (
        ScriptedStore(cloud, Quirk.INVERTED) as store,
        asynclock.connect(store.url, settings=SETTINGS, verify=False, **store.options) as client,
    ):
        ended = await watched(client, log)

    assert ended
    assert 1 <= len(log.warnings) <= 2
    assert all("nobody else has written (reads show no object)" in line for line in log.warnings)
    assert all(f"asynclock doctor {store.url}" in line for line in log.warnings)


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_every_answer_of_the_table_is_said_once(cloud: str) -> None:
    """Each row gives its error and its hint, in one line; it says whether the client tries again."""
    wrong: list[object] = []
    async with contextlib.AsyncExitStack() as resources:

        async def opened(status: int, code: str) -> LockClient:
            script = await resources.enter_async_context(serving())
            given = options(cloud, f"http://127.0.0.1:{script.port}")
            client = asynclock.connect(URLS[cloud], settings=SLOW, **given)
            await resources.enter_async_context(client)
            script.say(404)  # to read it opens the SDK, which takes a busy machine long
            with contextlib.suppress(asynclock.BackendError):
                await client.lock("a").status()
            script.say(status, *said_by(cloud, code))
            return client

        async def have(client: LockClient, status: int, code: str) -> None:
            with logged(f"row-{uuid.uuid4()}") as log:
                ended = await watched(client, log)
            _, transient, _ = meant(TABLES[cloud], status, code, reads=True)
            hint = TABLES[cloud].row(status, code).hint
            if (
                len(log.warnings) != 1
                or hint not in log.warnings[0]
                or ended is transient
                or ("trying again" in log.warnings[0]) is not transient
            ):
                wrong.append((status, code, transient, ended, log.warnings))

        given = [(await opened(*row), *row) for row in rows(cloud) if not is_absent(cloud, *row)]
        await asyncio.gather(*(have(*each) for each in given))

    assert wrong == []


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (403, "AccessDenied"), (451, "")])
async def test_a_fault_while_a_lock_is_held_is_said_once(
    name: str, log: Log, minio: Server, status: int, code: str
) -> None:
    """Failing renewals are one warning, which says when the lease is lost; then one line that it works."""
    async with (
        TapProxy(minio.endpoint) as proxy,
        asynclock.connect(minio.url, settings=SETTINGS, **minio.through(proxy.url)) as client,
        client.lock(name).hold() as lease,
    ):
        proxy.inject(Wire.ANSWER, times=9, status=status, body=s3_body(code) if code else b"")
        while not log.notes:
            with contextlib.suppress(asynclock.BackendError):
                await lease.confirm()

    (line,) = log.warnings
    assert f"{minio.url}/{name}: a renewal failed: " in line
    assert str(status) in line
    assert code in line
    assert "; unless one succeeds, the lease will be lost in " in line
    assert ["renewed again, after " in note for note in log.notes] == [True]


async def test_the_end_of_a_fault_is_said_once(name: str, log: Log, minio: Server) -> None:
    """A store that answers again is one line, and the lock is acquired."""
    async with (
        TapProxy(minio.endpoint) as proxy,
        asynclock.connect(minio.url, settings=SETTINGS, **minio.through(proxy.url)) as client,
    ):
        proxy.inject(Wire.ANSWER, times=4, status=503, body=s3_body("SlowDown"))
        async with client.lock(name).hold(timeout=DEADLINE):
            pass

    assert len(log.warnings) == 1
    assert ["the store answers again, after " in note for note in log.notes] == [True]
