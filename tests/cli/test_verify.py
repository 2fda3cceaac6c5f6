"""``verify`` judges what clients logged; ``asynclock.telemetry.JsonFormatter`` writes it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from asynclock import FencedObject
from asynclock._cli.app import run_command
from asynclock._cli.judged_logs import _Entry, _Hold
from asynclock.events import logger
from asynclock.telemetry import JsonFormatter
from asynclock.testing._faulty import Fault
from tests.cli.command import asynclock
from tests.unit.kit import World, faulty, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterator


class Judge(Protocol):
    """Judges logs: exit code, lines of the standard output, standard error."""

    def __call__(self, *logs: str | bytes, options: tuple[str, ...] = ()) -> tuple[int, list[str], str]:
        """Run the command."""
        ...


def event(kind: str, owner: str, at: float, **more: object) -> str:
    """Return a line of a log."""
    fields = {
        "asynclock.event": kind,
        "asynclock.lock.url": "s3://b/orders",
        "asynclock.owner": owner,
        "asynclock.time": at,
    }
    return json.dumps(fields | {f"asynclock.{name}": value for name, value in more.items()}) + "\n"


def hold(owner: str, begin: float, end: float, token: int | None = None) -> str:
    """Return the lines of a lease that was released half a second after its holder stopped believing."""
    more = {} if token is None else {"fencing_token": token}
    return event("acquired", owner, begin, duration=0.1, age=0.0, **more) + event(
        "released", owner, end + 0.5, duration=end + 0.5 - begin, since_end=0.5, **more
    )


def update(at: float, token: int, owner: str = "a") -> str:
    """Return the line of a fenced write that took a second."""
    return event("updated", owner, at, duration=1.0, fencing_token=token)


@pytest.fixture
def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Judge:
    """Return what judges logs."""

    def judge(*logs: str | bytes, options: tuple[str, ...] = ()) -> tuple[int, list[str], str]:
        paths = []
        for number, log in enumerate(logs):
            paths.append(tmp_path / f"{number}.jsonl")
            paths[-1].write_bytes(log if isinstance(log, bytes) else log.encode())
        code = run_command(["verify", *map(str, paths), *options])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err

    return judge


@pytest.fixture
def world() -> Iterator[World]:
    """Return a store and machines in virtual time."""
    world = World()
    yield world
    world.loop.close()


def test_leases_one_after_another_pass(judged: Judge) -> None:
    """The end counts from when the holder stopped believing, not from the report of it."""
    log = hold("a", 10.0, 20.0, 7) + hold("b", 20.1, 30.0, 8) + update(15.0, 7) + update(25.0, 8)

    assert judged(log, options=("--max-clock-skew", "0")) == (
        0,
        ["verify: 1 logs, 2 leases of 1 locks, 2 fenced writes, 0 violations"],
        "",
    )


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (hold("a", 10.0, 20.0) + hold("b", 15.0, 30.0), "two believers for 5.000 s"),
        (hold("a", 10.0, 40.0) + hold("b", 15.0, 16.5) + hold("c", 35.0, 36.5), "owner a and owner c"),
        (hold("a", 10.0, 20.0, 7) + hold("b", 30.0, 40.0, 7), "have the same token"),
        (hold("a", 10.0, 20.0, 8) + hold("b", 30.0, 40.0, 7), "is not above that of owner a (token 8)"),
        (hold("a", 1.0, 2.0, 8) + update(5.0, 8) + update(6.9, 7), "0.900 s after one under token 8"),
        (event("renewed", "a", 1.0) + event("renewed", "a", 9.0) + hold("b", 5.0, 7.0), "two believers"),
    ],
    ids=["overlap", "second overlap", "same token", "falling token", "fenced write", "no acquisition"],
)  # fmt: skip
def test_what_is_certain_is_a_violation(judged: Judge, log: str, says: str) -> None:
    """On one machine; the exit code is 1, and the last line counts."""
    code, lines, _ = judged(log, options=("--max-clock-skew", "0"))

    assert code == 1
    assert any(says in line for line in lines[:-1])
    assert not lines[-1].endswith(" 0 violations")


@pytest.mark.parametrize(("skew", "code", "unclear"), [("1.9", 1, False), ("2.1", 0, True)])
def test_clocks_of_two_machines_may_differ(judged: Judge, skew: str, code: int, unclear: bool) -> None:  # noqa: FBT001
    """An overlap that is shorter than that proves nothing, and is counted."""
    found, lines, _ = judged(hold("a", 10.0, 20.0), hold("b", 18.0, 30.0), options=("--max-clock-skew", skew))

    assert (found, lines[0].startswith("1 overlaps are shorter")) == (code, unclear)


@pytest.mark.parametrize("step", [-30.0, 30.0])
def test_a_lease_whose_clock_was_set_is_not_judged(judged: Judge, step: float) -> None:
    """Its times and its duration do not fit; whatever it overlaps then proves nothing."""
    stepped = event("acquired", "a", 10.0, duration=0.1, age=0.0) + event(
        "released", "a", 20.0 + step, duration=10.0, since_end=0.0
    )

    code, lines, _ = judged(stepped + hold("b", 5.0, 9.0) + hold("c", 25.0, 30.0))

    assert code == 0
    assert any(line.startswith("1 leases are not judged") for line in lines)


def test_a_holder_that_died_counts_until_its_last_sign(judged: Judge) -> None:
    """Nobody knows how long it believed."""
    dead = event("acquired", "a", 10.0, duration=0.1) + event("renewed", "a", 20.0, remaining=8.0)

    code, lines, _ = judged(dead + hold("b", 22.0, 30.0), options=("--max-clock-skew", "0"))

    assert code == 0
    assert any(line.startswith("1 leases have no end") for line in lines)


def test_the_same_event_may_come_twice_and_in_any_order(judged: Judge) -> None:
    """Two handlers, rotated files, a file that was given twice."""
    log = hold("a", 10.0, 20.0, 7) + hold("b", 30.0, 40.0, 8) + update(15.0, 7)
    backwards = "".join(reversed(log.splitlines(keepends=True)))

    code, lines, _ = judged(log, backwards)

    assert (code, lines[-1]) == (0, "verify: 2 logs, 2 leases of 1 locks, 1 fenced writes, 0 violations")


@pytest.mark.parametrize(
    "line",
    [
        event("acquired", "a", 10.0)[:70] + "\n",
        event("acquired", "a", 10.0).replace("10.0", "NaN"),
        event("acquired", "a", 10.0).replace("10.0", '"10"'),
        event("acquired", "a", 10.0).replace("10.0", "1e999"),
        event("acquired", "a", 10.0, fencing_token="7"),  # noqa: S106  no password
        event("acquired", "a", 10.0, fencing_token=True),
        event("released", "a", 10.0, since_end=-1.0),
        event("released", "a", 10.0, duration=[]),
        event("updated", "a", 10.0, duration=1.0),
        event("renewed", "a", 10.0, age="1"),
        event("acquired", "a", 10.0).replace('"a"', "null"),
        event("acquired", "a", 10.0).replace('"acquired"', "[]"),
        '{"asynclock.event": "acquired", "asynclock.time": 10.0}\n',
    ],
)  # fmt: skip
def test_an_event_that_cannot_be_read_is_no_pass(judged: Judge, line: str) -> None:
    """It may have been the proof of a violation."""
    code, lines, _ = judged(line + hold("b", 10.0, 20.0))

    assert code == 1
    assert any(line.startswith("1 events cannot be read") for line in lines)


def test_a_cut_last_line_is_ignored(judged: Judge) -> None:
    """The program was killed while it wrote."""
    code, lines, _ = judged(hold("b", 10.0, 20.0) + event("renewed", "c", 10.0)[:60])

    assert code == 0
    assert any(line.startswith("1 cut last lines") for line in lines)


def test_lines_of_other_programs_are_ignored(judged: Judge) -> None:
    """Whatever they are; so are events that say nothing of believers."""
    others = b'\xff\xfe\x00\n\n[1]\n"x"\nTraceback:\n{"message":"a"}\n{"a":' + b"[" * 5000 + b"\n"
    waiting = event("waiting", "a", 10.0).encode()

    code, lines, errors = judged(others + waiting + hold("b", 10.0, 20.0).encode())

    assert (code, errors) == (0, "")
    assert lines == [
        "6 lines are not of asynclock",
        "verify: 1 logs, 1 leases of 1 locks, 0 fenced writes, 0 violations",
    ]


def test_text_of_a_log_does_not_reach_the_terminal_as_it_is(judged: Judge) -> None:
    """A log may hold anything."""
    code, lines, _ = judged(hold("\x1b[2J", 2.0**1000, 2.0**1001) + hold("b", 1.5 * 2.0**1000, 2.0**1001))

    assert code == 1
    assert "\x1b" not in "".join(lines)


def test_logs_without_events_are_a_mistake(judged: Judge) -> None:
    """The level is not DEBUG, or it is another file: nothing was judged."""
    code, lines, errors = judged("", '{"message": "hello"}\n')

    assert (code, lines) == (2, [])
    assert "JsonFormatter" in errors


def test_a_program_gets_one_object(judged: Judge) -> None:
    """With all counts and the sentences."""
    code, [line], _ = judged(hold("a", 10.0, 20.0) + hold("b", 15.0, 30.0), options=("--json",))

    assert code == 1
    assert json.loads(line)["violations"] == len(json.loads(line)["details"]) == 1


def test_a_table_is_verified_as_before() -> None:
    """``verify TABLE`` is the old name of ``hudi verify TABLE``."""
    old, new = asynclock("verify", "file:///t"), asynclock("hudi", "verify", "file:///t")

    assert (old.returncode, old.stderr) == (new.returncode, new.stderr) != (0, "")


@in_virtual_time
async def test_what_clients_log_is_judged(world: World, judged: Judge) -> None:
    """Two clients take turns, one loses its lease, and both write under their tokens."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    level, _ = logger.level, logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        async with world.client() as one, world.client() as two:
            async with one.lock("orders").hold() as lease:
                await FencedObject(one, "state").write(b"1", lease=lease)
                await asyncio.sleep(1.5)
            lost = await two.lock("orders").acquire()
            await FencedObject(two, "state").write(b"2", lease=lost)
            faulty(two).storm({Fault.UNAVAILABLE: 1.0})
            await asyncio.sleep(30.0)
            faulty(two).storm({})
            await (await one.lock("orders").acquire()).release()
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)

    code, lines, errors = judged(stream.getvalue(), options=("--max-clock-skew", "0"))

    assert (code, lines) == (0, ["verify: 1 logs, 3 leases of 1 locks, 2 fenced writes, 0 violations"])
    assert errors == ""
    logged = [json.loads(line) for line in stream.getvalue().splitlines()]
    events = [each for each in logged if "asynclock.event" in each]
    assert {each["severity"] for each in events} == {"DEBUG", "WARNING"}, "sentences and events"
    assert {each["process.pid"] for each in events} == {os.getpid()}


