"""Exit codes of errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from asynclock import spark
from asynclock._cli.app import run_command
from asynclock.spark.errors import StrayFilesError, TimelineAheadError

PROGRAM = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from asynclock._cli.exit_codes import exit_code
from asynclock.errors import StaleTokenError
print(exit_code(StaleTokenError.__new__(StaleTokenError)))
"""


def test_an_error_has_its_code_without_pyspark() -> None:
    """An installation for locks alone cannot import the pipeline."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimelineAheadError(path="t", seconds=1.0, reason="wait a second"), 75),
        (StrayFilesError(path="t", files=("f",)), 1),
        (ModuleNotFoundError("no", name="pydantic.main"), 2),
    ],
    ids=["a later try may work", "another error of the pipeline", "a missing extra"],
)
def test_the_errors_of_the_pipeline_have_their_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    """The verbs' own group knows them; each is said once."""

    def fail(_: str) -> None:
        raise error

    monkeypatch.setattr(spark, "load_spec", fail)

    assert run_command(["pipeline", "sql", "spec.toml"]) == code
    said = capsys.readouterr().err.splitlines()
    missing = "asynclock: pydantic is not installed; run: pip install 'asynclock[spark]' [AL-004]"
    assert said == [missing if code == 2 else f"asynclock: {error}"]
