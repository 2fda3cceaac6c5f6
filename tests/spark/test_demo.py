"""The demo: as a whole on few rows, what its validation sees, and what is left when it is ended early."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812  the name everybody uses

from asynclock import spark as splice
from examples import demo
from examples.demo_children import DemoError, run_folder
from examples.demo_table import LocalFolder, TableFiles
from examples.demo_validation import validate
from examples.fleet_oracle import Difference

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
ROWS = "8000"
LAST_LINE = re.compile(r"demo: (\d+) keys x 17 columns compared, 0 differences")


def command(work: Path) -> list[str]:
    """The demo on few rows."""
    return [sys.executable, "-m", "examples.demo", "--rows", ROWS, "--work", str(work)]


def processes(work: Path) -> list[int]:
    """Every process whose arguments name the folder: the demo, its children and their JVMs."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes()
        except OSError:  # ended meanwhile
            continue
        if os.fsencode(work) in arguments:
            found.append(int(folder.name))
    return found


def wait_for(condition: Callable[[], bool], *, seconds: float) -> None:
    """Return as soon as the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The output of a whole demo, and the folder of its run."""
    work = tmp_path_factory.mktemp("demo") / "work"
    done = subprocess.run(command(work), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = work.glob("run-*")
    return done.stdout, folder


@pytest.mark.timeout(500)
def test_whole_demo_finds_no_difference(played: tuple[str, Path]) -> None:
    """The last line says that every key and column agrees with the oracle, and nothing follows it."""
    output, _ = played

    last = LAST_LINE.fullmatch(output.splitlines()[-1])
    assert last
    assert int(last[1]) > 1000


@pytest.mark.timeout(500)
def test_killed_instant_is_rolled_back(played: tuple[str, Path]) -> None:
    """The instant of the killed writer has a rollback and no completion, and no log file is left of it."""
    output, folder = played

    killed = re.search(r"kill -9 .* instant (\d{17}) is in flight", output)
    assert killed
    table = TableFiles(LocalFolder(folder / "table"))
    assert table.rollback_of(killed[1]) is not None
    assert not table.is_completed(killed[1])
    assert table.log_files(killed[1]) == []
    assert re.search(r"has the lease, [\d.]+ s after the kill", output)
    assert output.index("watches the lease of the writer") < output.index("kill -9")
    # 20 s of validity, twice the skew of 2 s and the resolution of the store, and two looks.
    assert "(bound 25.0 s and two round trips)" in output


@pytest.mark.timeout(500)
def test_changed_cell_is_reported(played: tuple[str, Path], tmp_path: Path, spark: SparkSession) -> None:
    """One cell changed in a copy of the table is reported, and nothing else."""
    _, folder = played
    shutil.copytree(folder / "table", tmp_path / "table")
    text = (folder / "fleet.toml").read_text()
    locks = splice.load_spec(folder / "fleet.toml").locks.url
    text = text.replace(f"file://{folder}/table", f"file://{tmp_path}/table")
    text = text.replace("[locks]", f'[locks]\nmoved_from = "{locks}"')
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    spec = splice.load_spec(path)
    columns = [column.name for column in spec.stream("departures").columns]
    events = splice.read(spec, spark).where("dep_delay IS NOT NULL").select("tailnum", *columns)
    before = events.orderBy("tailnum").first()
    assert before is not None
    assert validate(path, spark).differences == []

    # Of events with the same instant the last to arrive wins.
    changed = events.where(F.col("tailnum") == before["tailnum"]).withColumn("dep_delay", F.lit(12345.0))
    splice.Splice(spec, spark).write(changed, "departures")

    assert validate(path, spark).differences == [
        Difference(
            key=before["tailnum"],
            kind="cell",
            column="dep_delay",
            expected=before["dep_delay"],
            actual=12345.0,
        )
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda it: it.name)
def test_ended_demo_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    """However the demo is ended, its children and their JVMs end as well; until then no other may start."""
    work = tmp_path / "work"
    with subprocess.Popen(
        command(work), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        try:
            ready = next((line for line in running.stdout if line.endswith(": ready\n")), None)
            assert ready, "the demo ended before its first child was ready"
            second = subprocess.run(command(work), cwd=ROOT, capture_output=True, text=True, check=False)
        finally:
            running.send_signal(number)
        running.wait(60)
        said = running.stderr.read()

    if number != signal.SIGKILL:
        assert said == "demo: stopped, and every process of it as well\n"
        assert running.returncode == 128 + number
    assert second.returncode == 1
    assert f"another demo (process {running.pid}) runs in {work}" in second.stderr
    assert len(list(work.glob("run-*"))) == 1
    wait_for(lambda: not processes(work), seconds=30)


def test_signal_inside_a_wait_is_not_taken_for_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wait of ``threading`` may turn the interruption into an error; the demo still says what ended it."""

    def interrupted(*_: object, **__: object) -> int:
        lock = threading.Lock()
        with lock:
            lock.release()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)
        return 0

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(sys, "argv", ["demo"])
    monkeypatch.setattr(demo, "demo", interrupted)
    try:
        with pytest.raises(SystemExit) as end:
            demo.main()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert end.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "demo: stopped, and every process of it as well\n"


def test_java_is_missing(tmp_path: Path) -> None:
    """Without Java the demo says what to install and makes no folder."""
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop("JAVA_HOME", None)

    done = subprocess.run(
        command(tmp_path / "work"), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "Java is missing" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_folder_of_others_is_refused(tmp_path: Path) -> None:
    """A folder with files that are not the demo's is left as it is."""
    (tmp_path / "run-of-mine").mkdir()

    with pytest.raises(DemoError, match="holds files that are not the demo's"), run_folder(tmp_path):
        pytest.fail("entered")

    assert [path.name for path in tmp_path.iterdir()] == ["run-of-mine"]


def test_path_that_the_spec_cannot_hold_is_refused(tmp_path: Path) -> None:
    """A folder with a space in its path is refused before anything is made."""
    with pytest.raises(DemoError, match="the character ' '"), run_folder(tmp_path / "my work"):
        pytest.fail("entered")

    assert list(tmp_path.iterdir()) == []


def test_next_run_starts_clean(tmp_path: Path) -> None:
    """A run gets an empty folder, and that of the run before is removed."""
    work = tmp_path / "work"
    with run_folder(work) as first:
        (first / "table").mkdir()

    with run_folder(work) as second:
        assert list(second.iterdir()) == []

    assert not (first / "table").exists()


def test_differences_make_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    """The differences are listed, the last line counts them, and the exit code is 1."""
    code = demo.report_verdict({"keys": 3, "columns": 17, "differences": ["N1.seats: expected 2, got 3"]})

    assert code == 1
    assert capsys.readouterr().out.splitlines() == [
        "  N1.seats: expected 2, got 3",
        "demo: 3 keys x 17 columns compared, 1 differences",
    ]


def test_an_instant_is_half_written_from_its_first_log_file_to_its_completion(tmp_path: Path) -> None:
    """Neither before there is a log file of it, nor by that of another, nor once it has completed."""
    timeline = tmp_path / ".hoodie" / "timeline"
    timeline.mkdir(parents=True)
    (timeline / "20261121060404384.deltacommit.inflight").touch()
    (tmp_path / ".0_20261121060404000.log.1_0-1-2").touch()
    table = TableFiles(LocalFolder(tmp_path))
    assert not table.is_half_written("")
    assert not table.is_half_written("20261121060404384")

    (tmp_path / ".0_20261121060404384.log.1_0-1-2").touch()

    assert table.is_half_written("20261121060404384")

    (timeline / "20261121060404384_20261121060405000.deltacommit").touch()

    assert not table.is_half_written("20261121060404384")
    assert table.is_completed("20261121060404384")
