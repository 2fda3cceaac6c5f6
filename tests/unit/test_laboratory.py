"""The programs of the laboratory are run from one list."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from tests.laboratory import class_archive
from tests.laboratory.__main__ import PROGRAMS
from tests.laboratory._installed import _make, one_at_a_time

ROOT: Final = Path(__file__).parents[2]
LABORATORY: Final = ROOT / "tests/laboratory"
PINNED: Final = (
    *("demo", "test", "simulate", "mutants", "soak-kill", "soak-cut", "attack", "fuzz-data", "mechanisms"),
    *("soak", "linearizable", "docs", "bench", "jar", "lint", "dist"),
)
"""Targets of make on which users and checks rely."""
INNER: Final = {"moto_server.py", "worker.py", "spoiler.py", "driver.py"}
"""What the programs start by themselves."""
ONLY_IF_FREE: Final = """
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(1)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the laboratory's command."""
    return subprocess.run(
        [sys.executable, "-m", "tests.laboratory", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_only_one_process_at_a_time_uses_what_they_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Sparks that download a connector for the first time would break each other's files."""
    monkeypatch.setenv("ASYNCLOCK_CACHE", str(tmp_path))
    is_free = [sys.executable, "-c", ONLY_IF_FREE, str(tmp_path / "ivy.lock")]

    with one_at_a_time("ivy"):
        assert subprocess.run(is_free, check=False).returncode == 1
    assert subprocess.run(is_free, check=False).returncode == 0


def test_a_server_that_two_processes_need_is_installed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one waits until it is whole; what a killed installation has left is removed."""
    monkeypatch.setenv("ASYNCLOCK_CACHE", str(tmp_path))
    folder = tmp_path / "server@1"
    folder.mkdir()
    begun, finish, builds = threading.Event(), threading.Event(), []

    def build(partial: Path) -> None:
        builds.append(partial)
        partial.mkdir()
        begun.set()
        assert finish.wait(60)
        (partial / "server").touch()

    both = [threading.Thread(target=_make, args=(folder, folder / "server", build)) for _ in range(2)]
    for one in both:
        one.start()
    assert begun.wait(60)
    assert not (folder / "server").exists()
    finish.set()
    for one in both:
        one.join()

    assert len(builds) == 1
    assert (folder / "server").exists()


def test_an_archive_of_classes_is_not_given_to_a_spark_that_was_installed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM would leave it aside without a word, and each of them would start slowly."""
    jar = tmp_path / "pyspark" / "jars" / "core.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"classes")
    pyspark = SimpleNamespace(locate_file=lambda name: tmp_path / name)
    monkeypatch.setattr(class_archive, "distribution", lambda _: pyspark)
    monkeypatch.setenv("ASYNCLOCK_CACHE", str(tmp_path))
    made = class_archive._archive()
    made.parent.mkdir()
    made.touch()

    assert str(made) in class_archive.jvm_options()

    os.utime(jar, (1, 1))

    assert "SharedArchiveFile" not in class_archive.jvm_options()


def test_without_a_name_the_programs_are_listed() -> None:
    """The list has a line for each."""
    done = run()

    assert done.returncode == 0
    for name, (_, shows) in PROGRAMS.items():
        assert re.search(rf"^{name} +{re.escape(shows)}$", done.stdout, re.MULTILINE)


def test_a_wrong_name_is_answered_with_the_list() -> None:
    """Nothing is run, and the exit code is that of wrong usage."""
    done = run("simulates")

    assert done.returncode == 2
    assert "no program 'simulates'" in done.stderr
    assert "soak-kill" in done.stderr


def test_options_reach_the_program() -> None:
    """A history of one seed is run, and the last line is the program's own."""
    done = run("simulate", "--seeds", "1")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("simulate: 1 histories, ")


def test_the_list_is_whole() -> None:
    """Each module of the laboratory that can be run is in the list, or is started by one that is."""
    runnable = {
        ".".join(path.relative_to(ROOT / "tests").with_suffix("").parts)
        for path in LABORATORY.rglob("*.py")
        if path.name not in INNER
        and not path.name.endswith("_driver.py")
        and path != LABORATORY / "__main__.py"
        and "\nif __name__ == " in path.read_text()
    }

    assert runnable == {module for module, _ in PROGRAMS.values()} - {"mutants.__main__"}


@pytest.mark.parametrize("target", PINNED)
def test_a_target_of_make_stays(target: str) -> None:
    """What runs a target by its name finds it."""
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("target", "given", "runs"),
    [
        ("attack", "SEEDS=9", "attack --seeds 9"),
        ("simulate", "SEEDS=9", "simulate --seeds 9"),
        ("soak-kill", "KILLS=9", "soak-kill --kills 9"),
        ("restarts", "KILLS=9", "restarts --kills 9"),
        ("soak-cut", "CUTS=9", "soak-cut --cuts 9"),
        ("fuzz-data", "FILES=9", "fuzz-data --files 9"),
        ("steered", "BEHAVIOURS=9", "steered --behaviours 9"),
        ("traces", "HISTORIES=9", "traces --histories 9"),
        ("changes", "COMMITS=9", "changes --commits 9"),
        ("linearizable", "MINUTES=9", "linearizable --minutes 9"),
        ("soak", "MINUTES=9", "soak --minutes 9"),
        ("mechanisms", "ONLY=9", "mechanisms --only 9"),
        ("mutants", "ONLY=lock", "mutants --only lock"),
        ("proof-numbers", "ONLY=soak", "proof-numbers --only soak"),
    ],
)
def test_variables_of_make_become_options(target: str, given: str, runs: str) -> None:
    """A target is another way to run its program."""
    done = subprocess.run(
        ["make", "--dry-run", target, given], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert [line.strip() for line in done.stdout.splitlines() if "tests.laboratory" in line][-1].endswith(
        f"-m tests.laboratory {runs}"
    )
