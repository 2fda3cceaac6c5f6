"""The command ``asynclock pipeline``, which ``asynclock`` finds by an entry point of ``asynclock.commands``.

Importing this package loads neither its verbs nor Spark, so that the help of ``asynclock`` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from asynclock._shared.command import NOT_ACQUIRED, USAGE, CommandGroup, environment_names, tell
from asynclock._shared.words import Code
from asynclock.spark.errors import TimelineAheadError

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEEDED: Final = frozenset({"psutil", "pydantic", "pyspark"})


class PipelineGroup(CommandGroup):
    """The group of the pipeline's verbs, which knows the errors of the pipeline alone."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  as in click
        """Run a verb and return its exit code."""
        try:
            return super().invoke(ctx)
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _NEEDED:
                raise
            tell(f"{missing} is not installed; run: pip install 'asynclock[spark]'", Code.NOT_INSTALLED)
            return USAGE
        except TimelineAheadError as error:
            tell(str(error))
            return NOT_ACQUIRED


def _verbs() -> Iterable[click.Command]:
    from asynclock.spark.cli.verbs import VERBS  # noqa: PLC0415  lets other commands start faster

    return VERBS


@click.group(
    "pipeline", short_help="Splice streams of files into one wide Hudi table.", cls=PipelineGroup, more=_verbs
)
def pipeline_group() -> None:
    """Splice streams of files into one wide Hudi table. It needs the extra asynclock[spark]."""
    if left := environment_names():
        are = "is" if len(left) == 1 else "are"
        tell(
            f"warning: {', '.join(left)} {are} not used by pipelines: the options of their locks are in "
            "[locks] of the spec",
            Code.OPTIONS_LEFT_OUT,
        )
