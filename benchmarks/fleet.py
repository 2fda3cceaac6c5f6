"""Processes that hold locks and wait for each other's, two of which are killed.

``python -m benchmarks.fleet JOB`` is one of them; ``taken_over`` starts them all.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import asynclock
from asynclock import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

MEMBERS: Final = 10
KILLED: Final = 2
WATCHED: Final = 2.0
"""Intervals of renewal for which all locks are held before the kill."""


async def taken_over(url: str, options: dict[str, Any], settings: LeaseSettings, locks: int) -> list[float]:
    """Return seconds from the ``kill -9`` of some members until each of their locks is held again.

    Each lock is acquired at a moment of its own. A member that lives waits for each lock of those that are
    killed; the other locks have no waiters, which would change nothing but the load of this machine.

    Args:
        url: Place of the locks; it has none yet.
        options: Of ``connect``.
        settings: Of all members.
        locks: Number of locks, the same for each member.

    Raises:
        TimeoutError: A lock came free before its holder was killed: this says nothing about takeovers.
    """
    rng = random.Random(1)
    dead = rng.sample(range(MEMBERS), KILLED)
    alive = [number for number in range(MEMBERS) if number not in dead]
    held: list[list[int]] = [[] for _ in range(MEMBERS)]
    awaited: list[list[int]] = [[] for _ in range(MEMBERS)]
    for lock in range(locks):
        holder = lock % MEMBERS
        held[holder].append(lock)
        if holder in dead:
            awaited[rng.choice(alive)].append(lock)
    members = []
    try:
        for own, others in zip(held, awaited, strict=True):
            job = json.dumps([url, options, asdict(settings), own, others])
            command = [sys.executable, "-m", "benchmarks.fleet", job]
            members.append(
                await asyncio.create_subprocess_exec(
                    *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
                )
            )
        await asyncio.gather(*(_line(member) for member in members))  # all clients are there
        for member in members:
            _tell(member)
        await asyncio.gather(*(_line(member) for member in members))  # all locks are held
        for member in members:
            _tell(member)
        await asyncio.sleep(WATCHED * settings.renew_interval)
        for number in dead:
            members[number].kill()
        killed = time.monotonic()
        told = await asyncio.gather(*(_orphans(members[number], awaited[number]) for number in alive))
        taken = [at - killed for each in told for at in each]
        if min(taken) < settings.validity - 2 * settings.renew_interval:
            raise TimeoutError("a holder lost its lease before it was killed; is this machine too busy?")
        return taken
    finally:
        for member in members:
            if member.returncode is None:
                member.kill()
            await member.wait()


async def _orphans(member: asyncio.subprocess.Process, awaited: Sequence[int]) -> list[float]:
    """Read when a member has got each of the orphans that it waits for."""
    return [float(await _line(member)) for _ in awaited]


async def _line(member: asyncio.subprocess.Process) -> bytes:
    assert member.stdout is not None
    line = await member.stdout.readline()
    assert line, "a member of the fleet has failed"
    return line


def _tell(member: asyncio.subprocess.Process) -> None:
    assert member.stdin is not None
    member.stdin.write(b"\n")


async def work(job: str) -> None:
    """Acquire the own locks at moments of their own, and then wait for those of the others."""
    url, options, given, own, others = json.loads(job)
    settings = LeaseSettings(**given)
    leases = []

    async def say(line: object) -> None:
        print(json.dumps(line), flush=True)  # read by the parent

    async def told() -> None:
        await asyncio.to_thread(sys.stdin.readline)

    async with asynclock.connect(url, settings=settings, **options) as client:

        async def acquire(lock: int, *, delay: float) -> None:
            await asyncio.sleep(delay)
            leases.append(await client.lock(f"{lock}").acquire())

        async def wait(lock: int) -> None:
            await acquire(lock, delay=0.0)
            await say(time.monotonic())

        await say("ready")
        await told()
        await asyncio.gather(
            *(acquire(lock, delay=random.uniform(0, settings.renew_interval)) for lock in own)
        )
        await say("holding")
        await told()
        await asyncio.gather(*(wait(lock) for lock in others))
        await told()  # never: the parent ends all members


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
