"""Hudi's commit lock on local disks: excludes threads and processes, and dies with its holder."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import asynclock
from asynclock.backends import _mounts
from asynclock.spark.hudi.options import FILE_LOCK_PROVIDER, read_options, sql_options
from asynclock.spark.hudi.session import hudi_bundle
from tests.share import mounted_share
from tests.spark.jvm import JavaProgram
from tests.unit.specs import table_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

_HUDIS_PROVIDER: Final = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
_LOCK_FILE: Final = Path(".hoodie/.locks/asynclock.lock")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that makes a folder a table, as far as locks go."""
    base = tmp_path_factory.mktemp("table")
    (base / ".hoodie").mkdir()
    return base


@pytest.fixture(scope="module")
def _probes(base: Path) -> Iterator[tuple[JavaProgram, JavaProgram]]:
    with JavaProgram("LockProbe", base.as_uri()) as one, JavaProgram("LockProbe", base.as_uri()) as other:
        yield one, other


@pytest.fixture
def one(_probes: tuple[JavaProgram, JavaProgram]) -> Iterator[JavaProgram]:
    """A process; its threads ``a`` and ``b`` hold nothing before and after."""
    yield _probes[0]
    for thread in ("a", "b"):
        _probes[0].ask(f"{thread} unlock")


@pytest.fixture
def other(_probes: tuple[JavaProgram, JavaProgram]) -> Iterator[JavaProgram]:
    """A second process."""
    yield _probes[1]
    for thread in ("a", "b"):
        _probes[1].ask(f"{thread} unlock")


def test_processes_exclude_each_other(one: JavaProgram, other: JavaProgram) -> None:
    """While one JVM holds the lock another does not get it; afterwards it does."""
    assert one.ask("a lock 0") == "true"
    assert other.ask("a lock 50") == "false"

    one.ask("a unlock")

    assert other.ask("a lock 0") == "true"


def test_threads_of_a_process_exclude_each_other(one: JavaProgram) -> None:
    """The operating system would let them all in: its lock belongs to the process."""
    assert one.ask("a lock 0") == "true"
    assert one.ask("b lock 50") == "false"

    one.ask("a unlock")

    assert one.ask("b lock 0") == "true"


def test_unlocking_on_another_thread_does_nothing(one: JavaProgram, other: JavaProgram) -> None:
    """A write client that timed out cannot free the lock under the one that holds it."""
    one.ask("a lock 0")

    one.ask("b unlock")
    one.ask("b close")

    assert other.ask("a lock 50") == "false"


def test_locking_twice_on_one_thread_is_an_error(one: JavaProgram) -> None:
    """Waiting for oneself would never end."""
    one.ask("a lock 0")

    assert one.ask("a lock 1000").startswith("error: This thread already holds")


def test_unlocking_twice_is_harmless(one: JavaProgram, other: JavaProgram) -> None:
    """The second time nothing is held, and nobody else's lock is touched."""
    one.ask("a lock 0")
    one.ask("a unlock")
    other.ask("a lock 0")

    assert one.ask("a unlock") == "unlocked"

    assert one.ask("a lock 50") == "false"


def test_closing_frees_the_lock(one: JavaProgram, other: JavaProgram) -> None:
    """Hudi closes a provider after each commit."""
    one.ask("a lock 0")

    one.ask("a close")

    assert other.ask("a lock 0") == "true"


def test_the_loser_learns_who_holds_it(one: JavaProgram, other: JavaProgram) -> None:
    """Hudi puts it into the message of the error that follows."""
    one.ask("a lock 0")
    other.ask("a lock 0")

    assert other.ask("a owner").startswith(f"pid {one.process.pid}, thread a, since ")


