"""Words that stand where a URL belongs, and the URL that is proposed for them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, DEADLINE, asynclock, status

HOME = Path("/users/of-nobody")


def refusal(tmp_path: Path, *words: str) -> str:
    """The standard error of a command line that is refused, run in ``tmp_path`` without a default URL."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ASYNCLOCK_")}
    ran = subprocess.run(
        [*COMMAND, *words],
        cwd=tmp_path,
        env=environment | {"HOME": str(HOME)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    return ran.stderr


@pytest.mark.parametrize(
    ("word", "proposed"),
    [
        ("/var/locks/nightly", "file:///var/locks/nightly"),
        ("/var/locks/nightly.json", "file:///var/locks/nightly"),
        ("/var/my locks/nightly", "file:///var/my%20locks/nightly"),
        ("/var/50%/nightly", "file:///var/50%25/nightly"),
        ("/var/löcks/nightly", "file:///var/l%C3%B6cks/nightly"),
        ("~/locks/nightly", f"file://{HOME}/locks/nightly"),
        ("file:/var/locks/nightly", "file:///var/locks/nightly"),
        ("/var/locks/", "file:///var/locks/nightly"),
        ("nightly", "file://{here}/nightly"),
        ("locks/nightly", "file://{here}/locks/nightly"),
        ("./nightly", "file://{here}/nightly"),
        ("../nightly", "file://{above}/nightly"),
        ("file:nightly", "file://{here}/nightly"),
        ("s3:/bucket/locks/nightly", "s3://bucket/locks/nightly"),
    ],
)
def test_the_path_of_a_lock_gets_its_url_proposed(tmp_path: Path, word: str, proposed: str) -> None:
    """A path of this machine, absolute or not, is refused with the URL of the lock there."""
    said = refusal(tmp_path, "status", word)

    url = proposed.format(here=tmp_path, above=tmp_path.parent)
    assert said.endswith(f" {url} [AL-002]\n")
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["list", "watch", "doctor", "policy", "cost"])
@pytest.mark.parametrize(
    ("word", "proposed"), [("/var/my locks/", "file:///var/my%20locks"), ("locks", "file://{here}/locks")]
)
def test_the_path_of_a_folder_gets_its_url_proposed(
    tmp_path: Path, command: str, word: str, proposed: str
) -> None:
    """As for a lock, in every command that takes the URL of a folder."""
    assert refusal(tmp_path, command, word).endswith(f" {proposed.format(here=tmp_path)} [AL-002]\n")


def test_a_proposed_url_is_that_of_the_folder(tmp_path: Path) -> None:
    """What is proposed for a path with a blank and a percent sign is a lock in just that folder."""
    folder = tmp_path / "my 50% locks"
    url = refusal(tmp_path, "status", str(folder / "nightly")).split()[-2]

    assert asynclock("run", url, "true").returncode == 0
    assert (folder / "nightly.json").exists()
    assert status(url)["url"] == url


@pytest.mark.parametrize("word", ["/", "", "C:\\locks\\nightly", "key:hush@bucket/nightly", "a\tb"])
def test_nothing_is_proposed_for_what_may_be_anything(tmp_path: Path, word: str) -> None:
    """No path can be made of it, or it may hold a secret, which is not shown."""
    said = refusal(tmp_path, "status", word)

    assert "is not a URL" in said
    assert "for a folder" not in said
    assert "hush" not in said


def test_a_name_that_no_lock_has_is_told(tmp_path: Path) -> None:
    """A path whose last part cannot be a lock's name gets no URL, but the reason."""
    assert "'my job' cannot be the name of a lock" in refusal(tmp_path, "status", "/var/locks/my job")


def test_a_default_url_that_is_none_is_named_by_its_variable() -> None:
    """A path in ASYNCLOCK_URL is refused under the name of the variable."""
    ran = subprocess.run(
        [*COMMAND, "list"],
        env=os.environ | {"ASYNCLOCK_URL": "/var/locks"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert ran.returncode == 2
    assert "ASYNCLOCK_URL='/var/locks'" in ran.stderr
    assert ran.stderr.endswith(" file:///var/locks [AL-002]\n")


@pytest.mark.parametrize(
    ("url", "option", "meant"),
    [
        ("s3://bucket/locks", "endpoint", "endpoint_url"),
        ("s3://bucket/locks", "acces_key_id", "access_key_id"),
        ("gs://bucket/locks", "endpont_url", "endpoint_url"),
        ("az://container/locks", "account", "account_url"),
        ("file:///var/locks", "sync", "fsync"),
    ],
)
def test_an_option_that_is_not_there_is_refused_with_the_nearest(url: str, option: str, meant: str) -> None:
    """The error lists the options of that store, and names the one that is meant; never the value."""
    ran = asynclock("list", url, "-o", f"{option}=hush")

    assert ran.returncode == 2
    assert "no such option here; there are: " in ran.stderr
    assert ran.stderr.endswith(f"; did you mean {meant}? [AL-002]\n")
    assert "hush" not in ran.stderr
