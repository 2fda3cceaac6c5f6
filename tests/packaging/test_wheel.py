"""What a release contains."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import asynclock
from tests.packaging.wheel import ROOT, build, built, copy_sources

JAR = "asynclock/spark/jars/asynclock-hudi.jar"
KIT = "asynclock/testing/"
PAGE = "asynclock/spark/runs/page.html.jinja"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a copy of what a wheel is built from."""
    return copy_sources(tmp_path)


def _released(source: Path) -> zipfile.ZipFile:
    done = build(source)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(built(source))


def test_a_release_bears_the_jar_and_no_java_source(source: Path) -> None:
    """The wheel of a release has the merger's jar, the type marker and no build inputs."""
    names = _released(source).namelist()

    assert JAR in names
    assert "asynclock/py.typed" in names
    assert not [name for name in names if name.endswith(".java")]


def test_a_wheel_has_the_package_the_plugin_and_nothing_else(source: Path) -> None:
    """Modules, type marker, jar, what commands print from, the pytest plugin: no test, no other file."""
    names = set(_released(source).namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "asynclock").rglob("*.py")}

    policies = {str(path.relative_to(ROOT)) for path in (ROOT / "asynclock/_cli/policies").iterdir()}
    shipped = {name for name in names if ".dist-info/" not in name}

    others = {"asynclock/py.typed", "asynclock/_cli/codes.md", JAR, PAGE, "pytest_asynclock.py"}
    assert shipped == modules | policies | others


def test_the_test_kit_is_what_users_test_with(source: Path) -> None:
    """Simulator, soaks, servers and what installs them prove this project, and stay in its tests."""
    names = _released(source).namelist()

    kit = [name.removeprefix(KIT) for name in names if name.startswith(KIT)]

    assert sorted(kit) == [
        "__init__.py",
        "_clocks.py",
        "_contract.py",
        "_faulty.py",
        "_http1.py",
        "_lock_contract.py",
        "_proxy.py",
        "_store.py",
        "_tasks.py",
        "_virtual.py",
        "_world.py",
    ]


def test_nothing_in_a_wheel_installs_a_server(source: Path) -> None:
    """No module can fetch a program: none names the registries of Go and npm or their tools."""
    wheel = _released(source)
    texts = {name: wheel.read(name) for name in wheel.namelist() if name.endswith(".py")}

    assert [
        name for name, text in texts.items() if re.search(rb"package-lock|\bgo install\b|\bnpm\b", text)
    ] == []


def test_pytest_and_the_command_find_their_parts(source: Path) -> None:
    """The wheel names the module of the fixtures to pytest, and the pipeline's verbs to the command."""
    wheel = _released(source)
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))

    entries = configparser.ConfigParser()
    entries.read_string(wheel.read(name).decode())

    assert dict(entries["pytest11"]) == {"asynclock": "pytest_asynclock"}
    assert dict(entries["asynclock.commands"]) == {"pipeline": "asynclock.spark.cli:pipeline_group"}


def test_the_version_is_that_of_the_package(source: Path) -> None:
    """``asynclock.__version__``, the file name of the wheel and its metadata say the same."""
    wheel = _released(source)
    (about,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))

    assert f"\nVersion: {asynclock.__version__}\n" in wheel.read(about).decode()
    assert f"asynclock-{asynclock.__version__}-py3-none-any.whl" in str(wheel.filename)


def test_a_release_without_the_jar_fails(source: Path) -> None:
    """``make dist`` looks for the jar in the wheel that it built, and says how to build one that has it."""
    recipe = re.search(r"^dist:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    (source / "Makefile").write_text(
        f"BIN := {Path(sys.executable).parent}\nJAR := {JAR}\n{recipe[0].replace('$(VENV)/ready $(JAR)', '')}"
    )

    whole = subprocess.run(["make", "dist"], cwd=source, capture_output=True, text=True, check=False)
    shutil.rmtree(source / "dist")
    (source / JAR).unlink()
    without = subprocess.run(["make", "dist"], cwd=source, capture_output=True, text=True, check=False)

    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert without.returncode != 0
    assert "make clean dist" in without.stdout


def test_an_install_without_the_jar_works_for_the_lock(source: Path) -> None:
    """Without Maven and Java the package still builds."""
    (source / JAR).unlink()

    done = build(source)

    assert done.returncode == 0, done.stdout + done.stderr
