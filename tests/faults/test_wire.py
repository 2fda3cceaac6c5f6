"""The lock over real servers whose connections are cut, delayed and lied on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import asynclock
from asynclock import LeaseSettings, LockClient
from asynclock.backend import Absent
from asynclock.backends import open_backend
from asynclock.errors import (
    AccessDeniedError,
    AcquireTimeoutError,
    BackendUnavailableError,
    LeaseLostError,
    LeaseTakenOverError,
    OutcomeUnknownError,
    PreconditionFailedError,
    RecordCorruptError,
)
from asynclock.testing._http1 import close_stream
from asynclock.testing._proxy import TapProxy, Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.laboratory.servers import Server

# The servers are one node each, so their clock agrees with itself.
SETTINGS = LeaseSettings(validity=5.0, max_clock_skew=0.5, poll_interval=0.1)
CUTS = [
    pytest.param(Wire.CUT_AFTER, False, id="answer lost, FIN"),
    pytest.param(Wire.CUT_AFTER, True, id="answer lost, RST"),
    pytest.param(Wire.CUT_MIDDLE, False, id="answer cut in its head"),
    pytest.param(Wire.DUPLICATE, False, id="sent twice by a middle box"),
]


@pytest.fixture
async def proxy(cloud: Server) -> AsyncIterator[TapProxy]:
    """Return a proxy before the server."""
    async with TapProxy(cloud.endpoint, seed=1) as proxy:
        yield proxy


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of a lock that no other test uses."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]


@pytest.fixture
async def client(cloud: Server, proxy: TapProxy) -> AsyncIterator[LockClient]:
    """Return a client whose requests go through the proxy."""
    options = cloud.through(proxy.url)
    async with asynclock.connect(f"{cloud.url}/wire", settings=SETTINGS, renewal="loop", **options) as client:
        yield client


@pytest.fixture
async def other(cloud: Server) -> AsyncIterator[LockClient]:
    """Return a client that the proxy does not touch."""
    async with asynclock.connect(
        f"{cloud.url}/wire", settings=SETTINGS, renewal="loop", **cloud.options
    ) as client:
        yield client


@pytest.mark.parametrize(("fault", "reset"), CUTS)
async def test_a_cut_write_is_sent_once(
    cloud: Server, proxy: TapProxy, name: str, fault: Wire, *, reset: bool
) -> None:
    """No layer below us sends a write again: the caller learns that it was lost or refused."""
    backend = open_backend(f"{cloud.url}/wire", **cloud.through(proxy.url))
    await backend.get(name)  # an open connection, which aiohttp would renew for a second try
    proxy.inject(fault, writes=True, reset=reset)

    with pytest.raises((OutcomeUnknownError, PreconditionFailedError)):
        await backend.put_if_absent(f"{name}.json", b"body")
    await backend.aclose()

    writes = [tap for tap in proxy.journal if tap.write]
    assert len(writes) == 1
    assert writes[0].forwarded == (2 if fault is Wire.DUPLICATE else 1)


@pytest.mark.parametrize(("fault", "reset"), CUTS)
async def test_an_acquisition_survives_a_lost_answer(
    client: LockClient, proxy: TapProxy, other: LockClient, name: str, fault: Wire, *, reset: bool
) -> None:
    """Applied but unanswered, the acquisition recognises its own write and has the lock."""
    proxy.inject(fault, writes=True, reset=reset)

    async with client.lock(name).hold(timeout=4) as lease:
        assert lease.held
        assert await other.lock(name).try_acquire() is None
        assert proxy.faults(fault) == 1
        assert any(tap.fault and tap.forwarded for tap in proxy.journal)

    assert (await other.lock(name).status()).state == "free"


@pytest.mark.parametrize(("fault", "reset"), CUTS)
async def test_a_renewal_survives_lost_answers(
    client: LockClient, proxy: TapProxy, name: str, fault: Wire, *, reset: bool
) -> None:
    """Renewals that are applied but unanswered never count as a loss."""
    async with client.lock(name).hold(timeout=4) as lease:
        proxy.inject(fault, writes=True, times=3, reset=reset)
        for _ in range(3):
            with contextlib.suppress(OutcomeUnknownError):
                await lease.confirm()
            assert lease.held
        await lease.confirm()

    assert proxy.faults(fault) == 3


@pytest.mark.parametrize(("fault", "reset"), CUTS)
async def test_a_release_survives_a_lost_answer(
    client: LockClient, proxy: TapProxy, other: LockClient, name: str, fault: Wire, *, reset: bool
) -> None:
    """A release whose answer is lost is settled, and the next one has the lock at once."""
    lease = await client.lock(name).acquire(timeout=4)
    proxy.inject(fault, writes=True, reset=reset)

    await lease.release()

    async with other.lock(name).hold(timeout=4) as successor:
        assert successor.fencing_token > lease.fencing_token


async def test_a_write_that_never_arrived_is_sent_anew(
    client: LockClient, proxy: TapProxy, name: str
) -> None:
    """Cut before it reached the store, an acquisition reads, sees nothing of it and writes again."""
    proxy.inject(Wire.CUT_BEFORE, writes=True)

    async with client.lock(name).hold(timeout=4) as lease:
        assert lease.held

    assert [tap.forwarded for tap in proxy.journal if tap.write][:2] == [0, 1]


async def test_a_zombie_write_is_refused(
    client: LockClient, proxy: TapProxy, other: LockClient, name: str
) -> None:
    """A renewal that lands after the lock has gone on is refused by its version."""
    lease = await client.lock(name).acquire(timeout=4)
    proxy.inject(Wire.LATE, writes=True, seconds=0.5)
    with contextlib.suppress(OutcomeUnknownError):
        await lease.confirm()
    with contextlib.suppress(LeaseLostError):
        await lease.release()

    async with other.lock(name).hold(timeout=4) as successor:
        await asyncio.sleep(0.6)  # until the zombie has landed
        await successor.confirm()

    zombie = next(tap for tap in proxy.journal if tap.fault is Wire.LATE)
    assert zombie.forwarded == 1
    assert zombie.status in {409, 412}


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_refusals_without_a_reason_are_tried_again(
    client: LockClient, proxy: TapProxy, name: str, status: int
) -> None:
    """Conflicts, throttling and server errors are no "held by another": the lock is had a little later."""
    proxy.inject(Wire.ANSWER, writes=True, times=2, status=status)

    async with client.lock(name).hold(timeout=4) as lease:
        assert lease.held

    assert proxy.faults(Wire.ANSWER) == 2


@pytest.mark.parametrize("status", [200, 412, 500], ids=["in a success", "as itself", "in a server error"])
async def test_a_conflict_is_told_by_its_code(minio: Server, name: str, status: int) -> None:
    """A failed precondition is one under any status: nothing is written, a look tells, the lock is had."""
    refused = b"<Error><Code>PreconditionFailed</Code></Error>"
    async with TapProxy(minio.endpoint) as proxy:
        proxy.inject(Wire.ANSWER, writes=True, times=2, status=status, body=refused)
        async with (
            asynclock.connect(
                f"{minio.url}/wire", settings=SETTINGS, renewal="loop", **minio.through(proxy.url)
            ) as client,
            client.lock(name).hold(timeout=4) as lease,
        ):
            assert lease.held

    assert [tap.applied for tap in proxy.journal if tap.write] == [False, False, True, True]


@pytest.mark.parametrize("fault", [Wire.BLACKHOLE, Wire.CUT_AFTER])
async def test_renewals_that_are_applied_in_silence_cost_no_lease(
    client: LockClient, proxy: TapProxy, other: LockClient, name: str, fault: Wire
) -> None:
    """For two renewals every answer of a write is lost: the holder reads them back and keeps the lock."""
    async with client.lock(name).hold(timeout=4) as lease:
        before = len(proxy.journal)
        proxy.inject(fault, writes=True, times=2, seconds=30)
        while proxy.faults(fault) < 2:  # the scheduler renews by itself
            await asyncio.sleep(0.05)
            lease.check()
        assert await other.lock(name).try_acquire() is None
        await lease.confirm()

    assert sum(tap.applied for tap in proxy.journal[before:] if tap.write and tap.fault) == 2


async def test_a_reset_in_the_tls_handshake_costs_time_only(minio_tls: Server, name: str) -> None:
    """Connections that are reset before TLS is up carried no request: the lock is had on the next one."""
    upstream, taken = urlsplit(minio_tls.endpoint), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        taken += 1
        if taken <= 3:
            await reader.read(1)  # the client's hello
            await close_stream(writer, reset=True)
            return
        theirs, ours = await asyncio.open_connection(upstream.hostname, upstream.port)
        await asyncio.gather(_pipe(reader, ours), _pipe(theirs, writer))

    front = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = front.sockets[0].getsockname()[1]
    options = minio_tls.through(f"https://127.0.0.1:{port}")
    backend = open_backend(f"{minio_tls.url}/wire", **options)
    with pytest.raises(BackendUnavailableError, match="cannot connect") as caught:
        await backend.put_if_absent(f"{name}.json", b"body")
    await backend.aclose()
    async with (
        asynclock.connect(f"{minio_tls.url}/wire", settings=SETTINGS, renewal="loop", **options) as client,
        client.lock(name).hold(timeout=4) as lease,
    ):
        assert lease.held
    front.close()
    await front.wait_closed()

    assert caught.value.written == "no"
    assert taken >= 4


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_a_release_is_repeated_through_throttling(
    client: LockClient, proxy: TapProxy, other: LockClient, name: str
) -> None:
    """A release that is throttled twice arrives all the same, long before the lease ends."""
    lease = await client.lock(name).acquire(timeout=4)
    proxy.inject(Wire.ANSWER, writes=True, times=2, status=429)

    with contextlib.suppress(BackendUnavailableError):
        await lease.release()

    async with other.lock(name).hold(timeout=4):
        assert proxy.faults(Wire.ANSWER) == 2


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_token_costs_no_lease_while_time_remains(
    client: LockClient, proxy: TapProxy, name: str, status: int
) -> None:
    """Renewals that are denied for a while are told, and the lease is held on once they pass again."""
    async with client.lock(name).hold(timeout=4) as lease:
        proxy.inject(Wire.ANSWER, writes=True, times=2, status=status)
        for _ in range(2):
            with contextlib.suppress(AccessDeniedError):
                await lease.confirm()
            assert lease.held
        await lease.confirm()

    assert proxy.faults(Wire.ANSWER) == 2


async def test_of_many_who_take_over_one_gets_it(minio: Server) -> None:
    """A dead holder's lock goes to one of eight waiting clients, and to the others in turn."""
    name, inside, tokens = f"take-over-{uuid.uuid4()}", Counter[str](), list[int]()
    settings = LeaseSettings(validity=2.0, max_clock_skew=0.5, poll_interval=0.1)
    url = f"{minio.url}/wire"
    async with contextlib.AsyncExitStack() as stack:
        dead = await stack.enter_async_context(TapProxy(minio.endpoint))
        holder = await stack.enter_async_context(
            asynclock.connect(url, settings=settings, renewal="loop", **minio.through(dead.url))
        )
        lease = await holder.lock(name).acquire(timeout=4)
        dead.inject(Wire.CUT_BEFORE, times=1_000_000)

        async def wait() -> None:
            client = await stack.enter_async_context(
                asynclock.connect(url, settings=settings, renewal="loop", **minio.options)
            )
            async with client.lock(name).hold(timeout=30) as successor:
                inside["all"] += 1
                assert (inside["all"], lease.held) == (1, False)
                await asyncio.sleep(0.05)
                inside["all"] -= 1
                tokens.append(successor.fencing_token)

        await asyncio.gather(*(wait() for _ in range(8)))

    assert len(tokens) == 8
    assert [lease.fencing_token, *tokens] == sorted({lease.fencing_token, *tokens})


