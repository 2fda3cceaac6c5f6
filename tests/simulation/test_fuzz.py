"""The harness that gives hostile bodies to the parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.laboratory import fuzz

if TYPE_CHECKING:
    import pytest


def test_an_unexpected_error_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that raises anything but RecordCorruptError is found out, with the input that did it."""

    def parse(body: bytes, **_: object) -> None:
        if body.startswith(b"["):
            raise RecursionError("too deep")

    monkeypatch.setattr(fuzz, "parse_record", parse)

    result = fuzz.run_fuzz(seed=0, count=2000)

    assert result.failures
    assert "RecursionError('too deep'): b'[" in result.failures[0]


def test_a_greedy_parser_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that takes more than 1 MiB is found out."""
    monkeypatch.setattr(fuzz, "parse_record", lambda body, **_: bytearray(fuzz.MOST_BYTES) + body)

    result = fuzz.run_fuzz(seed=0, count=20, measure_every=10)

    assert len(result.failures) == result.measured == 2


def test_the_command_counts_its_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    """The command says how many inputs there were, over all processes, and that none failed."""
    status = fuzz.main(["--inputs", "51000"])

    assert status == 0
    assert capsys.readouterr().out.startswith("fuzz: 51000 inputs, ")
