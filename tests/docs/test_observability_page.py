"""The examples of docs/howto/observability.md, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/howto/observability.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str) -> None:
    """In a process of its own, with a lock that is acquired and released where it makes a client."""
    use = """
if "client" in globals():
    import asyncio

    async def work():
        async with client, client.lock("orders").hold():
            pass

    asyncio.run(work())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example + use], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_links_lead_to_files() -> None:
    """Of the dashboard and the alerts."""
    links = re.findall(r"\]\((\.\./observability/[^)]*)\)", PAGE.read_text(encoding="utf-8"))
    assert len(links) == 2
    assert all((PAGE.parent / link).is_file() for link in links)
