"""How programs of a simulated history end, or nearly end: signals, forks, exits, closed clients and loops."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

from asynclock._core.engine import Engines
from asynclock.errors import AcquireTimeoutError, ConfigError, LeaseLostError
from asynclock.testing._faulty import Fault
from tests.laboratory.checker import Invariant
from tests.laboratory.names import NAME
from tests.laboratory.watched import held_copy, shallow_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from asynclock.client import LockClient
    from asynclock.lease import Lease
    from asynclock.settings import LeaseSettings
    from asynclock.testing._virtual import Process, VirtualLoop
    from tests.laboratory.history import Simulation, Trouble
    from tests.laboratory.machines import Machine, SimulatedFaults
    from tests.laboratory.users import User
    from tests.laboratory.watched import Holding

ROUND_TRIPS: Final = 2 * 2 * 0.06
"""Two round trips on a calm network, in seconds."""
_LOOK: Final = 0.1
"""Seconds between two looks for somebody whose token is not settled."""
_UNANSWERED: Final = 0.3
"""Share of the last exits that come while an acquisition does not know what became of its write."""
_AGAIN: Final = 0.3
"""Share of the signals that come twice."""


class Droppable:
    """A program that can be dropped at any await, as a coroutine is whose loop was closed under it.

    Args:
        program: The coroutine.
    """

    def __init__(self, program: Coroutine[Any, Any, None]) -> None:
        self._program = program
        self._dropped = False

    async def run(self) -> None:
        """Run the program until it ends or is dropped."""
        await self

    def __await__(self) -> Generator[Any, Any, None]:
        error: BaseException | None = None
        while not self._dropped:
            try:
                step = self._program.send(None) if error is None else self._program.throw(error)
            except StopIteration:
                return
            error = None
            try:
                yield step
            except BaseException as thrown:  # noqa: BLE001  a cancellation, handed on to the program
                error = thrown

    def drop(self) -> None:
        """Drop it now: what it runs on its way out finds no running loop."""
        self._dropped = True
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        try:
            # A cleanup that awaits gets an error, as there is no loop, or ignores that it was dropped.
            with suppress(RuntimeError):
                self._program.close()
        finally:
            asyncio._set_running_loop(loop)


class Endings:
    """Carries out the endings of one simulation.

    Args:
        run: The simulation.

    Attributes:
        closed: The processes whose client was closed in the middle, with its backend and its users.
    """

    def __init__(self, run: Simulation) -> None:
        self.closed: list[tuple[Process, SimulatedFaults, list[User]]] = []
        self._held: list[Holding] = []
        self._closings: list[tuple[Process, asyncio.Task[None]]] = []
        self._exiting: set[Process] = set()
        self._run = run
        self._loop: VirtualLoop = run.loop
        # Of its own, so that a history without endings is what it was before there were any.
        self._rng = Random(f"{run.label}/endings")

    def troubles(self) -> list[Trouble]:
        """Draw when what ends."""
        run, rng, plan = self._run, self._rng, self._run.plan
        rates: tuple[tuple[float, Callable[[int], None]], ...] = (
            (plan.signals, self._signal),
            (plan.forks, self._fork),
            (plan.exits, self._exit),
            (plan.closes, self._close),
            (plan.drops, self._drop),
        )
        machines = len(run.machines)
        drawn: list[Trouble] = []
        for rate, act in rates:
            expected = rate * plan.lifetimes * machines
            times = int(expected) + (rng.random() < expected % 1)
            drawn += [(rng.random() * run.ends, act, rng.randrange(machines)) for _ in range(times)]
        return drawn

    def calm(self) -> None:
        """Let closed clients get on with it, and end the processes that are about to end."""
        for process in self._exiting:
            process.kill()
        for process, backend, users in self.closed:
            backend.calm()
            process.resume()
            for user in users:
                user.stop()

    def _signal(self, index: int) -> None:
        """Send a signal; beside a Java writer while somebody has a lock whose token is not settled."""
        if not self._run.java:
            self._send_signal(index)
            return
        resolution = self._run.plan.store.resolution
        self.while_settling(self._send_signal, index, lambda each: 2 * (each.max_clock_skew + resolution))

    def while_settling(
        self,
        act: Callable[[int], None],
        index: int,
        within: Callable[[LeaseSettings], float],
        until: float | None = None,
    ) -> None:
        """Let something happen to a machine that has the lock while its token is not settled.

        Args:
            act: What happens, to which machine.
            index: To this one, if there is no such machine within a lifetime.
            within: Most seconds from when there is one until it happens, by its settings.
            until: True time until which to look for one; None: for a lifetime.
        """
        until = self._loop.time() + self._run.unit if until is None else until
        name = self._run.checker.not_handed_out()
        for at, machine in enumerate(self._run.machines):
            if machine.name == name:
                self._loop.call_later(self._rng.random() * within(machine.settings), act, at)
                return
        if self._loop.time() < until:
            self._loop.call_later(_LOOK, self.while_settling, act, index, within, until)
        else:
            act(index)

    def _send_signal(self, index: int) -> None:
        """Do what the handlers of ``asynclock._core.shutdown`` do; the process lives on."""
        if self._loop.time() >= self._run.ends:
            return
        if (machine := self._run.suffers(self._run.aimed(index), "signal")) is None:
            return
        self._released(machine)
        if self._rng.random() < _AGAIN:
            again = self._rng.random() * machine.client._core.exit_bound
            self._loop.call_later(again, self._released, machine)

    def _released(self, machine: Machine) -> None:
        client = machine.client
        if machine.process.alive and client._core.loop is not None:
            machine.process.start(
                client._core.release_all(loss="a signal told its process to end"), name="signal"
            )

    def _exit(self, index: int) -> None:
        """Do what the interpreter does at its end: release within the bound, then nothing runs any more."""
        run = self._run
        if (machine := run.suffers(index, "exit")) is None:
            return
        process, client = machine.process, machine.client
        for user in machine.users:
            user.closed = user.exiting = True
        self._exiting.add(process)
        if client._core.loop is not None:
            process.start(client._core.release_all(), name="exit")

        def gone() -> None:
            self._exiting.discard(process)
            if machine.process is process and process.alive:
                process.kill()
                run.count(machine)
                self._loop.call_later(self._rng.random() * run.unit, run.restart, machine)

        self._loop.call_later(client._core.exit_bound, gone)

    def _close(self, index: int) -> None:
        """Close a client in the middle of everything, twice at nearly the same time, and start another."""
        run, rng = self._run, self._rng
        if (machine := run.suffers(index, "close")) is None:
            return
        for user in machine.users:
            user.closed = True
        self.closed.append((machine.process, machine.backend, machine.users))
        for delay in (0.0, rng.random() * machine.client._core.exit_bound):
            self._closing(machine, delay)
        run.count(machine)
        machine.boot()
        self._loop.call_later(rng.random() * run.unit, self._start, machine, machine.process)

    def _start(self, machine: Machine, process: Process) -> None:
        if process.alive and machine.process is process and self._loop.time() < self._run.ends:
            machine.start()

    def _closing(self, machine: Machine, delay: float) -> asyncio.Task[None]:
        """Close the clients that a machine has now, and check that they are closed then."""
        process, clients, backend = machine.process, machine.clients, machine.backend

        async def close() -> None:
            await asyncio.sleep(delay)
            for client in clients:
                await client.aclose()
            self._run.checker.closed(process, closing=backend.used and not backend.closed)

        closing = process.start(close(), name="close")
        self._closings.append((process, closing))
        return closing

    async def farewell(self, machine: Machine) -> None:
        """Close a client; where that is of interest while it holds the lock, and twice at the same time."""
        run, loop, plan = self._run, self._loop, self._run.plan
        if under_way := [task for process, task in self._closings if process.alive and not task.done()]:
            await asyncio.wait(under_way, timeout=2 * machine.client._core.exit_bound + ROUND_TRIPS)
        # A store that takes a write a second may refuse a release once, and take it too late for an exit.
        exits = plan.exits > 0 and machine is run.machines[-1]
        if (plan.exits or plan.closes) and 2 * plan.store.write_interval < machine.client._core.exit_bound:
            if exits and not plan.hudi_peers and self._rng.random() < _UNANSWERED:
                await self._try(machine)
            else:
                await machine.process.start(self._hold(machine), name="last hold")
        if exits:
            await machine.process.start(machine.client._core.release_all(), name="exit")
            # What waited for it goes on as a part of that process, which is about to end.
            in_the_world = loop.create_future()
            loop.call_later_as(loop.world, 0.0, in_the_world.set_result, None)
            await in_the_world
            machine.process.kill()
            return
        began = loop.time()
        await asyncio.gather(*(self._closing(machine, 0.0) for _ in range(2 if plan.closes else 1)))
        took = loop.time() - began
        if took > machine.client._core.exit_bound + ROUND_TRIPS:
            run.checker.violated(Invariant.NOTHING_LEFT, f"aclose of {machine.name} took {took:.2f} s")

    async def _try(self, machine: Machine) -> None:
        """Begin to acquire by a write whose answer is lost, and return before all of that is settled."""
        for operation in ("put_if_absent", "put_if_match"):
            machine.backend.inject(Fault.REPLY_LOST, operation=operation)
        machine.process.start(machine.client.lock(NAME).acquire(), name="last try")
        await asyncio.sleep(self._rng.random() * ROUND_TRIPS)

    async def _hold(self, machine: Machine) -> None:
        """Acquire a lease that is not released by its user."""
        try:
            lease = await machine.client.lock(NAME).acquire(timeout=10 * self._run.unit)
        except AcquireTimeoutError:
            return  # that it is never free has been found out before
        except ConfigError as error:
            machine.check_refusal(error)
            return
        holding = self._run.checker.handed_out(
            machine.name, machine.process, lease, token=lease.fencing_token
        )
        self._held.append(holding)

    def _drop(self, index: int) -> None:
        """Close the loop of somebody who holds the lock, by force."""
        run = self._run
        index = run.aimed(index)
        machine = run.machines[index]
        holding = [user for user in machine.users if user.holding]
        if not holding or machine.process.paused or run.suffers(index, "drop") is None:
            return
        with self._loop.running_as(machine.process):
            holding[0].drop()

    def _fork(self, index: int) -> None:
        """Fork: the child's copies of all leases are asked whether they believe."""
        run = self._run
        index = run.aimed(index)
        machine = run.machines[index]
        holdings = run.checker.holdings_of(machine.process)
        if not holdings or run.suffers(index, "fork") is None:
            return
        client, leases = forked(machine.client, [holding.lease for holding in holdings])
        child = self._loop.process(f"{machine.name}/child", machine.clock)
        with self._loop.running_as(child):
            child.start(self._live_as_a_child(child, client, leases), name="child")

    async def _live_as_a_child(self, child: Process, client: LockClient, leases: list[Any]) -> None:
        checker = self._run.checker
        watched = [checker.watch(child.name, child, lease) for lease in leases]
        await asyncio.sleep(0.1 * self._run.unit)
        try:
            await client.lock(NAME).try_acquire()
        except ConfigError:
            pass
        else:
            checker.violated(Invariant.ONE_BELIEVER, f"{child.name} goes on with its parent's client")
        lease: Lease
        for lease in leases:
            if lease.lost is not None:
                with suppress(LeaseLostError):
                    await lease.release()
        await asyncio.sleep(self._run.unit)
        for holding in watched:
            checker.dropped(holding)


def forget(process: Process, task: asyncio.Task[Any]) -> None:
    """Let a process forget a task that will never end."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    process._tasks.remove(task)


def forked(client: LockClient, leases: list[Any]) -> tuple[LockClient, list[Any]]:
    """Return what a child process has of a client and some leases after the hook of a fork has run."""
    child = shallow_copy(client)
    child._core = core = shallow_copy(client._core)
    core._home = shallow_copy(core._home)
    core._engines = Engines(core._new_engine, lambda: 0.0)  # the copies of a fork belong to the copied client
    schedule = core._schedule = shallow_copy(core._schedule)
    copies = {held: held_copy(held) for held in schedule.held}
    schedule._renew_at = {copies[held]: at for held, at in schedule._renew_at.items()}
    inherited = [shallow_copy(lease) for lease in leases]
    for lease in inherited:
        held = lease._held
        lease._held = copies.get(held) or held_copy(held)
    core.abandon("this is a forked child, the lease is the parent's")
    return child, inherited
