"""Exit codes of errors."""

from __future__ import annotations

import subprocess
import sys

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
