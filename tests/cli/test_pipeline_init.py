"""``asynclock pipeline init``: a spec on stdout or in a new file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asynclock.spark.spec.load import load_spec
from tests.cli.command import asynclock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with one file."""
    folder = tmp_path / "in" / "events"
    folder.mkdir(parents=True)
    (folder / "1.csv").write_text("id,at,size\n1,2024-01-01 10:00:00,5\n")
    return folder


def test_the_spec_goes_to_stdout(source: Path, tmp_path: Path) -> None:
    """Nothing else is printed there, so that it can be saved as it is."""
    done = asynclock("pipeline", "init", str(source))

    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "saved.toml").write_text(done.stdout)
    spec = load_spec(tmp_path / "saved.toml")
    assert (spec.table.key, spec.stream("events").ordering) == (("id",), ("at",))


def test_the_spec_goes_to_a_new_file_and_never_over_another(source: Path, tmp_path: Path) -> None:
    """The second time the file is there: exit code 2, and it is left as it is."""
    file = tmp_path / "fleet.toml"
    words = ("pipeline", "init", str(source), "-o", str(file), "--key", "id", "--table", "s3a://lake/fleet")

    first = asynclock(*words)
    written = file.read_text()
    second = asynclock(*words)

    assert (first.returncode, first.stdout) == (0, "")
    assert f"asynclock pipeline run {file} --once" in first.stderr
    assert load_spec(file).locks.url == "s3a://lake/.asynclock/fleet/locks"
    assert second.returncode == 2
    assert "init overwrites none" in second.stderr
    assert file.read_text() == written


def test_a_refusal_creates_no_file(source: Path, tmp_path: Path) -> None:
    """A folder without files is named, and the spec is not begun."""
    empty = tmp_path / "in" / "none"
    empty.mkdir()

    done = asynclock("pipeline", "init", str(source), str(empty), "-o", str(tmp_path / "fleet.toml"))

    assert done.returncode == 2
    assert str(empty) in done.stderr
    assert not (tmp_path / "fleet.toml").exists()
