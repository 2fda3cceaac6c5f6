"""One of several processes that count up a fenced object until they are killed.

``python fenced_worker.py URL OPTIONS NAME LOG``: each count that the store has acknowledged is a
line of LOG.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import asynclock
from asynclock import FencedObject, LeaseSettings

if TYPE_CHECKING:
    from typing import TextIO

# The server is one node; the short lease makes a killed holder's place free soon.
SETTINGS = LeaseSettings(validity=3.0, max_clock_skew=0.5, poll_interval=0.1)


def one_more(body: bytes | None) -> bytes:
    """Return the next count."""
    return str(int(body or b"0") + 1).encode()


async def count(lock: asynclock.Lock, counter: FencedObject, log: TextIO) -> None:
    """Have the lock once, and count up three times under it."""
    async with lock.hold() as lease:
        for _ in range(3):
            value = await counter.update(one_more, lease=lease)
            # Before anything else can fail: what is acknowledged must not be lost.
            log.write(f"{value.body.decode()}\n")
            log.flush()
            await asyncio.sleep(0.02)


async def main(url: str, options: str, name: str, log: Path) -> None:
    """Count forever."""
    async with asynclock.connect(url, settings=SETTINGS, **json.loads(options)) as client:
        lock, counter = client.lock(name), FencedObject(client, f"{name}.counter")
        with log.open("a") as lines:
            while True:
                # A loss, a stale token or a cut answer: the next turn starts from what is stored.
                with contextlib.suppress(asynclock.AsyncLockError):
                    await count(lock, counter, lines)
                await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], Path(sys.argv[4])))
