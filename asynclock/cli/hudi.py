"""``asynclock hudi``: the locks of Hudi tables."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import click

from asynclock.cli.arguments import backend_option, json_option
from asynclock.cli.exit_codes import CORRUPT, DONE
from asynclock.cli.output import print_json, print_status, tell
from asynclock.cli.target import with_environment

if TYPE_CHECKING:
    from asynclock.hudi.lock import TableLockStatus

_HUDI_OPTION: Final = "asynclock."


@click.group("hudi")
def hudi_group() -> None:
    """The lock of a Hudi table, which its writers take at their commits."""


@hudi_group.command("status")
@click.argument("table", metavar="TABLE")
@backend_option
@json_option
def hudi_status_command(table: str, options: dict[str, object], *, as_json: bool) -> int:
    """Show the lock of TABLE, such as s3a://bucket/warehouse/orders. Exit code 65 if it is corrupt."""
    status = asyncio.run(_read(table, options))
    if as_json:
        print_json(status)
    else:
        print_status(status)
        sys.stdout.write(f"  table       version {status.table_version}\n")
        if status.warning is not None:
            tell(f"warning: {status.warning}")
    return CORRUPT if status.state == "corrupt" else DONE


async def _read(table: str, options: dict[str, object]) -> TableLockStatus:
    from asynclock.hudi import table_lock  # noqa: PLC0415  lets other commands start faster
    from asynclock.hudi.paths import TablePath  # noqa: PLC0415  as above

    options = with_environment(TablePath.parse(table).url, options)
    words = {f"{_HUDI_OPTION}{name}": _word(value) for name, value in options.items()}
    return await table_lock(table, words).status()


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
