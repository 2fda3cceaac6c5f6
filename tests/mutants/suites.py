"""Hunts for mistakes in the pipeline: each is planted in a copy, on which the test that it names must fail.

Killed means that an expectation of the test failed: an assertion, an error that was expected and not raised,
or the error that the mutant says. An import error, a crash of another kind or a hang does not count.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, Final

from tests.mutants.copies import ROOT, copy_package
from tests.spark.warm import VARIABLE, warm_spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.mutants.pipeline import PipelineMutant
    from tests.mutants.planting import Change, Patch

SECONDS: Final = 240
"""Seconds after which a test counts as a hang."""
_GRACE: Final = 120.0
"""Seconds that the start of a test and its end may take besides."""
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1"
"""Options of a JVM that lives for a few tests: the compiler that takes long does not pay."""
_BESIDE: Final = ("examples", "tests")
_FILES: Final = ("pyproject.toml", "pytest_asynclock.py")


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of tests on a copy.

    Attributes:
        passed: How many passed.
        failures: Of each that failed the ``test``, its ``error``, what it ``said``, and whether that is an
            ``expectation`` of the test.
        problem: What went wrong with the run itself.
        seconds: How long it took.
    """

    passed: int
    failures: tuple[dict[str, Any], ...]
    problem: str
    seconds: float

    def verdict(self, sign: str = "") -> tuple[bool, str]:
        """Return whether the mistake was found, and how; or why that does not count.

        Args:
            sign: A pattern that an error other than a failed expectation has to match in order to count.
        """
        for failure in self.failures:
            said = f"{failure['error']}: {failure['said']}"
            if failure["expectation"] or (sign and re.search(sign, said)):
                return True, said
        if self.failures:
            first = self.failures[0]
            return False, f"it crashes, which does not count: {first['error']}: {first['said']}"
        return False, self.problem or f"{self.passed} passed"


def hunt_by_test(mutant: PipelineMutant, spark: str | None = None) -> tuple[bool, str, float]:
    """Run the mutant's test with its mistake; return whether it was found, how, and the seconds.

    Args:
        mutant: The mutant.
        spark: Address of a running Spark; a mistake in Java is tried in a Spark of its own all the same.

    Raises:
        NoSuchDecisionError: The source does not take the decision that the mutant is a mistake in.
    """
    trial = tried(mutant.changes, [mutant.test], None if mutant.in_java else spark)
    return *trial.verdict(mutant.sign), trial.seconds


@contextmanager
def warm_sparks(count: int) -> Iterator[Queue[str]]:
    """Yield the addresses of running Sparks, each for one hunt at a time."""
    addresses: Queue[str] = Queue()
    with ExitStack() as running, ThreadPoolExecutor(max(1, count)) as pool:
        starting = [warm_spark(ROOT) for _ in range(count)]
        for address in pool.map(running.enter_context, starting):
            addresses.put(address)
        yield addresses


def tried(changes: Iterable[Change | Patch], tests: Iterable[str], spark: str | None = None) -> Trial:
    """Run tests on a copy of the package with mistakes planted in it.

    Args:
        changes: The mistakes.
        tests: The tests.
        spark: Address of a running Spark for them; None: they start one if they need it.
    """
    given = {"JDK_JAVA_OPTIONS": _SHORT_LIVED} if spark is None else {VARIABLE: spark}
    with tempfile.TemporaryDirectory(prefix="asynclock-mutant-") as name:
        folder = Path(name)
        for beside in _BESIDE:
            shutil.copytree(ROOT / beside, folder / beside, ignore=shutil.ignore_patterns("__pycache__"))
        for file in _FILES:
            shutil.copy(ROOT / file, folder / file)
        notes = folder / "notes.json"
        planted, wanted = list(changes), list(tests)
        copy_package(folder, planted)
        # Of a planted mistake the first failure says enough.
        flags = ["--exitfirst"] if planted else []
        command = [sys.executable, "-m", "tests.mutants.trial", str(notes), str(SECONDS), *flags, *wanted]
        began = time.monotonic()
        problem = ""
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | given | {"PYTHONPATH": name},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS * len(wanted) + _GRACE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            problem = "it hangs, which does not count"
        else:
            if not notes.exists():
                said = done.stdout.strip().splitlines()[-1:] or ["no output"]
                problem = f"it crashes, which does not count: {said[0]}"
        seconds = time.monotonic() - began
        if problem:
            return Trial(0, (), problem, seconds)
        found = json.loads(notes.read_text())
        return Trial(found["passed"], tuple(found["failures"]), "", seconds)


def check_unmutated_suites(mutants: Iterable[PipelineMutant], jobs: int) -> list[str]:
    """Run the tests that mutants name, each once, on the source as it is; return what failed."""
    named = sorted({mutant.test for mutant in mutants})
    # As few runs as there are jobs, since each starts a Spark; what a file starts is shared by its tests.
    parts: list[list[str]] = [[] for _ in range(jobs)]
    for _, tests in groupby(named, key=lambda test: test.partition("::")[0]):
        min(parts, key=len).extend(tests)
    running = [part for part in parts if part]
    with ThreadPoolExecutor(max(1, len(running))) as pool:
        trials = list(pool.map(lambda tests: tried((), tests), running))
    failures = []
    for tests, trial in zip(running, trials, strict=True):
        failures += [
            f"the unmutated source fails {one['test']}: {one['error']}: {one['said']}"
            for one in trial.failures
        ]
        if trial.problem or trial.passed < len(tests):
            failures.append(f"the unmutated source: {trial.problem or f'{trial.passed} passed'} of {tests}")
    return failures
