"""``asynclock completion``: lets a shell complete the command's words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from asynclock._cli.exit_codes import DONE

_PROGRAM = "asynclock"


@click.command("completion", short_help="Print the script that completes words in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> int:
    """Print the script that completes asynclock's words in SHELL.

    For bash: asynclock completion bash > ~/.local/share/bash-completion/completions/asynclock
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  one of the choices
    script = kind(context.find_root().command, {}, _PROGRAM, f"_{_PROGRAM.upper()}_COMPLETE").source()
    click.echo(script)
    return DONE
