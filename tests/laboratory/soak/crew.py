"""The driver processes of a soak, and what happens to them."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from tests.laboratory.mechanisms.warm import WarmDriver
from tests.laboratory.restarts.drivers import DriverError
from tests.laboratory.soak.watch import of_group

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.laboratory.soak.journal import Journal
    from tests.laboratory.soak.tables import Table

EXCUSED_SECONDS: Final = 180.0
"""How long after a fault a driver may give up, which a supervisor then starts again."""
_END_SECONDS: Final = 30.0
SKEWS: Final = (-45.0, 45.0)


@dataclass(frozen=True, kw_only=True)
class Role:
    """What a driver does.

    Attributes:
        table: The table that it works on.
        streams: The streams that it writes.
        services: Whether it runs the services.
    """

    table: Table
    streams: Sequence[str] = ()
    services: bool = False


@dataclass
class Member:
    """A driver in its role.

    Attributes:
        driver: The process.
        stopped_until: When it goes on, by the monotonic clock; None: it is not stopped.
        excused_until: Until when it may give up by what was done to it.
    """

    driver: WarmDriver
    stopped_until: float | None = None
    excused_until: float = 0.0

    def excuse(self) -> None:
        """Let it give up, for some time from now on."""
        self.excused_until = time.monotonic() + EXCUSED_SECONDS


class Crew:
    """Drivers with sessions that wait for their role, and those that have one.

    Args:
        folder: Of their logs and temporary files.
        conf: Settings of their sessions.
        variables: Of their environment.
        journal: Told of each deed; the drivers record their runs in its folder.

    Attributes:
        journal: Another one may take its place.
        kills: How many were killed.
        disturbances: How many were stopped, or set a wrong clock.
        differences: What no fault excuses.
        leaks: What drivers that ended in order have left.
        members: Those with a role, by its name.
    """

    def __init__(
        self, folder: Path, *, conf: Mapping[str, str], variables: Mapping[str, str], journal: Journal
    ) -> None:
        self.kills = 0
        self.disturbances = 0
        self.differences: list[str] = []
        self.leaks: list[str] = []
        self.members: dict[str, Member] = {}
        self._folder = folder
        self._conf = conf
        self._variables = variables
        self.journal = journal
        self._numbers = count(1)
        self._warm: deque[WarmDriver] = deque()
        self._roles: dict[str, Role] = {}

    def prepare(self, drivers: int) -> None:
        """Have that many sessions wait."""
        while len(self._warm) < drivers:
            name = f"driver-{next(self._numbers)}"
            scratch = self._folder / f"{name}.tmp"
            self._warm.append(
                WarmDriver(name, self._folder, conf=self._conf, scratch=scratch, variables=self._variables)
            )

    def start(self, name: str, role: Role, *, clock: float = 0.0) -> None:
        """Give a role to a driver."""
        self.prepare(1)
        driver = self._warm.popleft()
        driver.go(
            role.table.driven,
            role.streams,
            services=role.services,
            clock=clock,
            run_dir=self.journal.folder,
        )
        self._roles[name] = role
        self.members[name] = Member(driver)

    def excuse(self) -> None:
        """Let any driver give up, for some time from now on."""
        for member in self.members.values():
            member.excuse()

    def kill(self, name: str) -> None:
        """Kill a driver with all its processes at once; another takes its place."""
        driver = self.members.pop(name).driver
        if driver.code is None:
            driver.kill()
            self.kills += 1
            self.journal.chaos("kill", process=name, pid=driver.group)
        self._restart(name, driver)

    def stop_for(self, name: str, seconds: float) -> None:
        """Stop a driver where it is; ``tend`` lets it go on."""
        member = self.members[name]
        if member.stopped_until is None and member.driver.code is None:
            os.killpg(member.driver.group, signal.SIGSTOP)
            member.stopped_until = time.monotonic() + seconds
            self.disturbances += 1
            member.excuse()  # its leases run out, and then it ends
            detail = f"for {seconds:.1f} s"
            self.journal.chaos("stop", process=name, pid=member.driver.group, detail=detail)

    def set_clock(self, name: str, seconds: float) -> None:
        """Replace a driver by one whose wall clock is wrong."""
        driver = self.members.pop(name).driver
        driver.abandon()
        self.kills += 1
        self.disturbances += 1
        self.journal.chaos("kill", process=name, pid=driver.group)
        self._restart(name, driver, clock=seconds)
        self.members[name].excuse()
        pid = self.members[name].driver.group
        self.journal.chaos("clock", process=name, pid=pid, detail=f"{seconds:+.0f} s")

    def tend(self) -> None:
        """Let stopped drivers go on whose time has come, and replace those that have ended."""
        now = time.monotonic()
        for name, member in tuple(self.members.items()):
            driver = member.driver
            if member.stopped_until is not None and now >= member.stopped_until:
                self._go_on(name, member)
            if driver.code is None:
                continue
            if now > member.excused_until:
                self.differences.append(f"{name} ended with {driver.code}: {driver.tail()[-500:]}")
            del self.members[name]
            driver.abandon()
            self._restart(name, driver, detail=f"it had ended with {driver.code}")

    def rest(self) -> None:
        """Let all stopped drivers go on."""
        for name, member in self.members.items():
            if member.stopped_until is not None:
                self._go_on(name, member)

    def dismiss(self) -> None:
        """End all drivers with a role in order."""
        self.rest()
        for name, member in tuple(self.members.items()):
            del self.members[name]
            driver = member.driver
            try:
                if driver.code is None:
                    driver.stop()
                    self._look_for_leavings(name, driver)
            except DriverError as error:
                if time.monotonic() > member.excused_until:
                    self.differences.append(str(error)[-500:])
            finally:
                driver.abandon()

    def abandon(self) -> None:
        """Leave no process behind."""
        for driver in (*self._warm, *(member.driver for member in self.members.values())):
            driver.abandon()
        self._warm.clear()
        self.members.clear()

    def choose(self, dice: random.Random, spared: str) -> str:
        """Draw a driver that is not the spared one."""
        return dice.choice(sorted(name for name in self._roles if name != spared and name in self.members))

    def _restart(self, name: str, before: WarmDriver, *, clock: float = 0.0, detail: str = "") -> None:
        self.start(name, self._roles[name], clock=clock)
        self.prepare(1)
        driver = self.members[name].driver
        told = detail or f"in the place of {before.group}"
        self.journal.chaos("restart", process=name, pid=driver.group, detail=told)

    def _go_on(self, name: str, member: Member) -> None:
        os.killpg(member.driver.group, signal.SIGCONT)
        member.stopped_until = None
        member.excuse()
        self.journal.chaos("cont", process=name, pid=member.driver.group)

    def _look_for_leavings(self, name: str, driver: WarmDriver) -> None:
        """Find what a driver that has ended in order has left among the temporary files."""
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline and of_group(driver.group).get("rss"):
            time.sleep(0.1)  # its JVM ends after it
        scratch = self._folder / f"{driver.name}.tmp"
        if left := sorted(path.name for path in scratch.iterdir()):
            self.leaks.append(f"{name} has left temporary files: {left[:5]}")
