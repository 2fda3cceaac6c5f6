"""The programs on the machines of a simulated history: they call ``Lock`` and ``Lease`` as any user does."""

from __future__ import annotations

import asyncio
import math
from random import Random
from typing import TYPE_CHECKING, Any, Final

from asynclock.errors import (
    BackendError,
    ConfigError,
    LeaseLostError,
    RecordCorruptError,
    StaleTokenError,
    TicketSpentError,
    UnsupportedBackendError,
)
from asynclock.fencing import FencedObject
from asynclock.settings import MIN_VALIDITY
from asynclock.testing._clocks import VirtualClock
from asynclock.testing._faulty import Fault
from tests.laboratory.capped import Cap
from tests.laboratory.checker import COUNT_KEY, Invariant
from tests.laboratory.endings import ROUND_TRIPS, Droppable, forget
from tests.laboratory.hudi_peer import HudiPeer
from tests.laboratory.kept import Keeping
from tests.laboratory.leads import Leading
from tests.laboratory.names import FENCED_KEY, KEY, NAME
from tests.laboratory.periods import Calling
from tests.laboratory.together import Together

if TYPE_CHECKING:
    from asynclock.client import LockClient
    from asynclock.lease import Lease
    from asynclock.lock import Holdable
    from tests.laboratory.machines import Machine, Stage
    from tests.laboratory.watched import Holding

FORGOTTEN: Final = 0.2
"""Share of the leases that are dropped unreleased, by users whose loops are closed under them."""
TOLD_WITHIN: Final = 1.0 + 1e-6
"""Seconds that the body of ``hold`` may run on after a loss: clocks are looked at once a second."""
REFUSED: Final = 3
"""Refusals of what still stands before a store may be called broken."""
TOO_MANY: Final = 9
"""Refusals of what still stands, those of the clean-up included, after which it has to be called broken."""


