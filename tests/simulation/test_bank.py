"""The bank: fenced updates under pauses longer than the lease."""

from __future__ import annotations

import pytest

from tests.laboratory.bank import main, run_bank


@pytest.mark.timeout(900)
def test_no_acknowledged_fenced_update_is_lost() -> None:
    """100,000 updates by workers that stand still for 5 s with leases of 2 s: all of them are kept."""
    result = run_bank(100_000, fenced=True)

    assert result.updates >= 100_000
    assert result.lost == 0
    assert result.pauses > 100
    assert result.takeovers > 100


def test_without_fencing_some_are_lost() -> None:
    """The same run that trusts the lock alone loses updates: the harness can tell."""
    result = run_bank(20_000, fenced=False)

    assert result.lost > 0


def test_the_command_runs_both(capsys: pytest.CaptureFixture[str]) -> None:
    """The command succeeds if fencing lost nothing and the same run without it lost something."""
    status = main(["--updates", "20000"])

    assert status == 0
    assert " fenced updates, 0 lost, " in capsys.readouterr().out
