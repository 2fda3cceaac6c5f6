"""One process with one client of one lock: ``python -m benchmarks.peers.client NAME JSON``.

Reads commands, a line each, and answers each with a line of JSON:

- ``cycles N``: acquire and release N times; ``seconds`` of one cycle.
- ``acquire``: wait for the lock; ``at``, the monotonic clock, and the ``token``, if the library has one.
- ``told SECONDS``: wait until the library says by itself that the lock is lost; ``at``, or null.
- ``release``: ``at``.

Where a library leaves renewal to its users, this is the loop that its documentation shows: every third of the
lifetime, and a renewal that fails is how its holder learns.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from base64 import b64encode
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from asynclock import LeaseSettings, connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LOOK = 0.001


class Client(Protocol):
    """One client of one lock."""

    async def acquire(self) -> object:
        """Wait for the lock and return the token of this holder; None: the library has none."""

    async def release(self) -> None:
        """Free it."""

    def lost(self) -> bool:
        """Say what the library has said, without asking its server."""


class Renewed:
    """What users write around a lock that does not renew itself."""

    def __init__(self, renew: Callable[[], Awaitable[bool]], interval: float) -> None:
        self._renew = renew
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Renew from now on."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Do not renew any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def failed(self) -> bool:
        """Say whether a renewal has failed."""
        return self._task is not None and self._task.done()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            if not await self._renew():
                return


class Asynclock:
    """asynclock on any of its stores."""

    def __init__(self, job: dict[str, Any]) -> None:
        settings = LeaseSettings(validity=job["lifetime"], max_clock_skew=job.get("max_clock_skew", 0.0))
        self._lock = connect(job["url"], settings=settings, **job.get("options", {})).lock("lock")

    async def acquire(self) -> object:
        """Wait."""
        self._lease = await self._lock.acquire()
        return self._lease.fencing_token

    async def release(self) -> None:
        """Release."""
        await self._lease.release()

    def lost(self) -> bool:
        """Look at the lease."""
        return not self._lease.held


class Redis:
    """redis-py's ``asyncio.lock.Lock``."""

    def __init__(self, job: dict[str, Any]) -> None:
        from redis.asyncio import Redis as Server  # noqa: PLC0415  each process has one library

        self._lock = Server(port=job["port"]).lock(job["name"], timeout=job["lifetime"], thread_local=False)
        self._renewed = Renewed(self._renew, job["lifetime"] / 3)

    async def acquire(self) -> object:
        """Wait; the token names a holder, but nothing about it rises."""
        await self._lock.acquire()
        self._renewed.start()

    async def release(self) -> None:
        """Release."""
        await self._renewed.stop()
        await self._lock.release()

    def lost(self) -> bool:
        """Look at the renewals."""
        return self._renewed.failed()

    async def _renew(self) -> bool:
        from redis.exceptions import LockError  # noqa: PLC0415  as above

        try:
            return bool(await self._lock.reacquire())
        except LockError:
            return False


class FileLease:
    """filelock's ``SoftFileLease``; its refresh is a thread of its own."""

    def __init__(self, job: dict[str, Any]) -> None:
        from filelock import SoftFileLease  # noqa: PLC0415  as above

        self._lease = SoftFileLease(f"{job['folder']}/lock", lease_duration=job["lifetime"])

    async def acquire(self) -> object:
        """Wait; its documentation says that the token does not fence."""
        self._lease.acquire()

    async def release(self) -> None:
        """Release."""
        self._lease.release()

    def lost(self) -> bool:
        """Look at what its thread has found."""
        return self._lease.compromise is not None


