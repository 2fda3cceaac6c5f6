# ruff: noqa: T201  a command that prints
"""The bank: accounts in one object, workers that pause for longer than their lease.

Each worker adds to its own account while it holds the lock. With ``FencedObject`` no
acknowledged update is lost; the same run that trusts the lock alone loses some, which shows
that the harness can tell. ``python -m tests.laboratory bank --updates 1000000`` runs both.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import orjson

from asynclock.backend import Stored
from asynclock.client import LockClient
from asynclock.errors import BackendError, LeaseLostError, StaleTokenError
from asynclock.fencing import FencedObject
from asynclock.settings import LeaseSettings
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._store import SimulatedStore, StoreProfile
from asynclock.testing._virtual import VirtualLoop
from tests.laboratory.cores import spread
from tests.laboratory.names import NAME, URL
from tests.laboratory.simulate import quiet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asynclock.backend import Backend
    from asynclock.lease import Lease

    Update = Callable[[Lease], Awaitable[None]]

WORKERS: Final = 5
VALIDITY: Final = 2.0
PAUSE: Final = 5.0
"""Seconds that a paused worker stands still: longer than its lease."""
PER_BANK: Final = 100_000
"""Updates of one bank; a larger run is several banks, side by side on all cores."""
_ACCOUNTS: Final = "accounts"
_PER_HOLD: Final = 40
_STORE: Final = StoreProfile(latency=(0.001, 0.002), slow=0.0005, slow_by=2.5)
_SETTINGS: Final = LeaseSettings(validity=VALIDITY, safety_margin=0.4, max_clock_skew=0.1, poll_interval=0.2)


@dataclass(frozen=True, slots=True)
class BankResult:
    """What a run of the bank came to.

    Attributes:
        updates: Updates that were acknowledged to a worker.
        lost: Acknowledged updates that are not in the accounts.
        pauses: How often a worker was paused.
        takeovers: How often another worker got the lock.
    """

    updates: int
    lost: int
    pauses: int
    takeovers: int


def run_bank(updates: int, *, fenced: bool, seed: int = 0) -> BankResult:
    """Let the workers make ``updates`` updates in virtual time.

    Args:
        updates: Acknowledged updates after which the workers stop.
        fenced: Through ``FencedObject``; else with the lock alone.
        seed: Of latencies and pauses.
    """
    bank = _Bank(updates, fenced=fenced, seed=seed)
    try:
        return bank.loop.run_until_complete(bank.run())
    finally:
        bank.loop.close()


class _Bank:
    def __init__(self, updates: int, *, fenced: bool, seed: int) -> None:
        self.loop = VirtualLoop(seed)
        self._rng = Random(seed)
        self._store = SimulatedStore(self.loop, Random(seed + 1), _STORE)
        self._wanted = updates
        self._fenced = fenced
        self._acknowledged = [0] * WORKERS
        self._holder = 0
        self._done = 0
        self._pauses = 0
        self._takeovers = 0

    async def run(self) -> BankResult:
        processes = [
            self.loop.process(f"worker-{index}", VirtualClock(self.loop)) for index in range(WORKERS)
        ]
        tasks = [process.start(self._work(index)) for index, process in enumerate(processes)]
        while self._done < self._wanted:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * PAUSE)
            process = processes[self._holder]
            process.pause()
            self._pauses += 1
            self.loop.call_later(PAUSE, process.resume)
        await asyncio.wait(tasks)
        for task in tasks:
            task.result()
        return BankResult(self._done, self._lost(), self._pauses, self._takeovers)

    def _lost(self) -> int:
        body = self._store.body(_ACCOUNTS) or b""
        accounts = orjson.loads(body.rpartition(b"\n")[2] or b"[0,0,0,0,0]")
        pairs = zip(self._acknowledged, accounts, strict=True)
        return sum(max(0, acknowledged - kept) for acknowledged, kept in pairs)

    async def _work(self, index: int) -> None:
        process = self.loop.current_process
        assert process.clock is not None
        client = LockClient(
            url=URL,
            backend=self._store.backend(process),
            settings=_SETTINGS,
            clock=process.clock,
            renewal="loop",
            rng=Random(self._rng.getrandbits(64)),
            holder=process.name,
        )
        if self._fenced:
            update = self._fenced_update(client, index)
        else:
            update = self._plain_update(client.backend, index)
        async with client:
            while self._done < self._wanted:
                try:
                    async with client.lock(NAME).hold() as lease:
                        self._holder = index
                        self._takeovers += 1
                        await self._update_often(update, lease, index)
                except (LeaseLostError, BackendError, StaleTokenError):
                    continue

    async def _update_often(self, update: Update, lease: Lease, index: int) -> None:
        for _ in range(_PER_HOLD):
            if self._done >= self._wanted:
                return
            await update(lease)
            self._acknowledged[index] += 1
            self._done += 1

    def _fenced_update(self, client: LockClient, index: int) -> Update:
        accounts = FencedObject(client, _ACCOUNTS)

        async def update(lease: Lease) -> None:
            await accounts.update(lambda body: _credited(body, index), lease=lease)

        return update

    def _plain_update(self, backend: Backend, index: int) -> Update:
        async def update(lease: Lease) -> None:
            lease.check()
            stored = await backend.get(_ACCOUNTS)
            await backend.put(
                _ACCOUNTS, _credited(stored.body if isinstance(stored, Stored) else None, index)
            )

        return update


def _credited(body: bytes | None, index: int) -> bytes:
    accounts = [0] * WORKERS if body is None else orjson.loads(body)
    accounts[index] += 1
    return orjson.dumps(accounts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if fencing lost nothing and the lock alone lost something."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory bank", description=__doc__)
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, help="processes; default: every core")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    sizes = [min(PER_BANK, options.updates - done) for done in range(0, options.updates, PER_BANK)]
    # The first bank once more without fencing: the harness proves itself.
    jobs = [(sizes[0], False, 0), *((size, True, seed) for seed, size in enumerate(sizes))]
    unfenced, *fenced = spread(_run_job, jobs, processes=options.jobs)
    lost = sum(bank.lost for bank in fenced)
    print(
        f"bank: {sum(bank.updates for bank in fenced)} fenced updates, {lost} lost, "
        f"{sum(bank.pauses for bank in fenced)} pauses, {sum(bank.takeovers for bank in fenced)} takeovers; "
        f"{unfenced.updates} without fencing, {unfenced.lost} lost; {time.perf_counter() - began:.0f} s"
    )
    return 0 if lost == 0 and unfenced.lost > 0 else 1


def _run_job(job: tuple[int, bool, int]) -> BankResult:
    updates, fenced, seed = job
    with quiet():
        return run_bank(updates, fenced=fenced, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
