"""Runs tests and notes how they failed; started by ``tests.mutants`` in the folder of a copy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from typing import Any


class Notes:
    """A plugin that counts what passes and notes what fails.

    Attributes:
        passed: How many tests have passed.
        failures: Of each failure the test, its error, what that says, and whether it is a failed expectation.
    """

    def __init__(self) -> None:
        self.passed = 0
        self.failures: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what passes."""
        self.passed += report.when == "call" and report.passed

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:  # noqa: ANN401  pytest's own
        """Note what fails, in a fixture or in the import of a file, too."""
        error = call.excinfo.value
        expected = isinstance(error, AssertionError) or str(error).startswith("DID NOT RAISE")
        self.failures.append(
            {
                "test": node.nodeid,
                "error": type(error).__name__,
                "said": str(error),
                "expectation": expected and getattr(report, "when", None) == "call",
            }
        )


def main() -> None:
    """Run tests, given as pytest takes them, and write into a file what came of them."""
    file, seconds, *tests = sys.argv[1:]
    notes = Notes()
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=--import-mode=importlib",
        f"--timeout={seconds}",
    ]
    pytest.main([*options, *tests], plugins=[notes])
    import asynclock  # noqa: PLC0415  pytest has to be the first to import it, and what it imports

    assert Path(asynclock.__file__).is_relative_to(Path.cwd()), "the tests have not run on the copy"
    Path(file).write_text(json.dumps({"passed": notes.passed, "failures": notes.failures}))


if __name__ == "__main__":
    main()
