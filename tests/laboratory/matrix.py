"""``python -m tests.laboratory matrix``: the tests of the lock on other Pythons, and on the oldest SDKs.

Each has an environment of its own in ``build/matrix``. A Python of the classifiers that this machine does
not have is named in the last line, and is no failure: ``make test-all`` tests what it finds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import click

ROOT: Final = Path(__file__).parents[2]
PLACE: Final = ROOT / "build" / "matrix"
UV: Final = ROOT / ".venv" / "bin" / "uv"
SUITES: Final = ("contention", "kit", "processes", "sync", "telemetry", "typing", "unit")
"""On other Pythons: what depends on asyncio, garbage collection and typing, without servers and Spark."""
WITH_SDKS: Final = (
    "tests/contract",
    "tests/faults/test_answers.py",
    "tests/faults/test_credential_chains.py",
    "tests/faults/test_credential_refreshes.py",
)
SDKS: Final = ("s3", "gcs", "azure")


def wanted() -> list[str]:
    """Return the versions of Python that the classifiers name."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = (re.search(r":: (3\.\d+)$", each) for each in about["project"]["classifiers"])
    return [each[1] for each in found if each is not None]


def interpreter(version: str) -> str | None:
    """Return an interpreter of that version: of this process, on PATH, or installed by pyenv."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates: list[str | Path | None] = [
        shutil.which(f"python{version}"),
        *sorted(pyenv.glob(f"{version}.*/bin/python{version}")),
    ]
    for path in candidates:
        # A shim of pyenv is on PATH also where it leads nowhere.
        if (
            path is not None
            and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return str(path)
    return None


def environment(name: str, python: str, *, oldest: bool = False) -> Path:
    """Make an environment with the pinned packages, or with the oldest SDKs and the newest of the rest."""
    place = PLACE / name
    run(UV, "venv", "--quiet", "--clear", "--python", python, place)
    install = (UV, "pip", "install", "--quiet", "--python", place / "bin" / "python")
    if oldest:
        limits = PLACE / "oldest.txt"
        extras = [word for extra in SDKS for word in ("--extra", extra)]
        compile_ = (UV, "pip", "compile", "--quiet", "--python", python, "--resolution", "lowest-direct")
        run(*compile_, *extras, "--no-annotate", "--output-file", limits, ROOT / "pyproject.toml")
        run(*install, "--constraint", limits, f"{ROOT}[{','.join(SDKS)},test]")
        run(UV, "pip", "uninstall", "--quiet", "--python", place / "bin" / "python", "asynclock")
    else:
        run(*install, "--require-hashes", "--requirement", ROOT / "requirements/dev.lock")
    return place / "bin" / "python"


def run(*words: object) -> None:
    """Run a program from the root of the checkout.

    Raises:
        CalledProcessError: It failed.
    """
    subprocess.run([str(word) for word in words], cwd=ROOT, check=True)


def main() -> int:
    """Test each, and say in the last line what was tested and what was not found."""
    tested, failed, missing = [], [], []
    plan = [(f"python{version}", interpreter(version), SUITES) for version in wanted()]
    for name, python, what in [*plan, ("oldest SDKs", sys.executable, WITH_SDKS)]:
        if python is None:
            missing.append(name)
            continue
        paths = [each if "/" in each else f"tests/{each}" for each in what]
        click.echo(f"{name}: {python}")
        try:
            executable = environment(name.replace(" ", "-"), python, oldest=what is WITH_SDKS)
            run(executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths)
        except subprocess.CalledProcessError:
            failed.append(name)
        tested.append(name)
    click.echo(
        f"test-all: {', '.join(tested)}; failed: {', '.join(failed) or 'none'}; "
        f"not found: {', '.join(missing) or 'none'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
