"""``asynclock pipeline explain`` as text: every option with its layer, uses and reason."""

from __future__ import annotations

import json
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asynclock.spark.hudi.options.explanation import Explanation
    from asynclock.spark.hudi.options.option import Layer

_LAYERS: Final[Mapping[Layer, str]] = {
    "place": "the place of the table",
    "table": "fixed when the table is created",
    "merge": "which of two records of a key wins",
    "concurrency": "how concurrent writers deal with each other",
    "services": "compaction, clustering, cleaning, archiving",
    "user": "the spec's own options of Hudi",
}
_INDENT: Final = "  "


def explanation_lines(explanation: Explanation, width: int | None) -> Iterator[str]:
    """Yield the lines of an explanation.

    Args:
        explanation: What to print.
        width: Columns of the terminal. Longer keys and values are not broken. None: no limit.
    """
    for layer, options in groupby(explanation.options, key=lambda option: option.layer):
        yield from _wrapped(click.style(layer, bold=True) + f": {_LAYERS[layer]}", "", width)
        for option in options:
            value = option.value or "(empty)"
            line = f"{_INDENT}{option.key} = {value}"
            if width is None or len(line) <= width:
                yield line
            else:
                yield f"{_INDENT}{option.key}"
                yield f"{_INDENT}  = {value}"
            yield from _wrapped(f"{', '.join(option.used_by)}: {option.why}", _INDENT * 3, width)
        yield ""
    for stream, columns in groupby(explanation.columns, key=lambda column: column.stream):
        yield from _wrapped(
            click.style(stream, bold=True) + ": columns with another name in its source", "", width
        )
        for column in columns:
            yield f"{_INDENT}{column.column} is from {_quoted(column.source)}"
        yield ""
    if explanation.derived:
        yield from _wrapped(click.style("derived", bold=True) + ": columns that no source has", "", width)
        for one in explanation.derived:
            yield f"{_INDENT}{one.column} is {one.rule}"
        yield ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _wrapped(text: str, indent: str, width: int | None) -> list[str]:
    if width is None:
        return [indent + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
