"""The examples of the how-to guides; those of ``testing.md`` have tests of their own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from os import environ
from typing import TYPE_CHECKING, Final

import pytest

from asynclock.spark import load_spec
from tests.docs.story import FOLDER, PAGES, ROOT, Story, blocks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docs.story import Block

HOWTO: Final = ROOT / "docs" / "howto"
READER: Final = """
from asynclock.sync import hudi
path = "s3a://bucket/warehouse/orders"
copied = []
copy = copied.append
def files_of_the_table():
    return ["1.parquet", "2.parquet"]
"""
STREAM: Final = """
[streams.departures]
source = "*.csv"
ordering = "departed_at"
columns = { departed_at = "timestamp" }
"""
TABLE: Final = '[table]\npath = "file:///tmp/asynclock-docs/fleet"\nkey = ["tailnum"]\n'
RUN_ELSEWHERE: Final = {
    ("command.md", "console"): "a synopsis; tests/cli drives the command",
    ("hudi.md", "df.write"): "Hudi's own client of S3 is needed; tests/hudi commits with that provider",
    ("observability.md", "python"): "tests/docs/test_observability_page.py runs all of them",
    ("observability.md", "console"): "tests/cli/test_verify.py judges logs",
    ("night.md", "text"): "tests/docs/test_night.py produces each of them",
    ("report.md", "console"): "tests/report and tests/spark/test_run_log.py record a run and draw it",
    ("places.md", "console"): "spark-submit starts a Spark of its own; tests/places does",
    ("places.md", "session_for"): "needs a session; the tutorial with Spark does the same",
    ("places.md", "runpy"): "it is examples/submit.py, word for word",
}
"""Blocks that no test takes from their page, by a word in them or their language, and why."""


def test_hudis_table_lock_works_as_the_page_says(bucket: dict[str, str]) -> None:
    """One program of all its examples but the write of Spark, on a server with a table."""
    examples = [
        block.text
        for block in blocks(HOWTO / "hudi.md")
        if block.language == "python" and "df.write" not in block.text
    ]
    assert len(examples) == 3
    program = "\n".join([READER, *examples, 'assert copied == ["1.parquet", "2.parquet"]'])

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ | bucket,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert re.match(r"(absent|free) None None 9\n", done.stdout)


@pytest.mark.parametrize(
    ("name", "examples"), [("migrate.md", 3), ("kubernetes.md", 2), ("github-actions.md", 1)]
)
def test_a_guide_with_a_bucket_works_as_it_says(
    tmp_path: Path, bucket: dict[str, str], name: str, examples: int
) -> None:
    """Its commands, manifests and programs work in their order."""
    page = HOWTO / name
    story = Story(page, tmp_path, bucket)

    story.play()

    assert story.ran == len(blocks(page)) == examples


@pytest.mark.parametrize(
    "name",
    [
        "fastapi.md",
        "gevent.md",
        "handover.md",
        "once.md",
        "readers.md",
        "schedulers.md",
        "several.md",
        "sharing.md",
    ],
)
def test_a_guide_without_a_bucket_works_as_it_says(tmp_path: Path, name: str) -> None:
    """Its files, programs and commands work in their order, and print what is below them."""
    page = HOWTO / name
    story = Story(page, tmp_path)

    story.play()

    assert story.ran == len(blocks(page)) > 0


@pytest.mark.parametrize("old", ["filelock", "redis", "dynamodb", "zookeeper"])
def test_the_way_from_another_lock_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], old: str
) -> None:
    """The program with the new lock runs, here in this process."""
    page = HOWTO / f"from-{old}.md"
    (block,) = blocks(page)
    monkeypatch.chdir(tmp_path)

    exec(compile(block.text.replace(FOLDER, str(tmp_path)), str(page), "exec"), {})  # noqa: S102

    assert re.fullmatch(r"token \d+\n", capsys.readouterr().out)


def test_the_files_of_schedulers_take_their_locks_from_the_file_that_is_run() -> None:
    """They are Python, and what they import from ``load.py`` is there; nothing else of them is run."""
    text = (HOWTO / "schedulers.md").read_text(encoding="utf-8")
    shown = [ast.parse(each) for each in re.findall(r"```{code-block} python\n(.*?)```", text, re.DOTALL)]
    (load,) = (block for block in blocks(HOWTO / "schedulers.md") if block.text.startswith("# load.py"))
    there = {each.name for each in ast.parse(load.text).body if isinstance(each, ast.FunctionDef)}
    taken = {
        alias.name
        for file in shown
        for node in ast.walk(file)
        if isinstance(node, ast.ImportFrom) and node.module == "load"
        for alias in node.names
    }

    assert len(shown) == 2
    assert taken == there


async def test_the_cells_of_a_notebook_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, in the names of one module and on one loop, as in a kernel."""
    page = HOWTO / "notebook.md"
    names: dict[str, object] = {}

    for block in blocks(page):
        text = block.text.replace(FOLDER, str(tmp_path))
        cell = eval(compile(text, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307
        if cell is not None:
            await cell

    assert re.fullmatch(r"token \d+\ndone\n", capsys.readouterr().out)


SPECS: Final = [block for block in blocks(HOWTO / "places.md") if block.language == "toml"]


@pytest.mark.parametrize("block", SPECS, ids=[f"line {block.line}" for block in SPECS])
def test_a_part_of_a_spec_fits_into_a_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: Block
) -> None:
    """With a table, if it has none, and a stream it is a whole spec without an error."""
    text = block.text
    for name in re.findall(r'env = "(\w+)"', text):
        monkeypatch.setenv(name, "any")
    (tmp_path / "1.csv").touch()
    spec = tmp_path / "spec.toml"
    spec.write_text((TABLE if "[table]" not in text else "") + text + STREAM, encoding="utf-8")

    assert load_spec(spec).streams[0].name == "departures"


def test_the_driver_of_the_page_is_that_of_the_examples() -> None:
    """What the page shows for spark-submit is the file that the tests submit."""
    shown = [block.text for block in blocks(HOWTO / "places.md") if "runpy" in block.text]

    assert len(shown) == 1
    assert shown[0] in (ROOT / "examples" / "submit.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "examples"), [("leases", 2), ("fencing", 1), ("waiting", 1)])
def test_the_examples_of_a_concept_run(tmp_path: Path, name: str, examples: int) -> None:
    """Each is a program of its own."""
    story = Story(ROOT / "docs" / "concepts" / f"{name}.md", tmp_path)

    story.play()

    assert story.ran == examples


def test_the_example_of_the_first_page_runs() -> None:
    """It takes a lock and prints its token."""
    (example,) = (block for block in blocks(ROOT / "docs" / "index.md") if block.language == "python")

    done = subprocess.run(
        [sys.executable, "-c", example.text], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"token \d+\n", done.stdout)


def test_every_example_is_run() -> None:
    """Of the tutorials all; of the guides those that a test here takes, or that are named with a reason."""
    taken = {
        "testing.md": {"python"},
        "migrate.md": {"console", "python"},
        "notebook.md": {"python"},
        "hudi.md": {"python"},
        "places.md": {"toml"},
        "fastapi.md": {"console", "python"},
        "schedulers.md": {"console", "python"},
        "several.md": {"python"},
        "handover.md": {"console", "python"},
        "once.md": {"console", "python", "yaml"},
        "sharing.md": {"python"},
        "kubernetes.md": {"yaml"},
        "github-actions.md": {"yaml"},
        "gevent.md": {"console"},
        "readers.md": {"python"},
        "from-filelock.md": {"python"},
        "from-redis.md": {"python"},
        "from-dynamodb.md": {"python"},
        "from-zookeeper.md": {"python"},
    }
    left_out = [
        f"{page.name}, line {block.line}"
        for page in PAGES
        if page.parent.name == "howto"
        for block in blocks(page)
        if block.language not in taken.get(page.name, set())
        and not any(
            page.name == name and (word == block.language or word in block.text)
            for name, word in RUN_ELSEWHERE
        )
    ]

    assert left_out == []
    assert {page.name for page in PAGES if page.parent.name == "tutorials"} == {
        "cron.md",
        "hudi.md",
        "service.md",
    }
