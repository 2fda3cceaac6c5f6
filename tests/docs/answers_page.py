"""Writes ``docs/backends/answers.md`` from the tables: ``python -m tests.docs.answers_page``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.backends._answers import FAULTS, OTHER, OTHER_4XX, REDIRECT, STATUSES, Row
from asynclock.backends._tables import AZURE, GCS, S3

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PAGE: Final = Path(__file__).parents[2] / "docs/backends/answers.md"
_INTRO: Final = """\
# What an answer means

Each answer of a store, and each fault on the way to it, is one row of a table in the code
(`asynclock/backends/_answers.py` and `_tables.py`). This page is written from the tables, and a test sends
every row to every operation.

- An error code decides before the status. A code that no table names counts as its status says.
- *Again* says whether the same call may succeed later with nothing changed but the store: `error.transient`.
  Only then does an acquisition go on until its timeout; else it raises at once. A lease that is held is
  renewed until its deadline whatever the answer is.
- *Written* says what a write may have left behind: `error.written`. A read writes nothing: if the table says
  `OutcomeUnknownError`, or that the store refused a condition, a read raises `BackendUnavailableError`.
- `error.request_id` is the id of the answer for the provider's support, and part of the text.
"""


def _cells(row: Row) -> str:
    kind = row.kind
    if kind is None:
        return f"as its status | | | {row.hint} |"
    transient = kind._transient if row.transient is None else row.transient
    written = row.written or kind._written
    name = f"`{kind.__name__}`"
    if row.read is not None:
        name += f"; a read: `{row.read.__name__}`"
    return f"{name} | {'yes' if transient else 'no'} | {written} | {row.hint} |"


def _table(head: str, rows: Iterable[tuple[str, Row]]) -> str:
    lines = [f"| {head} | Error | Again | Written | What to do |", "|---|---|---|---|---|"]
    lines += [f"| {name} | {_cells(row)}" for name, row in rows]
    return "\n".join(lines) + "\n"


def _codes(codes: Mapping[str, Row], statuses: Mapping[int, Row]) -> str:
    named = [(f"`{code}`", row) for code, row in codes.items()]
    return _table("Code or status", [*named, *((f"{status}", row) for status, row in statuses.items())])


def render() -> str:
    """Return the whole page."""
    others = [("3xx", REDIRECT), ("any other 4xx", OTHER_4XX), ("anything else", OTHER)]
    statuses = [*((f"{status}", row) for status, row in STATUSES.items()), *others]
    parts = [_INTRO]
    for name, table in (("Amazon S3 and compatible", S3), ("Google Cloud Storage", GCS), ("Azure", AZURE)):
        parts += [
            f"## {name}\n",
            f"The id of a request is in `{table.request_id}`.\n",
            _codes(table.codes, table.statuses),
        ]
    parts += ["## Every store\n", _table("Status", statuses)]
    parts += ["## No answer, or not the store's\n"]
    parts += [_table("What happened", [(fault.value, row) for fault, row in FAULTS.items()])]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render())
