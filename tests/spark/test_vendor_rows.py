"""The documented rows of Paimon and Doris, each a batch, merged in any order with a compaction anywhere."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asynclock.errors import SpecError
from asynclock.spark.check.validation import validate
from asynclock.spark.hudi.table import Table
from asynclock.spark.reader.snapshot import read
from asynclock.spark.runs.run import run
from asynclock.spark.services.work import Compaction
from asynclock.spark.spec.load import load_spec
from tests.spark.merged_rows import record, text_of, views
from tests.spark.merger_kit import any_grouping
from tests.spark.vendor_rows import DOCUMENTED, listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asynclock.spark.spec.model import Spec
    from tests.spark.merger_kit import Merger
    from tests.spark.vendor_rows import Documented

PAGE: Final = Path(__file__).parents[2] / "docs/concepts/pipeline/partial-updates.md"

MOST_ORDERS: Final = 24
"""All orders of four rows, and as many of more rows."""


def spec_of(one: Documented, folder: Path, text: str) -> Spec:
    """The spec of the rows, in a folder of its own."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    path = folder / "spec.toml"
    path.write_text(one.text(text))
    return load_spec(path)


def verdict(merger: Merger, one: Documented, folder: Path) -> tuple[str, str]:
    """Whether our view is the documented one, and why it is or is not."""
    try:
        spec = spec_of(one, folder, one.spec)
    except SpecError as refused:
        return "refused", f"{one.how}: *{refused.reason}*"
    shown = spec_of(one, folder, one.read or one.spec)
    rng = random.Random(36)
    count, older = one.before
    writers = [spec_of(one, folder, older)] * count if older else []
    writers += [spec] * (len(one.rows) - count)
    records = [
        record(merger, writer, "s", one.texts(values))
        for writer, values in zip(writers, one.rows, strict=True)
    ]
    for count, values in one.after.items():
        orders = [*itertools.permutations(range(count))][: 1 if one.in_order else None]
        orders = rng.sample(orders, min(len(orders), MOST_ORDERS))
        programs = [any_grouping(order, rng) for order in orders]
        if views(merger, shown, records, programs) != [one.row(values)]:
            return "differs", one.how
    return "equal", one.how


def test_the_table_of_the_page_is_what_the_merger_makes_of_the_rows(merger: Merger, tmp_path: Path) -> None:
    """Word for word; what is equal is equal in any order of the rows and with any parentheses."""
    made = [
        listed(one, *verdict(merger, one, tmp_path / str(number))) for number, one in enumerate(DOCUMENTED)
    ]

    found = [line for line in PAGE.read_text().splitlines() if line.startswith("| [")]
    assert found == made, "\n".join(made)


def test_the_inserts_of_doris_on_a_table_in_the_worst_order(tmp_path: Path, spark: SparkSession) -> None:
    """The last insert first and compacted, then the others, each before the one that it came after."""
    (one,) = (one for one in DOCUMENTED if one.what == "two sequence columns, five inserts")
    spec = spec_of(one, tmp_path, f"{one.spec}[services]\ncompaction = {{ every_commits = 1 }}\n")
    names = one.columns.split()
    for number, values in enumerate(reversed(one.rows)):
        cells = ",".join(map(text_of, values))
        (tmp_path / "in" / f"{number}.csv").write_text(f"{','.join(names)}\n{cells}\n")
        if number == 0:
            run(spec, once=True, spark=spark)
            compaction = Compaction(Table(spec, spark))
            compaction.step()
            assert compaction.done
    run(spec, once=True, spark=spark)

    (row,) = read(spec, spark).select(*names).collect()
    assert tuple(row) == one.after[5]
    assert validate(spec, spark).ok