class User:
    """A coroutine that wants the lock again and again."""

    def __init__(self, run: Stage, machine: Machine, name: str, rng: Random) -> None:
        self.name = name
        self.holding = False
        self.closed = False
        self.exiting = False
        self.away_until = 0.0
        self.waits_since: float | None = None
        self.task: asyncio.Task[None] | None = None
        self._run = run
        self._machine = machine
        self._rng = Random(rng.getrandbits(64))
        self._unit = run.plan.unit or machine.settings.validity
        self.stepped_down = -math.inf
        self._program: Droppable | None = None
        self._written = 0
        self._stopped: set[asyncio.Task[Any] | None] = set()
        # Of this life of the machine: another may have begun.
        self._process, self._backend = machine.process, machine.backend
        self._client, self._clients = machine.client, machine.clients

    def start(self, delay: float = 0.0) -> None:
        """Begin, ``delay`` seconds from now."""
        program = self._live(delay)
        if self._run.plan.drops:
            self._program = Droppable(program)
            program = self._program.run()
        self.task = self._process.start(program, name=self.name)

    def drop(self) -> None:
        """Be dropped as a coroutine whose loop is closed, and begin again."""
        if self._program is not None and self.task is not None:
            self._program.drop()
            forget(self._process, self.task)
        self.start(delay=self._unit * self._rng.random())

    def stop(self) -> None:
        """Cancel it from outside."""
        if self.task is not None:
            self._stopped.add(self.task)
            with self._run.loop.running_as(self._process):
                self.task.cancel()  # what it does then belongs to its process, and keeps its order

    async def _live(self, delay: float) -> None:
        await asyncio.sleep(delay)
        try:
            await self._want()
        except ConfigError:
            if not self.closed:
                raise
        finally:
            self.waits_since = None

    async def _want(self) -> None:
        run, rng, plan = self._run, self._rng, self._run.plan
        loop = run.loop
        while loop.time() < run.ends:
            await asyncio.sleep(rng.uniform(*plan.idles) * self._unit)
            if (away := self.away_until - loop.time()) > 0:
                await asyncio.sleep(away)
            self.waits_since, lock = loop.time(), run.sharing.wanted(self._client)
            refused = self._backend.applied[Fault.REFUSED]
            try:
                if plan.leads and rng.random() < plan.leads:
                    await Leading(self, self._client.lock(NAME)).run()
                    continue
                if plan.together and rng.random() < plan.together:
                    await Together(self, self._client, TOLD_WITHIN).run()
                    continue
                if plan.onces and rng.random() < plan.onces:
                    await Calling(self, self._client).run()
                    continue
                if plan.bodies and rng.random() < plan.bodies:
                    await self._hold_body(lock)
                    continue
                lease = await self._obtain(lock)
            except (
                TimeoutError, BackendError, RecordCorruptError, ConfigError, TicketSpentError
            ) as error:  # fmt: skip
                self._got_nothing(error)
                self._check_refusals(refused, error)
                continue
            self._check_refusals(refused)
            self.check_wait()
            if lease is not None and plan.drops and rng.random() < FORGOTTEN:
                run.checker.note(self.name, f"forgets owner={lease.owner[:8]}")
                del lease
            elif lease is not None:
                await self.hold(lease, rng.uniform(*plan.holds) * self._unit)

    async def _obtain(self, lock: Holdable) -> Lease | None:
        run, machine = self._run, self._machine.name
        given = run.checker.tickets.draw(self._rng, machine) if run.plan.transfers else None
        if given is None:
            return await self._acquire(lock)
        lease = await lock.acquire(ticket=given.text, timeout=self._patience())
        given.made[lease.owner] = machine
        return lease

    async def _acquire(self, lock: Holdable) -> Lease | None:
        rng, run = self._rng, self._run
        if run.plan.at_most[1]:
            cap = self._cap()
            lease = await lock.acquire(timeout=self._patience(), at_most=cap)
            self._expect_capped(lease, cap)
            return lease
        if run.plan.at_least[1]:
            keep = self._keep()
            lease = await lock.acquire(timeout=self._patience(), at_least=keep)
            self._expect_kept(lease, keep)
            return lease
        if rng.random() >= run.plan.impatience:
            return await lock.acquire()
        if rng.random() < 0.1:
            return await lock.try_acquire()
        patience = self._patience()
        if rng.random() < run.plan.cancels:
            async with asyncio.timeout(rng.random() * patience):
                return await lock.acquire(timeout=None)
        return await lock.acquire(timeout=patience)

    def _keep(self) -> float:
        least, most = self._run.plan.at_least
        return self._rng.uniform(least, most) * self._unit if most else 0.0

    def _cap(self) -> float | None:
        least, most = self._run.plan.at_most
        return self._rng.uniform(least, most) * self._unit if most else None

    def _expect_capped(self, lease: Lease, seconds: float | None) -> None:
        if seconds is not None:
            settings = self._machine.settings
            cap = Cap(self._run.loop.time() + seconds, settings.safety_margin)
            self._run.checker.expect_capped(lease, cap)

    def _expect_kept(self, lease: Lease, seconds: float) -> None:
        if seconds:
            keeping = Keeping(lease, self._process, self._run.loop.time() + seconds)
            self._run.checker.kept.add(lease.owner, keeping)

    def _patience(self) -> float:
        left = max(0.0, self._run.ends - self._run.loop.time())
        return min(left, self._rng.choice((0.3, 1.0, 2.5, 10.0)) * self._unit)

    def _got_nothing(self, error: Exception) -> None:
        self.waits_since = None
        self._run.checker.note(self.name, f"got nothing: {type(error).__name__}")
        if isinstance(error, RecordCorruptError):
            self._run.unreadable(self.name, error)
        elif isinstance(error, ConfigError) and not self._run.sharing.refused(self._client, error):
            self._machine.check_refusal(error)

    def _check_refusals(self, before: int, error: Exception | None = None) -> None:
        """Check that an acquisition has called the store broken for its refusals, or has not (rule 23)."""
        refused = self._backend.applied[Fault.REFUSED]
        if isinstance(error, UnsupportedBackendError):
            if "nobody else has written" in error.detail and refused < REFUSED:
                detail = f"{self.name} calls the store broken after {refused} refusals"
                self._run.checker.violated(Invariant.REFUSALS, detail)
        elif self._run.plan.alone and refused - before >= TOO_MANY:
            detail = f"{self.name} goes on after {refused - before} refusals"
            self._run.checker.violated(Invariant.REFUSALS, detail)

    def check_wait(self) -> None:
        """Check that a wait that ends now was not too long; a stopped machine does not wait."""
        most, since = self._run.plan.longest_wait, self.waits_since
        self.waits_since = None
        if most is None or since is None:
            return
        waited = self._machine.ran(since) / self._unit
        if waited > most:
            self._run.checker.violated(Invariant.FAIR, f"{self.name} waited for {waited:.1f} lifetimes")

    async def hold(self, lease: Lease, seconds: float) -> None:
        """Use a lease for ``seconds``, then release it; linger when it is lost."""
        run, rng = self._run, self._rng
        checker = run.checker
        holding = checker.handed_out(self.name, self._process, lease, token=lease.fencing_token)
        run.sharing.check_slot(self.name, lease)
        self.holding = True
        try:
            await self._use(lease, holding, seconds)
            if holding.stopped:
                await asyncio.sleep(rng.random() * self._unit)
        finally:
            self.holding = False
            checker.dropped(holding)

    async def _use(self, lease: Lease, holding: Holding, seconds: float) -> None:
        run, checker, rng = self._run, self._run.checker, self._rng
        denied = self._backend.applied[Fault.OWN_412]
        try:
            async with lease:
                await self._work(lease, run.loop.time() + seconds)
                if run.plan.transfers and rng.random() < run.plan.transfers:
                    await self._transfer(lease)
                if not lease.held:
                    checker.told_lost(holding)
                checker.note(self.name, f"releases owner={lease.owner[:8]}")
                must_tell = self._must_tell(holding)
            self._check_told(must_tell)
        except (LeaseLostError, BackendError) as error:
            checker.note(self.name, f"has lost owner={lease.owner[:8]}: {type(error).__name__}")
            checker.told_at_release(holding, error, misled=self._backend.applied[Fault.OWN_412] > denied)
            checker.told_lost(holding)

    async def _transfer(self, lease: Lease) -> None:
        now = self._run.loop.time()
        within = min(self._rng.uniform(0.3, 1.5) * self._unit, self._run.ends - now)
        if within < MIN_VALIDITY:
            return  # the last one needs the lock
        until = now + within
        ticket = await lease.transfer(within=within)
        self._run.checker.note(self.name, f"transfers owner={lease.owner[:8]}")
        self._run.checker.tickets.give(self.name, ticket, until)

    def _must_tell(self, holding: Holding) -> tuple[float, int] | None:
        """Return what there was before a release that must tell of a loss; None if it need not."""
        if not self._run.checker.gone(holding):
            return None
        return self._run.loop.time(), self._backend.applied.total()

    def _check_told(self, before: tuple[float, int] | None) -> None:
        """Check a release that has told of no loss: where no request was spoiled it had to."""
        if before is None or self.closed:
            return
        began, spoiled = before
        prompt = self._run.loop.time() - began < self._machine.settings.validity / 5
        if prompt and self._backend.applied.total() == spoiled:
            detail = f"{self.name} has released a lock that was gone, and got no error"
            self._run.checker.violated(Invariant.LOSS_IS_TOLD, detail)

    async def _hold_body(self, lock: Holdable) -> None:
        """Hold the lock as most programs do: only its cancellation tells the body of a loss."""
        run, rng, plan, checker = self._run, self._rng, self._run.plan, self._run.checker
        patience = self._patience() if rng.random() < plan.impatience else None
        cut = rng.random() * (patience or self._unit) if rng.random() < plan.cancels else None
        holding: Holding | None = None
        denied, keep, cap = self._backend.applied[Fault.OWN_412], self._keep(), self._cap()
        holds = lock.hold(timeout=patience, at_least=keep, at_most=cap)
        try:
            async with asyncio.timeout(cut), holds as lease:
                self.check_wait()
                self._expect_kept(lease, keep)
                self._expect_capped(lease, cap)
                self.holding = True
                token = lease.fencing_token
                holding = checker.handed_out(self.name, self._process, lease, token=token)
                run.sharing.check_slot(self.name, lease)
                await self._body(lease, holding)
                must_tell, ends = self._must_tell(holding), run.loop.time()
            self._check_told(must_tell)
            self._check_left(run.loop.time() - ends)
            if lease.lost is not None:
                checker.violated(Invariant.LOSS_ENDS_BODY, f"{self.name} was not told: {lease.lost.reason}")
        except asyncio.CancelledError:
            if asyncio.current_task() not in self._stopped:
                checker.violated(Invariant.LOSS_ENDS_BODY, f"{self.name} met a cancellation that is nobody's")
            raise
        except (TimeoutError, LeaseLostError, BackendError, RecordCorruptError) as error:
            checker.note(self.name, f"leaves hold(): {type(error).__name__}")
            if isinstance(error, RecordCorruptError):
                run.unreadable(self.name, error)
            if holding is not None:
                checker.told_at_release(holding, error, misled=self._backend.applied[Fault.OWN_412] > denied)
                checker.told_lost(holding)
                await asyncio.sleep(rng.random() * self._unit)
        finally:
            self.holding = False
            if holding is not None:
                checker.dropped(holding)

    def _check_left(self, took: float) -> None:
        """Check that leaving was short, unless this machine did not run for a time."""
        plan, bound = self._run.plan, self._client._core.exit_bound + ROUND_TRIPS
        if took > bound and not (plan.pauses or plan.stalls or plan.suspends):
            detail = f"{self.name} leaves hold() for {took:.2f} s"
            self._run.checker.violated(Invariant.LEAVING_IS_SHORT, detail)

    async def _body(self, lease: Lease, holding: Holding) -> None:
        """Work to the end, or after a loss without end, since nobody asks the lease."""
        loop, rng = self._run.loop, self._rng
        until = loop.time() + rng.uniform(*self._run.plan.holds) * self._unit
        endless = rng.random() < 0.5
        while (left := until - loop.time()) > 0 or (
            endless and holding.ended_at is not None and not self.exiting
        ):
            chance = rng.random()
            if chance < 0.1 and not self.closed:
                await lease.confirm()
            await asyncio.sleep(min(max(left, 0.1), (0.02 + chance * 0.4) * self._unit))
            ended = holding.ended_at
            if ended is None or self.exiting:
                continue
            if loop.time() - max(ended, self._machine.runs_from) > TOLD_WITHIN:
                detail = f"{self.name} runs on in hold() {loop.time() - ended:.2f} s after its loss"
                self._run.checker.violated(Invariant.LOSS_ENDS_BODY, detail)
                return

    async def _work(self, lease: Lease, until: float) -> None:
        run, rng = self._run, self._rng
        loop = run.loop
        writes = rng.random() < run.plan.fenced
        while lease.held and (left := until - loop.time()) > 0:
            chance = rng.random()
            if writes:
                await self._write(lease)
            elif chance < 0.2:
                await lease.confirm()
            await asyncio.sleep(min(left, (0.02 + chance * 0.4) * self._unit))

    async def _write(self, lease: Lease) -> None:
        if self._run.plan.shared and self._rng.random() < self._run.plan.shared:
            writes = [self._write_by(client, lease, count=True) for client in self._clients]
            failed = await asyncio.gather(*writes, return_exceptions=True)
            for error in filter(None, failed):
                raise error
        else:
            await self._write_by(self._client, lease)

    async def _write_by(self, client: LockClient, lease: Lease, *, count: bool = False) -> None:
        self._written += 1
        entry = f"{self.name}.{lease.owner[:8]}.{self._written}".encode()
        fenced = FencedObject(client, FENCED_KEY)
        try:
            if count:
                counter = FencedObject(client, COUNT_KEY)
                await counter.update(lambda body: b"%d" % (int(body or b"0") + 1), lease=lease)
                self._run.checker.counted()
            await fenced.update(lambda body: (body or b"") + entry + b"\n", lease=lease)
        except (StaleTokenError, RecordCorruptError, BackendError) as error:
            self._run.checker.note(self.name, f"fenced write refused: {type(error).__name__}")
        else:
            self._run.checker.acknowledged(entry)


