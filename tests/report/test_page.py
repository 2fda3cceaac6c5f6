"""The page of a report in a real browser, headless Chromium."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from asynclock.errors import ConfigError
from asynclock.spark.runs import text
from asynclock.spark.runs.charts import charts
from asynclock.spark.runs.page import page
from asynclock.spark.runs.story import Story, run_story, timeline_story
from tests.laboratory.browser import browser, logged
from tests.report.recorded import HOSTILE, Recorded, record, spec
from tests.report.test_story import instant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

DEADLINE = 60.0
DESK, PHONE = (1200, 900), (390, 844)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    """One browser for all pages."""
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The whole run."""
    folder = tmp_path_factory.mktemp("report")
    return run_story(spec(folder), record(folder / "run"))


@pytest.fixture(scope="module")
def file(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(story))
    return path


def look(chrome: Chrome, file: Path, size: tuple[int, int] = DESK, scheme: str = "light") -> None:
    """Open a page on a screen of that size and wait until its pictures are drawn."""
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", colours)
    logged(chrome)
    chrome.get(file.as_uri())
    until = time.monotonic() + DEADLINE
    while run(chrome, "document.documentElement.dataset.drawn") is None:
        assert time.monotonic() < until, logged(chrome)
        time.sleep(0.05)


def run(chrome: Chrome, script: str) -> Any:  # noqa: ANN401  whatever the page says
    """The value of an expression in the page."""
    return chrome.execute_script(f"return {script}")


@pytest.mark.parametrize("size", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_picture_is_drawn_without_a_word_on_the_console(
    chrome: Chrome, file: Path, story: Story, size: tuple[int, int], scheme: str
) -> None:
    """On a desk and on a phone, light and dark: no error, no warning, no request of the network."""
    look(chrome, file, size, scheme)

    names = [chart.name for chart in charts(story)]
    empty = [name for name in names if not run(chrome, f"document.querySelectorAll('#{name} path').length")]
    assert int(run(chrome, "document.documentElement.dataset.drawn")) == len(names) == 10
    assert (empty, logged(chrome)) == ([], [])
    assert run(chrome, "performance.getEntriesByType('resource').map(each => each.name)") == []


@pytest.mark.parametrize("width", [390, 320, 768])
def test_a_phone_needs_no_scrolling_to_the_side(chrome: Chrome, file: Path, width: int) -> None:
    """Wide tables scroll in a frame of their own."""
    look(chrome, file, (width, 844))

    assert run(chrome, "document.documentElement.scrollWidth") <= width


def test_the_numbers_are_those_of_the_run(chrome: Chrome, file: Path, story: Story) -> None:
    """In the tiles and in the table of the streams."""
    look(chrome, file)

    tiles = run(
        chrome,
        "Object.fromEntries([...document.querySelectorAll('dd')].map(e => [e.dataset.number, e.innerText]))",
    )
    assert tiles == dict(text.facts(story))
    assert (tiles["commits"], tiles["rows"], tiles["takeovers"], tiles["leases lost"]) == (
        "14", "1,400", "2", "1"
    )  # fmt: skip
    rows = run(
        chrome,
        "[...document.querySelectorAll('tr[data-stream]')].map(e => [...e.cells].map(c => c.innerText))",
    )
    assert rows == [
        ["departures", "7", "700", "1.0 s", "2.0 s", "1", "0", "0"],
        ["arrivals", "7", "700", "2.0 s", "4.0 s", "0", "1", "1"],
    ]


def test_the_pictures_show_what_was_recorded(chrome: Chrome, file: Path, story: Story) -> None:
    """A mark for each lease, wait, takeover and loss, and for each commit."""
    look(chrome, file)

    def marks(chart: str, kind: str) -> int:
        return int(run(chrome, f"document.querySelectorAll('#{chart} .mark-{kind}.role-mark > *').length"))

    assert marks("leases", "rect") == len(story.spans)
    assert marks("leases", "symbol") == 3
    assert marks("leases", "rule") == len(story.chaos)
    assert marks("latency", "symbol") == story.totals.commits


def test_dark_and_light_differ_in_page_and_picture(chrome: Chrome, file: Path) -> None:
    """The page follows the system, also while it is open."""
    seen = []
    look(chrome, file, scheme="light")
    for scheme in ("light", "dark"):
        colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", colours)
        label = "document.querySelector('#latency .role-axis-label text')"
        until = time.monotonic() + DEADLINE
        while True:
            colour = run(chrome, f"{label} && {label}.getAttribute('fill')")
            if colour and colour not in seen:
                break
            assert time.monotonic() < until
            time.sleep(0.05)
        seen += [colour, run(chrome, "getComputedStyle(document.body).backgroundColor")]

    assert len(set(seen)) == 4


def test_foreign_text_stays_text(chrome: Chrome, file: Path, story: Story) -> None:
    """A host and a detail that are HTML with a script are shown as they are."""
    look(chrome, file)

    shown = run(chrome, "document.body.innerText")
    assert shown.count(HOSTILE) == 2
    assert run(chrome, "window.broken") is None
    assert run(chrome, "document.querySelectorAll('img').length") == 0
    assert HOSTILE not in file.read_text()
    assert next(one.host for one in story.processes) == HOSTILE


def test_a_page_of_a_timeline_is_drawn_too(chrome: Chrome, tmp_path: Path) -> None:
    """Commits, their leases by their tokens, and services."""
    told = timeline_story(
        spec(tmp_path),
        [
            instant("0000000", "0002000", "deltacommit", stream="departures", token=1, rows=5, latency=2.0),
            instant("0015000", "0019000", "commit"),
        ],
    )
    (tmp_path / "report.html").write_text(page(told))

    look(chrome, tmp_path / "report.html")

    assert int(run(chrome, "document.documentElement.dataset.drawn")) == 4
    assert logged(chrome) == []
    assert "From the timeline of the table" in run(chrome, "document.body.innerText")


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_a_run_of_many_processes_is_drawn_without_a_word_on_the_console(
    chrome: Chrome, tmp_path: Path, size: tuple[int, int]
) -> None:
    """Restarted again and again: more processes than a legend has room for; the table names them all."""
    run_folder = record(tmp_path / "run")
    for pid in range(1000, 1030):
        Recorded(run_folder).start("writer", pid, 100.0)
    story = run_story(spec(tmp_path), run_folder)
    file = tmp_path / "report.html"
    file.write_text(page(story))

    look(chrome, file, size)

    assert logged(chrome) == []
    rows = run(chrome, "document.querySelectorAll('tr[data-process]').length")
    assert rows == len(story.processes) > 30


def test_the_page_names_no_other_place(file: Path) -> None:
    """Everything is in the file: neither a script nor a style nor a picture comes from elsewhere."""
    html = re.sub(r"<script>.*?</script>", "", file.read_text(), flags=re.DOTALL)

    assert "default-src 'none'" in html
    assert not re.search(r"(src|href)=[\"'](?!data:)", html)


def test_without_the_extra_it_says_what_to_install(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary needs no extra."""
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)

    with pytest.raises(ConfigError, match=r"needs vl_convert, .*; run: pip install 'asynclock\[report\]'"):
        page(story)
