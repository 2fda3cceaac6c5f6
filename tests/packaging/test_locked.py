"""What is installed has been looked at: versions and hashes are in the tree."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.laboratory._installed import go_binary, npm_binary
from tests.laboratory.servers import AZURITE, FAKE_GCS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements/build.lock", "requirements/dev.lock")
FINDERS = {
    "Go": ("fake-gcs-server", lambda: go_binary("fake-gcs-server", FAKE_GCS), "go"),
    "npm": ("azurite-blob", lambda: npm_binary("azurite-blob", AZURITE), "npm"),
}


def entries(lock: str) -> list[str]:
    """Return the requirements of a lock file, each with its hashes on one line."""
    text = (ROOT / lock).read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if not line.startswith("#")]


def asked() -> Iterator[Requirement]:
    """Yield what ``pyproject.toml`` asks for on this machine, directly."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*about["build-system"]["requires"], *about["project"]["dependencies"]]
    for extra in about["project"]["optional-dependencies"].values():
        wanted += extra
    for group in about["dependency-groups"].values():
        wanted += [each for each in group if isinstance(each, str)]  # the others are groups
    for text in wanted:
        requirement = Requirement(text)
        if requirement.name != "asynclock" and (
            requirement.marker is None or requirement.marker.evaluate(default_environment())
        ):
            yield requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_with_its_hashes(lock: str) -> None:
    """No entry of a lock file is open, and none names where it was downloaded from."""
    for entry in entries(lock):
        assert re.match(r"[A-Za-z0-9._-]+==\S+( ; [^-]+)?\s+--hash=sha256:[0-9a-f]{64}", entry), entry[:100]
    assert "://" not in (ROOT / lock).read_text()


def test_the_locks_have_what_the_project_asks_for() -> None:
    """A new requirement needs a run of ``make lock``."""
    pinned: dict[str, list[str]] = {}
    for lock in LOCKS:
        for entry in entries(lock):
            name, _, version = entry.split(" ")[0].partition("==")
            pinned.setdefault(canonicalize_name(name), []).append(version)

    missing = [
        str(each)
        for each in asked()
        if not any(
            each.specifier.contains(version) for version in pinned.get(canonicalize_name(each.name), ())
        )
    ]

    assert missing == [], "run: make lock"


def test_what_npm_installs_has_hashes_and_no_scripts() -> None:
    """Every package that Azurite brings is checked, from whichever registry it comes; none needs a script."""
    packages = json.loads((AZURITE / "package-lock.json").read_text())["packages"]
    brought = [about for name, about in packages.items() if name]

    assert len(brought) > 100
    assert all(about["integrity"].startswith("sha512-") for about in brought)
    assert not any("resolved" in about or "hasInstallScript" in about for about in brought)


@pytest.mark.parametrize(("name", "find", "tool"), FINDERS.values(), ids=FINDERS.keys())
def test_a_cached_server_of_another_version_is_not_used(
    name: str, find: Callable[[], str], tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that another version has left in the cache is passed over, and the pinned one installed."""
    for folder in ("bin", "bin/other@v1.0.0", "npm/node_modules/.bin", "npm/azurite@3.0.0/node_modules/.bin"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", tmp_path / folder / name)
    monkeypatch.setenv("ASYNCLOCK_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))

    with pytest.raises(RuntimeError, match=f"{tool} is missing"):
        find()
