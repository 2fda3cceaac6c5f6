"""One act of a soak: the tables of one place, under all that happens there, and what is left in the end."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from asynclock.spark import load_spec, read, run, run_services, timeline, validate
from asynclock.spark.faults import is_passing, sentence
from asynclock.spark.hudi.layout import layout_of
from asynclock.spark.runs.page import page
from asynclock.spark.runs.story import run_story
from asynclock.spark.runs.text import summary
from tests.laboratory.restarts.compare import as_texts, rows_of_view, unequal
from tests.laboratory.soak.checks import committed_once, lost, tokens_fall
from tests.laboratory.soak.crew import SKEWS, Role
from tests.laboratory.soak.jobs import Jobs
from tests.laboratory.soak.places import fill
from tests.laboratory.soak.readers import Onlooker
from tests.laboratory.soak.tables import TIMELINE_AT_MOST, Orders, Table, Visits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from asynclock.spark import Spec
    from tests.laboratory.soak.crew import Crew
    from tests.laboratory.soak.journal import Journal
    from tests.laboratory.soak.places import Place
    from tests.laboratory.soak.spoiler import Spoiler
    from tests.laboratory.soak.watch import Watch

log = logging.getLogger(__name__)

ROLES: Final = ("writer", "shipper", "services", "visits")
_BEAT_SECONDS: Final = {"file": 6.0, "s3a": 12.0}
"""A first batch in a store takes so long that drivers would be killed before they have written anything."""
_LEAST_SECONDS: Final = 2.0
_TICK_SECONDS: Final = 0.2
_SAMPLE_SECONDS: Final = 5.0
_WAITING_AT_MOST: Final = 2
_DELIVERY_SECONDS: Final = 0.4
_REST_SECONDS: Final = 30.0
_JOB_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 180.0
_FULL_SECONDS: Final = 4.0
_BEATS_OF_A_REST: Final = 4
_WRITES: Final = frozenset({"commit", "deltacommit", "replacecommit"})


@dataclass
class Result:
    """What came of an act.

    Attributes:
        commits: Completed writes of all tables.
        faults: What was done to the place and to clocks, and the stops.
        differences: What must not be.
        numbers: Of what was looked at, for the report.
    """

    commits: int = 0
    faults: int = 0
    differences: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)


class Act:
    """Plays one act.

    Args:
        place: Where its tables are.
        folder: Of its specs.
        spark: A session that looks on.
        crew: The drivers.
        journal: Told of what is done.
        watch: Takes samples.
        seed: Of its orders.
        proxy: Spoils the answers of the place's server; None: there is no server.
        disk: A folder of the place on a disk that may be filled; None: there is none.
        spared: The role in ``ROLES`` whose driver is never killed, stopped or replaced: a leak shows only
            in a long life.
    """

    def __init__(
        self,
        place: Place,
        folder: Path,
        spark: SparkSession,
        crew: Crew,
        *,
        journal: Journal,
        watch: Watch,
        seed: int,
        proxy: Spoiler | None = None,
        disk: Path | None = None,
        spared: str,
    ) -> None:
        self.result = Result()
        self._spark = spark
        self._crew = crew
        self._journal = journal
        self._watch = watch
        self._proxy = proxy
        self._disk = disk
        self._spared = spared
        self._beat = _BEAT_SECONDS[place.name]
        self._certain = 0
        self._sampled = 0.0
        self._random = random.Random(f"{place.name} of {seed}")
        self._orders = Orders(place, folder, seed)
        self._visits = Visits(place, folder, seed)
        self._tables: dict[str, Table] = {one.name: one for one in (self._orders, self._visits)}
        self._onlookers = [
            Onlooker(table, spark, consumes=table is self._orders) for table in self._tables.values()
        ]
        self._jobs = Jobs(self._orders, spark)
        self._helpers: tuple[Onlooker | Jobs, ...] = (*self._onlookers, self._jobs)
        self._paused = threading.Event()
        self._over = threading.Event()

    def play(self, seconds: float, *, drivers: int) -> Result:
        """Let everything happen for so long, and then judge what is left.

        Args:
            seconds: How long.
            drivers: How many sessions are prepared meanwhile for what comes next.
        """
        with contextlib.ExitStack() as ended:
            for table in self._tables.values():
                for stream in table.states:
                    table.deliver(stream)
                table.flush()
            for name in ROLES:
                self._crew.start(name, self._role(name))
            feeder = threading.Thread(target=self._feed, name="feeder")
            for thread in (feeder, *self._helpers):
                thread.start()
                ended.callback(thread.join)
            for event in (self._over, *(helper.stop for helper in self._helpers)):
                ended.callback(event.set)
            self._disturb(seconds)
            self._jobs.stop.set()
            self._jobs.join()
            self._paused.set()
            self._await_rest(_SETTLE_SECONDS)
            self._rest()
        self._crew.dismiss()
        self._crew.prepare(drivers)
        self._judge()
        return self.result

    def _role(self, name: str) -> Role:
        if name == "visits":
            return Role(table=self._visits, streams=("visits",), services=True)
        streams = {"writer": ("orders", "payments"), "shipper": ("shipments",)}.get(name, ())
        return Role(table=self._orders, streams=streams)

    def _feed(self) -> None:
        """Deliver files, but no more than the drivers can soon write."""
        while not self._over.wait(_DELIVERY_SECONDS):
            with contextlib.suppress(OSError):  # the disk is full: later
                for table in self._tables.values():
                    for stream, waiting in table.waiting().items():
                        if waiting < _WAITING_AT_MOST and not self._paused.is_set():
                            table.deliver(stream)
                    table.flush()

    def _disturb(self, seconds: float) -> None:
        began = time.monotonic()
        deeds = deque(self._deeds(int((seconds + _JOB_SECONDS) / self._beat)))
        next_deed = self._beat
        many = len(deeds)

        def is_over(elapsed: float) -> bool:
            jobs = self._jobs.did_each.is_set() or elapsed >= seconds + _JOB_SECONDS
            return elapsed >= seconds and many - len(deeds) >= self._certain and jobs

        while not is_over(elapsed := time.monotonic() - began):
            self._tend()
            if deeds and elapsed >= next_deed:
                deeds.popleft()()
                # A deed may take longer than a beat.
                next_deed = max(next_deed + self._beat, time.monotonic() - began + _LEAST_SECONDS)
            time.sleep(_TICK_SECONDS)
        self._crew.rest()

    def _deeds(self, beats: int) -> Sequence[Callable[[], object]]:
        """Draw what happens at each beat: first each kind once, then any, and states of rest in between."""
        kinds: list[Callable[[], object]] = [self._kill, self._stop]
        once: list[Callable[[], object]] = [self._set_clock]
        if self._proxy is not None:
            kinds += [self._cut, self._delay, self._throttle]
        if self._disk is not None:
            once.append(self._fill_disk)
        first = [*kinds, *once]
        self._random.shuffle(first)
        self._certain = len(first)
        later = [(*kinds, self._kill)[number % (len(kinds) + 1)] for number in range(beats)]
        self._random.shuffle(later)
        drawn = [*first, *later]
        for number in range(_BEATS_OF_A_REST, beats, _BEATS_OF_A_REST + 1):
            drawn.insert(number, self._rest_at)
        return drawn

    def _kill(self) -> None:
        self._crew.kill(self._crew.choose(self._random, self._spared))

    def _stop(self) -> None:
        self._crew.stop_for(self._crew.choose(self._random, self._spared), self._random.uniform(1.0, 14.0))

    def _set_clock(self) -> None:
        self._crew.set_clock(self._crew.choose(self._random, self._spared), self._random.choice(SKEWS))

    def _cut(self) -> None:
        self._spoil("cut")

    def _delay(self) -> None:
        self._spoil("delay")

    def _throttle(self) -> None:
        self._spoil("throttle")

    def _spoil(self, what: str) -> None:
        dice = self._random
        if self._proxy is not None:
            seconds, status = dice.uniform(0.2, 3.0), dice.choice((429, 503))
            detail = self._proxy.spoil(what, dice.randrange(2, 12), seconds=seconds, status=status)
            self._crew.excuse()
            self._journal.chaos("fault", detail=detail)

    def _fill_disk(self) -> None:
        if self._disk is None:
            return
        ballast = self._disk / "ballast"
        self._crew.excuse()
        fill(ballast)
        self._journal.chaos("disk_full", detail=f"for {_FULL_SECONDS:.0f} s")
        self.result.faults += 1
        time.sleep(_FULL_SECONDS)
        ballast.unlink()
        self._crew.excuse()

    def _rest_at(self) -> None:
        self._paused.set()
        self._crew.rest()
        if self._await_rest(_REST_SECONDS):
            self._rest()
        self._paused.clear()

    def _await_rest(self, seconds: float) -> bool:
        """Wait until all that was delivered is committed; return whether it is."""
        return self._await(lambda: all(table.at_rest() for table in self._tables.values()), seconds)

    def _await(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Tend the drivers until the condition holds; return False if it does not in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._tend()
            if condition():
                return True
            time.sleep(_TICK_SECONDS)
        return False

    def _tend(self) -> None:
        """Tend the drivers, and take a sample if it is time."""
        self._crew.tend()
        if time.monotonic() - self._sampled >= _SAMPLE_SECONDS:
            self._sampled = time.monotonic()
            self._watch.sample(self._crew, self._tables)

    def _rest(self) -> None:
        """Take a sample while nobody works."""
        with contextlib.ExitStack() as quiet:
            for helper in self._helpers:
                quiet.enter_context(helper.working)
            time.sleep(1.0)
            self._watch.sample(self._crew, self._tables, rest=True)

    def _judge(self) -> None:
        """Judge the tables after the last commit."""
        found = self.result.differences
        for onlooker in self._onlookers:
            found += onlooker.differences
        found += self._jobs.differences
        for table, onlooker in zip(self._tables.values(), self._onlookers, strict=True):
            self._attempt(table.name, partial(self._judge_table, table, onlooker))
        self._attempt(self._orders.name, self._judge_orders)
        for table in self._tables.values():
            self._attempt(table.name, partial(self._validate, table))
            self._attempt(table.name, partial(self._draw, table))
        self.result.numbers |= {
            "polls": sum(one.polls for one in self._onlookers),
            "deletes": self._jobs.deletes,
            "statements": self._jobs.statements,
        }

    def _attempt(self, what: str, judge: Callable[[], object]) -> None:
        try:
            judge()
        except Exception as error:
            log.exception("%s cannot be judged", what)
            self.result.differences.append(f"{what} cannot be judged: {sentence(error)}"[:500])

    def _judge_table(self, table: Table, onlooker: Onlooker) -> None:
        found = self.result.differences
        if not table.at_rest():  # the drivers have ended before they came to it, or were killed just before
            run(table.spec, once=True, spark=self._spark)
        self._settle(table.spec)
        for stream, waiting in table.waiting().items():
            if waiting:
                found.append(f"{table.name}: {waiting} files of {stream} are not written")
        found += table.look(self._spark, last=True)
        instants = timeline(table.spec, self._spark, archived=True)
        streams = table.states
        batches = [(str(one.stream), one.batch) for one in instants if one.stream in streams]
        judged = committed_once(
            [(stream, batch) for stream, batch in batches if batch is not None],
            {name: table.batches(name) for name in streams},
        )
        judged += tokens_fall(
            (str(one.stream), one.token)
            for one in instants
            if one.stream in streams and one.token is not None
        )
        told = {one.instant for one in run_story(table.spec, self._journal.folder).commits if one.instant}
        judged += lost(onlooker.instants | told, (one.requested for one in instants))
        active = sum(not one.archived for one in instants)
        if active > TIMELINE_AT_MOST:
            judged.append(f"{active} instants are active, more than {TIMELINE_AT_MOST}")
        found += [f"{table.name}: {one}" for one in judged]
        self.result.commits += sum(one.action in _WRITES and one.completed is not None for one in instants)
        for action in ("commit", "replacecommit", "clean", "rollback"):
            times = sum(one.action == action and one.completed is not None for one in instants)
            self.result.numbers[f"{table.name}: {action}"] = times
        self.result.numbers[f"{table.name}: archived"] = sum(one.archived for one in instants)

    def _judge_orders(self) -> None:
        table, found = self._orders, self.result.differences
        expected, rows = table.expected(), rows_of_view(table.spec, self._spark)
        for key in table.unknown:
            expected.pop(key, None)
            rows.pop(key, None)
        found += [f"{table.name}: {one}" for one in unequal(expected, rows)[:20]]
        self.result.numbers[f"{table.name}: rows"] = len(rows)
        self._compact()
        optimized = layout_of(table.spec).shown(table.stored(self._spark, "read_optimized"))
        if _lines(as_texts(optimized)) != _lines(as_texts(read(table.spec, self._spark))):
            found.append(f"{table.name}: after a compaction the read-optimized rows are not the snapshot's")
        consumer = self._onlookers[0]
        consumer.consume()
        if consumer.copy is not None:
            found += [f"{table.name}: {one}" for one in consumer.copy.differences()[2][:20]]

    def _compact(self) -> None:
        """Compact whatever is in logs."""
        path = self._orders.spec.path
        always = path.with_name(f"always-{path.name}")
        always.write_text(path.read_text().replace("every_commits = 6", "every_commits = 1"))
        run_services(load_spec(always), once=True, spark=self._spark)

    def _draw(self, table: Table) -> None:
        """Draw what the drivers have recorded, as ``asynclock pipeline report`` does."""
        story = run_story(table.spec, self._journal.folder)
        name = table.name.partition(" ")[0]
        (self._journal.folder / f"{name}.html").write_text(page(story), encoding="utf-8")
        (self._journal.folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in summary(story)))

    def _validate(self, table: Table) -> None:
        if table is self._orders and self._jobs.statements:
            self._jobs.finish()
        report = validate(table.spec, self._spark)
        if not report.ok:
            found = f"{report.differences} differences, {report.sample[:3]}, {report.changing_commits[:3]}"
            self.result.differences.append(f"{table.name}: the validation finds {found}"[:800])

    def _settle(self, spec: Spec) -> None:
        """Run the services until nothing of the dead is left on the timeline."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while pending := [one for one in timeline(spec, self._spark) if one.completed is None]:
            if time.monotonic() > deadline:
                self.result.differences.append(f"{spec.path.stem}: nobody ends {pending[:3]}")
                return
            try:
                run_services(spec, once=True, spark=self._spark)
            except Exception as error:
                if not is_passing(error):
                    raise
            time.sleep(1.0)


def _lines(frame: DataFrame) -> Sequence[str]:
    return sorted(str(row) for row in frame.collect())
