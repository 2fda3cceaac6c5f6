"""Groups of commands whose help shows a whole sentence for each command."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MEANT: Final = {
    "unlock": "break",
    "release": "break",
    "lock": "run",
    "exec": "run",
    "ls": "list",
    "show": "status",
}
"""Other programs' words for commands."""


class CommandGroup(click.Group):
    """A group that shows the short help of its commands in full, in its help and in completions.

    Args:
        args: As of ``click.Group``.
        more: Returns more commands; called once, for a list of all or for a word that names none so far.
        words: As of ``click.Group``.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401  as in click
        more: Callable[[], Iterable[click.Command]] = tuple,
        **words: Any,  # noqa: ANN401
    ) -> None:
        self._more = more
        super().__init__(*args, **{"subcommand_metavar": "COMMAND [ARG ...]", **words})

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command. Its default short help is the first sentence of its help."""
        if not cmd.short_help and cmd.help:
            cmd.short_help = _first_sentence(cmd.help)
        super().add_command(cmd, name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        self._add_more()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, or None."""
        if cmd_name not in self.commands:
            self._add_more()
        return super().get_command(ctx, cmd_name)

    def _add_more(self) -> None:
        more, self._more = self._more, tuple
        for each in more():
            self.add_command(each)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names.

        Raises:
            click.UsageError: It names none; the error suggests one.
        """
        word = args[0]
        if self.get_command(ctx, word) is None and not ctx.resilient_parsing and not word.startswith("-"):
            if (verb := next((each for each in args[1:] if each in self.commands), None)) is not None:
                raise click.UsageError(f"the command comes first: {ctx.command_path} {verb} {word}", ctx)
            if (verb := _MEANT.get(word)) in self.commands:
                raise click.UsageError(f"No such command '{word}'. Did you mean '{verb}'?", ctx)
        return super().resolve_command(ctx, args)

    def add_old_name(self, cmd: click.Command) -> None:
        """Keep a moved command working here under its old name, but hidden."""
        old = copy.copy(cmd)
        old.hidden = True
        self.add_command(old)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"\.(?= [A-Z]|$)", paragraph, maxsplit=1)[0] + "."
