"""Chromium without a screen, found or installed from Debian's packages."""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING, Any, Final

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.laboratory._installed import debian_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

_PACKAGES: Final = ("chromium", "chromium-driver")
_SWITCHES: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip


@contextlib.contextmanager
def browser() -> Iterator[Chrome]:
    """Yield a browser with a new profile, which keeps what pages log.

    Raises:
        RuntimeError: It is missing and could not be installed.
    """
    program, driver = (debian_program(name, *_PACKAGES) for name in ("chromium", "chromedriver"))
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for switch in (*_SWITCHES, f"--user-data-dir={profile}"):
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        chrome = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield chrome
        finally:
            chrome.quit()


def logged(chrome: Chrome) -> list[dict[str, Any]]:
    """Return what pages have written to the console since the last call, errors of the network included."""
    entries: list[dict[str, Any]] = chrome.get_log("browser")  # type: ignore[no-untyped-call]
    return entries
