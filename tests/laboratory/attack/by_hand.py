"""Histories made by hand, one for each way in which the lock was once broken."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from asynclock import AsyncLockError, FencedObject, LeaseLostError
from tests.laboratory.attack.plan import DAY, WEEK
from tests.laboratory.attack.scene import KEY, Scene
from tests.laboratory.attack.users import add_to_sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from asynclock import Lease
    from asynclock.client import LockClient
    from tests.laboratory.attack.history import Outcome
    from tests.laboratory.attack.process import Process

PATIENCE: Final = 40.0
"""Seconds that a waiter who looks each 5 s may wait beside users who hold for 0.05 s."""


def survived_signal(after: float, renewal: str = "thread") -> Outcome:
    """1: a signal that is survived, while a token behind a Hudi writer settles."""
    scene = Scene(validity=80.0, skew=2.0, resolution=1.0, trip=0.3)
    scene.hudi(expired=True)
    one, two = scene.process(renewal), scene.process(renewal)

    async def first() -> None:
        lease, _ = await scene.acquire(one, 30)
        await asyncio.sleep(20)
        await lease.release()

    async def second() -> None:
        await asyncio.sleep(2)
        lease, _ = await scene.acquire(two, 60)
        await asyncio.sleep(20)
        await lease.release()

    def strike() -> None:
        one.clients[0][1].trips["put"] = (1.0, 0.1)  # its release takes its time
        one.strike("signal", 0.5)

    scene.world.at(scene.world.now + after, strike)
    scene.play(60, (one, first()), (two, second()))
    return scene.run()


def closed_loop(how: str) -> Outcome:
    """5: the user's loop is closed while a task is in ``hold()``, or the like."""
    scene = Scene()
    process = scene.process("thread")

    async def inside() -> None:
        lock = process.clients[0][0].lock("lock")
        if how == "hold":
            async with lock.hold() as lease:
                scene.judge.given(KEY, "p0.1", lease, lease.fencing_token)
                await asyncio.sleep(1e6)
        elif how == "lease":
            async with await lock.acquire() as lease:
                scene.judge.given(KEY, "p0.1", lease, lease.fencing_token)
                await asyncio.sleep(1e6)
        elif how == "generator":

            async def numbers() -> Any:  # noqa: ANN401
                async with lock.hold():
                    yield 1
                    yield 2

            async for _ in numbers():
                await asyncio.sleep(1e6)
        elif how == "waiting":
            other = await lock.acquire()
            asyncio.get_running_loop().call_later(1.5, process.world.tell, "script", "closed by now")
            task = asyncio.get_running_loop().create_task(scene.acquire(process))
            await asyncio.sleep(1e6)
            del other, task
        else:
            await scene.acquire(process)  # and forget it

    scene.world.at(scene.world.now + 1, lambda: process.strike("close_loop", 0.5))
    scene.play(5, (process, inside()))
    return scene.run()


def dropped_lease(renewal: str) -> Outcome:
    """5: a lease is forgotten in a process that lives on; another process wants the lock."""
    scene = Scene()
    one, two = scene.process(renewal), scene.process(renewal)

    async def forgets() -> None:
        await scene.acquire(one)

    async def wants() -> None:
        await asyncio.sleep(2)
        await scene.acquire(two, 3 * scene.settings["validity"])
        scene.world.tell("p1.1", "has it")

    scene.play(60, (one, forgets()), (two, wants()))
    if not any("has it" in line for line in scene.world.trace):
        scene.judge.blame("dropped", "a forgotten lease is kept forever")
    return scene.run()


