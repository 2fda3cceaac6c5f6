"""Groups of commands whose help shows a whole sentence for each of them."""

from __future__ import annotations

import copy
import re
from typing import Any

import click


class CommandGroup(click.Group):
    """A group that never cuts off what its commands say of themselves, in its help and in completions."""

    def __init__(self, *args: Any, **words: Any) -> None:  # noqa: ANN401  as of click
        super().__init__(*args, **{"subcommand_metavar": "COMMAND [ARG ...]", **words})

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command; its short help is the first sentence of its help, unless it has its own."""
        if not cmd.short_help and cmd.help:
            cmd.short_help = _first_sentence(cmd.help)
        super().add_command(cmd, name)

    def add_old_name(self, cmd: click.Command) -> None:
        """Let a command that is in another group now still work here, without showing it."""
        old = copy.copy(cmd)
        old.hidden = True
        self.add_command(old)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"\.(?= [A-Z]|$)", paragraph, maxsplit=1)[0] + "."
