"""``asynclock hudi``: the locks of Hudi tables."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import TYPE_CHECKING

import click

from asynclock._cli.arguments import (
    backend_option,
    break_options,
    check_option,
    json_option,
    store_options,
    table_argument,
    table_options,
)
from asynclock._cli.audit_command import audit_command
from asynclock._cli.durations import duration
from asynclock._cli.exit_codes import exit_code
from asynclock._cli.groups import CommandGroup
from asynclock._cli.lock_commands import break_by_hand, status_code
from asynclock._cli.output import print_json, print_status, tell
from asynclock._cli.run_command import run_under
from asynclock._cli.run_words import CMD, RunCommand
from asynclock._codes import Code
from asynclock.errors import AcquireTimeoutError, AsyncLockError

if TYPE_CHECKING:
    from asynclock.hudi._core.table_locks import OpenedTable, TableLockStatus
    from asynclock.lease import Lease


@click.group("hudi", short_help="See, hold and audit the lock of a Hudi table.", cls=CommandGroup)
def hudi_group() -> None:
    """See, hold and audit the lock of a Hudi table, which its writers take at their commits."""


hudi_group.add_command(audit_command)


@hudi_group.command("status", short_help="Show the lock of TABLE.")
@table_argument
@check_option
@backend_option
@json_option
def hudi_status_command(table: str, options: dict[str, object], *, check: bool, as_json: bool) -> int:
    """Show the lock of TABLE, such as s3a://bucket/warehouse/orders.

    Exit code 65 if it is corrupt. With --check, 1 if it is held, and 0 if it can be taken now.
    """
    status = asyncio.run(_read(table, options))
    if as_json:
        print_json(status)
    else:
        print_status(status, break_command=f"asynclock hudi break {table}")
        sys.stdout.write(f"  {'table':<14}version {status.table_version}\n")
        if status.warning is not None:
            tell(f"warning: {status.warning}", Code.HUDI_LOCK)
    return status_code(status, check=check)


@hudi_group.command("freeze", short_help="Run CMD while no writer can commit to TABLE.", cls=RunCommand)
@table_argument
@click.argument("command", metavar=CMD, nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--wait", type=duration, metavar="TIME", help="Longest wait for the lock; default: no limit; 0: one try."
)
@click.option(
    "--validity", type=duration, default=300.0, metavar="TIME",
    help="If this machine dies, writers wait about this long; whole seconds, 10s or more, default 5m.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print nothing about the wait, only errors.")
@store_options
def hudi_freeze_command(
    *,
    table: str,
    command: tuple[str, ...],
    wait: float | None,
    validity: float,
    quiet: bool,
    options: dict[str, object],
    max_clock_skew: float | None,
) -> int:
    """Run CMD while no writer can commit to TABLE, for example to copy its files.

    CMD must not write to TABLE through Hudi: that write would wait for this very lock. Writers wait at their
    next commit, for up to their hoodie.write.lock.wait_time_ms.

    If the lock is lost, CMD is ended. The exit codes are those of asynclock run. CMD finds ASYNCLOCK_LOCK,
    ASYNCLOCK_OWNER and ASYNCLOCK_VALID_UNTIL_MS in its environment.
    """
    from asynclock.hudi._core import hoodie  # noqa: PLC0415  lets other commands start faster
    from asynclock.hudi._core.lock_options import LockOptions  # noqa: PLC0415  as above
    from asynclock.hudi._core.paths import LOCK_NAME, TablePath  # noqa: PLC0415  as above
    from asynclock.hudi._core.properties import read_table  # noqa: PLC0415  as above
    from asynclock.hudi._core.table_locks import OpenedTable  # noqa: PLC0415  as above

    path = TablePath.parse(table)
    words = table_options(table, options, max_clock_skew=max_clock_skew)
    if not validity.is_integer():
        raise click.BadParameter("must be whole seconds, as in Hudi", param_hint="'--validity'")
    words[hoodie.WRITE_LOCK_STORAGE_VALIDITY_TIMEOUT_SECS] = str(int(validity))
    words[hoodie.WRITE_LOCK_STORAGE_RENEW_INTERVAL_SECS] = str(max(1, int(validity) // 10))
    target = f"{path.url}/{LOCK_NAME}"
    level = logging.ERROR if quiet else logging.INFO
    opened = OpenedTable(path, LockOptions.read(path, words), fencing=False)
    client = opened.client

    async def release(lease: Lease) -> None:
        # Release through the lease, so that the audit trail gets its END; a client would not write one.
        releasing = asyncio.ensure_future(_release(lease, opened))
        await asyncio.wait([releasing], timeout=client._core.exit_bound)

    async def run() -> int:
        try:
            await client._core.run(lambda: read_table(client.backend, path))
            return await run_under(
                client, opened.lock, command, target=target, wait=wait, finish=release, level=level
            )
        finally:
            await client.aclose()

    try:
        return asyncio.run(run())
    except AcquireTimeoutError as error:
        tell(f"{target}: CMD was not run: {error}")
        return exit_code(error)


async def _release(lease: Lease, opened: OpenedTable) -> None:
    with contextlib.suppress(AsyncLockError):  # ``lease.lost`` has the loss and decides the exit code
        await lease.release()
    await opened.finish_audit()


@hudi_group.command("break", short_help="Free the lock of TABLE by hand.")
@table_argument
@break_options
@store_options
@json_option
def hudi_break_command(
    table: str,
    options: dict[str, object],
    max_clock_skew: float | None,
    *,
    yes: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Free the lock of TABLE by hand: an expired one, or with --force a live or corrupt one.

    Stop its holder first: a Hudi writer may still commit after it lost the lock.
    """
    from asynclock.hudi._core.paths import LOCK_NAME, TablePath  # noqa: PLC0415  lets other commands start faster

    status = asyncio.run(_read(table, options))
    if status.warning is not None:
        tell(f"warning: {status.warning}", Code.HUDI_LOCK)
    target = f"{TablePath.parse(table).url}/{LOCK_NAME}"
    return break_by_hand(target, options, max_clock_skew, yes=yes, force=force, as_json=as_json)


async def _read(table: str, options: dict[str, object]) -> TableLockStatus:
    from asynclock.hudi import table_lock  # noqa: PLC0415  lets other commands start faster

    return await table_lock(table, table_options(table, options)).status()