def first_answer_without_date(error: float) -> Outcome:
    """6: the first answer has no usable Date and the wall clock is wrong; then a Hudi writer comes."""
    scene = Scene(validity=10.0, skew=1.0, resolution=1.0)
    one, two = scene.process(wall_error=error), scene.process()
    scene.bucket.weather.undated = 0.999999
    scene.world.at(scene.world.now + 1.5, lambda: setattr(scene.bucket.weather, "undated", 0.0))

    async def briefly(process: Process, wait: float) -> None:
        await asyncio.sleep(wait)
        lease, _ = await scene.acquire(process, 40)
        await asyncio.sleep(0.5)
        await lease.release()

    scene.world.at(scene.world.now + 60, lambda: scene.hudi(expired=True))
    scene.play(60, (one, briefly(one, 0)))
    scene.play(60, (two, briefly(two, 1)))
    return scene.run()


def week_with_wrong_clock() -> Outcome:
    """7: a validity of a week on a machine whose wall clock agrees with no Date."""
    scene = Scene(validity=WEEK, skew=2.0, resolution=1.0, poll=1.0)
    one, two = scene.process(wall_error=DAY), scene.process()

    async def look() -> None:
        lease, _ = await scene.acquire(one, 60)
        await two.clients[0][0].lock("lock").status()
        await lease.release()
        await two.clients[0][0].lock("lock").status()

    scene.play(100, (one, look()))
    return scene.run()


def one_lease_two_clients() -> Outcome:
    """9: one lease is used through two clients of its process at once."""
    scene = Scene(validity=60.0)
    process = scene.process("thread", clients=2)

    async def count(client: LockClient, lease: Lease, who: str) -> None:
        for number in range(100):
            with contextlib.suppress(AsyncLockError):
                await FencedObject(client, "lock.sum").update(add_to_sum, lease=lease)
                scene.judge.acknowledge("lock.sum", f"{who}{number}")

    async def work() -> None:
        lease, _ = await scene.acquire(process)
        await asyncio.gather(
            *(count(client, lease, name) for (client, _), name in zip(process.clients, "ab", strict=True))
        )
        await lease.release()

    scene.plan.shared_leases = True
    scene.play(100, (process, work()))
    return scene.run()


def dead_hudi_without_last_modified() -> Outcome:
    """10: a dead Hudi writer on a store whose answers have Dates but no ``last_modified``."""
    scene = Scene(validity=10.0, skew=1.0, resolution=1.0)
    scene.bucket.weather.unmodified = 1.0
    scene.hudi(expired=False)
    return scene.run()


def closed_in_the_middle(*, twice: bool) -> Outcome:
    """11: ``aclose`` while a write hangs; or a second ``aclose`` beside the first."""
    scene = Scene(validity=60.0)
    process = scene.process()
    client, line = process.clients[0]

    async def close(wait: float) -> None:
        await asyncio.sleep(wait)
        await process.close(client)

    async def hold() -> None:
        lease, _ = await scene.acquire(process)
        await asyncio.sleep(100)
        del lease

    if twice:
        scene.bucket.weather.trip = 0.3
        scene.play(100, (process, hold()), (process, close(5)), (process, close(5.05)))
    else:
        line.trips["put"] = (0.01, 500.0)
        scene.play(100, (process, hold()), (process, close(0.5)))
    line.trips.clear()
    return scene.run()


def slow_waiter() -> Outcome:
    """12: a waiter that polls each 5 s beside a holder that polls each 0.05 s."""
    scene = Scene(validity=20.0, poll=0.05)
    fast, slow = scene.process(renew_interval=0.5), scene.process(poll_interval=5.0)
    longest = 0.0

    async def take(process: Process, began: float) -> None:
        nonlocal longest
        await asyncio.sleep(began)
        while True:
            since = scene.world.now
            lease = await process.clients[0][0].lock("lock").acquire()
            longest = max(longest, scene.world.now - since)
            await asyncio.sleep(0.05)
            await lease.release()
            if process is slow:
                scene.world.tell("slow", f"had a turn after {scene.world.now - since:.1f} s")
                await asyncio.sleep(3)

    scene.play(300, (fast, take(fast, 0)), (slow, take(slow, 1)))
    if longest > PATIENCE or not any("had a turn" in line for line in scene.world.trace):
        scene.judge.blame("starved", f"somebody waited {longest:.1f} s for a turn")
    return scene.run()


