"""Chromium without a screen, found or installed from Debian's packages."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Final

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

_PACKAGES: Final = ("chromium", "chromium-driver")
_INSTALL_WITHIN: Final = 900.0
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
    program, driver = _found("chromium"), _found("chromedriver")
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


def _found(name: str) -> str:
    if (path := shutil.which(name)) is None:
        _install()
        path = shutil.which(name)
    if path is None:
        message = f"{name} is missing after the installation of {' '.join(_PACKAGES)}"
        raise RuntimeError(message)
    return path


def _install() -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        message = f"a browser is missing; install it (Debian: apt-get install {' '.join(_PACKAGES)})"
        raise RuntimeError(message)
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *_PACKAGES]
    lists = ["apt-get", "update"]
    for command in (install, lists, install):
        done = subprocess.run(
            [*command, "-o", "DPkg::Lock::Timeout=600"],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=_INSTALL_WITHIN,
            check=False,
        )
        if command is install and done.returncode == 0:
            return
    message = f"{' '.join(install)} failed: {done.stderr[-2000:]}"
    raise RuntimeError(message)
