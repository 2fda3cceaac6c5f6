"""``asynclock pipeline report``: the story of a run, as a page with pictures and as a summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from asynclock._shared.command import DONE, json_option, print_json, tell
from asynclock.errors import ConfigError
from asynclock.spark.cli.progress import busy
from asynclock.spark.cli.spark_log import with_spark_log

if TYPE_CHECKING:
    from asynclock.spark.runs.story import Story
    from asynclock.spark.spec.model import Spec


@click.command("report", short_help="Print what a run did, and draw it on a page.")
@click.argument("spec")
@click.option(
    "--run", "run_dir", metavar="DIR", help="The folder of a recorded run; default: the table's timeline."
)
@click.option("-o", "--output", metavar="FILE", help="Write the page to FILE. An existing file is replaced.")
@click.option("--archived", is_flag=True, help="Without --run: begin with the archived timeline.")
@json_option
@with_spark_log
def report_command(
    spec: str, *, run_dir: str | None, output: str | None, archived: bool, as_json: bool
) -> int:
    """Print what a run of SPEC did, and draw it on a page: leases, commits, services, resources.

    With --run, the report shows what the processes of that run recorded so far; Spark is not started. Without
    it, the report shows the table's timeline: commits and services. The page is one file that needs no
    network.
    """
    from asynclock.spark import load_spec  # noqa: PLC0415  needs the extra
    from asynclock.spark.runs.text import summary  # noqa: PLC0415

    if run_dir is not None and archived:
        raise click.UsageError("--archived is for the timeline, and --run does not read it: give one of them")
    loaded = load_spec(spec)
    story = _story(loaded, run_dir, archived=archived)
    if output is not None:
        _write(story, output)
    if as_json:
        print_json(story.totals)
    else:
        for line in summary(story):
            click.echo(line)
    if run_dir is None and not archived:
        tell("the archived timeline is left out; --archived begins with it")
    if output is not None:
        tell(f"{output} written")
    return DONE


def _story(spec: Spec, run_dir: str | None, *, archived: bool) -> Story:
    from asynclock.spark.runs.story import run_story, timeline_story  # noqa: PLC0415  needs the extra

    if run_dir is not None:
        return run_story(spec, Path(run_dir))
    from asynclock.spark import session_for, timeline  # noqa: PLC0415  starts Spark

    with busy("reading the timeline"), session_for(spec, "asynclock report") as spark:
        return timeline_story(spec, timeline(spec, spark, archived=archived))


def _write(story: Story, output: str) -> None:
    from asynclock.spark.runs.page import page  # noqa: PLC0415  needs the extra

    text = page(story)
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = f"cannot be written: {error.strerror}"
        raise ConfigError(setting="output", value=output, reason=reason) from error
