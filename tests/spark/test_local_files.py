"""Local files without a process for each, and those of a timeline whole or not at all."""

from __future__ import annotations

import grp
import os
import pwd
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from asynclock.spark.hudi.session import hudi_bundle
from tests.spark.jvm import JavaProgram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

OURS = "io.asynclock.disk.LocalFiles"
PROGRAM = """
import sys
from asynclock.spark.hudi.session import start
spark = start("files", master="local[1]", conf={conf!r})
context = spark.sparkContext
configuration = context._jsc.hadoopConfiguration()
print(context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration).getClass().getName())
{body}
spark.stop()
"""


class Files:
    """The session's local file system, or Hadoop's own."""

    def __init__(self, spark: SparkSession, *, own: bool = False) -> None:
        jvm: Any = spark._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        configuration = spark._jsc.hadoopConfiguration()
        if own:
            self._files = self._hadoop.LocalFileSystem()
            self._files.initialize(jvm.java.net.URI("file:///"), configuration)
        else:
            self._files = self._hadoop.FileSystem.getLocal(configuration)

    def chmod(self, file: Path, bits: str) -> None:
        """Set the permission, given in octal digits."""
        self._files.setPermission(self._hadoop.Path(str(file)), self._hadoop.permission.FsPermission(bits))

    def target(self, file: Path) -> str | None:
        """Where a link leads; None of what is no link."""
        status = self._files.getFileLinkStatus(self._hadoop.Path(str(file)))
        return str(status.getSymlink().toUri().getPath()) if status.isSymlink() else None

    def listed(self, folder: Path | str) -> list[tuple[Any, ...]]:
        """What a listing says of each file in a folder, or of a file itself."""
        return sorted(
            (
                one.getPath().toUri().toString(),
                one.isDirectory(),
                one.getLen(),
                one.getModificationTime(),
                one.getReplication(),
                one.getBlockSize(),
                one.getPermission().toString(),
                one.getOwner(),
                one.getGroup(),
            )
            for one in self._files.listStatus(self._hadoop.Path(str(folder)))
        )

    def below(self, folder: Path) -> dict[str, tuple[str, str, str]]:
        """Permission, owner and group of the files in a folder and its folders, by their paths there."""
        listed, found = self._files.listFiles(self._hadoop.Path(str(folder)), True), {}
        while listed.hasNext():
            status = listed.next()
            name = str(Path(status.getPath().toUri().getPath()).relative_to(folder))
            found[name] = (status.getPermission().toString(), status.getOwner(), status.getGroup())
        return found


@pytest.fixture
def files(spark: SparkSession) -> Files:
    """Those of this session."""
    return Files(spark)


def mode(file: Path) -> str:
    """The permission bits in octal digits."""
    return f"{stat.S_IMODE(file.stat().st_mode):03o}"


@pytest.fixture(scope="module")
def probe() -> Iterator[JavaProgram]:
    """A process that writes a file at a time."""
    with JavaProgram("FilesProbe") as program:
        yield program


@pytest.fixture
def timeline(tmp_path: Path) -> Path:
    """The folder of a table's instants."""
    folder = tmp_path / ".hoodie" / "timeline"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("bits", ["640", "755", "421", "000", "1777"])
def test_a_permission_is_set_as_chmod_sets_it(files: Files, tmp_path: Path, bits: str) -> None:
    """Each bit for itself, the sticky one too."""
    file = tmp_path / "file"
    file.touch()

    files.chmod(file, bits)

    assert mode(file) == bits


def test_the_permission_of_a_file_that_is_not_there_is_an_error(files: Files, tmp_path: Path) -> None:
    """As it is for chmod."""
    with pytest.raises(Py4JJavaError, match="NoSuchFileException"):
        files.chmod(tmp_path / "gone", "640")


