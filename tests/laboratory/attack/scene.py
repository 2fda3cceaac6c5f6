"""A history whose processes do what a script says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from asynclock import AsyncLockError
from tests.laboratory.attack.bucket import Weather
from tests.laboratory.attack.history import History
from tests.laboratory.attack.plan import ClientPlan, Plan, ProcessPlan

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from asynclock import Lease
    from tests.laboratory.attack.judge import Claim
    from tests.laboratory.attack.process import Process

KEY: Final = "lock.json"


class Scene(History):
    """A history whose processes do what a script says."""

    def __init__(
        self,
        *,
        validity: float = 10.0,
        skew: float = 0.0,
        poll: float = 0.1,
        resolution: float = 0.0,
        nodes: tuple[float, ...] = (0.0,),
        trip: float = 0.01,
    ) -> None:
        plan = Plan(-1, skew=skew, resolution=resolution, nodes=list(nodes), weather=Weather(trip=trip))
        plan.horizon = 0.0
        self.settings = {
            "validity": validity,
            "safety_margin": validity / 10,
            "max_clock_skew": skew,
            "poll_interval": poll,
        }
        # Never started: for the numbers of the stranger who comes at the end.
        plan.processes.append(ProcessPlan((ClientPlan(self.settings, "loop", 0),), 1.0, 0.0, 0.0, "return"))
        super().__init__(plan)

    def process(
        self, renewal: str = "loop", *, wall_error: float = 0.0, clients: int = 1, **changed: float
    ) -> Process:
        """Start a process without users."""
        client = ClientPlan({**self.settings, **changed}, renewal, 0)
        return self.begin(ProcessPlan((client,) * clients, 1.0, wall_error, 0.0, "return"))

    async def acquire(
        self, process: Process, timeout: float | None = None, client: int = 0
    ) -> tuple[Lease, Claim]:
        """Acquire the lock and tell the judge."""
        one, line = process.clients[client]
        lease = await one.lock("lock").acquire(timeout=timeout)
        return lease, self.judge.given(KEY, line.who, lease, lease.fencing_token)

    def hudi(self, *, expired: bool, valid_for: float = 5.0, owner: str = "hudi") -> None:
        """Write what a Hudi writer writes, over whatever is there."""
        valid_until = int((self.world.now + valid_for) * 1000)
        body = json.dumps({"expired": expired, "validUntil": valid_until, "owner": owner})
        self.bucket.put(KEY, body.encode(), None, "hudi", always=True)

    def play(self, seconds: float, *scripts: tuple[Process, Coroutine[Any, Any, Any]]) -> None:
        """Let scripts run for so long; an error of a script that is none of the library's is raised."""
        errors: list[BaseException] = []

        def note(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and task.exception() is not None:
                errors.append(task.exception())  # type: ignore[arg-type]

        with self.inside():
            for process, script in scripts:
                # Kept by nobody: a loop that is closed must be able to drop it.
                process.spawn(script).add_done_callback(note)
            del scripts
            self.world.run(self.world.now + seconds)
        for error in errors:
            self.world.tell("script", repr(error))
            if not isinstance(error, AsyncLockError):
                raise error
