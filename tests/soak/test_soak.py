"""A short form of ``make soak``: its last line has no difference and no leak."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MINUTES: Final = 5
PLACES: Final = ("file", "s3a")
LAST_LINE: Final = re.compile(
    rf"soak: {MINUTES} min, (?P<kills>\d+) kills, (?P<faults>\d+) faults, (?P<commits>\d+) commits, "
    r"0 differences, 0 leaks"
)


@pytest.mark.timeout(1800)
def test_nothing_is_lost_and_nothing_leaks_while_processes_and_stores_fail(tmp_path: Path) -> None:
    """On a disk and on S3, a few minutes of each; what was done is in the run's folder."""
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "tests.laboratory.soak"),
            *("--minutes", str(MINUTES)),
            *("--seed", "17"),
            *("--run", tmp_path / "run"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    said = LAST_LINE.fullmatch(done.stdout.splitlines()[-1])
    assert said, done.stdout[-3000:]
    assert all(int(number) > 0 for number in said.groups())
    run = tmp_path / "run"
    texts = [(run / place / "chaos.jsonl").read_text() for place in PLACES]
    chaos = [json.loads(line) for text in texts for line in text.splitlines()]
    assert sum(deed["what"] == "kill" for deed in chaos) == int(said["kills"])
    assert {"restart", "fault", "clock"} <= {deed["what"] for deed in chaos}
    for place in PLACES:
        for table in ("orders", "visits"):
            assert (run / place / f"{table}.html").is_file()
            summary = (run / place / f"{table}.txt").read_text()
            assert re.search(r"^locks' share of commit time: [0-9.]+ %$", summary, re.MULTILINE), summary
