"""``asynclock pipeline show``: some rows of the table, under the names of its view."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from asynclock._shared.command import DONE, json_option, tell
from asynclock._shared.words import escaped
from asynclock.spark.cli.progress import busy
from asynclock.spark.cli.spark_log import with_spark_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP: Final = "  "
_LONGEST: Final = 40
"""Characters of a value in a table."""


@click.command("show", short_help="Print rows of the table, under the names of its view.")
@click.argument("spec")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Most rows shown."
)
@click.option("--as-of", metavar="INSTANT", help="Show the rows as of this completion time.")
@json_option
@with_spark_log
def show_command(spec: str, *, limit: int, as_of: str | None, as_json: bool) -> int:
    """Print up to N rows of the table of SPEC, merged, under the names of its view. Times are in UTC.

    The choice of rows is not defined; they are printed in the order of their keys. If the terminal is too
    narrow for a table, each row is a list of its values.
    """
    from asynclock.spark import load_spec, session_for  # noqa: PLC0415  needs the extra
    from asynclock.spark.reader.some_rows import some_rows  # noqa: PLC0415

    loaded = load_spec(spec)
    with busy("reading the table", quiet=as_json), session_for(loaded, "asynclock show") as spark:
        names, rows = some_rows(loaded, spark, limit=limit, as_of=as_of)
    if as_json:
        lines: Iterator[str] = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    else:
        lines = _lines(names, rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
    if not as_json:
        tell(f"{len(rows)} rows" + (f", at most {limit}: see --limit" if len(rows) == limit else ""))
    return DONE


def _lines(names: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None) -> Iterator[str]:
    """Yield a table, or a list for each row if the table is wider than ``width``. None: no limit."""
    texts = [list(map(_text, row)) for row in rows]
    columns = zip(names, zip(*texts, strict=True) if texts else ((),) * len(names), strict=True)
    widths = [max(len(name), *map(len, column)) if column else len(name) for name, column in columns]
    if width is None or sum(widths) + len(_GAP) * (len(widths) - 1) <= width:
        for line in (names, *texts):
            padded = (text.ljust(size) for text, size in zip(line, widths, strict=True))
            yield _GAP.join(padded).rstrip()
        return
    longest = max(map(len, names))
    for number, row in enumerate(rows, 1):
        yield f"row {number}"
        for name, value in zip(names, row, strict=True):
            yield f"  {name.ljust(longest)}  {_text(value, most=max(_LONGEST, width - longest - 4))}"


def _text(value: object, *, most: int = _LONGEST) -> str:
    if value is None:
        return "-"
    text = escaped(value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= most else f"{text[: most - 3]}..."
