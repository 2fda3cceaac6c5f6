"""``file://`` between users: who may write in a folder takes part, who may only read cannot disturb."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

pytestmark = pytest.mark.root
ALICE, BOB, STAFF = 60_001, 60_002, 60_100


USER = """
import asyncio, json, os, sys
from asynclock.backend import Absent, Stored
from asynclock.backends._local import LocalBackend
from asynclock.errors import BackendError
import pathlib
user, groups, umask, folder = json.loads(sys.argv[1])
backend = LocalBackend(pathlib.Path(folder))
os.umask(umask)
os.setgroups(groups)
os.setgid(user)
os.setuid(user)
async def answer(key, body):
    try:
        stored = await backend.get(key)
        if body is None:
            return stored.body.decode() if isinstance(stored, Stored) else None
        if isinstance(stored, Absent):
            await backend.put_if_absent(key, body.encode())
        else:
            await backend.put_if_match(key, body.encode(), stored.version)
        return "written"
    except BackendError as error:
        return f"{type(error).__name__}: {error}"
for line in sys.stdin:
    print(json.dumps(asyncio.run(answer(*json.loads(line)))), flush=True)
"""


class User:
    """A process of a user that reads and writes objects of one folder."""

    def __init__(self, user: int, folder: Path, *, groups: tuple[int, ...] = (), umask: int = 0o022) -> None:
        arguments = json.dumps([user, groups, umask, str(folder)])
        self._process = subprocess.Popen(
            [sys.executable, "-c", USER, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def read(self, key: str = "orders.json") -> str | None:
        """Return an object's text, None if there is none, or the error."""
        return self._ask(key, None)

    def write(self, body: str, key: str = "orders.json") -> str:
        """Replace an object or create it; ``written``, or the error."""
        return str(self._ask(key, body))

    def _ask(self, key: str, body: str | None) -> str | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([key, body]) + "\n")
        self._process.stdin.flush()
        answer: str | None = json.loads(self._process.stdout.readline())
        return answer


def folder_of(public: Path, user: int, group: int, mode: int) -> Path:
    """Make a folder."""
    folder = public / "locks"
    folder.mkdir()
    os.chown(folder, user, group)
    folder.chmod(mode)
    return folder


def mode_of(path: Path) -> int:
    """Return the permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("folder_mode", "umask", "object_mode", "side_mode"),
    [
        (0o755, 0o022, 0o644, 0o600),
        (0o755, 0o000, 0o644, 0o600),
        (0o700, 0o077, 0o600, 0o600),
        (0o755, 0o077, 0o600, 0o600),
        (0o775, 0o077, 0o640, 0o660),
        (0o2770, 0o022, 0o644, 0o660),
        (0o777, 0o077, 0o644, 0o666),
    ],
)
def test_the_folders_permissions_say_who_takes_part(
    public: Path, folder_mode: int, umask: int, object_mode: int, side_mode: int
) -> None:
    """Users who may write in it may read objects and lock the side file; others cannot lock it."""
    folder = folder_of(public, ALICE, STAFF, folder_mode)
    with User(ALICE, folder, groups=(STAFF,), umask=umask) as alice:
        assert alice.write("one") == "written"
        assert alice.write("two") == "written"

    assert mode_of(folder / "orders.json") == object_mode
    assert mode_of(folder / ".orders.json.lock") == side_mode


GRASP = """
import fcntl, os, sys
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
held = 0
for name in os.listdir(sys.argv[1]):
    try:
        fcntl.flock(os.open(os.path.join(sys.argv[1], name), os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        held += 1
    except OSError:
        pass
print(held, flush=True)
sys.stdin.read()
"""


def test_a_user_who_may_only_read_cannot_disturb(public: Path) -> None:
    """The operating system gives locks to readers, too; what writers lock they cannot open."""
    folder = folder_of(public, ALICE, ALICE, 0o755)
    with User(ALICE, folder, umask=0) as alice, User(BOB, folder) as bob:
        assert alice.write("one") == "written"
        grasp = subprocess.Popen(
            [sys.executable, "-c", GRASP, str(folder), str(BOB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert grasp.stdout is not None
        assert int(grasp.stdout.readline()) > 0

        assert alice.write("two") == "written"

        assert bob.read() == "two"
        assert bob.write("three").startswith("AccessDeniedError")
        grasp.communicate()


def test_members_of_a_group_share_a_folder(public: Path) -> None:
    """With a strict umask, too, and below folders that the first of them made."""
    folder = folder_of(public, ALICE, STAFF, 0o2770)
    with (
        User(ALICE, folder, groups=(STAFF,), umask=0o077) as alice,
        User(BOB, folder, groups=(STAFF,), umask=0o077) as bob,
    ):
        for key in ("orders.json", "deep/er/orders.json"):
            assert alice.write("one", key) == "written"
            assert bob.write("two", key) == "written"
            assert alice.write("three", key) == "written"
            assert bob.read(key) == "three"
        assert bob.write("one", "deep/er/bobs.json") == "written"


def test_a_group_shares_a_folder_without_the_setgid_bit(public: Path) -> None:
    """Files get the folder's group, not the primary group of the user who created them."""
    folder = folder_of(public, ALICE, STAFF, 0o770)
    with User(ALICE, folder, groups=(STAFF,)) as alice, User(BOB, folder, groups=(STAFF,)) as bob:
        assert alice.write("one", "deep/orders.json") == "written"
        assert bob.write("two", "deep/orders.json") == "written"


def test_root_does_not_shut_out_a_folders_owner(public: Path) -> None:
    """A job of cron that writes first, with a strict umask, leaves files that the owner can use."""
    folder = folder_of(public, ALICE, ALICE, 0o755)
    with User(0, folder, umask=0o077) as root, User(ALICE, folder) as alice:
        assert root.write("one") == "written"
        assert alice.read() == "one"
        assert alice.write("two") == "written"
        assert root.write("three") == "written"


def test_a_folder_that_is_shared_later_is_shared_after_its_owners_next_write(public: Path) -> None:
    """Side files follow the folder's mode, to more users and to fewer."""
    folder = folder_of(public, ALICE, STAFF, 0o700)
    with User(ALICE, folder, groups=(STAFF,)) as alice, User(BOB, folder, groups=(STAFF,)) as bob:
        assert alice.write("one") == "written"
        folder.chmod(0o770)
        assert bob.write("two").startswith("AccessDeniedError")

        assert alice.write("two") == "written"

        assert bob.write("three") == "written"


def test_a_folder_with_the_sticky_bit_is_for_one_user(public: Path) -> None:
    """A second user learns why at once, and that nothing was written."""
    folder = folder_of(public, 0, 0, 0o1777)
    with User(ALICE, folder) as alice, User(BOB, folder) as bob:
        assert alice.write("one") == "written"

        answer = bob.write("two")

        assert answer.startswith("AccessDeniedError")
        assert "sticky bit" in answer
        assert "nothing was written" in answer
        assert alice.write("three") == "written"
