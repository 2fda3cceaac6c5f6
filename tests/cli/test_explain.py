"""``asynclock pipeline explain``: every option, its layer and why, without Spark."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from typing import TYPE_CHECKING

import pytest

from asynclock.spark import explain, load_spec
from tests.cli.command import COMMAND, DEADLINE, asynclock

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
[table]
path = "table"
key = ["k"]
kind = "plain"
type = "mor"
concurrency = "occ-early"
markers = "timeline-server"
[locks]
url = "locks"
[services]
compaction = { every_commits = 4 }
[streams.a]
source = "in"
format = "csv"
ordering = "at"
checkpoint = "checkpoint"
columns = { at = "bigint", x = "int" }
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec whose table and locks do not exist."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


def on_a_terminal(columns: int, *words: str) -> list[str]:
    """The lines that the command prints to a terminal of that width, without their colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            text += piece
        assert process.wait(DEADLINE) == 0
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).replace("\r", "").split("\n")


def test_each_line_of_json_is_one_option_with_its_layer_and_reason(spec: Path) -> None:
    """A program gets what ``asynclock.spark.explain`` gives."""
    done = asynclock("pipeline", "explain", str(spec), "--json")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["key"], line["value"], line["layer"], line["why"]) for line in lines] == [
        (option.key, option.value, option.layer, option.why) for option in explain(load_spec(spec)).options
    ]
    assert all(set(line) == {"layer", "key", "value", "used_by", "why"} for line in lines)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_text_fits_the_terminal_and_keys_stay_whole(spec: Path, columns: int) -> None:
    """Reasons are wrapped; what is copied into another program is never cut."""
    lines = on_a_terminal(columns, "pipeline", "explain", str(spec))

    words = {word for line in lines for word in line.split()}
    assert {option.key for option in explain(load_spec(spec)).options} <= words
    for line in lines:
        assert len(line) <= columns or len(line.split("= ")[-1].split()) == 1, line


def test_in_a_pipe_each_option_has_one_line_and_its_reason_another(spec: Path) -> None:
    """Nothing is wrapped where no terminal is, so that grep finds it."""
    lines = asynclock("pipeline", "explain", str(spec)).stdout.splitlines()

    for option in explain(load_spec(spec)).options:
        place = lines.index(f"  {option.key} = {option.value or '(empty)'}")
        assert lines[place + 1] == f"      {', '.join(option.used_by)}: {option.why}"


def test_an_explanation_creates_nothing(spec: Path, tmp_path: Path) -> None:
    """Neither a table nor a lock, nor a Spark session."""
    before = set(tmp_path.rglob("*"))

    asynclock("pipeline", "explain", str(spec))

    assert set(tmp_path.rglob("*")) == before


def test_a_mistake_in_the_spec_is_one_sentence(spec: Path) -> None:
    """As for every command of the pipeline: line, key, reason, and exit code 2."""
    spec.write_text(SPEC.replace('"mor"', '"row"'))

    done = asynclock("pipeline", "explain", str(spec))

    assert done.returncode == 2
    assert f"{spec}:5: table.type" in done.stderr
    assert "known here: cow, mor" in done.stderr
