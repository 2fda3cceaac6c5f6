"""Cut the answers of real servers under many locks, and count what goes wrong: nothing.

``python -m tests.laboratory soak-cut --cuts 10000`` runs, for each of S3, GCS and Azure, two
clients that contend for 32 locks through a proxy that cuts every third write's answer after the
server has applied it. A lease reported lost is a false loss (nobody takes anything over, and no
lease runs out); two holders at once are a double hold; a task, descriptor or connection that is
still there in the end is a leak.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asynclock
from asynclock.errors import BackendError, LeaseLostError
from asynclock.settings import LeaseSettings
from asynclock.testing._proxy import TapProxy, Wire
from tests.laboratory.servers import Server, running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asynclock.client import LockClient

STORES: Final = ("s3", "gcs", "azure")
LOCKS: Final = 32
_CUT_RATE: Final = 0.34
_ACQUIRE_WITHIN: Final = 60.0
_JOURNAL_KEPT: Final = 1000
"""Requests; ten thousand cuts would fill some hundred MiB."""
# The servers are one node each. A lease far longer than a cut takes to settle: any loss is false.
# Polled seldom: the waiting clients of 32 locks else take all that Azurite can serve.
_SETTINGS: Final = LeaseSettings(validity=60.0, renew_interval=0.4, max_clock_skew=1.0, poll_interval=0.5)


@dataclass
class Tally:
    """What happened on one store.

    Attributes:
        cuts: Answers that were cut after the server had applied the write.
        holds: Leases had and given back.
        lost: Leases reported lost, though nobody had taken them over.
        doubled: Times that two leases of one lock were believed at once.
        leaks: Tasks and descriptors left.
    """

    cuts: int = 0
    holds: int = 0
    lost: int = 0
    doubled: int = 0
    leaks: int = 0


async def soak(server: Server, *, cuts: int, seed: int = 0) -> Tally:
    """Cut ``cuts`` answers of ``server`` under 32 contended locks and tell what came of it."""
    tasks, descriptors = len(asyncio.all_tasks()), await asyncio.to_thread(_descriptors)
    tally = await _contend(server, cuts, seed)
    await asyncio.sleep(0.1)  # transports close one turn of the loop after their streams
    gc.collect()
    left = await asyncio.to_thread(_descriptors)
    tally.leaks = max(0, len(asyncio.all_tasks()) - tasks) + max(0, left - descriptors)
    return tally


async def _contend(server: Server, cuts: int, seed: int) -> Tally:
    tally = Tally()
    holders: Counter[str] = Counter()
    async with TapProxy(server.endpoint, seed=seed) as proxy:
        proxy.storm(_CUT_RATE, Wire.CUT_AFTER)

        def is_done() -> bool:
            if len(proxy.journal) > _JOURNAL_KEPT:
                proxy.journal.clear()
            return proxy.applied[Wire.CUT_AFTER] >= cuts

        options = server.through(proxy.url)
        url = f"{server.url}/soak-{os.getpid()}"
        async with (
            asynclock.connect(url, settings=_SETTINGS, renewal="loop", **options) as one,
            asynclock.connect(url, settings=_SETTINGS, renewal="loop", **options) as two,
            asyncio.TaskGroup() as group,
        ):
            for number in range(LOCKS):
                for client in (one, two):
                    group.create_task(_cycle(client, f"lock-{number}", holders, tally, is_done))
        tally.cuts = proxy.applied[Wire.CUT_AFTER]
    return tally


async def _cycle(
    client: LockClient, name: str, holders: Counter[str], tally: Tally, is_done: Callable[[], bool]
) -> None:
    lock = client.lock(name)
    while not is_done():
        try:
            lease = await lock.acquire(timeout=_ACQUIRE_WITHIN)
        except BackendError:
            continue
        holders[name] += 1
        tally.doubled += holders[name] > 1
        tally.holds += 1
        try:
            await _confirm(lease)
        except LeaseLostError:
            tally.lost += 1
        finally:
            holders[name] -= 1
        try:
            await lease.release()
        except LeaseLostError:
            tally.lost += 1
        except BackendError:
            pass  # not settled yet: the lock goes on repeating it beside us


async def _confirm(lease: asynclock.Lease) -> None:
    try:
        await lease.confirm()
    except BackendError:
        lease.check()


def _descriptors() -> int:
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.exists() else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak and print its last line; 1 where anything went wrong."""
    parser = argparse.ArgumentParser(prog="soak-cut", description=__doc__.partition("\n")[0])
    parser.add_argument("--cuts", type=int, default=300, help="answers to cut per store")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of the answers to cut")
    chosen = parser.parse_args(arguments)
    # A release whose answer is cut is logged as a warning each time: hundreds of lines of no news.
    logging.getLogger("asynclock").setLevel(logging.ERROR)
    # As an exception, so that the servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tallies: list[Tally] = []
    with ExitStack() as servers:
        for name in STORES:
            server = servers.enter_context(running(name, own=True))
            tally = asyncio.run(soak(server, cuts=chosen.cuts, seed=chosen.seed))
            tallies.append(tally)
            sys.stdout.write(f"{name} ({server.version}): {tally}\n")
            sys.stdout.flush()
    cuts = min(chosen.cuts, *(tally.cuts for tally in tallies))
    lost, doubled, leaks = (
        sum(getattr(tally, field) for tally in tallies) for field in ("lost", "doubled", "leaks")
    )
    sys.stdout.write(
        f"soak-cut: {cuts} cuts per store, {len(tallies)} stores, {lost} false losses, "
        f"{doubled} double holds, {leaks} leaks\n"
    )
    return 1 if lost or doubled or leaks or cuts < chosen.cuts else 0


if __name__ == "__main__":
    sys.exit(main())
