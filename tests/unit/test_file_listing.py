"""A listing of ``file://`` shows every lock that is there all the time, also while others write."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asynclock.backends import _local as local
from asynclock.backends import open_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

scan = local._scan
LOCKS = 1_500
"""Names enough that the kernel gives them in several parts."""
LISTINGS = 40
WRITER = """
import asyncio, random, sys
from asynclock.backends import open_backend

async def renew() -> None:
    backend = open_backend(sys.argv[1], fsync=False)
    rng = random.Random(1)
    versions = {}
    async for entry in backend.list(""):
        versions[entry.key] = (await backend.get(entry.key)).version
    print("begun", flush=True)
    keys = sorted(versions)
    while True:
        key = rng.choice(keys)
        versions[key] = (await backend.put_if_match(key, rng.randbytes(8), versions[key])).version

asyncio.run(renew())
"""


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that gives a file another place at each rename, if there is one."""
    shared = Path("/dev/shm")  # noqa: S108  Linux has its tmpfs there
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
        yield Path(folder)


def test_a_lock_that_others_renew_is_in_every_listing(memory_disk: Path) -> None:
    """While a process replaces files by renames, no listing misses one of them."""
    url = f"file://{memory_disk}/locks"

    async def make() -> set[str]:
        backend = open_backend(url, fsync=False)
        keys = {f"stream/n{number:05}.json" for number in range(LOCKS)}
        for key in sorted(keys):
            await backend.put_if_absent(key, b"x")
        return keys

    async def missed(keys: set[str]) -> list[int]:
        backend = open_backend(url, fsync=False)
        return [len(keys - {entry.key async for entry in backend.list("")}) for _ in range(LISTINGS)]

    keys = asyncio.run(make())
    writer = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        assert asyncio.run(missed(keys)) == [0] * LISTINGS
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()


async def test_a_name_that_the_kernel_misses_is_known_by_its_side_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only if the lock is there: the side file of one that was deleted names nothing."""
    backend = open_backend(f"file://{tmp_path}/locks", fsync=False)
    for key in ("a.json", "b/c.json", "b/d.json", ".e.lock.json"):
        await backend.put_if_absent(key, b"x")
    (tmp_path / "locks/b/d.json").unlink()
    monkeypatch.setattr(
        local, "_scan", lambda folder: (each for each in scan(folder) if not each[0].endswith(".json"))
    )

    assert [entry.key async for entry in backend.list("")] == [".e.lock.json", "a.json", "b/c.json"]


async def test_a_listing_is_in_the_order_of_keys(tmp_path: Path) -> None:
    """Also across folders, and a prefix may end in the middle of a name."""
    backend = open_backend(f"file://{tmp_path}/locks", fsync=False)
    keys = ["a-b.json", "a.json", "a/b-c.json", "a/b.json", "a/b/c.json", "ab.json", "b/a.json"]
    for key in reversed(keys):
        await backend.put_if_absent(key, b"x")

    assert [entry.key async for entry in backend.list("")] == sorted(keys)
    assert [entry.key async for entry in backend.list("a/b")] == ["a/b-c.json", "a/b.json", "a/b/c.json"]


async def test_a_listing_does_not_read_everything_before_its_first_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One folder after the other is read, as the entries are asked for."""
    backend = open_backend(f"file://{tmp_path}/locks", fsync=False)
    for number in range(40):
        await backend.put_if_absent(f"{number:02}/a.json", b"x")
    read: list[Path] = []
    monkeypatch.setattr(local, "_LISTED_AT_ONCE", 4)

    def noted(folder: Path) -> Iterator[tuple[str, bool]]:
        read.append(folder)
        return scan(folder)

    monkeypatch.setattr(local, "_scan", noted)

    listing = backend.list("")
    assert (await anext(aiter(listing))).key == "00/a.json"
    assert len(read) < 10
    await listing.aclose()  # type: ignore[attr-defined]
