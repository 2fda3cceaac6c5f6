"""``asynclock explain``: the cause, the check and the cure of a code, without a network."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from asynclock._cli.exit_codes import DONE
from asynclock._codes import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAGE: Final = "codes.md"
"""The page of the reference; this package has it by a link, and a wheel as a file."""
_SECTION: Final = re.compile(r"^### (AL-\d{3}): (.+?)\n+(.*?)(?=^#{2,3} |\Z)", re.MULTILINE | re.DOTALL)
_NUMBER: Final = re.compile(r"\W*(?:AL)?\W*0*(\d{1,3})\W*", re.IGNORECASE)
_MARKUP: Final = re.compile(r"\*\*(\w+:)\*\*|^```\w*\n?|`|\[([^]]+)\]\([^)]+\)", re.MULTILINE)


def explanations() -> Mapping[str, tuple[str, str]]:
    """Return the title and the text of each code, in Markdown, in the order of the page."""
    from importlib.resources import files  # noqa: PLC0415  lets other commands start faster

    page = files("asynclock._cli").joinpath(_PAGE).read_text(encoding="utf-8")
    return {found[1]: (found[2], found[3].strip()) for found in _SECTION.finditer(page)}


@click.command("explain")
@click.argument("codes", metavar="[CODE ...]", nargs=-1)
def explain_command(codes: tuple[str, ...]) -> int:
    """Explain the CODE at the end of an error or a message, such as AL-010; without CODE, list all.

    Prints the cause, how to check it, the cure and an example. Nothing is sent.
    """
    known = explanations()
    if not codes:
        for code, (title, _) in known.items():
            click.echo(f"{code}  {_plain(title)}")
        return DONE
    shown = [(each, *known[each]) for each in (_known(word, known) for word in codes)]
    click.echo("\n\n".join(f"{code}: {_plain(title)}\n\n{_plain(text)}" for code, title, text in shown))
    return DONE


def _known(word: str, known: Mapping[str, tuple[str, str]]) -> str:
    """Return the code that a word names, also in brackets, in lower case or without its letters."""
    found = _NUMBER.fullmatch(word)
    code = f"AL-{int(found[1]):03}" if found else word
    if code not in known:
        first, last = min(Code), max(Code)
        raise click.BadParameter(f"{word!r} is no code; codes are {first} to {last}, see asynclock explain")
    return code


def _plain(text: str) -> str:
    """Return Markdown as a terminal shows it best: without its markup, with the examples as they are."""
    return _MARKUP.sub(lambda found: found[1] or found[2] or "", text).rstrip()
