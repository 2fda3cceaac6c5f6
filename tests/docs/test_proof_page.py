"""``docs/proof.md`` has the results of long runs, each as its program said it, and no other page has any."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.laboratory.proof_numbers import PROGRAMS, ProofError, main, read, render, rows_of

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "proof.md"
RUN: Final = {"commit": "0123456789", "day": "2026-01-02", "machine": "2 cores"}
LINES: Final = {
    "bank": "bank: 1000000 fenced updates, 0 lost, 2929 pauses, 3100 takeovers; 100000 without fencing, "
    "20847 lost; 300 s",
    "fuzz": "fuzz: 1000000 inputs, 412345 of them records, 0 failures; at most 768 KiB "
    "(of 10000) and 9.1 ms; 80 s",
    "simulate": "simulate: 25000 histories, 5300000 store operations, 0 violations (seeds 0..24999)",
    "attack": "attack: 10000 histories, 0 violations",
    "guided": "guided: 450 histories, 238 of 252 branches reached, 0 not and for no known reason, "
    "0 violations",
    "mutants": "mutants: 42 mutants, 42 killed, 0 survived",
    "soak-kill": "soak-kill: 200 kills, 80 of a holder, 0 double holds, 0 stuck",
    "soak-cut": "soak-cut: 300 cuts per store, 3 stores, 0 false losses, 0 double holds, 0 leaks",
    "model": "model: 6 configurations, 1234567 states, 0 violations",
    "steered": "steered: 100000 behaviours, 3600000 steps, 401 of 404 branches reached, 9000 left, 0 differ",
    "traces": "traces: 2000 histories, 0 refused; 30 mutants, 0 accepted",
    "linearizable": "linearizable: 5 min, 2 stores, 1155 operations, 81 signals, 887 faults, 0 violations",
    "fuzz-data": "fuzz-data: 20000 files, 0 values changed, 0 rows lost, 0 hangs",
    "mutants-data": "mutants-data: 24 mutants, 24 found, 0 survived",
    "restarts": "restarts: 40 kills, 3 schema changes, 2 restores, 200 keys x 13 columns compared, "
    "0 differences",
    "changes": "changes: 200 commits of streams, 20 late, 9 deletes, 170 archived, 30 compactions, 90 polls, "
    "1500 rows told, 12 of them deleted, 200 keys x 13 columns compared, 0 differences",
    "soak": "soak: 5 min, 31 kills, 44 faults, 812 commits, 0 differences, 0 leaks",
}
FAILED: Final = (
    "simulate: 25000 histories, 5300000 store operations, 1 violations (seeds 0..24999)",
    "mutants: 42 mutants, 41 killed, 1 survived",
    "soak-kill: 200 kills, 80 of a holder, 0 double holds, 1 stuck",
    "soak-cut: 300 cuts per store, 3 stores, 0 false losses, 0 double holds, 2 leaks",
    "fuzz-data: 20000 files, 0 values changed, 3 rows lost, 0 hangs",
)


@pytest.mark.parametrize("name", [program.name for program in PROGRAMS])
def test_the_last_line_of_each_program_becomes_its_row(name: str) -> None:
    """The line is found among others, the last one of several counts."""
    output = f"seed 3: fine\n{LINES[name].replace(' ', ' 1', 1)}\n{LINES[name]}\n"

    rows = rows_of(output, **RUN)

    assert list(rows) == [name]
    assert rows[name].result.replace(",", "") == LINES[name].partition(": ")[2].replace(",", "")


def test_a_command_repeats_the_run_that_the_line_tells_of() -> None:
    """The size of a run is in its last line, and so in the command."""
    rows = rows_of("\n".join(LINES.values()), **RUN)

    assert rows["soak-kill"].command == "make soak-kill KILLS=200"
    assert rows["simulate"].command == "python -m tests.laboratory simulate --first 0 --seeds 25000"


@pytest.mark.parametrize("line", FAILED)
def test_a_run_that_failed_is_no_proof(line: str) -> None:
    """Nothing is recorded of it, and what it said is repeated."""
    with pytest.raises(ProofError, match=re.escape(line)):
        rows_of(line, **RUN)


def test_rows_that_a_call_does_not_bring_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page is its own store: a log of one program leaves the rows of the others as they were."""
    page, first, second = (tmp_path / name for name in ("proof.md", "first.log", "second.log"))
    first.write_text(f"{LINES['attack']}\n{LINES['mutants']}\n")
    second.write_text(LINES["attack"].replace("10000", "20000") + "\n")

    assert main(["--page", str(page), "--from", str(first)]) == 0
    before = read(page.read_text())
    assert main(["--page", str(page), "--from", str(second)]) == 0
    after = read(page.read_text())

    assert after["mutants"] == before["mutants"]
    assert after["attack"].result == "20,000 histories, 0 violations"
    assert capsys.readouterr().out.splitlines()[-1] == "proof-numbers: 1 rows new, 1 kept"


def test_a_log_without_a_last_line_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was cut off is refused in one sentence."""
    page, log = tmp_path / "proof.md", tmp_path / "cut.log"
    log.write_text("2000 of 25000 histories, 0 violations, about 0 h 03 min left\n")

    assert main(["--page", str(page), "--from", str(log)]) == 1

    assert not page.exists()
    assert "has no last line of" in capsys.readouterr().err


def test_the_page_is_what_the_program_makes() -> None:
    """Nobody has typed into it."""
    page = PAGE.read_text()
    rows = read(page)
    since = [line.split(" | ")[-1].removesuffix(" |") for line in page.splitlines() if line.startswith("| `")]
    named = [program.name for program in PROGRAMS if program.name in rows]

    assert render(rows, dict(zip(named, since, strict=True))) == page


def test_no_other_page_has_the_result_of_a_run() -> None:
    """What a run came to is in one place, with the commit that was run."""
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        if path != PAGE
        for line in path.read_text().splitlines()
        if re.search(
            r"\d,?\d* (violations|survived|killed|double holds|stuck|false losses|leaks|hangs)\b", line
        )
    ]

    assert found == []
