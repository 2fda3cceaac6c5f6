"""Prints the time of each suite and the servers it ran against, and lets a skipped test fail the run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_seconds: Counter[str] = Counter()
_tests: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of one phase of one test to its suite, the folder below ``tests``."""
    suite = report.nodeid.split("/")[1] if report.nodeid.count("/") > 1 else "."
    _seconds[suite] += report.duration
    _tests[suite] += report.when == "call"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs root where the user is another and it is not CI; the summary counts it."""
    if os.geteuid() == 0 or os.environ.get("CI"):
        return
    without = [item for item in items if item.get_closest_marker("root") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in without])
    items[:] = without


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the suites in the order in which they ran."""
    terminalreporter.section("time per suite")
    for suite, seconds in _seconds.items():
        terminalreporter.write_line(f"{suite:12} {_tests[suite]:5} tests {seconds:8.1f} s")
    fixtures = sys.modules.get("tests.servers.fixtures")
    for name, version in getattr(fixtures, "versions", {}).items():
        terminalreporter.write_line(f"{name}: {version}")
    skipped = len(terminalreporter.stats.get("skipped", []))
    terminalreporter.write_line(f"{skipped} skipped")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run in which anything was skipped: a missing server or tool must not pass as green."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped") and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
