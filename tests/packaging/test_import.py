"""What ``import asynclock`` brings along: it is in every start of a job."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

REFERENCE: Final = "import asyncio, anyio, orjson"
PACKAGES: Final = {
    "asynclock",
    "asynclock._core",
    "asynclock.backends",
    "asynclock._core.protocol",
    "asynclock.sync",
}
"""The packages of asynclock whose modules may be loaded: no command, no Spark, no telemetry, no test kit."""
AT_A_LOSS: Final = {"encodings.unicode_escape", "queue"}
"""What a loss needs: it must import nothing, since no file may be left to open."""
BACKENDS: Final = {"azure", "gcs", "local", "memory", "s3"}


def loaded(program: str) -> set[str]:
    """Return the modules that a program loads beyond those of the reference."""
    lines = ["import sys", REFERENCE, "before = {*sys.modules}", program, "print(*{*sys.modules} - before)"]
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ["asynclock", "asynclock.sync"])
def test_an_import_brings_nothing_along_that_it_does_not_need(name: str) -> None:
    """No finder of backends with its parsers of archives and mail, no SDK, no backend, none of the extras."""
    modules = loaded(f"import {name}")

    own = {each for each in modules if each.split(".")[0] == "asynclock"}
    along = {each for each in modules - own if not each.rpartition(".")[2].startswith("_")}

    assert along == AT_A_LOSS
    assert {each.rpartition(".")[0] if each not in PACKAGES else each for each in own} <= PACKAGES
    assert not own & {f"asynclock.backends._{each}" for each in BACKENDS}


@pytest.mark.parametrize("url", ["memory://", "file:///tmp/locks"])
def test_a_backend_of_asynclock_is_opened_without_a_search(url: str) -> None:
    """The metadata of installed packages is read for a scheme that asynclock does not know itself."""
    modules = loaded(f"import asynclock; asynclock.connect({url!r})")

    assert not modules & {"importlib.metadata", "zipfile", "email"}


def test_an_unknown_scheme_is_looked_for_among_the_installed_packages() -> None:
    """The error names the schemes of asynclock and of those packages."""
    program = """
import asynclock
try:
    asynclock.connect("ftp://host")
except asynclock.ConfigError as error:
    assert "known are abfs://" in str(error)
"""

    assert "importlib.metadata" in loaded(program)


@pytest.mark.parametrize("package", ["asynclock", "asynclock.sync"])
def test_a_name_that_is_loaded_later_is_found_like_any_other(package: str) -> None:
    """Its first use loads it: by attribute, by import, in the list of names; another name is an error."""
    program = f"""
import {package} as package
assert {{"ProbeReport", "BackendOptions", "FencedObject", "probe"}} <= {{*dir(package)}}
from {package} import ProbeReport, probe
assert package.ProbeReport is ProbeReport
assert callable(package.probe)
try:
    package.nonsense
except AttributeError as error:
    assert "nonsense" in str(error)
else:
    raise SystemExit("found")
"""

    assert "asynclock._core.probing" in loaded(program)


def test_what_few_programs_need_is_loaded_later() -> None:
    """A program that takes a lock loads neither the probe of a store nor the fenced object."""
    program = """
import asyncio, asynclock

async def main():
    async with asynclock.connect("memory://") as client, client.lock("a"):
        pass

asyncio.run(main())
"""

    assert not loaded(program) & {"asynclock._core.probing", "asynclock.fencing", "asynclock.options"}
