"""``asynclock doctor``: test whether a store is safe for locks."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from asynclock._cli.arguments import backend_option, json_option, url_argument
from asynclock._cli.exit_codes import DONE, NO, UNAVAILABLE
from asynclock._cli.output import print_json, tell
from asynclock._cli.target import with_environment
from asynclock._core.probing import probe
from asynclock._text import printable


@click.command("doctor")
@url_argument
@backend_option
@click.option("--also", metavar="URL", help="Another address of the same store: race the two.")
@json_option
def doctor_command(url: str, options: dict[str, Any], *, also: str | None, as_json: bool) -> int:
    """Test whether URL is safe for locks: conditions, races, reads, Dates.

    Writes a few test objects there and deletes them. It names objects that it could not delete. Exit code 1
    if the store is not safe; 69 if it does not answer or denies access.
    """
    report = asyncio.run(probe(url, also=also, **with_environment(url, options)))
    if as_json:
        print_json(report)
    else:
        for found in report.findings if report.unavailable is None else ():
            click.echo(
                f"{'ok ' if found.safe else 'NO '} {found.check}: {printable(found.detail, limit=1000)}"
            )
        for defect in report.defects:
            click.echo(f"    {defect}: {defect.remedy}")
        if report.left:
            click.echo(f"{len(report.left)} objects of this test could not be deleted; no lock needs them:")
        for key in report.left:
            click.echo(f"left {key}")
        if report.unavailable is None:
            click.echo(f"{url}: {'locks may be kept here' if report.safe else 'NOT safe for locks'}")
    if report.unavailable is not None:
        tell(f"{url}: not tested, because the store is not available: {report.unavailable}")
        return UNAVAILABLE
    return DONE if report.safe else NO
