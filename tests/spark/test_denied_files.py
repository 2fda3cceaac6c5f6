"""Who is to blame if a source file cannot be read: the file, or the store and the credentials for it."""

from __future__ import annotations

import pwd
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asynclock.spark.hudi.session import MERGER_JAR, hudi_bundle
from tests.spark.jvm import JavaProgram

if TYPE_CHECKING:
    from collections.abc import Iterator

DENIED = "BadFile: the file may not be read"


@pytest.fixture(scope="module")
def probe() -> Iterator[JavaProgram]:
    """A JVM that reads files as a stream does."""
    with JavaProgram("StoredProbe") as made:
        yield made


@pytest.mark.parametrize("how", ["403", "acl"])
def test_one_denied_object_among_others_is_a_bad_file(probe: JavaProgram, tmp_path: Path, how: str) -> None:
    """Another object can be read, so the credentials are right; the entry says how to go on."""
    for name in (f"{how}-a", f"{how}-b", "c"):
        (tmp_path / name).write_text("x")

    assert probe.ask(f"bucket://{tmp_path}/c") == "read"
    said = probe.ask(f"bucket://{tmp_path}/{how}-a")
    assert said.startswith(DENIED)
    assert said.endswith("); permit it, and deliver it again")


@pytest.mark.parametrize("how", ["403", "acl"])
def test_denial_of_all_objects_blames_the_credentials(probe: JavaProgram, tmp_path: Path, how: str) -> None:
    """No file is put aside that everybody could read again once the credentials are mended."""
    for name in (f"{how}-a", f"{how}-b"):
        (tmp_path / name).write_text("x")
    (tmp_path / "empty").touch()  # says nothing: no byte of it was read
    (tmp_path / "folder").mkdir()

    assert probe.ask(f"bucket://{tmp_path}/{how}-a").startswith("StoreFailure: cannot read bucket:/")


def test_denial_of_the_only_object_blames_the_credentials(probe: JavaProgram, tmp_path: Path) -> None:
    """Nothing shows that they are right."""
    (tmp_path / "403-a").write_text("x")

    assert probe.ask(f"bucket://{tmp_path}/403-a").startswith("StoreFailure: ")


def test_missing_object_is_a_bad_file_while_its_folder_is_there(probe: JavaProgram, tmp_path: Path) -> None:
    """Without the folder and the one above the place itself is missing: a disk that is not mounted."""
    gone = "BadFile: the file is not there any more"

    assert probe.ask(f"bucket://{tmp_path}/404-a").startswith(gone)
    assert probe.ask(f"bucket://{tmp_path}/none/404-a").startswith(gone)
    assert probe.ask(f"bucket://{tmp_path}/none/none/404-a").startswith("StoreFailure: ")


def test_busy_store_makes_no_file_bad(probe: JavaProgram, tmp_path: Path) -> None:
    """Although others can be read."""
    for name in ("503-a", "b"):
        (tmp_path / name).write_text("x")

    assert probe.ask(f"bucket://{tmp_path}/503-a").startswith("StoreFailure: ")


@pytest.mark.root
@pytest.mark.parametrize("alone", [True, False])
def test_file_of_another_user_is_a_bad_file(*, alone: bool) -> None:
    """On a disk each file has permissions of its own, so one is enough to know."""
    bundle = hudi_bundle()
    assert bundle is not None
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        jars = tuple(Path(shutil.copy(jar, top)) for jar in (bundle, MERGER_JAR))
        source = top / "in"
        source.mkdir(mode=0o755)
        (source / "mine.csv").write_text("x")
        (source / "mine.csv").chmod(0o600)
        if not alone:
            (source / "all.csv").write_text("x")

        with JavaProgram("StoredProbe", jars=jars, user=pwd.getpwnam("daemon").pw_uid) as other:
            assert other.ask(f"file://{source}/mine.csv").startswith(DENIED)
            if not alone:
                assert other.ask(f"file://{source}/all.csv") == "read"