def test_a_holder_that_died_before_its_first_renewal_is_followed_by_another(judged: Judge) -> None:
    """Nothing was heard of it after its acquisition, so it counts for that moment alone."""
    code, lines, _ = judged(event("acquired", "a", 1.0) + event("acquired", "b", 50.0))

    assert (code, lines[-1][-12:]) == (0, "0 violations")


def at(line: str, host: str, pid: int = 1) -> str:
    """Return the lines of a log with the process that wrote them."""
    where = {"host.name": host, "process.pid": pid}
    return "".join(json.dumps(json.loads(each) | where) + "\n" for each in line.splitlines())


def moved(log: str, url: str) -> str:
    """Return the lines of a log with the lock at another URL."""
    return log.replace("s3://b/orders", url)


def test_a_folder_is_one_of_each_machine(judged: Judge) -> None:
    """Unless the user says that all machines share it; a sentence says that this was not judged."""
    one, two = moved(hold("a", 10.0, 20.0, 7), "file:///l/o"), moved(hold("b", 12.0, 30.0, 7), "file:///l/o")
    logs = at(one, "web-1"), at(two, "web-2")

    code, lines, _ = judged(*logs)
    shared, said, _ = judged(*logs, options=("--shared-files",))
    same, _, _ = judged(at(one, "web-1"), at(two, "web-1", 2))

    assert (code, shared, same) == (0, 1, 1)
    assert any("--shared-files" in line for line in lines)
    assert any("two believers" in line for line in said)