class Dynamo:
    """python-dynamodb-lock; its heartbeats are threads of its own."""

    def __init__(self, job: dict[str, Any]) -> None:
        import boto3  # noqa: PLC0415  as above
        from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient  # noqa: PLC0415  as above

        access = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        lifetime = job["lifetime"]
        # The shares that its defaults have: 30 s, a beat every 5, in danger after 20.
        self._client = DynamoDBLockClient(
            boto3.resource("dynamodb", endpoint_url=job["endpoint"], **access),
            heartbeat_period=timedelta(seconds=lifetime / 6),
            safe_period=timedelta(seconds=lifetime * 2 / 3),
            lease_duration=timedelta(seconds=lifetime),
        )
        self._name = job["name"]
        self._lost = False

    async def acquire(self) -> object:
        """Wait; the versions of its records are random."""
        forever = timedelta(hours=1)
        self._lost = False
        self._held = self._client.acquire_lock(self._name, retry_timeout=forever, app_callback=self._called)

    async def release(self) -> None:
        """Release."""
        self._held.release()

    def lost(self) -> bool:
        """Look at what its callback was told."""
        return self._lost

    def _called(self, code: str, lock: object) -> None:
        del code, lock  # in danger, or stolen: stop either way
        self._lost = True


class Etcd:
    """etcd's own lock service, by its HTTP gateway; one session for all acquisitions, as clients have."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._endpoint = job["endpoint"]
        self._name = b64encode(job["name"].encode()).decode()
        self._lifetime = job["lifetime"]
        self._renewed = Renewed(self._renew, job["lifetime"] / 3)
        self._session: Any = None
        self._lease = ""

    async def acquire(self) -> object:
        """Wait; the token is the revision under which the key of the holder was made."""
        if self._session is None:
            from aiohttp import ClientSession  # noqa: PLC0415  as above

            self._session = ClientSession(self._endpoint)
            self._lease = (await self._ask("lease/grant", TTL=int(self._lifetime)))["ID"]
            self._renewed.start()
        answer = await self._ask("lock/lock", name=self._name, lease=self._lease)
        self._key = answer["key"]
        return int(answer["header"]["revision"])

    async def release(self) -> None:
        """Release; the session stays."""
        await self._ask("lock/unlock", key=self._key)

    def lost(self) -> bool:
        """Look at the session."""
        return self._renewed.failed()

    async def _renew(self) -> bool:
        answer = await self._ask("lease/keepalive", ID=self._lease)
        return "TTL" in answer["result"]

    async def _ask(self, what: str, **fields: object) -> Any:  # noqa: ANN401  JSON
        async with self._session.post(f"/v3/{what}", json=fields) as answer:
            return json.loads(await answer.content.readline())


CLIENTS: dict[str, type[Client]] = {
    "asynclock": Asynclock, "redis": Redis, "filelock": FileLease, "dynamodb": Dynamo, "etcd": Etcd,
}  # fmt: skip


async def main() -> None:
    """Answer commands until there are no more."""
    logging.disable()  # what libraries say of a lost lock is not what is asked
    client = CLIENTS[sys.argv[1]](json.loads(sys.argv[2]))
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, *words = line.split()
        print(json.dumps(await answered(client, command, words)), flush=True)


async def answered(client: Client, command: str, words: list[str]) -> dict[str, object]:
    """Do as told."""
    match command:
        case "cycles":
            return {"seconds": await cycles(client, int(words[0]))}
        case "acquire":
            token = await client.acquire()
            return {"at": time.monotonic(), "token": token}
        case "told":
            return {"at": await told(client, float(words[0]))}
        case "release":
            await client.release()
            return {"at": time.monotonic()}
        case _:
            raise ValueError(command)


async def cycles(client: Client, count: int) -> float:
    """Seconds of one acquire and release."""
    began = time.perf_counter()
    for _ in range(count):
        await client.acquire()
        await client.release()
    return (time.perf_counter() - began) / count


async def told(client: Client, seconds: float) -> float | None:
    """The time at which the library says that the lock is lost."""
    end = time.monotonic() + seconds
    while not client.lost():
        if time.monotonic() > end:
            return None
        await asyncio.sleep(LOOK)
    return time.monotonic()


if __name__ == "__main__":
    asyncio.run(main())