def test_what_a_process_spends_on_the_lock_is_counted(one: JavaProgram, other: JavaProgram) -> None:
    """How often it took the lock, how long it waited, attempts in vain included, and how long it held it."""
    before = [json.loads(probe.ask("a use")) for probe in (one, other)]
    one.ask("a lock 0")
    assert other.ask("a lock 50") == "false"
    one.ask("a unlock")
    after = [json.loads(probe.ask("a use")) for probe in (one, other)]

    mine, others = (
        [new - old for old, new in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)
    )
    assert mine[0] == 1
    assert mine[2] > 50_000_000  # held while the other one waited for 50 ms
    assert (others[0], others[2]) == (0, 0)
    assert others[1] >= 50_000_000


def test_a_table_dropped_and_created_again_has_a_new_lock(
    base: Path, one: JavaProgram, other: JavaProgram
) -> None:
    """A process that had the old table's file open locks the new one's, like everyone else."""
    one.ask("a lock 0")
    one.ask("a unlock")
    shutil.rmtree(base / ".hoodie")
    (base / ".hoodie").mkdir()

    assert other.ask("a lock 0") == "true"

    assert one.ask("a lock 50") == "false"
    other.ask("a unlock")
    assert one.ask("a lock 0") == "true"


def test_a_link_to_the_table_leads_to_the_same_lock(base: Path, one: JavaProgram) -> None:
    """Two names of one table are one lock."""
    link = base.parent / "link-to-table"
    link.symlink_to(base)
    one.ask("a lock 0")

    with JavaProgram("LockProbe", str(link)) as third:
        assert third.ask("a lock 0") == "false"


def test_a_killed_process_leaves_no_lock(base: Path, one: JavaProgram) -> None:
    """The kernel frees it at once."""
    with JavaProgram("LockProbe", base.as_uri()) as victim:
        assert victim.ask("a lock 0") == "true"
        assert one.ask("a lock 0") == "false"

        victim.kill()

        assert one.ask("a lock 0") == "true"


