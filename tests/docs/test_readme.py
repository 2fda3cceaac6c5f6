"""The examples of the README, run as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
FOLDER = Path("/tmp/asynclock-readme")  # noqa: S108  the README's own words


@pytest.mark.parametrize(
    ("number", "printed"),
    [(0, r"token \d+ for \d+ s"), (1, "100"), (2, "2")],
    ids=["asyncio", "threads", "pyspark"],
)
def test_an_example_of_the_readme_does_what_it_says(
    number: int, printed: str, bucket: dict[str, str]
) -> None:
    """Each Python example runs in a process of its own and prints its result."""
    shutil.rmtree(FOLDER, ignore_errors=True)

    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]],
        env=os.environ | bucket,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(printed, done.stdout.strip())


def test_every_example_is_run() -> None:
    """No Python example of the README is left out of these tests."""
    assert len(EXAMPLES) == 3


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    """The files that a page links to exist, and so do the sections."""
    missing = []
    repository = page_of("")
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        ours = link.startswith(repository)
        path, _, section = link.removeprefix(repository).partition("#")
        target = ROOT / path if ours else page.parent / path if path else page
        if (ours or "://" not in link) and not (target.exists() and section in {"", *sections(target)}):
            missing.append(link)

    assert missing == []


def sections(page: Path) -> set[str]:
    """Return the names that GitHub gives to the sections of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def page_of(path: str) -> str:
    """Return the address of a file of the repository."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    return f"{urls['Repository']}/blob/main/{path}"


def links_of_the_readme() -> list[str]:
    """Return where the README leads to."""
    return re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_readme_leads_to_the_site() -> None:
    """From its first page every other one is reached: the build of the site fails for one that is not."""
    assert page_of("docs/index.md") in links_of_the_readme()


def test_the_links_of_the_readme_work_on_a_package_index() -> None:
    """There the README stands without the files beside it, so each link is a whole address."""
    assert [link for link in links_of_the_readme() if not link.startswith("https://")] == []


def test_the_project_says_where_it_is() -> None:
    """The addresses of its metadata lead to files of the repository, or to the repository itself."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]

    assert {"Repository", "Documentation", "Changelog", "Issues"} == set(urls)
    for url in urls.values():
        assert url.startswith(urls["Repository"])
        assert (ROOT / url.removeprefix(page_of(""))).exists() or "/blob/" not in url
