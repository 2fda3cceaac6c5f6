"""What the users of a client do with its locks, at random."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from asynclock import (
    AcquireTimeoutError,
    BackendError,
    ConfigError,
    FencedObject,
    LeaseLostError,
    RecordCorruptError,
    StaleTokenError,
    TicketSpentError,
)
from tests.laboratory.attack.plan import SHARED

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock import Lease
    from asynclock.client import LockClient
    from asynclock.lock import Holdable
    from tests.laboratory.attack.judge import Claim
    from tests.laboratory.attack.line import Line
    from tests.laboratory.attack.plan import ClientPlan
    from tests.laboratory.attack.process import Process

_KEEN = (("hold", 1), ("by_hand", 1))
_TURN = 0.05
_SLOW = 1.021
"""Most by which a machine's clock is slow."""
_REST = 3.0
WRITERS = 0.4
_HABITS = (("hold", 6), ("by_hand", 4), ("once", 2), ("cancelled", 3), ("dropped", 1), ("status", 1))
_TICKETS = (*_HABITS, ("give", 4), ("take", 5))
_KINDS = (*_HABITS, ("together", 6), ("job", 5), ("capped", 3), ("lead", 3))


class _FailedError(Exception):
    """A job has failed."""


def add_to_sum(body: bytes | None) -> bytes:
    """Count one more: what others write may be the very same bytes."""
    return b"%d" % (int(body or b"0") + 1)


def adder(mark: str) -> Callable[[bytes | None], bytes]:
    """Return what adds a mark that nobody else adds."""
    return lambda body: b" ".join(filter(None, (body, mark.encode())))