def test_no_update_is_lost_between_processes_and_threads(
    tmp_path: Path, one: JavaProgram, other: JavaProgram
) -> None:
    """Two threads in each of two processes read, add one and write back, 400 times in all."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    threads = [(process, name) for process in (one, other) for name in ("a", "b")]

    for process, name in threads:
        process.ask(f"{name} start {counter}")
    answers = [process.ask(f"{name} join") for process, name in threads]

    assert answers == ["counted"] * 4
    assert counter.read_text() == "400"


@pytest.mark.parametrize("path", ["s3a://bucket/table", "hdfs://name/table"])
def test_tables_elsewhere_are_refused(path: str) -> None:
    """A lock of this machine protects nothing there; the error names the provider that does."""
    with JavaProgram("LockProbe", path) as probe:
        answer = probe.ask("a lock 0")

    assert path in answer
    assert "StorageBasedLockProvider" in answer


def test_a_folder_without_a_table_is_refused(tmp_path: Path) -> None:
    """To Hudi a folder with .hoodie in it is a table, so the lock does not create one."""
    with JavaProgram("LockProbe", tmp_path.as_uri()) as probe:
        answer = probe.ask("a lock 0")

    assert answer.startswith("error: Cannot lock")
    assert list(tmp_path.iterdir()) == []


def _make_fifo(path: Path) -> None:
    os.mkfifo(path)


def _make_link(path: Path) -> None:
    target = path.parent.parent / "target"
    target.write_text("precious")
    path.symlink_to(target)


def _make_dangling_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "nothing")


@pytest.mark.parametrize("make", [_make_fifo, _make_link, _make_dangling_link, Path.mkdir])
def test_only_a_regular_file_is_locked(base: Path, one: JavaProgram, make: Callable[[Path], None]) -> None:
    """A link is not followed: its target would be emptied, or made, and two tables could share a lock."""
    lock_file = _fresh(base)
    make(lock_file)

    answer = one.ask("a lock 0")

    assert answer.startswith("error: Cannot lock")
    assert "in the place of a file" in answer
    assert not (base / ".hoodie" / "nothing").exists()
    for target in base.glob(".hoodie/target"):
        assert target.read_text() == "precious"


def test_a_linked_folder_of_locks_is_refused(base: Path, tmp_path: Path, one: JavaProgram) -> None:
    """The lock file would be made elsewhere."""
    _fresh(base).parent.rmdir()
    (base / ".hoodie" / ".locks").symlink_to(tmp_path)

    answer = one.ask("a lock 0")

    assert "is a link" in answer
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder_mode", "folder_of_locks", "lock_file_mode"),
    [(0o755, 0o755, 0o600), (0o700, 0o755, 0o600), (0o2775, 0o2775, 0o660), (0o777, 0o777, 0o666)],
)
def test_the_lock_file_is_open_to_those_who_may_write_the_table(
    base: Path, one: JavaProgram, folder_mode: int, folder_of_locks: int, lock_file_mode: int
) -> None:
    """The umask does not matter. Nobody else may read it: a reader could lock the writers out."""
    lock_file = _fresh(base)
    lock_file.parent.rmdir()
    (base / ".hoodie").chmod(folder_mode)

    assert one.ask("a lock 0") == "true"

    assert stat.S_IMODE(lock_file.parent.stat().st_mode) == folder_of_locks
    assert stat.S_IMODE(lock_file.stat().st_mode) == lock_file_mode
    assert [path.name for path in lock_file.parent.iterdir()] == [lock_file.name]


@pytest.mark.root
def test_two_users_share_a_table_and_a_reader_does_not() -> None:
    """Members of the table's group exclude each other, with a strict umask; others are refused."""
    # With accounts, without which Hadoop opens no file system.
    alice, bob, carol, staff = *(pwd.getpwnam(name).pw_uid for name in ("daemon", "bin", "nobody")), 60_100
    bundle = hudi_bundle()
    assert bundle is not None
    with tempfile.TemporaryDirectory() as name:
        table = Path(name)
        table.chmod(0o755)
        # The package cache of who runs the tests may be closed to other users.
        readable = Path(shutil.copyfile(bundle, table / "hudi.jar"))
        (table / ".hoodie").mkdir()
        os.chown(table / ".hoodie", alice, staff)
        (table / ".hoodie").chmod(0o2775)

        def probe(user: int, *groups: int) -> JavaProgram:
            return JavaProgram(
                "LockProbe", table.as_uri(), jars=(readable,), user=user, groups=groups, umask=0o077
            )

        with probe(alice, staff) as first, probe(bob, staff) as second, probe(carol) as reader:
            assert first.ask("a lock 0") == "true"
            assert second.ask("a lock 50") == "false"
            first.ask("a unlock")
            assert second.ask("a lock 0") == "true"
            assert reader.ask("a lock 0").startswith("error: Cannot lock")
            with pytest.raises(PermissionError):
                _open_as(carol, table / _LOCK_FILE)


@pytest.mark.root
def test_a_table_on_a_share_is_refused(base: Path, one: JavaProgram) -> None:
    """Another machine's lock would not be seen; the error names the kind of file system."""
    folder = _fresh(base).parent
    with mounted_share(folder, "asynclock"):
        answer = one.ask("a lock 0")

    assert "shared folder (fuse.asynclock)" in answer
    assert list(folder.iterdir()) == []


def test_python_and_java_refuse_the_same_file_systems() -> None:
    """A table and its locks can be in one folder."""
    source = Path(asynclock.__file__).parent / "spark/java/src/main/java/io/asynclock/disk/SharedFiles.java"
    listed = source.read_text(encoding="utf-8").partition("Set.of(")[2].partition(")")[0]

    assert set(re.findall(r'"([^"]+)"', listed)) == _mounts._SHARED


