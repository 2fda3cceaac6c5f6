"""``asynclock prune``: deletes the objects of locks that have been free for a long time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from asynclock._cli.arguments import json_option, store_options, url_argument
from asynclock._cli.durations import duration
from asynclock._cli.exit_codes import DONE
from asynclock._cli.output import print_json, tell
from asynclock._cli.target import connect_to, refuse_hudi_table

if TYPE_CHECKING:
    from asynclock._core.prune import PruneReport


@click.command("prune", short_help="Delete the objects of locks that nobody has held for a long time.")
@url_argument
@click.option(
    "--older-than",
    type=duration,
    required=True,
    metavar="TIME",
    help="Free for at least this long, as in 36h or 30d; 1d or more.",
)
@click.option("--dry-run", is_flag=True, help="Only name the locks.")
@store_options
@json_option
def prune_command(
    url: str,
    older_than: float,
    options: dict[str, object],
    max_clock_skew: float | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete the objects of the locks under URL that nobody has held for a long time.

    A pruned lock can be taken as before, and its fencing token still rises. Held and corrupt locks and those
    of Hudi tables stay. Exit code 69 if the store cannot delete on a condition; then nothing was deleted.
    """
    from asynclock._core.prune import prune  # noqa: PLC0415  lets other commands start faster

    def name_it(name: str) -> None:
        if not as_json:
            click.echo(f"{'would delete' if dry_run else 'deleted'} {name}")

    async def work() -> PruneReport:
        async with connect_to(url, options, max_clock_skew=max_clock_skew) as client:
            await refuse_hudi_table(client, "", url)
            return await prune(client._core, older_than=older_than, dry_run=dry_run, on_delete=name_it)

    report = asyncio.run(work())
    if as_json:
        print_json(report)
    else:
        done = "would be deleted" if dry_run else "deleted"
        tell(f"{len(report.deleted)} locks {done}, {report.kept} kept")
    return DONE
