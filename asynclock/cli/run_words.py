"""The command line of ``asynclock run``: where its own words end and those of CMD begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

CMD: Final = "[--] CMD [ARG ...]"
"""How a usage line shows the command that is run."""


class RunCommand(click.Command):
    """A command whose second argument begins another command: all words after it belong to that."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; those of CMD are left as they are, with or without ``--`` before them."""
        start = _start_of_command(args, _taking_a_value(self.get_params(ctx)))
        return super().parse_args(ctx, [*args[:start], "--", *args[start:]] if start else args)


def _taking_a_value(parameters: Sequence[click.Parameter]) -> frozenset[str]:
    return frozenset(
        name
        for option in parameters
        if isinstance(option, click.Option) and not option.is_flag and not option.count
        for name in option.opts
    )


def _start_of_command(words: Sequence[str], taking_a_value: frozenset[str]) -> int:
    """Return the index of CMD's first word; 0 if ``--`` marks it already, or there is none."""
    arguments, index = 0, 0
    while index < len(words):
        word = words[index]
        if word == "--":
            return 0
        if not word.startswith("-") or word == "-":
            arguments += 1
            if arguments == 2:  # noqa: PLR2004  URL/NAME, then CMD
                return index
        elif word in taking_a_value:
            index += 1
        index += 1
    return 0
