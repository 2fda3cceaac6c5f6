"""The commands, and the exit codes of their errors."""

from __future__ import annotations

import errno
import io
import logging
import re
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from asynclock._cli.audit_command import history_command, verify_command
from asynclock._cli.code_command import explain_command
from asynclock._cli.completion import completion_command
from asynclock._cli.cost import cost_command
from asynclock._cli.doctor import doctor_command
from asynclock._cli.exit_codes import NO, SIGNALLED, exit_code
from asynclock._cli.groups import CommandGroup
from asynclock._cli.hudi_command import hudi_group
from asynclock._cli.lock_commands import break_command, list_command, status_command
from asynclock._cli.output import print_message, tell
from asynclock._cli.policy import policy_command
from asynclock._cli.prune_command import prune_command
from asynclock._cli.run_command import run_locked_command
from asynclock._cli.standard_streams import drop_output
from asynclock._cli.verify_command import verify_logs_command
from asynclock._cli.watch import watch_command
from asynclock._codes import Code, coded
from asynclock._core.names import by_name
from asynclock._secrets import clean_message, clean_url
from asynclock._text import SUFFIX
from asynclock.errors import AsyncLockError, RecordCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_COMMANDS: Final = "asynclock.commands"
"""The group of entry points that are commands of other packages, such as the pipeline's."""
_OUTPUT_ERRORS: Final = frozenset(
    {errno.EAGAIN, errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.EPIPE}
)
_HELP: Final = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""The error that makes a group without a command show its help; the oldest click prints it instead."""
_EXTRA: Final = re.compile(r"(unexpected extra arguments?) \(.*\)", re.DOTALL)
_ASSIGNED: Final = re.compile(r"=\S+")


def _installed() -> Iterator[click.Command]:
    from importlib.metadata import entry_points  # noqa: PLC0415  lets other commands start faster

    return (point.load() for point in entry_points(group=_COMMANDS))


@click.group(cls=CommandGroup, more=_installed, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="asynclock")
def command() -> None:
    """Locks that live in an object store, a folder or memory.

    URL/ is the place of the locks, such as s3://bucket/locks, gs://bucket/locks, az://container/locks or
    file:///var/lib/locks. URL/NAME is one lock, such as s3://bucket/locks/nightly. If ASYNCLOCK_URL is set,
    you can leave out URL/; a name alone is then a lock there.

    -o KEY=VALUE is an option of the store, such as endpoint_url=https://minio.example.com. You can repeat it.
    ASYNCLOCK_OPTION_KEY=VALUE does the same for the store of ASYNCLOCK_URL. Give a secret, such as
    secret_access_key, as KEY=env:NAME (an environment variable), KEY=file:PATH or KEY=- (the next line of the
    standard input), because all users can see the command line.

    TIME is seconds or a number with its unit: 90, 90s, 5m, 1h, 30d.

    Exit codes: 0 done; 1 the answer is no; 2 usage, URL or settings; 65 corrupt lock;
    69 store unavailable or denied; 75 not acquired in time; 76 lease lost.
    """


@click.command("help", hidden=True)
@click.argument("words", nargs=-1, metavar="[COMMAND]")
def help_command(words: tuple[str, ...]) -> None:
    """Show the help of a command, like --help after it."""
    command.main([*words, "--help"], prog_name="asynclock", standalone_mode=False)


for _each in (
    run_locked_command,
    status_command,
    list_command,
    watch_command,
    break_command,
    prune_command,
    doctor_command,
    policy_command,
    cost_command,
    verify_logs_command,
    completion_command,
    explain_command,
    hudi_group,
):
    command.add_command(_each)
hudi_group.add_command(history_command)
hudi_group.add_command(verify_command)
command.add_command(help_command)
command.add_old_name(history_command)


def _sentence(error: AsyncLockError) -> str:
    """Return the message for an error, with the lock's name instead of its key, and with the remedy here."""
    key = str(getattr(error, "key", ""))
    if not key.endswith(SUFFIX):
        return str(error)
    if isinstance(error, RecordCorruptError):
        return (
            f"lock {key.removesuffix(SUFFIX)!r} is corrupt ({error.reason}); nothing was written; find out "
            "who wrote it; asynclock break shows its first bytes, and with --force replaces it with a free "
            f"lock [{error.code}]"
        )
    return by_name(str(error), key)


def _without_secrets(complaint: str, words: Sequence[str]) -> str:
    """Return a complaint about a command line without words that may be secrets."""
    for word in words:
        if ":/" in word or "@" in word:
            complaint = complaint.replace(word, clean_url(word))
    complaint = _ASSIGNED.sub("=...", complaint)
    complaint = _EXTRA.sub(r"\1, which may be a secret and is not shown", complaint)
    return "\n".join(clean_message(line.expandtabs()) for line in complaint.split("\n"))


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; errors go to the standard error."""
    logging.basicConfig(format="asynclock: %(message)s")
    try:
        code: Any = command.main(arguments, prog_name="asynclock", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        words = sys.argv[1:] if arguments is None else arguments
        is_help = isinstance(error, _HELP)
        complaint = _without_secrets(shown.getvalue(), words)
        print_message(shown.getvalue() if is_help else f"{coded(complaint.rstrip(), Code.USAGE)}\n")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return SIGNALLED + signal.SIGINT
    except AsyncLockError as error:
        tell(_sentence(error))
        return exit_code(error)
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        drop_output()
        tell(f"the output could not be written: {error.strerror}", Code.OUTPUT)
        return NO
    return code if isinstance(code, int) else 0
