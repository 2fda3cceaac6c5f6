"""The examples on the pages of column groups and merge functions give what the pages say."""

from __future__ import annotations

import csv
import itertools
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import pytest

from asynclock.spark.check.validation import validate
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run
from asynclock.spark.spec.functions import Function
from asynclock.spark.spec.load import load_spec
from tests.spark.merged_rows import record, text_of, views
from tests.spark.merger_kit import any_grouping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec
    from tests.spark.merger_kit import Merger

PAGES: Final = Path(__file__).parents[2] / "docs/concepts/pipeline"
BLOCK: Final = re.compile(r"```(?:toml|text)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A spec, rows, and the view that stands below them."""

    title: str
    text: str
    rows: str
    view: str

    def spec(self, folder: Path) -> Spec:
        """The spec, in this folder."""
        (folder / "in").mkdir()
        path = folder / "spec.toml"
        path.write_text(f'table.path = "table"\ntable.key = ["id"]\ntable.buckets = 1\n{self.text}')
        return load_spec(path)


def examples(page: str) -> list[Example]:
    """The examples of a page, one of each section that has some."""
    sections = re.split(r"^#+ ", (PAGES / page).read_text(), flags=re.MULTILINE)
    found = [(section.partition("\n")[0], BLOCK.findall(section)) for section in sections]
    return [Example(title.strip("`"), *blocks) for title, blocks in found if blocks]


EXAMPLES: Final = [*examples("groups.md"), *examples("functions.md")]
FIRST: Final = [examples("groups.md")[0], examples("functions.md")[0]]


def test_each_function_has_an_example() -> None:
    """Which has the function in its spec."""
    (schema,) = (one for one in get_args(Function) if hasattr(one, "json_schema"))
    by_title = {one.title: one.text for one in EXAMPLES}

    for function in schema.json_schema["enum"]:
        assert function == "last_value" or f'"{function}"' in by_title[function]
    assert 'nulls = "keep"' in by_title['nulls = "keep"']


@pytest.mark.parametrize("one", EXAMPLES, ids=lambda one: one.title)
def test_the_rows_of_an_example_give_its_view_in_any_order(
    merger: Merger, tmp_path: Path, one: Example
) -> None:
    """Each row a batch, the rows of a key in each order, with any parentheses."""
    spec, rng = one.spec(tmp_path), random.Random(5)
    rows = list(csv.DictReader(one.rows.splitlines()))
    wanted = {row["id"]: row for row in csv.DictReader(one.view.splitlines())}
    assert wanted.keys() == {row["id"] for row in rows}
    for key, row in wanted.items():
        records = [record(merger, spec, spec.streams[0].name, each) for each in rows if each["id"] == key]
        programs = [any_grouping(order, rng) for order in itertools.permutations(range(len(records)))]
        (found,) = views(merger, spec, records, programs)
        assert found is not None
        assert {name: text_of(value) for name, value in found.items()} == row


@pytest.mark.parametrize("one", FIRST, ids=lambda one: one.title)
def test_the_first_example_of_a_page_on_a_table(tmp_path: Path, spark: SparkSession, one: Example) -> None:
    """Its rows as files, the latest first."""
    spec = one.spec(tmp_path)
    header, *lines = one.rows.splitlines()
    for number, line in enumerate(reversed(lines)):
        (tmp_path / "in" / f"{number}.csv").write_text(f"{header}\n{line}\n")

    run(spec, once=True, spark=spark)

    shown = read(spec, spark).select(*header.split(",")).sort("id").collect()
    assert [header, *(",".join(map(text_of, row)) for row in shown)] == one.view.splitlines()
    assert validate(spec, spark).ok
