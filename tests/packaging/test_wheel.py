"""What a release bears."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JAR = "asynclock/spark/jars/asynclock-hudi.jar"


@pytest.fixture(name="source")
def _source(tmp_path: Path) -> Path:
    """Return a copy of what a wheel is built from."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "asynclock", source / "asynclock", ignore=shutil.ignore_patterns("__pycache__", "target")
    )
    return source


def _build(source: Path, *, release: bool) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ASYNCLOCK_RELEASE": "1" if release else ""}
    return subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_release_bears_the_jar_and_no_java_source(source: Path) -> None:
    """The wheel of a release has the merger's jar, the type marker and no build inputs."""
    built = _build(source, release=True)
    assert built.returncode == 0, built.stdout + built.stderr

    names = zipfile.ZipFile(next((source / "dist").glob("*.whl"))).namelist()

    assert JAR in names
    assert "asynclock/py.typed" in names
    assert not [name for name in names if name.endswith(".java")]


def test_a_release_without_the_jar_fails(source: Path) -> None:
    """A release is refused where the jar was not built, and the text says how to build it."""
    (source / JAR).unlink()

    built = _build(source, release=True)

    assert built.returncode != 0
    assert "make jar" in built.stdout + built.stderr


def test_an_install_without_the_jar_works_for_the_lock(source: Path) -> None:
    """Without Maven and Java the package still builds."""
    (source / JAR).unlink()

    built = _build(source, release=False)

    assert built.returncode == 0, built.stdout + built.stderr


def test_importing_asynclock_loads_no_cloud_sdk_and_no_spark() -> None:
    """``import asynclock`` and ``asynclock.sync`` stay light."""
    heavy = ["aiobotocore", "botocore", "gcloud", "azure", "pyspark", "pandas", "click", "rich"]
    program = f"import sys, asynclock.sync; print([m for m in {heavy} if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
