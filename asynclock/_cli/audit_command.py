"""``asynclock history``, ``verify`` and ``hudi audit``: the audit trail of a Hudi table's lock."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import click

from asynclock._cli.arguments import backend_option, json_option, table_argument, table_options
from asynclock._cli.durations import duration
from asynclock._cli.exit_codes import DONE, NO
from asynclock._cli.fitted_table import Column, fitted_table
from asynclock._cli.output import console, print_json, tell
from asynclock._text import printable

if TYPE_CHECKING:
    from asynclock.hudi import AuditHold

_DAY: Final = 86_400.0
_DEFAULT_AGE: Final = 7 * _DAY


def _clock(epoch_ms: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_ms / 1000))
    except (OverflowError, ValueError, OSError):  # the file may hold any number
        return str(epoch_ms)


def _held(hold: AuditHold) -> str:
    return f"{(hold.end_ms - hold.start_ms) / 1000:.1f} s" if hold.ended else "-"


def _style(hold: AuditHold) -> str:
    return "green" if hold.ended else "yellow"


_HOLDS: Final[tuple[Column[AuditHold], ...]] = (
    Column("acquired", lambda hold: _clock(hold.start_ms), 0),
    Column("end", lambda hold: "released" if hold.ended else "no END", 1, style=_style),
    Column("held", _held, 2),
    Column("renewals", lambda hold: str(hold.renewals), 4),
    Column("owner", lambda hold: printable(hold.owner), 3, least=8),
)


@click.command("history", short_help="Show who held the lock, from its audit trail.")
@table_argument
@click.option("-n", "--last", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@backend_option
@json_option
def history_command(table: str, last: int | None, options: dict[str, object], *, as_json: bool) -> int:
    """Show who held the lock of the Hudi table TABLE, from its audit trail, oldest first.

    Times are by the holders' own clocks. "no END": the holder died, lost the lock, or holds it now.
    """
    from asynclock.hudi import audit_history, audit_status  # noqa: PLC0415  lets other commands start faster

    words = table_options(table, options)
    holds = asyncio.run(audit_history(table, words))[-(last or 0) :]
    if not holds:
        enabled = asyncio.run(audit_status(table, words)).enabled
        state = "on, but still empty" if enabled else f"empty and off; asynclock hudi audit {table} enable"
        tell(f"the audit trail of {table} is {state}")
    elif not as_json:
        screen = console()
        screen.print(fitted_table(_HOLDS, holds, screen.width))
    else:
        for hold in holds:
            print_json(hold)
    return DONE


@click.command("verify", short_help="Check that the lock never had two holders at once.")
@table_argument
@backend_option
@json_option
def verify_command(table: str, options: dict[str, object], *, as_json: bool) -> int:
    """Check in the audit trail of the Hudi table TABLE that its lock never had two holders at once.

    Exit code 1 if two holds overlap, or no file can be read. A hold without an end is a warning.
    """
    from asynclock.hudi import audit_validate  # noqa: PLC0415  lets other commands start faster

    report = asyncio.run(audit_validate(table, table_options(table, options)))
    if as_json:
        print_json(report)
    else:
        for finding in report.findings:
            click.echo(finding)
        click.echo(f"{report.result}: {report.transactions} holds, {len(report.overlaps)} overlaps")
    return NO if report.result == "FAILED" else DONE


@click.command("audit", short_help="Show the audit trail, switch it on or off, or clean it up.")
@table_argument
@click.argument("action", type=click.Choice(["status", "enable", "disable", "cleanup"]), default="status")
@click.option("--delete-files", is_flag=True, help="With disable: delete the audit files too.")
@click.option("--older-than", type=duration, metavar="TIME", help="With cleanup: least age; default 7d.")
@click.option("--dry-run", is_flag=True, help="With cleanup: only name the files.")
@backend_option
@json_option
def audit_command(
    table: str,
    action: str,
    *,
    delete_files: bool,
    older_than: float | None,
    dry_run: bool,
    options: dict[str, object],
    as_json: bool,
) -> int:
    """Show whether the lock of TABLE has an audit trail, switch it on or off, or delete its old files.

    Once it is on, every holder writes a file, including Hudi's own writers. See hudi history and hudi verify.
    """
    from asynclock import hudi  # noqa: PLC0415  lets other commands start faster

    if delete_files and action != "disable":
        raise click.UsageError("--delete-files is only for disable")
    if (dry_run or older_than is not None) and action != "cleanup":
        raise click.UsageError("--older-than and --dry-run are only for cleanup")
    words = table_options(table, options)
    if action == "cleanup":
        age = _DEFAULT_AGE if older_than is None else older_than
        done = asyncio.run(hudi.audit_cleanup(table, words, age_days=age / _DAY, dry_run=dry_run))
        if as_json:
            print_json(done)
        else:
            for name in done.files:
                click.echo(f"{'would delete' if dry_run else 'deleted'} {printable(name)}")
            click.echo(
                f"{len(done.files)} audit files {'are' if dry_run else 'were'} older than {age / _DAY:g} days"
            )
        return DONE
    if action == "enable":
        asyncio.run(hudi.audit_enable(table, words))
    elif action == "disable":
        asyncio.run(hudi.audit_disable(table, words, keep_files=not delete_files))
    status = asyncio.run(hudi.audit_status(table, words))
    if as_json:
        print_json(status)
    else:
        click.echo(f"audit trail: {'on' if status.enabled else 'off'}")
        click.echo(f"  switch      {status.switch}")
        click.echo(f"  folder      {status.folder}")
        click.echo(f"  files       {status.files}")
    return DONE
