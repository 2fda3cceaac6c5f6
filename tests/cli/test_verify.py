"""``verify`` judges what clients logged; ``asynclock.telemetry.JsonFormatter`` writes it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import TYPE_CHECKING, Protocol

import pytest

from asynclock import FencedObject
from asynclock._cli.app import run_command
from asynclock.events import logger
from asynclock.telemetry import JsonFormatter
from asynclock.testing._faulty import Fault
from tests.cli.command import asynclock
from tests.unit.kit import World, faulty, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    return event("acquired", owner, begin, duration=0.1, **more) + event(
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
    stepped = event("acquired", "a", 10.0, duration=0.1) + event(
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
        event("acquired", "a", 10.0).replace('"a"', "null"),
        event("acquired", "a", 10.0).replace('"acquired"', "[]"),
        '{"asynclock.event": "acquired"}\n',
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
    assert lines == ["verify: 1 logs, 1 leases of 1 locks, 0 fenced writes, 0 violations"]


def test_text_of_a_log_does_not_reach_the_terminal_as_it_is(judged: Judge) -> None:
    """A log may hold anything."""
    code, lines, _ = judged(hold("\x1b[2J", 10.0, 20.0) + hold("b", 11.0, 1e300))

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


def test_a_holder_that_died_before_its_first_renewal_is_followed_by_another(judged: Judge) -> None:
    """Nothing was heard of it after its acquisition, so it counts for that moment alone."""
    code, lines, _ = judged(event("acquired", "a", 1.0) + event("acquired", "b", 50.0))

    assert (code, lines[-1][-12:]) == (0, "0 violations")
