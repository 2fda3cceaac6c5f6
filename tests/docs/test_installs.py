"""Each guide names what to install before its first example, and imports nothing else."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import textwrap
import tomllib
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.story import PAGES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: Final[dict[str, list[str]]] = PROJECT["optional-dependencies"]
TEXTS: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES: Final = [page for page in PAGES if page.name != "night.md"]  # it has sentences, no examples
PACKAGES: Final = {
    "airflow": "apache-airflow",
    "duckdb": "duckdb",
    "opentelemetry": "opentelemetry-api",
    "prometheus_client": "prometheus-client",
    "python_dynamodb_lock": "python-dynamodb-lock",
    "starlette": "fastapi",
    "starlette.testclient": "httpx2",  # Starlette asks for it at the import
}
"""By module: the package that has it, or brings it, where the names differ."""
_COMMAND: Final = re.compile(r"pip install ([^\n`]+)")
_BLOCK: Final = re.compile(r"^( *)```(?:{code-block} )?(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def installed(text: str) -> set[str]:
    """Return the packages that the commands of a page install, those of the extras included."""
    names: set[str] = set()
    for command in _COMMAND.findall(text):
        for word in shlex.split(command, comments=True):
            names.add(re.sub(r"\[.*", "", word))
            for extra in re.findall(r"[\w-]+", word[word.find("[") :] if word.startswith("./") else ""):
                names |= {re.split(r"[\[<>=~;! ]", each)[0] for each in EXTRAS.get(extra, ())}
    return names


def imported(text: str) -> Iterator[str]:
    """Yield the modules that the Python of a page imports, but those of Python, asynclock and the page."""
    programs = [textwrap.dedent(found) for _, language, found in _BLOCK.findall(text) if language == "python"]
    own = {"asynclock", *re.findall(r"^# (\w+)\.py$", "\n".join(programs), re.MULTILINE)}
    for program in programs:
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.Import):
                found = [each.name for each in node.names]
            else:
                found = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            known = {*own, *sys.stdlib_module_names}
            yield from (each for each in found if each.partition(".")[0] not in known)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_guide_names_what_to_install_before_its_first_example(page: Path) -> None:
    """With the way to do it, for one who comes from a search."""
    text = page.read_text(encoding="utf-8")
    first = _BLOCK.search(text)
    assert first is not None
    before = text[: first.start()] + (first[3] if first[2] == "console" else "")

    assert "(../install.md)" in before
    assert page.name == "service.md" or "pip install" in before  # that page needs no extra at first


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_what_a_guide_imports_is_installed_or_named(page: Path) -> None:
    """By a command of the page, or as what its reader has."""
    text = page.read_text(encoding="utf-8")
    there = installed(text) | set(re.findall(r"`([\w-]+)`", text))
    missing = {
        module
        for module in imported(text)
        if PACKAGES.get(module, PACKAGES.get(module.partition(".")[0], module.partition(".")[0])) not in there
    }

    assert missing == set()


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_installs_from_a_checkout_until_there_is_a_release(page: Path) -> None:
    """An index has no asynclock yet; docs/install.md explains the other forms."""
    words = {
        word
        for command in _COMMAND.findall(page.read_text(encoding="utf-8"))
        for word in shlex.split(command, comments=True)
        if "asynclock" in word
    }

    assert (
        page.name == "install.md" or {word for word in words if not word.startswith("./asynclock")} == set()
    )


def test_the_extras_of_the_pages_exist() -> None:
    """Pip only warns of one that does not."""
    named = {
        extra
        for page in TEXTS
        for found in re.findall(r"asynclock\[([\w,-]+)\]", page.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }

    assert named <= EXTRAS.keys()


def test_the_first_pages_say_that_there_is_no_release() -> None:
    """With the release this test goes, and so does the wording."""
    for page in (ROOT / "README.md", ROOT / "docs" / "install.md"):
        assert "There is no release on a package index yet" in page.read_text(encoding="utf-8")