async def test_a_deleted_object_is_a_loss(client: LockClient, other: LockClient, name: str) -> None:
    """A lock object deleted by hand is lost at the next renewal, and never made again by the holder."""
    lease = await client.lock(name).acquire(timeout=4)
    await other.backend.delete(f"{name}.json")

    with pytest.raises(LeaseTakenOverError):
        await lease.confirm()

    assert isinstance(await other.backend.get(f"{name}.json"), Absent)


@pytest.mark.parametrize("fault", [Wire.SWALLOW, Wire.BLACKHOLE])
async def test_a_cut_off_holder_stops_believing_before_another_gets_the_lock(
    client: LockClient, proxy: TapProxy, other: LockClient, name: str, fault: Wire
) -> None:
    """Half-open connections: the holder gives up at its deadline, and only then the waiter has it."""
    lease = await client.lock(name).acquire(timeout=4)
    proxy.inject(fault, times=1_000_000, seconds=30)
    bound = SETTINGS.takeover_bound(other.backend.clock_resolution)

    async with other.lock(name).hold(timeout=2 * bound) as successor:
        assert not lease.held
        assert successor.fencing_token > lease.fencing_token


async def test_a_dripping_answer_is_given_up_in_time(client: LockClient, proxy: TapProxy, name: str) -> None:
    """An answer that drips in is cut by the request timeout of a fifth of the lease."""
    proxy.inject(Wire.DRIP, writes=True, seconds=60)
    loop = asyncio.get_running_loop()
    start = loop.time()

    async with client.lock(name).hold(timeout=4) as lease:
        assert loop.time() - start < SETTINGS.validity / 2
        assert lease.held


