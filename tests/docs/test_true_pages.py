"""Pages that repeat facts of the code say the same as the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from asynclock.spark.hudi.session import HUDI_BUNDLE
from asynclock.spark.spec.document import json_schema
from tests.laboratory.mechanisms.parts import PARTS

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
"""Of pyproject.toml."""


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of the tables of a page, by the first cell of each line."""
    lines = re.findall(r"^\| *(.*?) *\|$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    cells = [re.split(r" *\| *", line) for line in lines]
    return {first: rest for first, *rest in cells}


def test_the_tested_versions_are_those_of_the_project() -> None:
    """Python of the classifiers, Spark of the extra, Hudi of the bundle."""
    tested = {part: cells[0] for part, cells in rows("compatibility.md").items()}
    pythons = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)}
    (spark,) = (each for each in PROJECT["optional-dependencies"]["spark"] if each.startswith("pyspark"))

    assert set(re.findall(r"3\.\d+", tested["Python"])) == pythons
    assert f"pyspark=={re.findall(r'[0-9.]+', tested['Spark'])[0]}.*" == spark
    assert tested["Hudi"] == HUDI_BUNDLE.rpartition(":")[2]
    assert re.findall(r"Scala ([0-9.]+)", tested["Spark"]) == re.findall(r"bundle_([0-9.]+):", HUDI_BUNDLE)


def test_readme_and_install_page_name_the_same_platforms() -> None:
    """With the versions of the compatibility page."""
    pages = [
        " ".join(path.read_text(encoding="utf-8").split())
        for path in (ROOT / "README.md", DOCS / "install.md")
    ]

    for sentence in (
        "tested on Linux (x86_64): with Python 3.11 in every run, with 3.12 and 3.13 for the lock.",
        "macOS and Windows are not tested.",
        "There is no release on a package index yet.",
        "$ git clone <this repository> asynclock $ pip install './asynclock[s3,cli]'",
    ):
        assert all(sentence in page for page in pages), sentence


def test_the_page_of_the_mechanisms_lists_those_that_are_shown() -> None:
    """By number and name."""
    listed = {
        number: cells[0]
        for number, cells in rows("concepts/pipeline/mechanisms.md").items()
        if number.isdigit()
    }

    assert listed == {str(part.number): part.name for part in PARTS}


def test_the_page_of_kinds_explains_every_choice_of_a_spec() -> None:
    """Each ``merge`` of a plain table, and each ``concurrency``, has a line."""
    page = rows("concepts/pipeline/plain.md")
    keys = json_schema()["$defs"]["TableSpec"]["properties"]

    found = {f"`{each}`" for key in ("merge", "concurrency") for each in keys[key]["enum"]}

    assert found - {"`splice`"} <= page.keys()
