"""The site builds without a warning or a dead link; its reference has every public name, key and command."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from dataclasses import fields
from inspect import ismodule
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait
from sphinx.util.inventory import InventoryFile

from asynclock._cli.app import command
from asynclock.backends import _azure as azure
from asynclock.backends import _gcs as gcs
from asynclock.backends import _local as local
from asynclock.backends import _memory as memory
from asynclock.backends import _s3 as s3
from asynclock.settings import LeaseSettings
from asynclock.spark.spec.column_groups import GroupSpec
from asynclock.spark.spec.dialect import CsvDialect
from asynclock.spark.spec.document import json_schema
from asynclock.spark.spec.joins import ViewSpec
from asynclock.spark.spec.model import TableSpec
from asynclock.spark.spec.spark import SparkSpec
from tests.laboratory.browser import browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

ROOT: Final = Path(__file__).parents[2]
MODULES: Final = (
    "asynclock",
    "asynclock.sync",
    "asynclock.hudi",
    "asynclock.sync.hudi",
    "asynclock.spark",
    "asynclock.telemetry",
    "asynclock.testing",
    "pytest_asynclock",
)
OURS: Final = ("asynclock", "pytest_asynclock")
BACKENDS: Final = {"s3": s3, "gcs": gcs, "azure": azure, "file": local, "memory": memory}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as ``make docs`` does; if that has just built it, ``ASYNCLOCK_SITE`` names it."""
    if built := os.environ.get("ASYNCLOCK_SITE"):
        return ROOT / built
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "docs", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def inventory(site: Path) -> dict[str, set[str]]:
    """Return the names that the reference describes, by their kind."""
    content = (site / "objects.inv").read_bytes()
    names: dict[str, set[str]] = {}
    for kind, found in InventoryFile.loads(content, uri="").data.items():
        names.setdefault(kind.partition(":")[0], set()).update(found)
        names.setdefault(kind, set()).update(found)
    return names


