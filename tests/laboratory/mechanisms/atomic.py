"""Drivers that are killed with ``kill -9`` at every step of their work, and a reader that must not notice.

The writers and the services run in processes of their own. Each kill has an aim: a write, the commit lock,
the time between a commit and its checkpoint, a compaction, a cleaning, or no matter what. The driver is
stopped first and looked at, so that it is known where it was, and then killed; another takes its place.
Meanwhile a reader polls snapshots, each of which must be the table after some whole files of each stream,
and after no fewer than the one before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import random
import re
import signal
import struct
import threading
import time
from collections import Counter, deque
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from asynclock.spark import run, run_services, timeline, validate
from asynclock.spark.hudi.instants import METADATA_PREFIX
from asynclock.spark.source.checkpoint import Checkpoint
from tests.laboratory.mechanisms.feed import STREAMS, Feed, seen
from tests.laboratory.mechanisms.stage import Shown, must
from tests.laboratory.mechanisms.warm import WarmDriver
from tests.spark.pipeline_kit import Background

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asynclock.spark import Instant
    from asynclock.spark.spec.model import Spec
    from tests.laboratory.mechanisms.stage import Stage

log = logging.getLogger(__name__)

SERVICES: Final = "services"
KILLS: Final = "KILLS"
"""Environment variable with the number of kills of the full form."""
_FIRST_FILES: Final = 4
# Two files of three streams are six commits, and a compaction is due after four. A driver that does not come
# to the place aimed at gets more, but never more than two of a stream wait to be written.
_FILES_AT_ONCE: Final = 2
_FILES_OF_A_KILL: Final = 6
_FILE_SECONDS: Final = 6.0
_AIM_SECONDS: Final = 180.0
_DELIVERY_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 0.003
_QUIET_SECONDS: Final = 120.0
# The aims in their order, and how long after the sign of an aim the kill comes, at most.
_LATER: Final = {
    "write": 0.8,
    "compaction": 0.8,
    "checkpoint": 0.0,
    "lock": 0.0,
    "cleaning": 0.1,
    "anything": 6.0,
}
IN_LOCK: Final = "in the commit lock"
WRITING: Final = "in a write"
READING: Final = "in a batch, before its write"
COMMITTED: Final = "between commit and checkpoint"
COMPACTING: Final = "in a compaction"
CLEANING: Final = "in a cleaning"
IDLE: Final = "between two pieces of work"
_ONE_WRITER: Final[Mapping[str, Sequence[str]]] = {"writer": STREAMS, SERVICES: ()}
_TWO_WRITERS: Final[Mapping[str, Sequence[str]]] = {
    "departures": ("departures",),
    "others": ("registry", "arrivals"),
    SERVICES: (),
}
_WANTED: Final = {
    "write": WRITING,
    "lock": IN_LOCK,
    "checkpoint": COMMITTED,
    "compaction": COMPACTING,
    "cleaning": CLEANING,
}
_PAUSE_SECONDS: Final = 1.0
_FLOCK: Final = "hhqqi4x"
# An entry of a commit's metadata in Avro: the name, then a byte with twice the length of the value, which is
# shorter than 64 bytes.
_ENTRY: Final = f"{METADATA_PREFIX}%s(?P<length>[\\x00-\\x7e])"
_CHANGES: Final = {
    "validity = 20.0": "validity = 5.0\nsafety_margin = 1.0\nmax_clock_skew = 0.1",
    "every_commits = 10": "every_commits = 4",
    "retain_commits = 10 }": "retain_commits = 8 }\n"
    "archiving = { keep_min_commits = 10, keep_max_commits = 14 }",
}


def show(stage: Stage) -> Shown:
    """Kill drivers, read meanwhile, and compare what is left with what was delivered."""
    kills = stage.sized(3, int(os.environ.get(KILLS, "100")))
    files = _FIRST_FILES + _FILES_OF_A_KILL * kills
    feed = Feed(stage, 30 * files, files=files, changes=_CHANGES)
    play = Play(stage, feed, _ONE_WRITER if stage.small else _TWO_WRITERS, kills)
    with contextlib.ExitStack() as ended:
        ended.callback(play.abandon)
        play.warm_up()
        for stream in STREAMS:
            feed.deliver(stream, _FIRST_FILES)
        run(feed.spec, once=True, spark=stage.spark)
        reader = Reader(feed, stage)
        polling = Background(reader.poll)
        ended.callback(reader.stop.set)
        play.play()
        run(feed.spec, once=True, spark=stage.spark)
        _settle(feed.spec, stage)
        reader.stop.set()
        polling.result()
    places = play.places(_examine(feed, stage, play))
    missed = set(stage.sized((WRITING, COMPACTING), tuple(_WANTED.values()))) - places.keys()
    must(not missed, f"some driver was killed {' and some '.join(sorted(missed))}")
    return Shown(
        sentence=f"{kills} drivers killed, {places[WRITING]} in a write, which was rolled back, "
        f"{len(play.compactions)} compactions finished by the next leader; in {reader.polls} polls a reader "
        f"saw only whole batches, none go back; {sum(feed.delivered.values())} batches, committed once each",
        table=[{"killed": place, "times": times} for place, times in places.most_common()],
    )


class Reader:
    """Reads snapshots until ``stop`` is set; each must be whole and none older than the one before.

    Attributes:
        polls: Number of snapshots.
        stop: Ends the reading.
    """

    def __init__(self, feed: Feed, stage: Stage) -> None:
        self.polls = 0
        self.stop = threading.Event()
        self._feed = feed
        self._stage = stage
        self._least = dict.fromkeys(STREAMS, 0)

    def poll(self) -> None:
        """Read until the end."""
        while not self.stop.is_set():
            for stream, state in seen(self._feed.spec, self._stage.spark).items():
                low, high = self._feed.batches(stream, state)
                least = self._least[stream]
                must(high >= least, f"{stream} does not go back: {least} batches were seen, now {high}")
                self._least[stream] = max(least, low)
            self.polls += 1
            self.stop.wait(_PAUSE_SECONDS)


class Play:
    """The drivers, and what happens to them.

    Args:
        stage: Where.
        feed: What they write.
        roles: The streams that each driver writes; none: it runs the services.
        kills: How many are killed.

    Attributes:
        kills: How many are killed.
        compactions: Instants of compactions that were in flight when their leader was killed.
    """

    def __init__(self, stage: Stage, feed: Feed, roles: Mapping[str, Sequence[str]], kills: int) -> None:
        self.compactions: set[str] = set()
        self._stage = stage
        self._feed = feed
        self._roles = roles
        self.kills = kills
        self._random = random.Random(11)
        self._numbers = count(1)
        self._warm: deque[WarmDriver] = deque()
        self._active: dict[str, WarmDriver] = {}
        self._deaths: list[tuple[str, set[str]]] = []
        self._batches: dict[str, tuple[str, int]] = {}
        self._led_since = 0.0
        self._table = Path(urlsplit(feed.spec.table.path).path)

    def warm_up(self) -> None:
        """Start the first drivers, and one or two that take the places of others."""
        for _ in range(len(self._roles) + self._stage.sized(1, 2)):
            self._start_session()

    def play(self) -> None:
        """Kill as many drivers as asked for, and then end the others in order."""
        for role in self._roles:
            self._take_place(role)
        for number in range(1, self.kills + 1):
            role = self._kill(tuple(_LATER)[(number - 1) % len(_LATER)])
            if number < self.kills:
                self._take_place(role)
        for driver in self._active.values():
            driver.stop()

    def abandon(self) -> None:
        """Leave no process behind."""
        for driver in (*self._warm, *self._active.values()):
            driver.abandon()

    def _start_session(self) -> None:
        number = next(self._numbers)
        if number < len(self._roles) + self.kills:
            self._warm.append(WarmDriver(f"driver-{number}", self._stage.folder))

    def _take_place(self, role: str) -> None:
        driver = self._active[role] = self._warm.popleft()
        driver.go(self._feed.spec, self._roles[role])
        if role == SERVICES:
            self._led_since = time.time()
        self._start_session()

    def _kill(self, aim: str) -> str:
        """Kill a driver whose work has to do with the aim; return its role."""
        writers = [role for role in self._roles if role != SERVICES]
        candidates = {"anything": list(self._roles), "compaction": [SERVICES], "cleaning": [SERVICES]}
        role = self._random.choice(candidates.get(aim, writers))
        driver = self._active[role]
        began = time.monotonic()
        place = self._stopped(aim, role, driver)
        self._deaths.append((place, self._pending("deltacommit", "deltacommit")))
        driver.kill()
        del self._active[role]
        seconds = time.monotonic() - began
        log.info("kill %d, aimed at %s: %s, %s, after %.1f s", len(self._deaths), aim, role, place, seconds)
        return role

    def _stopped(self, aim: str, role: str, driver: WarmDriver) -> str:
        """Stop a driver where the aim says, if it comes there in time; return where it is."""
        began = time.monotonic()
        files = self._feed.delivered[STREAMS[0]]
        while True:
            seen_in_time = self._await_sign(aim, driver, began, files)
            time.sleep(self._random.uniform(0, _LATER[aim]))
            os.killpg(driver.group, signal.SIGSTOP)
            place = self._place(role, driver)
            if not seen_in_time or _WANTED.get(aim, place) == place:
                return place
            os.killpg(driver.group, signal.SIGCONT)

    def _await_sign(self, aim: str, driver: WarmDriver, began: float, files: int) -> bool:
        """Deliver more than the first files until an aim's sign; return False if it does not come in time."""
        before = self._names()
        delivery = 0.0
        while (elapsed := time.monotonic() - began) < _AIM_SECONDS:
            for other in self._active.values():
                other.check()
            if self._is_sign(aim, driver, before):
                return True
            if elapsed >= delivery:
                self._deliver(files + min(_FILES_OF_A_KILL, _FILES_AT_ONCE + int(elapsed / _FILE_SECONDS)))
                delivery = elapsed + _DELIVERY_SECONDS
            time.sleep(_LOOK_SECONDS)
        return False

    def _deliver(self, files: int) -> None:
        """Deliver up to that many files of each stream, but no more than its driver can soon write."""
        for stream in STREAMS:
            delivered = self._feed.delivered[stream]
            waiting = delivered - 1 - self._newest(stream, "commits")
            self._feed.deliver(stream, min(files - delivered, _FILES_AT_ONCE - waiting))

    def _is_sign(self, aim: str, driver: WarmDriver, before: set[str]) -> bool:
        match aim:
            case "write":
                return any(name.endswith(".deltacommit.inflight") for name in self._names() - before)
            case "lock":
                return self._holds_lock(driver)
            case "checkpoint":
                ended = any(name.endswith(".deltacommit") for name in self._names() - before)
                return ended and not self._holds_lock(driver)
            case "compaction":
                return bool(self._compacting())
            case "cleaning":
                return self._is_cleaning()
            case _:
                return True

    def _place(self, role: str, driver: WarmDriver) -> str:
        """Return where a stopped driver is."""
        if self._holds_lock(driver):
            return IN_LOCK
        if role == SERVICES:
            if compactions := self._compacting():
                self.compactions |= compactions
                return COMPACTING
            return CLEANING if self._is_cleaning() else IDLE
        begun = {
            (stream, batch) for stream in self._roles[role] if (batch := self._begun(stream)) is not None
        }
        if begun & self._committed():
            return COMMITTED
        if begun:
            dead = set[str]().union(*(pending for _, pending in self._deaths))
            return WRITING if self._pending("deltacommit", "deltacommit") - dead else READING
        return IDLE

    def _begun(self, stream: str) -> int | None:
        """Return the batch that the stream's checkpoint has begun and not ended."""
        begun = self._newest(stream, "offsets")
        return begun if begun > self._newest(stream, "commits") else None

    def _newest(self, stream: str, step: str) -> int:
        """Return the newest batch that has come to this step of the stream's checkpoint; -1: none."""
        folder = Path(urlsplit(self._feed.spec.stream(stream).checkpoint).path) / step
        return max((int(path.name) for path in folder.glob("[0-9]*")), default=-1)

    def _committed(self) -> set[tuple[str, int]]:
        """Return the batches on the active timeline."""
        timeline = self._table / ".hoodie" / "timeline"
        for name in self._names():
            if "_" in name and name.endswith(".deltacommit") and name not in self._batches:
                with contextlib.suppress(FileNotFoundError):  # archived just now
                    text = (timeline / name).read_bytes().decode("latin-1")
                    self._batches[name] = (_entry(text, "stream"), int(_entry(text, "batch_id")))
        return set(self._batches.values())

    def places(self, completed: set[str]) -> Counter[str]:
        """Return how many drivers were killed where; a write in which one was is not among the completed."""
        found: Counter[str] = Counter()
        dead: set[str] = set()
        for place, pending in self._deaths:
            died = pending - completed - dead
            found[READING if place == WRITING and not died else place] += 1
            dead |= died
        return found

    def _compacting(self) -> set[str]:
        """Return the compactions in flight on which the present leader has shown that it works."""
        heartbeats = self._table / ".hoodie" / ".heartbeat"
        return {one for one in self._pending("compaction", "commit") if self._is_new(heartbeats / one)}

    def _is_cleaning(self) -> bool:
        """Return whether a cleaning is in flight that the present leader has begun."""
        timeline = self._table / ".hoodie" / "timeline"
        cleaning = self._pending("clean", "clean")
        return any(self._is_new(timeline / f"{one}.clean.inflight") for one in cleaning)

    def _is_new(self, file: Path) -> bool:
        try:
            return file.stat().st_mtime > self._led_since
        except FileNotFoundError:
            return False

    def _names(self) -> set[str]:
        return set(os.listdir(self._table / ".hoodie" / "timeline"))  # noqa: PTH208  as quick as can be

    def _pending(self, action: str, completed: str) -> set[str]:
        names = self._names()
        done = {name.partition("_")[0] for name in names if "_" in name and name.endswith(f".{completed}")}
        return {name.partition(".")[0] for name in names if name.endswith(f".{action}.inflight")} - done

    def _holds_lock(self, driver: WarmDriver) -> bool:
        """Return whether a process of the driver has the operating system's lock that orders the commits."""
        with (self._table / ".hoodie" / ".locks" / "asynclock.lock").open("rb+") as file:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, holder = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        try:
            return kind != fcntl.F_UNLCK and os.getpgid(holder) == driver.group
        except ProcessLookupError:
            return False


