"""Runs the suites side by side if asked to (``pytest -n 3 --dist loadscope``), and reports on them.

The report has the time and process of each suite, its slowest tests, and the servers used. A failure is
printed when it happens, so that a run that is cut off has told its own. A skipped test fails the run.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.laboratory.cores import STANDS_BACK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.terminal import TerminalReporter
    from xdist.workermanage import WorkerController

_WITH_SPARK: Final = frozenset({"mechanisms", "spark"})
"""The suites that take longest: their files are spread over the processes, each with one Spark."""
_SPREAD: Final = _WITH_SPARK | {"places"}
_LONG_FILES: Final = (
    "test_restarts.py",
    "spark/test_demo.py",
    "test_kafka.py",
    "test_mechanisms.py",
    "test_cluster.py",
)
"""Files of those suites that take minutes; they begin first, so that the processes end together."""
_LONG_TESTS: Final = "places/test_demo.py::"
"""Tests of this file share nothing and take minutes: each goes to the process that is free."""
_MOST_SESSIONS: Final = 2
"""Processes with a Spark."""

_SLOWEST: Final = 25
_NICENESS: Final = os.getpriority(os.PRIO_PROCESS, 0)
_began: Final = time.monotonic()
_reporter: list[TerminalReporter] = []
_seconds: Counter[str] = Counter()
_per_test: Counter[str] = Counter()
_tests: Counter[str] = Counter()
_processes: dict[str, set[str]] = {}
_versions: dict[str, str] = {}
_left_out: dict[str, int] = {}


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Find where to print."""
    _reporter.append(config.pluginmanager.get_plugin("terminalreporter"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of one phase of one test to its suite, the folder below ``tests``; print a failure."""
    suite = _suite(report.nodeid)
    _processes.setdefault(suite, set()).add(getattr(report, "worker_id", "alone"))
    _seconds[suite] += report.duration
    _per_test[report.nodeid] += report.duration
    _tests[suite] += report.when == "call"
    if report.failed and _reporter[0] is not None:
        minutes = (time.monotonic() - _began) / 60
        _reporter[0].write_sep("_", f"after {minutes:.0f} min: {report.nodeid}")
        _reporter[0].write_line(report.longreprtext)


def _suite(nodeid: str) -> str:
    return nodeid.split("/")[1] if nodeid.count("/") > 1 else "."


class _BySuite(LoadScopeScheduling):
    """Gives each process one suite after another, so that a suite starts its servers once.

    The last process runs the suites without Spark, which hardly use a core and mostly wait; the others run
    files of the suites with Spark, each in a session of its own, and then help with what is left. The last
    process helps with Spark if it is the second one: a third session would find no free core.
    """

    def _split_scope(self, nodeid: str) -> str:
        if _LONG_TESTS in nodeid:
            return nodeid
        suite = _suite(nodeid)
        return nodeid.partition("::")[0] if suite in _SPREAD else suite

    def _reschedule(self, node: WorkerController) -> None:
        only_spark = self.workqueue and all(_suite(scope) in _SPREAD for scope in self.workqueue)
        if only_spark and len(self.nodes) > _MOST_SESSIONS and node == self.nodes[-1]:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        with_spark = node != self.nodes[-1] or len(self.nodes) == 1
        self.workqueue.move_to_end(_next_of(self.workqueue, spark=with_spark), last=False)
        super()._assign_work_unit(node)


def _next_of(scopes: Iterable[str], *, spark: bool) -> str:
    """Return the scope that a process runs next; of several alike, the first."""

    def later(scope: str) -> tuple[bool, bool]:
        is_spark = _suite(scope) in _SPREAD
        return is_spark != spark, is_spark and not scope.endswith(_LONG_FILES)

    return min(scopes, key=later)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let what runs side by side with Spark go first on a core."""
    if hasattr(item.config, "workerinput"):
        _stand_back(back=_suite(item.nodeid) in _WITH_SPARK)


def _stand_back(*, back: bool) -> None:
    wanted = _NICENESS + STANDS_BACK * back
    if os.getpriority(os.PRIO_PROCESS, 0) != wanted:
        with contextlib.suppress(PermissionError):  # only root may come forward again
            os.setpriority(os.PRIO_PROCESS, 0, wanted)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _BySuite:  # noqa: ANN401  not a public type
    """Distribute by suites. The marks of pytest-xdist for that do nothing since pytest 9.2."""
    return _BySuite(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs root where the user is another, but nothing in CI."""
    if os.geteuid() == 0 or os.environ.get("CI"):
        return
    without = [item for item in items if item.get_closest_marker("root") is None]
    _left_out["need root"] = len(items) - len(without)
    config.hook.pytest_deselected(items=[item for item in items if item not in without])
    items[:] = without


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the suites in the order in which they began."""
    terminalreporter.section("time per suite")
    for suite, seconds in _seconds.items():
        where = " ".join(sorted(_processes[suite]))
        terminalreporter.write_line(f"{suite:12} {_tests[suite]:5} tests {seconds:8.1f} s  {where}")
    terminalreporter.section("slowest tests")
    for nodeid, seconds in _per_test.most_common(_SLOWEST):
        terminalreporter.write_line(f"{seconds:7.1f} s  {nodeid}")
    terminalreporter.section("servers, and what was not run")
    for name, version in (_versions | _servers()).items():
        terminalreporter.write_line(f"{name}: {version}")
    for reason, number in _left_out.items():
        terminalreporter.write_line(f"{number} left out: they {reason}")
    skipped = len(terminalreporter.stats.get("skipped", []))
    terminalreporter.write_line(f"{skipped} skipped")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run in which anything was skipped: a missing server or tool must not pass as green."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput |= {"servers": _servers(), "left_out": dict(_left_out)}
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped") and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401  pytest-xdist has no public type for it
    """Take over what a process that has ended ran against."""
    output = getattr(node, "workeroutput", {})
    _versions.update(output.get("servers", {}))
    _left_out.update(output.get("left_out", {}))


def _servers() -> dict[str, str]:
    """Return the versions of the servers that this process has started or found."""
    return getattr(sys.modules.get("tests.servers.fixtures"), "versions", {})
