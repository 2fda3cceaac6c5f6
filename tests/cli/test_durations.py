"""Durations, as every option takes them and as the command says them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from asynclock._cli.app import command
from asynclock._cli.durations import REFUSED, duration, parse_duration
from tests.cli.command import asynclock, locks

if TYPE_CHECKING:
    from pathlib import Path

WRONG = [
    "",
    "-1",
    "-5m",
    "+5",
    "nan",
    "inf",
    "1e3",
    "5 m",
    " 5m",
    "5m ",
    "5M",
    "m",
    ".",
    "1h30m",
    "1,5h",
    "5ms",
    "٣s",
]


@pytest.mark.parametrize(
    ("word", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("1h", 3600),
        ("30d", 2_592_000),
        ("0", 0),
        ("0.25", 0.25),
        (".5s", 0.5),
        ("1.5h", 5400),
    ],
)
def test_a_duration_is_seconds_or_has_a_unit(word: str, seconds: float) -> None:
    """Seconds, minutes, hours and days, with fractions."""
    assert parse_duration(word) == seconds


@pytest.mark.parametrize("word", WRONG, ids=repr)
def test_what_is_no_duration_is_refused(word: str) -> None:
    """Negative numbers, nan, inf, blanks and other units are none, and the sentence shows what is one."""
    with pytest.raises(ValueError, match="as in 90, 90s, 5m, 1h or 30d"):
        parse_duration(word)


def options(group: click.Group = command, before: str = "asynclock") -> dict[str, click.Option]:
    """Every option of the command and of everything under it."""
    found: dict[str, click.Option] = {}
    group.list_commands(click.Context(group))  # also those of other packages
    for name, each in group.commands.items():
        path = f"{before} {name}"
        if isinstance(each, click.Group):
            found |= options(each, path)
        found |= {f"{path} {one.opts[0]}": one for one in each.params if isinstance(one, click.Option)}
    return found


def test_every_option_that_takes_a_time_takes_a_duration() -> None:
    """No option reads a bare float, and those that show TIME read durations."""
    found = options()
    bare = [name for name, one in found.items() if isinstance(one.type, click.types.FloatParamType)]
    timed = {name for name, one in found.items() if getattr(one.type, "func", None) is duration}

    assert bare == []
    assert timed == {name for name, one in found.items() if one.metavar == "TIME"}
    assert {
        "asynclock run --wait",
        "asynclock prune --older-than",
        "asynclock pipeline reserve --wait",
    } <= timed


@pytest.mark.parametrize("option", ["--wait", "--validity", "--at-least", "--at-most", "--max-clock-skew"])
@pytest.mark.parametrize("word", ["-1", "nan", "5 m"])
def test_a_wrong_duration_is_one_sentence(folder: Path, target: str, option: str, word: str) -> None:
    """Exit code 2, the option and what a duration is; nothing is run or written."""
    ran = asynclock("run", target, option, word, "true")

    assert ran.returncode == 2
    assert f"Invalid value for '{option}': '{word}' {REFUSED}" in " ".join(ran.stderr.split())
    assert locks(folder) == []


def test_the_option_of_a_store_that_is_a_time_is_a_duration_too(target: str) -> None:
    """``-o min_write_interval=1s``; what is none gets the same sentence."""
    assert asynclock("run", target, "-o", "min_write_interval=0.1s", "true").returncode == 0
    refused = asynclock("run", target, "-o", "min_write_interval=fast", "true")

    assert refused.returncode == 2
    assert f"min_write_interval='...': {REFUSED}" in refused.stderr
