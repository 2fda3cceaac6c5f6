"""A handle has the names that its reference page lists, and no other: the rest is below ``_core``."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import asynclock
from asynclock import sync

if TYPE_CHECKING:
    from types import ModuleType

PAGES: Final = Path(asynclock.__file__).parents[1] / "docs" / "reference"
HANDLES: Final = ("LockClient", "Lock", "Semaphore", "RWLock", "Lease", "FencedObject")


def listed(module: ModuleType, name: str) -> set[str]:
    """Return the members that the reference lists of a class, and the attributes that its docstring does."""
    text = (PAGES / f"{module.__name__.rpartition('.')[2]}.md").read_text()
    found = re.search(rf"autoclass:: {module.__name__}\.{name}(\(\))?\n   :members: (.+)", text)
    assert found is not None, f"the page lists no members of {name}"
    _, _, attributes = (getattr(module, name).__doc__ or "").partition("Attributes:\n")
    return {*found[2].split(", "), *re.findall(r"^ {8}(\w+): ", attributes, re.MULTILINE)}


def names(handle: object) -> set[str]:
    """Return what an editor shows of a handle."""
    return {name for name in dir(handle) if not name.startswith("_")}


async def opened() -> dict[str, set[str]]:
    """Return the names of each asynchronous handle."""
    async with asynclock.connect("memory://") as client:
        lock = client.lock("orders")
        async with lock as lease:
            handles = (
                client,
                lock,
                client.semaphore("s", 2),
                client.rwlock("t"),
                lease,
                asynclock.FencedObject(client, "state"),
            )
            return dict(zip(HANDLES, map(names, handles), strict=True))


def opened_blocking() -> dict[str, set[str]]:
    """Return the names of each blocking handle."""
    with sync.connect("memory://") as client:
        lock = client.lock("orders")
        with lock as lease:
            handles = (
                client,
                lock,
                client.semaphore("s", 2),
                client.rwlock("t"),
                lease,
                sync.FencedObject(client, "state"),
            )
            return dict(zip(HANDLES, map(names, handles), strict=True))


@pytest.mark.parametrize("blocking", [False, True], ids=["asynclock", "asynclock.sync"])
def test_a_handle_has_the_names_of_its_reference_page(*, blocking: bool) -> None:
    """Nothing that is for the package shows up in an editor, and nothing on the page is missing."""
    there = opened_blocking() if blocking else asyncio.run(opened())
    module = sync if blocking else asynclock

    assert there == {name: listed(module, name) for name in HANDLES}