class JavaWriter:
    """A machine with a Hudi writer."""

    def __init__(self, run: Stage, index: int, rng: Random) -> None:
        self.name = f"hudi-{index}"
        self._run = run
        self._rng = rng
        error = rng.uniform(*run.plan.hudi_clock)
        self._clock = VirtualClock(run.loop, offset=error)
        self.process = run.loop.process(self.name, self._clock)
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self.task = self.process.start(self._live(), name=self.name)

    async def _live(self) -> None:
        run, rng, validity = self._run, self._rng, self._run.plan.hudi_validity
        loop = run.loop
        backend = run.store.backend(self.process)
        while loop.time() < run.ends:
            await asyncio.sleep(rng.uniform(*run.plan.hudi_idles) * validity)
            # LockManager makes a new provider, with a new owner, for each transaction.
            peer = HudiPeer(
                backend, KEY, clock=self._clock, rng=rng, validity=validity, renew_interval=validity / 10
            )
            if not await peer.try_lock(min(validity, run.ends - loop.time())):
                await peer.close()
                continue
            holding = run.checker.handed_out(self.name, self.process, peer, token=None)
            try:
                until = loop.time() + rng.uniform(*run.plan.hudi_holds) * validity
                while peer.held and loop.time() < until:  # noqa: ASYNC110  work, not waiting
                    await asyncio.sleep(min(0.1 * validity, max(0.0, until - loop.time())))
                await peer.unlock()
            finally:
                run.checker.dropped(holding)
