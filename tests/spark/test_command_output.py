"""What the command prints of a run; in a process with a Spark of its own, where that is the point."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from asynclock.spark import load_spec
from tests.cli.command import COMMAND
from tests.cli.screen import Screen
from tests.spark.pipeline_kit import command_here

SPEC = """\
[table]
path = "table"
key = ["k"]
[streams.a]
source = "in/*.csv"
ordering = "at"
columns = { at = "bigint", x = "int" }
"""
NAMED = re.compile(r"asynclock: starting Spark; its output and Hudi's are in (\S+)")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec with one stream, whose source has a row that is good."""
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("k,at,x\nN1,1,1\n")
    return path


def ran(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401  of subprocess
    """Run a verb of the pipeline to its end."""
    return subprocess.run(
        [*COMMAND, "pipeline", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        **options,
    )


def test_one_bad_row_is_one_sentence(spec: Path) -> None:
    """Two lines on the standard error: where Spark's own words are, and what is wrong with which row."""
    (spec.parent / "in" / "1.csv").write_text("k,at,x\nN1,noon,1\n")

    done = ran("run", str(spec), "--once")

    log, sentence = done.stderr.splitlines()
    found = NAMED.fullmatch(log)
    assert found is not None
    kept = Path(found[1])
    try:
        assert done.returncode == 1
        assert "1 bad rows in batch 0, nothing of it was written" in sentence
        assert "at is no bigint: noon" in sentence
        assert [line.partition(":")[0] for line in done.stdout.splitlines()[:2]] == ["a", "a"]
        assert len(done.stdout.splitlines()) == 3
        assert "SparkContext" in kept.read_text() or "WARN" in kept.read_text()
    finally:
        kept.unlink()


def test_json_is_json_only_and_the_table_is_named(spec: Path) -> None:
    """Every line of the standard output is an object; Spark's words are in the file that was asked for."""
    log = spec.parent / "spark.log"

    done = ran("run", str(spec), "--once", "--json", "--log", str(log))

    assert done.returncode == 0, done.stderr
    batch, report = [json.loads(line) for line in done.stdout.splitlines()]
    assert (batch["rows"], report["streams"][0]["rows"]) == (1, 1)
    assert done.stderr == (
        f"asynclock: the table is {(spec.parent / 'table').as_uri()}; read it by asynclock.spark.read("
        f"load_spec({str(spec)!r}), spark), or see asynclock pipeline sql {spec}\n"
    )
    assert "WARN" in log.read_text()


@pytest.mark.parametrize("verb", ["run", "services", "validate"])
def test_a_log_that_cannot_be_written_is_refused(spec: Path, verb: str) -> None:
    """2 and a sentence, before Spark is started and anything is written."""
    done = ran(verb, str(spec), "--log", str(spec.parent / "no" / "such.log"))

    assert (done.returncode, done.stdout) == (2, "")
    assert "such.log" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (spec.parent / "table").exists()


@pytest.mark.usefixtures("spark")
def test_show_prints_rows_of_the_view(spec: Path) -> None:
    """Rows come in the order of their keys under the names of the view, as text and as JSON."""
    spec.write_text(SPEC.replace('x = "int"', 'x = "double", t = "timestamp"'))
    rows = ["k,at,x,t", "N2,1,NaN,2024-05-01T12:00:00.5Z", "N1,1,0.5,", "N3,1,,", "N9\x1b[2J,1,,", ""]
    (spec.parent / "in" / "1.csv").write_text("\n".join(rows))
    assert command_here("run", str(spec), "--once").returncode == 0

    shown = ran("show", str(spec))
    few = command_here("show", str(spec), "--limit", "1", "--json")
    every = command_here("show", str(spec), "--json")

    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines() == [
        "k          at  x    t",
        "N1         1   0.5  -",
        "N2         1   NaN  2024-05-01 12:00:00.500000Z",
        "N3         1   -    -",
        r"N9\x1b[2J  1   -    -",
    ]
    assert shown.stderr.splitlines()[-1] == "asynclock: 4 rows"
    assert [json.loads(line) for line in every.stdout.splitlines()][:2] == [
        {"k": "N1", "at": 1, "x": 0.5, "t": None},
        {"k": "N2", "at": 1, "x": "NaN", "t": "2024-05-01 12:00:00.500000Z"},
    ]
    assert len(few.stdout.splitlines()) == 1
    assert "at most" not in few.stderr


@pytest.mark.usefixtures("spark")
def test_show_of_a_table_that_is_not_there_says_so(spec: Path) -> None:
    """Before the first commit there is a sentence and exit code 2, and no empty table."""
    done = command_here("show", str(spec))

    assert (done.returncode, done.stdout) == (2, "")
    assert "feed it first" in done.stderr


@pytest.mark.parametrize(("verb", "lock"), [("run", "stream/a"), ("services", "service/cleaning")])
@pytest.mark.usefixtures("spark")
def test_a_wait_for_another_driver_is_told_and_ends(spec: Path, verb: str, lock: str) -> None:
    """Who holds the lease is said, since when and for how long at most; after --wait the exit code is 75."""
    if verb == "services":
        assert command_here("run", str(spec), "--once").returncode == 0
    with load_spec(spec).locks.connect() as client, client.lock(lock).hold():
        done = ran(verb, str(spec), "--wait", "3s")

    waiting = f"asynclock: waiting for {client.url}/{lock}, held by "
    found = next(line for line in done.stderr.splitlines() if line.startswith(waiting))
    assert " since " in found
    assert ", for at most " in found
    assert re.search(r", waiting at most [23] s \[AL-\d{3}\]$", found)
    assert "was not acquired within 3 s" in done.stderr
    assert done.returncode == 75


def test_a_signal_to_the_group_of_a_waiting_run_is_no_traceback(spec: Path) -> None:
    """Supervisors end the JVM together with its driver; the run says what it has done and ends well."""
    with load_spec(spec).locks.connect() as client, client.lock("stream/a").hold():
        command = [*COMMAND, "pipeline", "run", str(spec)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as running:
            assert running.stderr is not None
            waiting = next((line for line in running.stderr if "waiting for" in line), None)
            os.killpg(running.pid, signal.SIGTERM)
            out, said = running.communicate(timeout=120)

    assert waiting is not None
    assert "Traceback" not in out + said
    assert out.startswith("a: 0 events read in 0 batches")
    assert running.returncode == 0


def test_a_good_run_leaves_nothing_behind(spec: Path) -> None:
    """Neither a log nor a folder of Spark's: only the table and what belongs to it."""
    home, work = spec.parent / "home", spec.parent / "work"
    home.mkdir()
    work.mkdir()

    done = ran("run", str(spec), "--once", cwd=work, env={**os.environ, "HOME": str(home)})

    assert done.returncode == 0, done.stderr
    assert str(home / ".local" / "state" / "asynclock" / "logs") in done.stderr
    assert [path for path in home.rglob("*") if path.is_file()] == []
    assert list(work.iterdir()) == []
    assert done.stdout.startswith("a: batch 0: 1 events read in ")


@pytest.mark.usefixtures("spark")
def test_progress_is_shown_on_a_terminal_and_nowhere_else(spec: Path) -> None:
    """A terminal has files and rows done of all; a pipe has no escape code."""
    for number in (2, 3):
        (spec.parent / "in" / f"{number}.csv").write_text(f"k,at,x\nN{number},1,1\n")
    spec.write_text(SPEC.replace("[streams.a]\n", "[streams.a]\nmax_files_per_trigger = 1\n"))

    with Screen("pipeline", "run", str(spec), "--once", columns=120, deadline=240.0) as screen:
        text = screen.read_until(lambda text: "read in 3 batches" in text)
    piped = command_here("validate", str(spec))

    assert re.search("[12]/3 files", text)
    for shown in ("0/3 files", "batch 1", "3 events read in 3 batches"):
        assert shown in text
    assert "\x1b" not in piped.stdout + piped.stderr