def test_a_writer_killed_inside_the_commit_leaves_no_lock(spark: SparkSession, tmp_path: Path) -> None:
    """The next writer commits as if nothing had happened."""
    table = tmp_path / "table"
    lock_file = table / _LOCK_FILE

    with _killed_inside_the_commit(table, FILE_LOCK_PROVIDER, lambda: _locked(lock_file)):
        _write(spark, table, FILE_LOCK_PROVIDER)

    rows = spark.read.format("hudi").options(**read_options(table_spec(table.as_uri()))).load(table.as_uri())
    assert "alive" in {row["key"] for row in rows.collect()}


def test_hudis_own_lock_outlives_a_writer_killed_inside_the_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What FileLockProvider is for: with Hudi's provider the next writer waits in vain, forever."""
    table = tmp_path / "table"
    lock_file = table / ".hoodie" / "lock"

    with (
        _killed_inside_the_commit(table, _HUDIS_PROVIDER, lock_file.exists),
        pytest.raises(Exception, match="Unable to acquire"),
    ):
        _write(spark, table, _HUDIS_PROVIDER)

    assert lock_file.exists()


def _fresh(base: Path) -> Path:
    """Make the table again with an empty folder of locks; return the path of its lock file."""
    shutil.rmtree(base / ".hoodie")
    lock_file = base / _LOCK_FILE
    lock_file.parent.mkdir(parents=True)
    return lock_file


def _open_as(user: int, path: Path) -> None:
    """Open a file for reading as another user, in a process of its own."""
    done = subprocess.run(
        ["cat", path], user=user, group=user, extra_groups=(), capture_output=True, check=False
    )
    if b"Permission denied" in done.stderr:
        raise PermissionError(done.stderr)
    assert done.returncode == 0, done.stderr


def _write(spark: SparkSession, table: Path, provider: str) -> None:
    options = {
        **sql_options(table_spec(table.as_uri(), buckets=1), tasks=1),
        "hoodie.datasource.write.recordkey.field": "key",
        "hoodie.write.lock.provider": provider,
        "hoodie.write.lock.filesystem.expire": "0",
        "hoodie.write.lock.wait_time_ms": "500",
        "hoodie.write.lock.client.num_retries": "2",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
    }
    frame = spark.sql("SELECT 'alive' AS key, timestamp_seconds(1) AS a__ts")
    frame.write.format("hudi").options(**options).mode("append").save(table.as_uri())


@contextmanager
def _killed_inside_the_commit(table: Path, provider: str, locked: Callable[[], bool]) -> Iterator[None]:
    """A writer of the table, stopped while it holds the lock and has an instant in flight, then killed."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("endless_writer.py")), table.as_uri(), provider],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as writer:
        assert writer.stdout is not None
        # Libraries of the JVM may print, too.
        jvm = int(next(line for line in writer.stdout if line.strip().isdigit()))
        try:
            _stop_inside_the_commit(jvm, table, locked)
        finally:
            os.kill(jvm, signal.SIGKILL)
            writer.kill()
    while Path(f"/proc/{jvm}").exists() and _state(jvm) != "Z":
        time.sleep(0.001)
    yield


def _stop_inside_the_commit(jvm: int, table: Path, locked: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not locked() or not _in_flight(table):
            continue
        os.kill(jvm, signal.SIGSTOP)
        while _state(jvm) != "T":
            time.sleep(0.001)
        # Only what holds while it cannot move is sure.
        if locked() and _in_flight(table):
            return
        os.kill(jvm, signal.SIGCONT)
    pytest.fail("never met the writer inside a commit")


def _in_flight(table: Path) -> bool:
    names = {path.name for path in (table / ".hoodie" / "timeline").glob("*.deltacommit*")}
    finished = {name.partition("_")[0] for name in names if name.endswith(".deltacommit")}
    return any(name.partition(".")[0] not in finished for name in names if name.endswith(".inflight"))


def _locked(path: Path) -> bool:
    """Whether some process holds a POSIX lock on the file; takes none itself."""
    if not path.exists():
        return False
    # struct flock on 64-bit Linux: type, whence, start, length, pid.
    query = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with path.open("r+b") as file:
        return struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, query))[0] != fcntl.F_UNLCK


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