def public_names(module: str) -> Iterator[tuple[str, Any]]:
    """Yield the public names of a module, with what they are."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None) or [name for name in dir(found) if name[0] != "_"]
    for name in names:
        value = getattr(found, name)
        if not ismodule(value) and (getattr(value, "__module__", None) or "").startswith(OURS):
            yield name, value


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(inventory: dict[str, set[str]], module: str) -> None:
    """A name that another module has too, as ``asynclock.sync`` has the errors, is described there."""
    missing = [
        name
        for name, value in public_names(module)
        if f"{module}.{name}" not in inventory["py"]
        and not any(
            value is other and f"{elsewhere}.{name}" in inventory["py"]
            for elsewhere in ("asynclock", "asynclock.hudi")
            for _, other in public_names(elsewhere)
        )
    ]

    assert missing == []


def test_the_public_names_are_found() -> None:
    """The check above sees the names that users know best."""
    names = {name for name, _ in public_names("asynclock")}

    assert {"connect", "Lease", "LeaseLostError", "FencedObject"} <= names
    assert {"fixture", "Iterator"}.isdisjoint(names)


def test_every_key_of_a_spec_is_in_the_reference(inventory: dict[str, set[str]]) -> None:
    """And no other key is."""
    stream = "streams.NAME"
    expected = {
        *(f"table.{field.name}" for field in fields(TableSpec)),
        *(f"locks.{name}" for name in ("url", "moved_from")),
        *(f"locks.{field.name}" for field in fields(LeaseSettings)),
        *(f"spark.{field.name}" for field in fields(SparkSpec)),
        *(f"{stream}.{name}" for name in json_schema()["$defs"]["StreamSpec"]["properties"] if name != "csv"),
        *(f"{stream}.csv.{field.name}" for field in fields(CsvDialect)),
        *(f"{stream}.groups.GROUP.{field.name}" for field in fields(GroupSpec)),
        *(f"services.{key}" for key in _service_keys()),
        *(f"views.NAME.{field.name}" for field in fields(ViewSpec) if field.name != "name"),
    }

    assert inventory["std:confval"] == expected


def _service_keys() -> Iterator[str]:
    """Yield the keys of ``[services]``, as the schema has them."""
    tables = json_schema()["$defs"]
    for name, value in tables["ServicesTable"]["properties"].items():
        inner = value.get("$ref", "").rpartition("/")[2]
        yield from (f"{name}.{key}" for key in tables[inner]["properties"]) if inner else [name]


@pytest.mark.parametrize("name", BACKENDS)
def test_every_option_of_a_backend_is_on_its_page(name: str) -> None:
    """And no other option is, besides ``trust_env``, which the clouds take and the rest ignore."""
    source = Path(str(BACKENDS[name].__file__)).read_text(encoding="utf-8")
    taken = source.partition("take_options(")[2].partition("\n    )")[0].partition("))")[0]
    expected = set(re.findall(r"\b(\w+)=(?:str|bool|float|bytes|object)\b", taken))
    if "trust_env" in source:
        expected.add("trust_env")
    page = (ROOT / "docs" / "backends" / f"{name}.md").read_text(encoding="utf-8")
    table = page.partition("| Option |")[2].partition("\n\n")[0]
    shown = {
        option
        for line in table.splitlines()[2:]
        for option in re.findall(r"`(\w+)`", line.removeprefix("|").partition("|")[0])
    }

    assert shown == expected


def test_every_command_is_in_the_reference(site: Path) -> None:
    """With each of its options."""
    page = (site / "reference" / "command.html").read_text(encoding="utf-8")

    def commands(group: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
        yield words, group
        for name in group.list_commands(click.Context(group)) if isinstance(group, click.Group) else ():
            yield from commands(group.commands[name], f"{words} {name}")

    found = [*commands(command, "asynclock")]
    missing = [
        f"{words} {option}"
        for words, each in found
        if not each.hidden
        for parameter in each.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if f'id="cmdoption-{words.replace(" ", "-")}-{option.lstrip("-")}"' not in page
    ]

    assert len(found) > 10
    assert missing == []


def test_the_page_of_the_benchmarks_names_each() -> None:
    """Those of ``benchmarks/bench_*.py``, and no other."""
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    files = {path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py")}

    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == files


MADE_BY_SPHINX: Final = {"genindex", "py-modindex", "search"}


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """Return the HTML of each page, by its path below the site."""
    return {
        path.relative_to(site).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
        if not path.relative_to(site).parts[0].startswith("_")
    }


def test_no_link_of_the_site_is_dead(site: Path, pages: dict[str, str]) -> None:
    """Each page, file and section that a page leads to is there."""
    names = {
        (site / f"{page}.html").resolve(): set(re.findall(r'\bid="([^"]+)"', html))
        for page, html in pages.items()
    }
    dead = []
    for page, html in pages.items():
        here = (site / f"{page}.html").resolve()
        for path, section in re.findall(r'\b(?:href|src)="([^"#:?]*)(?:\?[^"#]*)?(?:#([^"]*))?"', html):
            target = (here.parent / path).resolve() if path else here
            if not target.exists() or (section and target in names and section not in names[target]):
                dead.append(f"{page}: {path}#{section}")

    assert len(names) > 50
    assert dead == []


def test_every_page_has_a_twin_in_markdown(site: Path, pages: dict[str, str]) -> None:
    """Which the page names in its head, and ``llms.txt`` in its list, with a first sentence."""
    ours = pages.keys() - MADE_BY_SPHINX
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\.md\): \S", (site / "llms.txt").read_text(), re.MULTILINE)

    assert sorted(listed) == sorted(ours)
    for page in ours:
        twin = (site / f"{page}.md").read_text(encoding="utf-8")
        assert f'type="text/markdown" href="{page.rpartition("/")[2]}.md"' in pages[page]
        assert len(twin) > 100
        assert "{eval-rst}" not in twin
        assert "{toctree}" not in twin


def test_every_table_can_scroll(pages: dict[str, str]) -> None:
    """It is in a box of its own, whose style makes it scroll where it is wider than the page."""
    for page, html in pages.items():
        tables = re.findall(r'(<div class="table-wrapper[^"]*">\s*)?<table class="docutils', html)
        assert all(tables), page


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    """Yield one browser for all tests."""
    with browser() as found:
        yield found


def _sized(chrome: Chrome, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


WIDEST: Final = (
    "index", "comparison", "compatibility", "howto/night", "reference/codes", "concepts/protocol",
    "concepts/pipeline/files", "backends/index",
)  # fmt: skip


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_screen(site: Path, chrome: Chrome, width: int) -> None:
    """Those with the widest tables and the longest lines, on a phone's width and on 1280 pixels."""
    _sized(chrome, width)
    found = {}
    for page in WIDEST:
        chrome.get((site / f"{page}.html").as_uri())
        wide = chrome.execute_script(  # type: ignore[no-untyped-call]
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        cut = chrome.execute_script(  # type: ignore[no-untyped-call]
            "return [...document.querySelectorAll('article table, article pre')].filter(each => {"
            "  const box = each.matches('pre') ? each : each.parentElement;"
            "  const scrolls = getComputedStyle(box).overflowX === 'auto';"
            "  return each.scrollWidth > box.clientWidth + 1 && !scrolls;"
            "}).length"
        )
        found[page] = (wide, cut)

    assert found == dict.fromkeys(WIDEST, (0, 0))


def test_the_search_finds_a_page(site: Path, chrome: Chrome) -> None:
    """Without a server: the index is a script of the site."""
    chrome.get(f"{(site / 'search.html').as_uri()}?q=starved")

    found = WebDriverWait(chrome, 60).until(
        lambda page: page.find_elements(By.CSS_SELECTOR, "#search-results li a")
    )

    assert any("pipeline/occ.html" in str(each.get_attribute("href")) for each in found)


@pytest.mark.parametrize(("theme", "is_dark"), [("light", False), ("dark", True)])
def test_text_can_be_read_in_light_and_dark(site: Path, chrome: Chrome, theme: str, *, is_dark: bool) -> None:
    """Text and links have the contrast that WCAG asks for (4.5), on a ground of that theme."""
    chrome.get((site / "index.html").as_uri())
    colours: dict[str, list[int]] = chrome.execute_script(  # type: ignore[no-untyped-call]
        "document.body.dataset.theme = arguments[0];"
        "const parts = text => text.match(/\\d+/g).slice(0, 3).map(Number);"
        "const colour = place => parts(getComputedStyle(document.querySelector(place)).color);"
        "return {ground: parts(getComputedStyle(document.body).backgroundColor),"
        "  text: colour('article p'), link: colour('#four-doors a'), cell: colour('td')}",
        theme,
    )
    ground = _brightness(colours.pop("ground"))
    contrasts = {
        name: (max(shown, ground) + 0.05) / (min(shown, ground) + 0.05)
        for name, shown in ((name, _brightness(colour)) for name, colour in colours.items())
    }

    assert (ground < 0.2) == is_dark
    assert all(contrast >= 4.5 for contrast in contrasts.values()), contrasts


def _brightness(colour: list[int]) -> float:
    """Return the relative luminance of a colour.

    Source: WCAG 2.2, "relative luminance".
    """
    shares = [each / 255 for each in colour]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_menu_has_what_readers_look_for(pages: dict[str, str]) -> None:
    """From any page."""
    menu = pages["concepts/pipeline/occ"].partition('class="sidebar-tree"')[2].partition("</nav>")[0]

    for page in ("install", "tutorials/index", "compatibility", "changelog", "contributing", "comparison"):
        assert f'{page}.html"' in menu or f'{page}/index.html"' in menu


def test_links_to_pages_that_were_split_still_work(pages: dict[str, str]) -> None:
    """Each section that a page had is a place on it, with the link to where the text is now."""
    for page, sections in MOVED.items():
        assert {each for each in sections.split() if f'id="{each}"' not in pages[page]} == set()


MOVED: Final = {
    "concepts/pipeline": """
        from-a-spec-to-a-running-table few-settings a-drafted-spec any-place locks-of-one-table
        batches-and-faults faults-are-survived a-disk-is-as-good-as-a-store
        every-batch-is-an-instant a-long-history-costs-little many-small-logs-are-cheap-to-merge
        columns-and-rows schema-evolution names deletes-of-rows-and-streams
        a-reservation-without-a-race sql safe-statements views-of-joined-streams a-guarded-table
        repair reading-and-restoring changes-since-an-instant time-travel-by-completion
        savepoint-and-restore validation-while-streams-run watching quiet-output
        a-run-can-be-watched the-timeline-as-data proof all-of-it-at-once
        a-package-in-the-order-in-which-a-row-travels options-in-layers the-timeline
        the-table-as-of-an-instant kinds-of-tables late-data the-mechanisms-of-the-article
        1-instants-of-the-timeline 2-snapshot-read-optimized-time-travel
        3-incremental-by-completion-time 4-event-time-partitions 5-lock-less-writers
        6-optimistic-concurrency-control 7-early-conflict-detection 8-the-starved-job 9-markers
        10-heartbeats 11-atomic-publish-and-rollback 12-payloads-and-merge-modes
        13-a-splice-on-copy-on-write 14-table-services 15-joined-streams
        16-column-insert-and-update-by-sql 17-sources-of-events 18-unique-keys the-soak
    """,
    "concepts/splice": """
        columns keys keys-are-unique partitions types when-columns-change drafting-a-spec
        what-a-file-may-say files csv json text-and-types parquet the-merge column-groups
        merge-functions copy-on-write a-batch-exactly-once checkpoints faults the-locks deletes
        the-order-of-instants savepoints services validation
    """,
}
"""Sections that other sites may lead to, by their page."""
