"""``asynclock doctor``: test whether a store is safe for locks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from asynclock._cli.arguments import backend_option, json_option, url_argument
from asynclock._cli.exit_codes import DONE, NO, UNAVAILABLE
from asynclock._cli.output import print_json, tell
from asynclock._cli.target import with_environment
from asynclock._codes import Code, coded
from asynclock._text import printable

if TYPE_CHECKING:
    from asynclock._core.probing import Finding


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
    from asynclock._core.probing import probe  # noqa: PLC0415  lets other commands start faster

    report = asyncio.run(probe(url, also=also, **with_environment(url, options)))
    if as_json:
        print_json(report)
    else:
        for found in report.findings if report.unavailable is None else ():
            line = f"{'ok ' if found.safe else 'NO '} {found.check}: {printable(found.detail, limit=1000)}"
            click.echo(coded(line, _code(found)))
        for defect in report.defects:
            click.echo(coded(f"    {defect}: {defect.remedy}", defect.code))
        if report.left:
            left = f"{len(report.left)} objects of this test could not be deleted; no lock needs them"
            click.echo(f"{coded(left, Code.DOCTOR_LEFT)}:")
        for key in report.left:
            click.echo(f"left {key}")
        if report.unavailable is None:
            safe = f"{url}: locks may be kept here"
            click.echo(safe if report.safe else coded(f"{url}: NOT safe for locks", Code.NOT_SAFE))
    if report.unavailable is not None:
        reason = f"{url}: not tested, because the store is not available: {report.unavailable}"
        tell(reason, Code.DOCTOR_UNAVAILABLE)
        return UNAVAILABLE
    return DONE if report.safe else NO


def _code(found: Finding) -> str | None:
    """Return the code of a finding that is not safe; None if it is."""
    if found.safe:
        return None
    return Code.DOCTOR_FAILED if found.defect is None else found.defect.code