def test_links_are_seen_as_links(files: Files, tmp_path: Path) -> None:
    """A link has a target, even one that does not exist; a plain file has none."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "broken").symlink_to(tmp_path / "gone")

    assert files.target(tmp_path / "file") is None
    assert files.target(tmp_path / "link") == str(tmp_path / "file")
    assert files.target(tmp_path / "broken") == str(tmp_path / "gone")


@pytest.mark.parametrize("start", ["", "file:", "file://"])
def test_a_listing_says_what_hadoops_own_says(spark: SparkSession, tmp_path: Path, start: str) -> None:
    """Of each file also the spelling of its URL, by which a checkpoint of Spark knows what it has read."""
    folder = tmp_path / "a b"
    (folder / "c").mkdir(parents=True)
    for name in ("d", "e:f", "g%20h", "i#j?k", "ä", ".l"):
        (folder / name).write_text(name)
    (folder / "d").chmod(0o640)
    (folder / "m").symlink_to("d")
    (folder / "n").symlink_to("nothing")

    for place in (folder, folder / "d"):
        ours, hadoops = (Files(spark, own=own).listed(f"{start}{place}") for own in (False, True))
        assert ours == hadoops
        assert all(status[0].startswith("file:///") for status in ours)


def test_a_listing_leaves_out_what_others_remove_meanwhile(files: Files, tmp_path: Path) -> None:
    """Heartbeats and markers of a table come and go while a service lists its files."""
    (tmp_path / "kept").mkdir()
    for name in ("kept/a", "kept/b", "c"):
        (tmp_path / name).touch(0o640)
    owner = (pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name)
    stopped = threading.Event()

    def come_and_go() -> None:
        while not stopped.is_set():
            for number in range(20):
                folder = tmp_path / f"markers-{number}"
                folder.mkdir()
                (folder / "marker").touch()
                (folder / "marker").unlink()
                folder.rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(300):
            found = files.below(tmp_path)
            assert {"kept/a", "kept/b", "c"} <= found.keys()
            assert found["c"][1:] == owner
    finally:
        stopped.set()
        other.join()
    assert files.below(tmp_path)["kept/a"][0] == "rw-r-----"
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        files.below(tmp_path / "none")


@pytest.mark.timeout(60)
def test_a_pipe_is_listed_without_being_opened(files: Files, tmp_path: Path) -> None:
    """To open one that nobody writes to would never end; Spark lists the paths that a pattern names."""
    os.mkfifo(tmp_path / "pipe")
    assert files.below(tmp_path).keys() == {"pipe"}
    assert files.below(tmp_path / "pipe").keys() == {"."}


def test_a_session_of_ours_starts_no_process_for_a_file(tmp_path: Path) -> None:
    """Files written by tasks, and a stream's checkpoint: no chmod, no readlink."""
    shims = tmp_path / "bin"
    shims.mkdir()
    calls = tmp_path / "calls"
    for name in ("chmod", "readlink"):
        real = subprocess.run(["which", name], check=True, capture_output=True, text=True).stdout.strip()
        shim = shims / name
        shim.write_text(f'#!/bin/sh\necho {name} "$@" >> {calls}\nexec {real} "$@"\n')
        shim.chmod(0o755)
    calls.touch()
    body = f"""
import pathlib
calls = pathlib.Path({str(calls)!r})
before = len(calls.read_text().splitlines())
source, to = {str(tmp_path / "source")!r}, {str(tmp_path / "to")!r}
spark.range(4).write.parquet(source)
query = (spark.readStream.schema("id long").parquet(source).writeStream.trigger(availableNow=True)
    .option("checkpointLocation", {str(tmp_path / "checkpoint")!r}).format("parquet").start(to))
query.awaitTermination()
assert spark.read.parquet(to).count() == 4
print(*calls.read_text().splitlines()[before:], sep=chr(10))
"""
    code = PROGRAM.format(conf={"spark.sql.warehouse.dir": str(tmp_path / "warehouse")}, body=body)

    ended = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}"},
    )

    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split() == [OURS]


def test_a_file_system_of_yours_is_kept() -> None:
    """The setting of Hadoop wins."""
    yours = "org.apache.hadoop.fs.LocalFileSystem"

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(conf={"spark.hadoop.fs.file.impl": yours}, body="")],
        check=False,
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split() == [yours]


@pytest.mark.parametrize("way", ["create", "replace"])
def test_an_instant_appears_when_it_is_whole(probe: JavaProgram, timeline: Path, way: str) -> None:
    """Until it is closed nobody sees it, and nothing else is left of it."""
    instant = timeline / "1_2.commit"

    answers = [probe.ask(way, str(instant)), probe.ask("write", "x" * 10_000)]
    before = list(timeline.iterdir())
    answers += [probe.ask("close"), probe.ask("close")]

    assert answers == ["done"] * 4
    assert before == []
    assert instant.read_text() == "x" * 10_000
    assert probe.ask("read", str(instant)) == "x" * 10_000
    assert [file.name for file in timeline.parent.rglob("*") if file.is_file()] == ["1_2.commit"]


@pytest.mark.parametrize("size", [0, 10, 10_000])
@pytest.mark.parametrize("way", ["create", "replace"])
def test_an_instant_that_a_full_disk_cuts_off_is_none(
    probe: JavaProgram, timeline: Path, way: str, size: int
) -> None:
    """Whether the write fails or the close: an empty instant would count as completed."""
    number = probe.process.pid
    _, most = resource.prlimit(number, resource.RLIMIT_FSIZE)
    assert probe.ask(way, str(timeline / "1_2.commit")) == "done"
    resource.prlimit(number, resource.RLIMIT_FSIZE, (5, most))
    try:
        answers = [probe.ask("write", "x" * size), probe.ask("close")] if size else [probe.ask("close")]
    finally:
        resource.prlimit(number, resource.RLIMIT_FSIZE, (most, most))

    assert ("FSError" in answers) == (size > 0)
    assert [file.name for file in timeline.parent.rglob("*") if file.is_file()] == ["1_2.commit"][size:]


