# ruff: noqa: T201  a command that prints
"""``python -m tests.laboratory restarts --kills 40``: kills, restores, new schemas, and nothing is lost.

Three drivers run the command: one for payments, one for the other streams, one for the services. While files
arrive they are killed with ``kill -9`` at random moments and started again. At each change of the schema only
the driver of the changed stream gets the new spec; the others follow at their next start. Twice the table is
restored to a savepoint. In the end the view must equal the oracle, cell by cell, and ``validate`` must agree.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.spark import load_spec, session
from tests.laboratory.restarts.compare import rows_of_view, unequal
from tests.laboratory.restarts.drivers import Driver, DriverError, call, instants, until
from tests.laboratory.restarts.orders import CHANGED, SCHEMA_CHANGES, VIEW, Shop, spec, streams
from tests.laboratory.restarts.visits import SPEC, STREAM, Visits

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

WRITER, PAYER, SERVICES = "writer", "payer", "services"
RESTORES: Final = 2
# From the first change of the timeline that a started driver sees to its kill, at most.
LONGEST_LIFE: Final = 6.0
FIRST_SIGN: Final = 60.0


@dataclass
class Restarts:
    """What was done, and what came of it."""

    kills: int = 0
    changes: int = 0
    restores: int = 0
    keys: int = 0
    columns: int = 0
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"restarts: {self.kills} kills, {self.changes} schema changes, {self.restores} restores, "
            f"{self.keys} keys x {self.columns} columns compared, {len(self.differences)} differences"
        )


class Play:
    """The drivers over one folder.

    Args:
        folder: An empty folder.
        seed: Of the data and of every moment.
        say: Told of each step.
        command: Runs a verb of the pipeline to its end, and returns its output.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        say: Callable[[str], object] = print,
        command: Callable[..., str] = call,
    ) -> None:
        self.done = Restarts()
        self.shop = Shop(folder, seed, adds_up=True)
        self.visits = Visits(folder, seed)
        self._folder = folder
        self._random = random.Random(f"moments of {seed}")
        self._say = say
        self._command = command
        self._version = 0
        self._drivers: dict[str, Driver] = {}
        for version in range(SCHEMA_CHANGES + 1):
            (folder / f"v{version}.toml").write_text(spec(version, adds_up=True) + SPEC)

    def play(self, kills: int) -> None:
        """Run the drivers, and do to them what the module says, with that many kills."""
        with contextlib.ExitStack() as ended:
            ended.callback(self._abandon)
            self._deliver()
            for name in (WRITER, PAYER, SERVICES):
                self._start(name)
            for version in range(SCHEMA_CHANGES + 1):
                if version:
                    self._change(version)
                share = kills // (SCHEMA_CHANGES + 1) + (version < kills % (SCHEMA_CHANGES + 1))
                savepoint = self._savepoint() if version in (1, SCHEMA_CHANGES) else None
                for _ in range(share):
                    self._deliver()
                    self._kill(self._random.choice(tuple(self._drivers)))
                if savepoint:
                    self._restore(savepoint)
            for driver in self._drivers.values():
                driver.stop()
            self._drivers.clear()
            newest = self._spec(self._version)
            self._command(self._folder, "run", newest, "--once")
            self._command(self._folder, "services", newest, "--once")
            self._say(self._command(self._folder, "validate", newest).strip())

    def _spec(self, version: int) -> str:
        return str(self._folder / f"v{version}.toml")

    def _deliver(self) -> None:
        for stream in streams(self._version):
            self.shop.deliver(stream, self._version)
        self.visits.deliver()

    def _start(self, name: str) -> None:
        newest = self._spec(self._version)
        if name == SERVICES:
            arguments: tuple[str, ...] = ("services", newest)
        else:
            payments = name == PAYER
            all_streams = (*streams(self._version), STREAM)
            mine = [stream for stream in all_streams if (stream == "payments") == payments]
            arguments = ("run", newest, *(part for stream in mine for part in ("--stream", stream)))
        self._drivers[name] = Driver(name, self._folder, *arguments)

    def _kill(self, name: str) -> None:
        until(self._folder, instants(self._folder), FIRST_SIGN)
        time.sleep(self._random.uniform(0, LONGEST_LIFE))
        for driver in self._drivers.values():
            driver.check()
        self._drivers[name].kill()
        self.done.kills += 1
        self._say(f"kill {self.done.kills}: {name}, {self.shop.files} files delivered")
        self._start(name)

    def _change(self, version: int) -> None:
        self._version = version
        name = PAYER if CHANGED[version] == "payments" else WRITER
        self._drivers[name].stop()
        self._start(name)
        self.done.changes += 1
        self._say(f"schema {version}: {CHANGED[version]} changes, with it the {name}")

    def _savepoint(self) -> str:
        instant = self._command(self._folder, "savepoint", self._spec(self._version)).split()[-1]
        self._say(f"savepoint {instant}")
        return instant

    def _restore(self, savepoint: str) -> None:
        for driver in self._drivers.values():
            driver.stop()
        self._command(self._folder, "restore", self._spec(self._version), savepoint)
        self.done.restores += 1
        self._say(f"restored to {savepoint}")
        for name in tuple(self._drivers):
            self._start(name)

    def _abandon(self) -> None:
        for driver in self._drivers.values():
            driver.abandon()

    def compare(self, spark: SparkSession) -> None:
        """Compare the view with the oracle, cell by cell."""
        orders, visits = self.shop.expected(), self.visits.expected()
        of_orders = dict.fromkeys(name for names in VIEW.values() for name in names.values())
        of_visits = dict.fromkeys(next(iter(visits.values())))
        expected = {
            key: of_orders | orders.get(key, {}) | of_visits | visits.get(key, {})
            for key in orders.keys() | visits.keys()
        }
        found = rows_of_view(load_spec(self._spec(self._version)), spark)
        self.done.keys = len(expected)
        self.done.columns = 2 + len(next(iter(found.values())))
        self.done.differences += unequal(expected, found)

    @property
    def complete(self) -> bool:
        """Whether every change and restore was made, and nothing differs."""
        done = self.done
        return done.changes == SCHEMA_CHANGES and done.restores == RESTORES and not done.differences


def main() -> int:
    """Play with the number of kills that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="asynclock-restarts-") as scratch:
        play = Play(Path(scratch), seed=chosen.seed)
        try:
            play.play(chosen.kills)
        except DriverError as error:
            print(f"restarts: {error}", file=sys.stderr)
            return 1
        spark = session("asynclock-restarts", master="local[2]")
        try:
            play.compare(spark)
        finally:
            spark.stop()
    for difference in play.done.differences[:20]:
        print(difference)
    print(play.done)
    return 0 if play.complete else 1


if __name__ == "__main__":
    sys.exit(main())