def _entry(text: str, name: str) -> str:
    """Return the value of an entry in the metadata of a commit."""
    found = re.search(_ENTRY % name, text)
    must(found, f"a commit has asynclock.{name}")
    if found is None:
        return ""
    return text[found.end() :][: ord(found["length"]) // 2]


def _settle(spec: Spec, stage: Stage) -> None:
    """Run the services until nothing of the dead is left on the timeline."""
    deadline = time.monotonic() + _QUIET_SECONDS
    while pending := [one for one in timeline(spec, stage.spark) if one.completed is None]:
        must(time.monotonic() < deadline, f"the services end what the dead began: {pending}")
        run_services(spec, once=True, spark=stage.spark)


def _examine(feed: Feed, stage: Stage, play: Play) -> set[str]:
    """Compare the table with the deliveries; return the instants that are complete."""
    state = seen(feed.spec, stage.spark)
    must(all(state[stream] == feed.expected(stream) for stream in STREAMS), "every file is in the table")
    report = validate(feed.spec, stage.spark)
    must(report.ok, f"validation finds no difference: {report}")
    instants = timeline(feed.spec, stage.spark, archived=True)
    batches = Counter((one.stream, one.batch) for one in instants if one.stream and one.batch is not None)
    twice = [batch for batch, times in batches.items() if times > 1]
    must(not twice, f"no batch is committed twice: {twice}")
    for stream in STREAMS:
        checkpoint = Checkpoint(feed.spec, feed.spec.stream(stream), stage.spark)
        joined = _joined(checkpoint, stream, feed.delivered[stream], batches)
        must(joined <= play.kills, f"only a kill joins two files of {stream} in a batch: {joined}")
    finished = {one.requested for one in instants if one.action == "commit" and one.completed}
    must(play.compactions <= finished, f"the next leader ends a compaction: {play.compactions - finished}")
    orphans = _orphans(Path(urlsplit(feed.spec.table.path).path), instants)
    must(not orphans, f"cleaning leaves no file of a dead writer: {orphans}")
    return {one.requested for one in instants if one.completed}


def _joined(checkpoint: Checkpoint, stream: str, files: int, batches: Iterable[tuple[str, int]]) -> int:
    """Match the files of a stream with its batches; return how many share a batch with the file before.

    Spark notes a file in the log of the source, and then the batch that ends with it. If the driver is killed
    in between, the next batch has two files.
    """
    numbers = sorted(number for name, number in batches if name == stream)
    must(numbers == list(range(len(numbers))), f"no batch of {stream} is missing: {numbers}")
    entries = sorted(entry for entry, _ in checkpoint.arrivals().values())
    must(entries == list(range(files)), f"each file of {stream} is an entry of its own: {entries}")
    end = json.loads(checkpoint.offset(numbers[-1]))["logOffset"]
    must(end == entries[-1], f"the last batch of {stream} ends with its last file: {end} of {entries}")
    return len(entries) - len(numbers)


def _orphans(table: Path, instants: Sequence[Instant]) -> list[str]:
    """Return what the dead have left: data and markers of no completed instant, and files written twice.

    The markers of a completed one stay, if its writer died in between, until Hudi archives it.
    """
    completed = {one.requested for one in instants if one.completed}
    markers = table / ".hoodie" / ".temp"
    left = [
        path.name
        for path in markers.rglob("*.marker.*")
        if path.relative_to(markers).parts[0] not in completed
    ]
    versions: Counter[tuple[str, str]] = Counter()
    for path in table.iterdir():
        if not path.is_file() or path.suffix == ".crc" or path.name == ".hoodie_partition_metadata":
            continue
        stem, log_part, _ = path.name.partition(".log.")
        file, _, instant = stem.removesuffix(".parquet").rpartition("_")
        versions[file if log_part else file.partition("_")[0], instant] += not log_part
        if instant not in completed:
            left.append(path.name)
    return left + [
        f"{file} of {instant}, {number} times" for (file, instant), number in versions.items() if number > 1
    ]