class User:
    """One user.

    Args:
        process: Where it runs.
        plan: Of its client, to make another once it is closed.
        client: Its client.
        name: For its dice and the trace.
        clients: All clients of the process, and their ways to the store.
    """

    def __init__(
        self,
        process: Process,
        plan: ClientPlan,
        client: LockClient,
        name: str,
        clients: list[tuple[LockClient, Line]],
    ) -> None:
        self._process = process
        self._plan = plan
        self._client = client
        self._clients = clients
        self._judge = process.judge
        self._rng = random.Random(f"user {process.history.seed} {name} {len(clients)}")
        self._marks = 0
        self._name = name

    async def run(self) -> None:
        """Use the locks until the process ends."""
        if self._process.history.turns:
            await self._take_turns()
            return
        keen = self._process.history.keen
        habits = _TICKETS if self._process.history.tickets else _HABITS
        if self._process.history.kinds:
            habits = _KINDS
        kinds, weights = zip(*(_KEEN if keen else habits), strict=True)
        while not self._process.ending:
            try:
                await getattr(self, self._rng.choices(kinds, weights)[0])(self._wanted())
            except RecordCorruptError as error:
                self._judge.corrupt(self._line.who, error.key, error)
            except ConfigError:
                if not self._line.silent:
                    await asyncio.sleep(self._some())  # it is being closed
                elif not self._process.ending:
                    self._client = self._process.connect(self._plan)
            except (
                LeaseLostError, AcquireTimeoutError, BackendError, TicketSpentError, StaleTokenError
            ) as error:  # fmt: skip
                self._process.world.tell(self._line.who, f"{type(error).__name__}: {str(error)[:90]}")
            await asyncio.sleep(self._some())

    def _wanted(self) -> Holdable:
        """Return what to acquire next."""
        history = self._process.history
        if history.kind == "semaphore":
            return self._client.semaphore(SHARED, history.slots)
        if history.kind == "rwlock":
            rw = self._client.rwlock(SHARED)
            # Few, so that they are all there at times; no process knows of more.
            self._client._core.readers(SHARED).slots = history.slots
            return rw.write if self._rng.random() < WRITERS else rw.read
        return self._client.lock(self._rng.choice(history.locks))

    @property
    def _line(self) -> Line:
        return self._process.line_of(self._client)

    def _some(self) -> float:
        history = self._process.history
        scale = min(self._plan.settings["validity"] / 2, history.horizon / 8)
        if history.keen:
            scale = 3 * history.weather.trip
        return scale * self._rng.random() ** 3

    def _timeout(self) -> float | None:
        draw = self._rng.random()
        if draw < 0.2 or self._process.history.keen:
            return None
        return 0.0 if draw < 0.3 else 2 * self._plan.settings["validity"] * self._rng.random()

    async def _take_turns(self) -> None:
        """Take the lock again and again: nobody may wait for longer than a few runs of the other."""
        lock = self._client.lock(self._process.history.locks[0])
        while not self._process.ending:
            self._judge.waiting[self._name] = self._process.world.now
            async with lock.hold():
                self._judge.acquisitions += 1
                self._judge.overdue(self._process.history.patience)
                del self._judge.waiting[self._name]
                await asyncio.sleep(_TURN * self._rng.uniform(0.5, 1.5))
            if self._plan.settings["poll_interval"] > 1:
                await asyncio.sleep(_REST)  # it wants the lock now and then

    async def hold(self, lock: Holdable) -> None:
        """``async with lock.hold()``."""
        claim = before = began = None
        async with lock.hold(timeout=self._timeout()) as lease:
            claim = self._given(lease)
            await self._work(lease, claim)
            before, began = self._judge.head(claim.key), self._now(claim)
        self._released(claim, before, began)

    async def by_hand(self, lock: Holdable) -> None:
        """``acquire`` and ``release``."""
        lease = await lock.acquire(timeout=self._timeout())
        claim = self._given(lease)
        try:
            await self._work(lease, claim)
        finally:
            before, began = self._judge.head(claim.key), self._now(claim)
            await lease.release()
        self._released(claim, before, began)
        await lease.release()

    async def give(self, lock: Holdable) -> None:
        """``acquire`` and ``transfer``."""
        lease = await lock.acquire(timeout=self._timeout())
        claim = self._given(lease)
        await self._work(lease, claim)
        within = max(0.1, self._plan.settings["validity"] * self._rng.random() / 2)
        ticket = await lease.transfer(within=within)
        if claim.held:
            self._judge.blame("believer", f"{self._line.who} believes in {claim.key} after its transfer")
        self._judge.tickets.append((lock.name, ticket))

    async def take(self, lock: Holdable) -> None:
        """``acquire`` by a ticket, which another may have used."""
        tickets = [ticket for name, ticket in self._judge.tickets if name == lock.name]
        if not tickets:
            return
        ticket = self._rng.choice((tickets[-1], tickets[-1], self._rng.choice(tickets)))
        lease = await lock.acquire(timeout=self._timeout(), ticket=ticket)
        claim = self._given(lease)
        self._judge.redeemed(self._line.who, ticket)
        await self._work(lease, claim)
        await lease.release()

    async def together(self, _: Holdable) -> None:
        """``hold_all`` of some of the locks, in any order."""
        locks, who = self._process.history.locks, self._line.who
        names = self._rng.sample(locks, self._rng.randint(1, len(locks)))
        claims = []
        try:
            async with self._client.hold_all(names, timeout=self._timeout()) as leases:
                claims = [self._given(lease) for lease in leases]
                try:
                    for lease, claim in zip(leases, claims, strict=True):
                        await self._work(lease, claim)
                    await asyncio.sleep(self._plan.settings["validity"] * self._rng.random() / 2)
                except (asyncio.CancelledError, LeaseLostError):
                    self._judge.all_or_none(who, claims)
                    raise
                self._judge.all_or_none(who, claims)
        except GeneratorExit:
            claims = []  # its loop was closed under it
            raise
        finally:
            self._judge.left(who, claims)

    async def job(self, lock: Holdable) -> None:
        """A function of ``once``, which fails at times."""
        wait, began, who = self._rng.random() < 0.5, self._process.world.now, self._line.who
        if self._process.bucket.weather.undated >= 1:
            return  # machines without a store's time use their own clocks, some of which are wrong

        @self._client.once(lock.name, every=self._process.history.every, wait=wait)
        async def run() -> int | None:
            await asyncio.sleep(self._some())
            if self._rng.random() < 0.2:
                raise _FailedError
            return (self._judge.head(lock.key) or {}).get("epoch")

        patience = None if self._rng.random() < 0.5 else 4 * self._some()
        with contextlib.suppress(_FailedError, TimeoutError):
            async with asyncio.timeout(patience):
                done = await run()
            self._judge.answered(who, lock.name, done, began=began, wait=wait)

    async def capped(self, lock: Holdable) -> None:
        """A lease with an end of its own, which may be over before the work is."""
        settings = self._client.settings
        assert settings.renew_interval is not None
        most = settings.renew_interval + 2 * settings.validity * self._rng.random() ** 2
        lease = await lock.acquire(timeout=self._timeout(), at_most=most)
        claim = self._given(lease)
        claim.until = self._process.world.now + most * _SLOW + self._process.plan.grain
        for _ in range(4):
            await asyncio.sleep(most * self._rng.random() / 2)
            self._judge.look(lock.key)
        await lease.release()

    async def lead(self, lock: Holdable) -> None:
        """Lead, step down at times, and lead again."""
        claims, lock, who = [], self._client.lock(lock.name), self._line.who

        async def work(lease: Lease) -> None:
            claims.append(claim := self._given(lease))
            await self._work(lease, claim)
            if self._rng.random() < 0.3 and lock.step_down():
                try:
                    await asyncio.sleep(self._some())
                finally:
                    self._judge.look(lock.key)

        try:
            await lock.lead(work, timeout=self._timeout())
        except GeneratorExit:
            claims.clear()  # its loop was closed under it
            raise
        finally:
            self._judge.left(who, claims)

    async def once(self, lock: Holdable) -> None:
        """``try_acquire``."""
        lease = await lock.try_acquire()
        if lease is not None:
            claim = self._given(lease)
            await asyncio.sleep(self._some())
            before, began = self._judge.head(claim.key), self._now(claim)
            await lease.release()
            self._released(claim, before, began)

    async def cancelled(self, lock: Holdable) -> None:
        """Cancel an acquisition, a body or a release somewhere in the middle."""
        habits = [self.hold, self.by_hand]
        if self._process.history.kinds:
            habits += [self.together, self.job, self.lead]
        task = self._process.spawn(self._rng.choice(habits)(lock))
        await asyncio.sleep(self._some() * self._rng.choice((1.0, 0.1)))
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=self._process.history.weather.trip * self._rng.random() * 3)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def dropped(self, lock: Holdable) -> None:
        """Acquire, and forget the lease."""
        lease = await lock.acquire(timeout=self._timeout())
        self._given(lease)
        await asyncio.sleep(self._some())
        owner, key = lease.owner, lease.key
        validity, since = self._plan.settings["validity"], self._process.world.now
        del lease
        await asyncio.sleep(0.8 * validity)
        thing, head = self._process.bucket.things.get(key), self._judge.head(key) or {}
        renewed = thing is not None and thing.landed > since + 0.4 * validity
        if renewed and head["owner"] == owner and not head["expired"]:
            self._judge.blame("dropped", f"{self._line.who} dropped its lease of {key}, which is kept")

    async def status(self, lock: Holdable) -> None:
        """Look."""
        await lock.status()

    async def _work(self, lease: Lease, claim: Claim) -> None:
        for _ in range(self._rng.choice((0, 1, 1, 2, 4))):
            await asyncio.sleep(self._some())
            draw = self._rng.random()
            if draw < 0.25:
                await lease.confirm()
            elif draw < 0.55:
                await asyncio.gather(*(self._count(lease) for _ in range(self._rng.choice((1, 1, 2)))))
            self._judge.not_revived(claim)

    async def _count(self, lease: Lease) -> None:
        """Add a mark to the fenced object of the lock, through any client of the process."""
        client = self._client
        if self._process.history.shared_leases:
            client = self._rng.choice([each for each, line in self._clients if not line.silent] or [client])
        self._marks += 1
        mark = f"{self._name}-{len(self._clients)}-{self._marks}"
        change, kind = self._rng.choice(((add_to_sum, "sum"), (adder(mark), "count")))
        key = f"{lease.name}.{kind}"
        try:
            await FencedObject(client, key).update(change, lease=lease)
        except (StaleTokenError, BackendError, LeaseLostError, ConfigError):
            return
        self._judge.acknowledge(key, mark)

    def _given(self, lease: Lease) -> Claim:
        return self._judge.given(lease.key, self._line.who, lease, lease.fencing_token)

    def _now(self, claim: Claim) -> tuple[float, int]:
        """Note when a release begins, and how many requests had failed; -1 where nothing is held any more."""
        return self._process.world.now, self._line.failures if claim.held else -1

    def _released(self, claim: Claim | None, before: object, began: tuple[float, int] | None) -> None:
        """Judge a release that returned well, unless the store may have given no answer in time."""
        if claim is None or began is None or self._line.failures != began[1]:
            return
        if claim.owner in self._line.pending:  # rule 24: it said that it is not confirmed
            return
        if self._process.world.now - began[0] < self._client.settings.validity / 5:
            self._judge.released(self._line.who, claim, before)  # type: ignore[arg-type]