def crash_in_the_wait() -> Outcome:
    """13: L = S, R = 0, nodes that differ by S: a crash in the wait, a takeover, a Hudi writer."""
    skew = 2.0
    scene = Scene(validity=1.25 * skew, skew=skew, poll=0.02, nodes=(0.0,), trip=0.002)
    scene.hudi(expired=True)
    one, two, three = (scene.process() for _ in range(3))
    ahead, behind = [skew], [0.0]
    scene.bucket.nodes = ahead
    one.clients[0][1].trips["get"] = (0.39, 0.0)

    def landed(key: str, thing: Any, before: Callable[..., Any] = scene.bucket.landed) -> None:  # noqa: ANN401
        before(key, thing)
        if thing.by == "p0.1":
            one.kill()
            scene.bucket.nodes = ahead

    scene.bucket.landed = landed
    # Its read is answered by the node that is ahead, its write is taken by the one behind.
    scene.world.at(scene.world.now + 0.3905, lambda: setattr(scene.bucket, "nodes", behind))

    async def first() -> None:
        await scene.acquire(one, 30)

    handed = asyncio.Event()

    async def second() -> None:
        await asyncio.sleep(0.5)
        lease, _ = await scene.acquire(two, 30)
        await lease.release()
        scene.hudi(expired=True)
        scene.bucket.nodes = behind
        handed.set()

    async def third() -> None:
        await handed.wait()
        await scene.acquire(three, 30)

    scene.play(40, (one, first()), (two, second()), (three, third()))
    return scene.run()


def broken_by_force(how: str) -> Outcome:
    """14: the lock is broken by force; the release of its holder tells of it."""
    scene = Scene(validity=60.0)
    one, two = scene.process(), scene.process()

    async def hold() -> None:
        lock = one.clients[0][0].lock("lock")
        before = claim = None
        with contextlib.suppress(LeaseLostError):
            if how == "hold":
                async with lock.hold() as lease:
                    claim = scene.judge.given(KEY, "p0.1", lease, lease.fencing_token)
                    await asyncio.sleep(2)
                    before = scene.judge.head(KEY)
            else:
                lease, claim = await scene.acquire(one)
                await asyncio.sleep(2)
                before = scene.judge.head(KEY)
                await lease.release()
            scene.judge.released("p0.1", claim, before)  # type: ignore[arg-type]

    async def breaks() -> None:
        await asyncio.sleep(1)
        lock = two.clients[0][0].lock("lock")
        scene.judge.excuse(KEY)
        await lock.break_lock(await lock.status(), force=True)
        if how != "broken":
            await lock.acquire()

    scene.play(10, (one, hold()), (two, breaks()))
    return scene.run()


BY_HAND: Final[dict[str, Callable[[], Outcome]]] = {
    **{f"survived signal after {n / 10} s": lambda n=n: survived_signal(n / 10) for n in range(38, 58, 2)},  # type: ignore[misc]
    **{
        f"closed loop, {how}": lambda how=how: closed_loop(how)  # type: ignore[misc]
        for how in ("hold", "lease", "generator", "waiting", "forgotten")
    },
    "dropped lease, thread": lambda: dropped_lease("thread"),
    "dropped lease, loop": lambda: dropped_lease("loop"),
    "first answer without a Date, two days ahead": lambda: first_answer_without_date(2 * DAY),
    "first answer without a Date, two hours ahead": lambda: first_answer_without_date(7200.0),
    "a week with a wrong clock": week_with_wrong_clock,
    "one lease through two clients": one_lease_two_clients,
    "dead Hudi writer without last_modified": dead_hudi_without_last_modified,
    "aclose while a write hangs": lambda: closed_in_the_middle(twice=False),
    "two acloses": lambda: closed_in_the_middle(twice=True),
    "slow waiter": slow_waiter,
    "crash in the wait": crash_in_the_wait,
    **{
        f"broken by force, {how}": lambda how=how: broken_by_force(how)
        for how in ("hold", "release", "broken")
    },  # type: ignore[misc]
}
