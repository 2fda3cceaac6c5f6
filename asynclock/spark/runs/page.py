"""The page of a report: one file, without a network, that draws its charts with Vega-Lite."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError
from asynclock.spark.runs import text
from asynclock.spark.runs.charts import charts

if TYPE_CHECKING:
    from asynclock.spark.runs.charts import Chart
    from asynclock.spark.runs.story import Story

_VEGA_LITE: Final = "6.4"
_MOST_CHAOS: Final = 500


def page(story: Story) -> str:
    """Return the HTML of a report.

    Raises:
        ConfigError: A package of the extra ``report`` is missing.
    """
    try:
        import jinja2  # noqa: PLC0415  of an extra
        import vl_convert  # noqa: PLC0415
    except ImportError as error:
        reason = f"the page needs {error.name}, which is not installed; run: pip install 'asynclock[report]'"
        raise ConfigError(setting="output", value=None, reason=reason) from error
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    )
    drawn = charts(story)
    return template.render(
        story=story,
        charts=drawn,
        numbers=text.facts(story),
        text=text,
        chaos=story.chaos[:_MOST_CHAOS],
        cpu={one.process: one.cpu_seconds for one in story.samples},
        memory=_most(story, "memory"),
        threads=_most(story, "threads"),
        descriptors=_most(story, "descriptors"),
        specs=_in_script(drawn),
        library=vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_VEGA_LITE),
    )


def _in_script(drawn: list[Chart]) -> str:
    """Return the charts as JSON for a script: nothing in it ends the script or begins a comment."""
    found = json.dumps({chart.name: chart.spec for chart in drawn}, allow_nan=False)
    return found.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _most(story: Story, field: str) -> dict[str, float]:
    """Return the highest value of each process."""
    found: dict[str, float] = {}
    for one in story.samples:
        found[one.process] = max(found.get(one.process, 0.0), getattr(one, field))
    return found