def test_an_instant_whose_writer_is_killed_is_none(timeline: Path) -> None:
    """What was written of it has no name that Hudi knows."""
    with JavaProgram("FilesProbe") as killed:
        assert killed.ask("create", str(timeline / "1_2.commit")) == "done"
        assert killed.ask("write", "x" * 10_000) == "done"
        killed.kill()

        assert list(timeline.iterdir()) == []


def test_of_two_who_make_an_instant_the_second_fails(probe: JavaProgram, timeline: Path) -> None:
    """As where the name is made first; what the first has written stays."""
    instant = timeline / "1_2.commit"
    assert probe.ask("create", str(instant)) == "done"
    instant.write_text("first")

    assert probe.ask("write", "second") == "done"
    assert probe.ask("close") == "FileAlreadyExistsException"
    assert probe.ask("create", str(instant)) == "FileAlreadyExistsException"
    assert instant.read_text() == "first"


def test_an_instant_of_another_session_is_replaced_with_its_checksums(
    probe: JavaProgram, timeline: Path
) -> None:
    """Those of the file before would not fit what is read."""
    instant = timeline / "1.commit.requested"
    instant.write_text("before")
    (timeline / f".{instant.name}.crc").write_bytes(b"crc\0\0\0\2\0garbage!")

    answers = [probe.ask("replace", str(instant)), probe.ask("write", "after"), probe.ask("close")]

    assert answers == ["done"] * 3
    assert probe.ask("read", str(instant)) == "after"
    assert [file.name for file in timeline.iterdir()] == [instant.name]


def test_other_files_are_made_as_ever(probe: JavaProgram, tmp_path: Path) -> None:
    """They have their name from the start, and checksums."""
    file = tmp_path / "timeline" / "file"

    assert probe.ask("create", str(file)) == "done"
    seen = file.exists()
    assert probe.ask("close") == "done"

    assert seen
    assert (file.parent / ".file.crc").exists()


@pytest.mark.root
@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_modes_and_groups_are_those_of_hadoops_own_file_system(umask: int) -> None:
    """Two users of one group write below its folder: what they make stays the group's, bit for bit."""
    alice, bob, staff = *(pwd.getpwnam(name).pw_uid for name in ("daemon", "bin")), 60_100
    bundle = hudi_bundle()
    assert bundle is not None
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        readable = Path(shutil.copyfile(bundle, top / "hudi.jar"))
        found = []
        for words in ((), ("hadoop",)):
            shared = top / ("hadoop" if words else "ours")
            shared.mkdir()
            os.chown(shared, alice, staff)
            shared.chmod(0o2775)
            with (
                JavaProgram(
                    "FilesProbe", *words, jars=(readable,), user=alice, groups=(staff,), umask=umask
                ) as one,
                JavaProgram(
                    "FilesProbe", *words, jars=(readable,), user=bob, groups=(staff,), umask=umask
                ) as two,
            ):
                meta = shared / "table" / ".hoodie"
                assert one.ask("mkdirs", str(meta / "timeline")) == "done"
                for folder in (shared / "table", meta, meta / "timeline"):
                    folder.chmod(0o2775 if umask != 0o077 else 0o2770)
                for probe, batch in ((one, "1"), (two, "2")):
                    for file in (meta / "timeline" / f"{batch}.commit", shared / "table" / f"{batch}.log"):
                        assert [probe.ask("create", str(file)), probe.ask("close")] == ["done"] * 2
                    assert probe.ask("mkdirs", str(shared / "table" / f"day={batch}" / "part")) == "done"
                    assert probe.ask("share", str(shared / f"staged{batch}"), "775") == "done"
                    assert probe.ask("share", str(shared / f"sticky{batch}"), "1777") == "done"
                    assert probe.ask("chmod", str(shared / "table" / f"{batch}.log"), "660") == "done"
                assert one.ask("chmod", str(shared), "770") == "done"
            found.append(
                {
                    str(path.relative_to(shared)): (
                        oct(path.stat().st_mode),
                        path.stat().st_uid,
                        path.stat().st_gid,
                    )
                    for path in (shared, *sorted(shared.rglob("*")))
                    if not path.name.endswith(".crc")
                }
            )

    ours, hadoops = found
    assert ours == hadoops
    assert {group for _, _, group in ours.values()} == {staff}
    assert ours["."][0] == oct(stat.S_IFDIR | 0o2770)


@pytest.mark.parametrize("bits", ["4755", "2755", "6755"])
def test_set_id_bits_of_a_file_go_and_those_of_a_folder_stay(files: Files, tmp_path: Path, bits: str) -> None:
    """As chmod does with a mode of three digits."""
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch()
    folder.mkdir()
    for path in (file, folder):
        path.chmod(int(bits, 8))

        files.chmod(path, "775")

    assert mode(file) == "775"
    assert mode(folder) == f"{bits[0]}775"
