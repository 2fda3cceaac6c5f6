"""Nothing of the tests leaves this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = ("tests/contract/test_backends.py", "tests/faults/test_answers.py")
NOT_ALLOWED = "Operation not permitted"
# Who is not root is so in a user namespace of its own, where the machine allows that.
WAYS = (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"])


@pytest.mark.parametrize("way", WAYS, ids=["as root", "as anybody"])
def test_the_contract_passes_without_a_network(way: list[str]) -> None:
    """In a network namespace with a loopback only, each server starts and every backend keeps its contract.

    Where the machine lets nobody make one, that refusal is all there is to see.
    """
    # The second way proves the namespace, for which one server is enough.
    chosen = CONTRACT if way == WAYS[0] else (*CONTRACT[:1], "-k", "FakeGcs")
    contract = " ".join(f"'{argument}'" for argument in (sys.executable, "-m", "pytest", "-q", *chosen))
    done = subprocess.run(
        [*way, "sh", "-ec", f"ip link set lo up; {contract}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    if NOT_ALLOWED in done.stderr and "passed" not in done.stdout:
        return
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
