"""Copies of the package with mistakes planted in them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from asynclock.spark.hudi.session import hudi_bundle
from tests.mutants.planting import planted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutants.planting import Change, Patch

ROOT: Final = Path(__file__).parents[2]
JAR: Final = Path("asynclock", "spark", "jars", "asynclock-hudi.jar")


def copy_package(
    folder: Path, changes: Iterable[Change | Patch] = (), *, without: Iterable[str] = ()
) -> None:
    """Copy the package into a folder and plant mistakes in the copy; classes that change are compiled.

    Args:
        folder: Where ``asynclock`` is to be.
        changes: The mistakes.
        without: Names of folders and files that are left out.

    Raises:
        NoSuchDecisionError: The source has moved on: what to change is not there exactly once.
    """
    sources = planted(changes, ROOT)
    shutil.copytree(ROOT / "asynclock", folder / "asynclock", ignore=shutil.ignore_patterns(*without))
    for path, source in sources.items():
        (folder / path).write_text(source, encoding="utf-8")
    if java := [str(folder / path) for path in sources if path.suffix == ".java"]:
        _compile(java, folder)


def _compile(sources: list[str], folder: Path) -> None:
    """Compile classes against all others and put them into the jar of the copy."""
    classes = folder / "classes"
    classes.mkdir()
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    path = os.pathsep.join(map(str, [folder / JAR, hudi_bundle(), *jars]))
    command = ["javac", "-nowarn", "-implicit:none", "-d", str(classes), "-cp", path, *sources]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["jar", "uf", str(folder / JAR), "-C", str(classes), "."], check=True, capture_output=True)