def test_a_store_in_memory_is_one_of_each_process(judged: Judge) -> None:
    """Two processes of one machine that write one log have two locks of one URL."""
    one, two = moved(hold("a", 10.0, 20.0), "memory://n/o"), moved(hold("b", 12.0, 30.0), "memory://n/o")

    apart, lines, _ = judged(at(one, "web-1", 1) + at(two, "web-1", 2))
    together, _, _ = judged(at(one, "web-1", 1) + at(two, "web-1", 1))

    assert (apart, together) == (0, 1)
    assert lines[-1] == "verify: 1 logs, 2 leases of 2 locks, 0 fenced writes, 0 violations"


@pytest.mark.parametrize("url", ["file:///l/o", "memory://n/o"])
def test_a_lock_of_an_unknown_machine_is_not_judged(judged: Judge, url: str) -> None:
    """A formatter has left out whose it is: an overlap proves nothing, and that is said."""
    code, lines, _ = judged(moved(hold("a", 10.0, 20.0) + hold("b", 12.0, 30.0) + update(15.0, 7), url))

    assert code == 0
    assert any("3 leases and fenced writes are not judged" in line for line in lines)


def test_any_number_of_logs_is_read_one_at_a_time(judged: Judge) -> None:
    """A process may have few files open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(each.name) for each in Path("/dev/fd").iterdir()}
    few = [number for number in range(100_000) if number not in taken][20]
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        code, lines, _ = judged(
            *[hold(f"{number}", number * 10.0, number * 10.0 + 5) for number in range(30)]
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert (code, lines[-1]) == (0, "verify: 30 logs, 30 leases of 1 locks, 0 fenced writes, 0 violations")


def test_renewals_take_no_memory() -> None:
    """A lease of months has millions."""
    lease = _Hold(("s3://b/orders",), "a")
    for second in range(1000):
        lease.add(_Entry("renewed", ("s3://b/orders",), "a", 7, float(second), 0.1, 0.0, float(second)))

    assert (lease.begin, lease.end) == (0.0, 999.0)
    assert sum(map(sys.getsizeof, (getattr(lease, name) for name in _Hold.__slots__))) < 1000


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("step", [-30.0, 30.0])
def test_a_clock_that_was_set_is_seen_however_long_was_waited(judged: Judge, step: float, ends: bool) -> None:  # noqa: FBT001
    """An hour: the wait is no part of the lease."""
    waited = event("acquired", "a", 4000.0, duration=3600.0, age=0.5)
    rest = (
        event("released", "a", 4010.0 + step, duration=10.5, since_end=0.0)
        if ends
        else event("renewed", "a", 4010.0 + step, duration=0.1, age=10.5)
    )

    code, lines, _ = judged(waited + rest + hold("b", 3985.0, 3995.0) + hold("c", 4030.0, 4039.0))

    assert code == 0
    assert any(line.startswith("1 leases are not judged") for line in lines)


def test_a_long_wait_is_no_clock_that_was_set(judged: Judge) -> None:
    """Such a lease is judged."""
    waited = event("acquired", "a", 4000.0, duration=3600.0, age=0.5) + event(
        "released", "a", 4010.0, duration=10.5, since_end=0.0
    )

    code, lines, _ = judged(waited + hold("b", 4002.0, 4008.0))

    assert code == 1
    assert "two believers" in lines[0]


@pytest.mark.parametrize("begin", [b"\xef\xbb\xbf", b""])
def test_lines_that_are_no_events_are_counted(judged: Judge, begin: bytes) -> None:
    """A byte order mark, a program that uses the same names, plain text: not damaged, but not ours."""
    others = '{"asynclock.event": "acquired"}\nasynclock.event is a field\n\n'
    log = begin + hold("b", 10.0, 20.0).encode() + others.encode()

    code, lines, _ = judged(log)

    assert code == 0
    assert lines[0] == "2 lines are not of asynclock"
    assert lines[-1] == "verify: 1 logs, 1 leases of 1 locks, 0 fenced writes, 0 violations"
