"""``watch``, and tables on terminals of several widths."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseSettings, sync
from tests.cli.command import asynclock, eventually, finish, kill_group, start
from tests.cli.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = "team/" + "very-" * 6 + "long-name"
COLOUR = re.compile(r"\x1b\[(?:\d+;)*[39][0-7]m")


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """Three locks: one of them held, one with a name that is longer than 40 columns."""
    settings = LeaseSettings(validity=60, max_clock_skew=0)
    url = f"file://{folder}"
    with sync.connect(url, settings=settings, holder="a-host-with-a-long-name:4711:worker") as client:
        for name in ("nightly", LONG):
            client.lock(name).acquire().release()
        with client.lock("orders").hold():
            yield url


@pytest.mark.parametrize("command", ["list", "watch"])
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_table_fits_its_terminal_and_keeps_every_name(url: str, command: str, columns: int) -> None:
    """No line is longer than the terminal, no name is cut, and the wider it is the more is shown."""
    with Screen(command, url, columns=columns) as screen:
        if command == "watch":
            screen.read_until(lambda text: "orders" in text and "nightly" in text)
            screen.type("\x03")
        assert screen.end() == 0

    lines = screen.lines
    head = next(line for line in lines if line.startswith("name"))
    first = lines.index(next(line for line in lines if line.startswith("team/")))
    assert max(len(line) for line in lines) <= columns
    assert LONG in "".join(line.split(" ")[0] for line in lines[first : first + 2])
    assert any(re.match(r"orders +held", line) for line in lines)
    assert ("holder" in head, "token" in head) == (columns > 40, columns == 200)


def test_a_change_is_drawn_and_ctrl_c_ends_it(url: str) -> None:
    """The table is drawn again as a lock is taken; Ctrl-C leaves the last one and the cursor, and gives 0."""
    with Screen("watch", url, "--interval", "0.2") as screen:
        screen.read_until(lambda text: "1 of 3 held" in text)
        assert asynclock("run", f"{url}/weekly", "--at-least", "60", "true").returncode == 0
        screen.read_until(lambda text: "2 of 4 held" in text)
        screen.type("\x03")
        code = screen.end()

    assert code == 0
    assert screen.text.rstrip().endswith("\x1b[?25h")
    assert "Traceback" not in screen.text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_shows_the_cursor_again(url: str, number: signal.Signals, code: int) -> None:
    """SIGTERM and SIGHUP end it as they end others, but with the cursor visible."""
    with Screen("watch", url) as screen:
        screen.read_until(lambda text: "1 of 3 held" in text)
        screen.process.send_signal(number)
        ended = screen.end()

    assert ended == code
    assert screen.text.rstrip().endswith("\x1b[?25h")


def test_a_failure_of_the_store_is_drawn(folder: Path, tmp_path: Path) -> None:
    """After the first look a failure is a line below the last table, until the store answers again."""
    asynclock("run", f"file://{folder}/nightly", "true")
    with Screen("watch", f"file://{folder}", "--interval", "0.2") as screen:
        screen.read_until(lambda text: "0 of 1 held" in text)
        folder.rename(tmp_path / "away")
        screen.read_until(lambda text: "the store failed, trying again" in text)
        (tmp_path / "away").rename(folder)
        seen = len(screen.text)
        screen.read_until(lambda text: "0 of 1 held" in text[seen:].rpartition("the store failed")[2])
        screen.type("\x03")
        assert screen.end() == 0

    assert max(len(line) for line in screen.lines) <= 80


def test_a_low_terminal_shows_what_is_held_first(url: str) -> None:
    """Where not all locks have room, those that are held come first, and the rest are counted."""
    with Screen("watch", url, rows=5) as screen:
        screen.read_until(lambda text: "and 2 more" in text)
        screen.type("\x03")
        screen.end()

    assert any(line.startswith("orders") for line in screen.lines)
    assert not any(line.startswith("nightly") for line in screen.lines)


@pytest.mark.parametrize("command", ["list", "watch"])
def test_no_color_has_no_colours(url: str, command: str) -> None:
    """With NO_COLOR nothing is coloured; without it the states are."""
    found = []
    for environment in ({"NO_COLOR": "1"}, {}):
        with Screen(command, url, environment=environment) as screen:
            screen.read_until(lambda text: "nightly" in text and "orders" in text)
            if command == "watch":
                screen.type("\x03")
            screen.end()
        found.append(COLOUR.search(screen.text) is not None)

    assert found == [False, True]


def test_a_dumb_terminal_gets_lines(url: str) -> None:
    """A terminal that cannot move its cursor gets a line for each lock, and no escapes."""
    with Screen("watch", url, environment={"TERM": "dumb"}) as screen:
        screen.read_until(lambda text: "orders held" in text)
        screen.type("\x03")
        assert screen.end() == 0

    assert "\x1b" not in screen.text


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_without_a_terminal_each_change_is_a_line(url: str, words: tuple[str, ...]) -> None:
    """First every lock, then each change of state or owner; a renewal is none. Ctrl-C ends it with 0."""
    watching = start("watch", url, "--interval", "0.2", *words)
    try:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(3)]
        asynclock("run", f"{url}/nightly", "--at-least", "60", "true")
        lines.append(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        code, rest, errors = finish(watching)
    finally:
        kill_group(watching)

    found = [json.loads(line) for line in lines] if words else [line.split() for line in lines]
    names = [each["name"] if isinstance(each, dict) else each[2] for each in found]
    states = [each["state"] if isinstance(each, dict) else each[3] for each in found]
    assert (code, rest, errors) == (0, "", "")
    assert names == ["nightly", "orders", LONG, "nightly"]
    assert states == ["free", "held", "free", "held"]


def test_a_store_that_goes_away_and_comes_back_is_named_once(folder: Path, tmp_path: Path) -> None:
    """A failure after the first look is a sentence, not the end; so is the return of the store."""
    asynclock("run", f"file://{folder}/nightly", "true")
    watching = start("watch", f"file://{folder}", "--interval", "0.1")
    try:
        assert watching.stdout is not None
        assert watching.stderr is not None
        watching.stdout.readline()
        folder.rename(tmp_path / "away")
        failed = watching.stderr.readline()
        (tmp_path / "away").rename(folder)
        back = watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        code, _, errors = finish(watching)
    finally:
        kill_group(watching)

    assert "does not exist" in failed
    assert "trying again" in failed
    assert back == "asynclock: the store answers again\n"
    assert (code, errors) == (0, "")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("file:///no/such/folder",), 69, "does not exist"),
        (("nonsense://x",), 2, "unknown scheme"),
        (("memory://x", "--interval", "0"), 2, "interval"),
        (("memory://x", "--interval", "nan"), 2, "interval"),
    ],
)
def test_what_cannot_be_watched_is_refused(words: tuple[str, ...], code: int, says: str) -> None:
    """A store that fails at the first look, or a wrong word, ends the command with a sentence."""
    ran = asynclock("watch", *words)

    assert (ran.returncode, ran.stdout) == (code, "")
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_reader_that_has_gone_ends_it(folder: Path) -> None:
    """``watch | head -1``: the next line cannot be written, which ends the command without a word."""
    for name in ("a", "b"):
        asynclock("run", f"file://{folder}/{name}", "true")
    watching = start("watch", f"file://{folder}", "--interval", "0.1")
    try:
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.stdout.close()
        asynclock("run", f"file://{folder}/a", "--at-least", "60", "true")
        eventually(lambda: watching.poll() is not None)
        assert watching.stderr is not None
        with watching.stderr as stream:
            errors = stream.read()
    finally:
        if watching.poll() is None:
            watching.kill()
            watching.wait()

    assert (watching.returncode, errors) == (1, "")
