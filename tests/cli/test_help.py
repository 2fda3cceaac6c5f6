"""The help of every command, as it is read on a terminal of 80 columns."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import click
import pytest

from asynclock import __version__
from asynclock._cli.app import command
from tests.cli.command import asynclock

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_SECRETS = "all users can see the command line"


def paths(group: click.Group = command, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words before ``--help`` of the command and of everything under it."""
    yield before
    group.list_commands(click.Context(group))  # also those of other packages
    for name, each in group.commands.items():
        if isinstance(each, click.Group):
            yield from paths(each, (*before, name))
        else:
            yield (*before, name)


@cache
def help_of(words: tuple[str, ...]) -> str:
    """What ``--help`` prints."""
    ran = asynclock(*words, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.parametrize("words", list(paths()), ids=" ".join)
def test_no_line_of_a_help_is_cut_off(words: tuple[str, ...]) -> None:
    """Every line fits 80 columns, none ends in dots, and no markup of a docstring is left."""
    lines = help_of(words).splitlines()

    assert [line for line in lines if line.rstrip().endswith(("...", "…"))] == []
    assert max(len(line) for line in lines) <= 80
    assert [line for line in lines if "``" in line] == []


def test_the_options_of_a_store_are_explained_once() -> None:
    """In ``asynclock --help``; each command with -o says where."""
    found = {words: " ".join(help_of(words).split()) for words in paths()}

    assert [words for words, text in found.items() if OF_SECRETS in text] == [()]
    with_option = [text for words, text in found.items() if words and "-o KEY=VALUE" in text]
    assert len(with_option) > 10
    assert all("See asynclock --help" in text for text in with_option)


def test_a_group_alone_shows_its_help_word_for_word() -> None:
    """``asynclock`` and ``asynclock hudi`` show what ``--help`` does, and end with 2."""
    for words in ((), ("hudi",)):
        ran = asynclock(*words)

        assert (ran.returncode, ran.stdout + ran.stderr) == (2, help_of(words))


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_printed(option: str) -> None:
    """Both spellings, on the standard output."""
    ran = asynclock(option)

    assert (ran.returncode, ran.stdout) == (0, f"asynclock, version {__version__}\n")


def test_an_old_name_still_works_and_is_not_shown() -> None:
    """``history`` belongs to ``hudi``; the name that it had before does the same."""
    old, new = asynclock("history", "file:///t"), asynclock("hudi", "history", "file:///t")

    assert (old.returncode, old.stderr) == (new.returncode, new.stderr) != (0, "")
    assert "\n  history " not in help_of(())
    assert "\n  history " in help_of(("hudi",))


@pytest.mark.parametrize(("typed", "meant"), [(("stauts",), "status"), (("hudi", "frezee"), "freeze")])
def test_a_mistyped_command_is_proposed(typed: tuple[str, ...], meant: str) -> None:
    """An unknown command gives 2 and the one that is like it."""
    ran = asynclock(*typed)

    assert ran.returncode == 2
    assert f"Did you mean '{meant}'?" in ran.stderr
