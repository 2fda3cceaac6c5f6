"""``make demo PLACE=cluster`` on few rows: its last line, and what is left when it is killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.test_demo import LAST_LINE, processes, wait_for

ROOT = Path(__file__).parents[2]


def command(work: Path) -> list[str]:
    """The demo on few rows."""
    words = ["--rows", "4000", "--place", "cluster", "--work", str(work)]
    return [sys.executable, "-m", "examples.demo", *words]


@pytest.mark.timeout(300)
def test_killed_demo_leaves_neither_cluster_nor_server(tmp_path: Path) -> None:
    """SIGKILL of the demo ends master, workers, server, drivers and executors as well."""
    work = tmp_path / "work"
    with subprocess.Popen(command(work), cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            ready = next((line for line in running.stdout if line.endswith(": ready\n")), None)
            assert ready, "the demo ended before its first child was ready"
            assert len(processes(work)) > 5
        finally:
            running.send_signal(signal.SIGKILL)
        running.wait(60)

    wait_for(lambda: not processes(work), seconds=60)


@pytest.mark.timeout(590)
def test_whole_demo_on_the_cluster_finds_no_difference(tmp_path: Path) -> None:
    """The last line is that of ``make demo``, a writer was killed, and nothing runs afterwards."""
    work = tmp_path / "work"

    done = subprocess.run(command(work), cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    last = LAST_LINE.fullmatch(done.stdout.splitlines()[-1])
    assert last
    assert int(last[1]) > 900
    assert re.search(r"kill -9 .* instant (\d{17}) is in flight", done.stdout)
    assert re.search(r"has the lease, [\d.]+ s after the kill", done.stdout)
    assert done.stdout.index("watches the lease of the writer") < done.stdout.index("kill -9")
    assert "(bound 27.0 s and two round trips)" in done.stdout  # the Dates of S3 are of whole seconds
    assert not processes(work)
    assert not list(work.glob("run-*/scratch"))
