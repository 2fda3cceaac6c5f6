"""The moves of a rebucket in a store without renames of folders, and the number of buckets of a new table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from asynclock.spark.draft.draft import draft_spec
from asynclock.spark.hudi.rebuckets import move
from asynclock.spark.spec import buckets

TREE = {
    ".hoodie/hoodie.properties": "name",
    ".hoodie/timeline/1.deltacommit": "",
    "day=1/0.parquet": "rows",
    "day=2/0.parquet": "more rows",
}


class CutOffError(Exception):
    """The process ends here."""


class ObjectStore:
    """Files as ``HadoopFiles`` gives them; a move of one is a copy and a removal; it may end before both.

    Some stores keep an empty folder, as a marker; in others a folder goes with its last file.
    """

    def __init__(self, steps: int, *, keeps_folders: bool = True) -> None:
        self.steps = steps
        self.keeps_folders = keeps_folders

    def step(self) -> None:
        """One request."""
        if not self.steps:
            raise CutOffError
        self.steps -= 1

    def is_local(self, _: str) -> bool:
        """No folder is renamed."""
        return False

    def exists(self, url: str) -> bool:
        """As there."""
        return Path(url).exists()

    def size(self, url: str) -> int:
        """As there."""
        return Path(url).stat().st_size

    def below_relative(self, folder: str) -> list[str]:
        """As there."""
        return [str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()]

    def move(self, source: str, target: str) -> None:
        """As there."""
        self.step()
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        assert not Path(target).exists()
        Path(target).write_bytes(Path(source).read_bytes())
        self.delete(source)

    def delete(self, url: str) -> None:
        """As there."""
        self.step()
        path = Path(url)
        if path.is_file():
            path.unlink()
            while not self.keeps_folders and not any((path := path.parent).iterdir()):
                path.rmdir()
            return
        if not path.exists():
            return
        for one in sorted(path.rglob("*"), reverse=True):
            one.rmdir() if one.is_dir() else one.unlink()
        path.rmdir()


def files(folder: Path) -> dict[str, str]:
    """The files in a folder, with their content."""
    return {str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize("keeps_folders", [True, False])
@pytest.mark.parametrize("steps", range(11))
def test_a_move_that_was_cut_off_is_finished_by_another(
    tmp_path: Path, steps: int, *, keeps_folders: bool
) -> None:
    """Each file is in one place at least, the table never seems whole in both, and it ends in the new one."""
    source, target = tmp_path / "table", tmp_path / "old"
    for name, text in TREE.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)

    def moved(store: ObjectStore) -> None:
        move(cast("Any", store), str(source), str(target), lambda: None)

    with pytest.raises(CutOffError):
        moved(ObjectStore(steps, keeps_folders=keeps_folders))
    properties = ".hoodie/hoodie.properties"
    found = files(source) | {name.removesuffix(".moving"): text for name, text in files(target).items()}
    assert found == TREE
    assert not (properties in files(source) and properties in files(target))
    if properties in files(source):
        assert files(target).keys() <= {f"{properties}.moving"}
    if properties in files(target):
        assert not files(source)

    moved(ObjectStore(100, keeps_folders=keeps_folders))

    assert files(target) == TREE
    assert not source.exists()
    moved(ObjectStore(0))
    assert files(target) == TREE


def test_a_lost_lease_ends_a_move(tmp_path: Path) -> None:
    """The lease is checked before each file."""
    for name in ("1", "2"):
        (tmp_path / "table" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "table" / name).write_text("")
    checks = iter([None, None, CutOffError])

    def check() -> None:
        if (error := next(checks)) is not None:
            raise error

    with pytest.raises(CutOffError):
        move(cast("Any", ObjectStore(100)), str(tmp_path / "table"), str(tmp_path / "old"), check)
    assert len(files(tmp_path / "table")) == 1


def test_large_sources_get_a_bucket_for_each_gib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones get the default, which the spec need not name."""
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.csv").write_text("k,at\n1,1\n1,2\n2,3\n")
    assert "buckets" not in draft_spec([tmp_path / "events"]).replace("the number of buckets", "")
    monkeypatch.setattr(buckets, "_BYTES", 2)

    text = draft_spec([tmp_path / "events"])

    assert "\nbuckets = 9\n" in text
    assert "# A bucket for each GiB of the files; asynclock pipeline rebucket changes the number." in text