async def test_a_stalled_name_service_costs_time_only(
    minio: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the look-up of the store's name hangs, requests are given up in time; then the lock is had."""
    lookups, answer = 0, socket.getaddrinfo

    def look_up(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  as the function it stands for
        nonlocal lookups
        lookups += 1
        if lookups == 1:
            time.sleep(2 * SETTINGS.validity / 5)
        return answer(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    options = minio.through(minio.endpoint.replace("127.0.0.1", "localhost"))
    async with asynclock.connect(f"{minio.url}/wire", settings=SETTINGS, renewal="loop", **options) as client:
        with pytest.raises(AcquireTimeoutError):
            await client.lock(name).acquire(timeout=SETTINGS.validity / 5)
        async with client.lock(name).hold(timeout=10) as lease:
            assert lease.held

    assert lookups > 0


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"validUntil":NaN}', b"x" * 300_000])
async def test_a_foreign_object_is_neither_held_nor_free(
    client: LockClient, proxy: TapProxy, name: str, body: bytes
) -> None:
    """An object that is not a lock record stops an acquisition, and nothing is written over it."""
    await client.backend.put(f"{name}.json", body)
    before = len([tap for tap in proxy.journal if tap.write])

    with pytest.raises(RecordCorruptError):
        await client.lock(name).acquire(timeout=1)

    assert len([tap for tap in proxy.journal if tap.write]) == before


async def test_a_timeout_leaves_nothing_behind(
    client: LockClient, proxy: TapProxy, other: LockClient, name: str
) -> None:
    """An acquisition that times out while its write is unknown is cleaned up after."""
    proxy.inject(Wire.LATE, writes=True, seconds=0.4)
    proxy.inject(Wire.CUT_BEFORE, times=4)

    with contextlib.suppress(AcquireTimeoutError, BackendUnavailableError, OutcomeUnknownError):
        lease = await client.lock(name).acquire(timeout=0.2)
        await lease.release()

    async with other.lock(name).hold(timeout=4) as lease:
        await asyncio.sleep(0.5)
        await lease.confirm()


async def test_one_key_counts_its_requests(client: LockClient, proxy: TapProxy, name: str) -> None:
    """Uncontended: two requests for the first acquisition, one for each later one, one a release."""
    counts = []
    for _ in range(3):
        before = len(proxy.journal)
        lease = await client.lock(name).acquire(timeout=4)
        middle = len(proxy.journal)
        await lease.release()
        counts.append((middle - before, len(proxy.journal) - middle))

    assert counts == [(2, 1), (1, 1), (1, 1)]
    assert Counter(tap.fault for tap in proxy.journal) == {None: 7}
