"""``asynclock verify``: judges what clients logged as JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asynclock._cli.arguments import json_option
from asynclock._cli.audit_command import verify_command as verify_table_command
from asynclock._cli.durations import duration
from asynclock._cli.exit_codes import DONE, NO
from asynclock._cli.output import print_json
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock._cli.judged_logs import Verdict


class _VerifyCommand(click.Command):
    """``verify TABLE`` is the old name of ``hudi verify TABLE``, and does the same."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401  as in click
    ) -> click.Context:
        """Return the context of this command, or of the one that a table is meant for."""
        if any("://" in word or (not word.startswith("-") and Path(word).is_dir()) for word in args):
            return verify_table_command.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("verify", cls=_VerifyCommand, short_help="Judge logs: believers, tokens, fenced writes.")
@click.argument(
    "logs",
    metavar="LOG [LOG ...]",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.option(
    "--max-clock-skew",
    type=duration,
    default=LeaseSettings().max_clock_skew,
    metavar="TIME",
    help="How far the clocks of the machines differ at most; default 2s; 0: one machine.",
)
@click.option(
    "--shared-files",
    is_flag=True,
    help="All machines share the folders of file:// locks: judge their leases together.",
)
@json_option
def verify_logs_command(
    *, logs: tuple[str, ...], max_clock_skew: float, shared_files: bool, as_json: bool
) -> int:
    """Judge what clients logged: no lock had two believers, tokens rose, fenced writes kept their order.

    A LOG has a JSON object per line, at level DEBUG, from asynclock.telemetry.JsonFormatter or another
    formatter that writes the extra fields of a record. Other lines are counted, and ignored like a cut last
    line. Give the logs of all machines together. A - is the standard input.

    A lock at memory:// is one of its process, a lock at file:// one of its machine, unless --shared-files.

    Only what is certain is a violation: two leases that overlap by more than --max-clock-skew, for example. A
    lock that was broken by hand has two believers for a while; one whose object was deleted loses its token.

    Exit codes: 0 no violation; 1 a violation, or an event that cannot be read; 2 no events in the logs.
    """
    from asynclock._cli.judged_logs import verdict_on  # noqa: PLC0415  lets other commands start faster

    verdict = verdict_on(map(_lines, logs), skew=max_clock_skew, shared_files=shared_files)
    if not verdict.events and not verdict.damaged:
        raise click.UsageError(
            "no events of asynclock in the logs: log at level DEBUG, with asynclock.telemetry.JsonFormatter"
        )
    _show(verdict, as_json=as_json)
    return NO if verdict.violations or verdict.damaged else DONE


def _lines(log: str) -> Iterator[bytes]:
    """Yield the lines of a log, which is open for no longer than that."""
    with click.open_file(log, "rb") as file:
        yield from file


def _show(verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        print_json(verdict)
        return
    for detail in verdict.details:
        click.echo(detail)
    if verdict.violations > len(verdict.details):
        click.echo(f"and {verdict.violations - len(verdict.details)} more violations")
    for count, what in (
        (verdict.damaged, "events cannot be read: their lines are damaged"),
        (verdict.cut, "cut last lines are ignored"),
        (verdict.foreign, "lines are not of asynclock"),
        (
            verdict.unplaced,
            "leases and fenced writes are not judged: their lines have no host.name or process.pid",
        ),
        (
            verdict.per_machine,
            "locks at file:// are judged for each machine apart: if they share folders, add --shared-files",
        ),
        (verdict.unended, "leases have no end in the logs, and count until the last that is known of them"),
        (
            verdict.clock_was_set,
            "leases are not judged: a clock was set, or stood still, while they were held",
        ),
        (verdict.unclear, "overlaps are shorter than the clocks may differ, and prove nothing"),
    ):
        if count:
            click.echo(f"{count} {what}")
    click.echo(
        f"verify: {verdict.logs} logs, {verdict.leases} leases of {verdict.locks} locks, "
        f"{verdict.updates} fenced writes, {verdict.violations} violations"
    )
