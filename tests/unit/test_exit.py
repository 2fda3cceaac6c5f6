"""The end of a process: return, exception, ``sys.exit`` and interpreter exit (rule 18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.programs import SYNC_HELD, record, run

if TYPE_CHECKING:
    from pathlib import Path


ENDS = {
    "return": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise ZeroDivisionError", 1),
    "in a body": ("with client.lock('other').hold():\n    sys.exit(4)", 4),
}


@pytest.mark.parametrize(("end", "code"), ENDS.values(), ids=ENDS.keys())
def test_an_exit_releases_what_is_held(tmp_path: Path, end: str, code: int) -> None:
    """A program that ends in any orderly way leaves its locks free, though it released nothing."""
    outcome, _, errors = run(SYNC_HELD + end, tmp_path)

    assert outcome == code, errors
    assert record(tmp_path).expired


LOOP_ENDS = {
    "closed": "asyncio.run(main())",
    "closed in a body": "asyncio.run(cut_short())",
    "stopped": "loop = asyncio.new_event_loop(); loop.run_until_complete(main())",
    "closed by force": """
loop = asyncio.new_event_loop()
task = loop.create_task(body())
loop.run_until_complete(until_held())
loop.close()
""",
}


@pytest.mark.parametrize("end", LOOP_ENDS.values(), ids=LOOP_ENDS.keys())
def test_an_exit_releases_the_leases_of_a_loop_that_has_ended(tmp_path: Path, end: str) -> None:
    """With renewal="loop" too: its loop is run once more, or another in its place."""
    program = f"""
leases = []
async def main():
    client = asynclock.connect(url, settings=settings, renewal="loop")
    leases.append(await client.lock("orders").acquire())
async def body():
    await main()
    async with leases[0]:
        await asyncio.Event().wait()
async def until_held():
    while not leases:
        await asyncio.sleep(0.01)
async def cut_short():
    task = asyncio.create_task(body())
    await until_held()
    task.cancel()
    await asyncio.wait([task])
{end}
"""
    outcome, _, errors = run(program, tmp_path)

    assert outcome == 0, errors
    assert record(tmp_path).expired


def test_an_async_program_that_fails_leaves_its_lock_free(tmp_path: Path) -> None:
    """A lease taken on the host's thread is released at exit, after its own loop is gone."""
    program = """
async def main():
    client = asynclock.connect(url, settings=settings)
    await client.lock("orders").acquire()
    raise SystemExit(5)
asyncio.run(main())
"""
    outcome, _, errors = run(program, tmp_path)

    assert outcome == 5, errors
    assert record(tmp_path).expired
