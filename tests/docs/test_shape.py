"""Mistakes in the shape of a page that no build reports."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.story import ROOT
from tests.laboratory import _containers, servers

if TYPE_CHECKING:
    from pathlib import Path

PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_heading_is_there_twice(page: Path) -> None:
    """A link could lead to one of them only. A heading may repeat below another one."""
    found: Counter[tuple[str, ...]] = Counter()
    above: list[str] = []
    for marks, title in re.findall(r"^(#+) (.+)$", prose(page), re.MULTILINE):
        above = [*above[: len(marks) - 1], title]
        found[tuple(above)] += 1

    assert [title for title, times in found.items() if times > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_item_of_a_list_is_glued_to_the_one_before(page: Path) -> None:
    """As a reflowed paragraph does it: a sentence, a hyphen and the next item in one line."""
    text = re.sub(r"`[^`]*`", "", prose(page))

    assert re.findall(r"^(?!\|).*[.:;)] - [A-Z*].*$", text, re.MULTILINE) == []


def test_the_page_of_the_backends_names_the_versions_that_ran() -> None:
    """Those that the tests are pinned to."""
    page = (ROOT / "docs" / "backends" / "index.md").read_text(encoding="utf-8")
    minio = servers.MINIO.rpartition("@")[2].rpartition("-")[0]
    fake_gcs = servers.FAKE_GCS.rpartition("@v")[2]
    azurite = _containers._AZURITE.name.rpartition(":")[2]
    moto = re.search(r"^moto==(\S+)", (ROOT / "requirements" / "dev.lock").read_text(), re.MULTILINE)

    assert moto is not None
    assert f"| MinIO | `{minio}`" in page
    for name, version in (("moto", moto[1]), ("fake-gcs-server", fake_gcs), ("Azurite", azurite)):
        assert f"| {name} | {version} |" in page
