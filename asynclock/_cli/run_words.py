"""The command line of ``asynclock run``: finds the place where its own words end and CMD begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

CMD: Final = "[--] CMD [ARG ...]"
"""CMD in a usage line."""


class RunCommand(click.Command):
    """A command whose second argument starts another command, which gets all words after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, and leave those of CMD alone, with or without ``--`` before them.

        Raises:
            click.UsageError: The lock or CMD is missing, or CMD comes before the lock.
        """
        taking_a_value = _taking_a_value(self.get_params(ctx))
        start = _start_of_command(args, taking_a_value)
        what = next(
            each.make_metavar(ctx) for each in self.get_params(ctx) if isinstance(each, click.Argument)
        )
        example = f"{ctx.command_path} {what} -- ./job.sh"
        if not ctx.resilient_parsing and not {"-h", "--help"} & set(args):
            _refuse_disorder(args, taking_a_value, what, ctx)
        try:
            return super().parse_args(ctx, [*args[:start], "--", *args[start:]] if start else args)
        except click.MissingParameter as error:
            if error.param is not None and error.param.name == "command":
                raise click.UsageError(f"CMD is missing, as in: {example}", ctx) from None
            raise


def _taking_a_value(parameters: Sequence[click.Parameter]) -> frozenset[str]:
    return frozenset(
        name
        for option in parameters
        if isinstance(option, click.Option) and not option.is_flag and not option.count
        for name in option.opts
    )


def _refuse_disorder(
    words: Sequence[str], taking_a_value: frozenset[str], what: str, ctx: click.Context
) -> None:
    """Refuse a command line whose first word is not a lock, if a later one is, or if ``--`` precedes it."""
    start = _start_of_command(words, taking_a_value)
    dashes = words.index("--") if "--" in words else len(words)
    first = _first_argument(words[:dashes], taking_a_value)
    if first is None:
        if dashes + 1 < len(words) and "://" not in words[dashes + 1]:
            raise click.UsageError(f"{what} is missing before --", ctx)
        return
    second = words[start] if start else next(iter(words[dashes + 1 :]), "")
    if "://" not in first and "://" in second:
        raise click.UsageError(f"{what} comes first, then CMD: {ctx.command_path} {second} -- {first}", ctx)


def _first_argument(words: Sequence[str], taking_a_value: frozenset[str]) -> str | None:
    index = 0
    while index < len(words):
        if not words[index].startswith("-") or words[index] == "-":
            return words[index]
        index += 2 if words[index] in taking_a_value else 1
    return None


def _start_of_command(words: Sequence[str], taking_a_value: frozenset[str]) -> int:
    """Return the index of CMD's first word; 0 if there is none or ``--`` already marks it."""
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
