"""What a command line leaves out comes from the environment."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from asynclock._cli.app import run_command
from tests.cli.command import COMMAND, DEADLINE, locks
from tests.unit.test_secrets import CANARY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.laboratory.servers import Server


def run_with(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end with these variables too."""
    return subprocess.run(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=os.environ | environment,
        check=False,
    )


@pytest.mark.parametrize("name", ["nightly", "team/weekly"])
def test_a_name_alone_is_a_lock_under_the_url_of_the_environment(folder: Path, name: str) -> None:
    """run, status, list and break find it; CMD sees the whole URL."""
    default = {"ASYNCLOCK_URL": f"file://{folder}/"}

    ran = run_with(default, "run", name, "sh", "-c", "echo $ASYNCLOCK_LOCK")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"file://{folder}/{name}\n", "")
    assert (folder / f"{name}.json").exists()
    assert run_with(default, "status", name).stdout.startswith(f"{name.rpartition('/')[2]}: free")
    assert run_with(default, "list").stdout.splitlines()[1].split()[:2] == [name, "free"]
    assert run_with(default, "break", name, "--yes").returncode == 0


def test_a_whole_url_goes_before_the_environment(folder: Path, target: str, tmp_path: Path) -> None:
    """A URL on the command line is the one that counts."""
    default = {"ASYNCLOCK_URL": f"file://{tmp_path}/elsewhere"}

    ran = run_with(default, "run", target, "true")

    assert ran.returncode == 0
    assert (folder / "nightly.json").exists()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("words", [("status", "nightly"), ("list",), ("doctor",), ("run", "nightly", "true")])
def test_without_any_url_the_command_is_refused(words: tuple[str, ...]) -> None:
    """2 and a sentence, with the variable unset or empty."""
    ran = run_with({"ASYNCLOCK_URL": ""}, *words)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "ASYNCLOCK_URL" in ran.stderr or "Missing argument 'URL/'" in ran.stderr


def test_options_come_from_the_environment(minio: Server) -> None:
    """A lock on a server needs neither an option nor a secret on the command line."""
    environment = {"ASYNCLOCK_URL": f"{minio.url}/environment"} | {
        f"ASYNCLOCK_OPTION_{name.upper()}": str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in minio.options.items()
    }

    ran = run_with(environment, "run", "nightly", "echo", "hi")
    shown = run_with(environment, "status", f"{minio.url.replace('s3://', 's3a://')}/environment/nightly")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "hi\n", "")
    assert shown.stdout.startswith("nightly: free")


def test_an_option_on_the_command_line_goes_before_the_environment(folder: Path) -> None:
    """A wrong value of the environment does no harm where -o gives another, and is an error where not."""
    environment = {"ASYNCLOCK_URL": f"file://{folder}", "ASYNCLOCK_OPTION_MIN_WRITE_INTERVAL": "-1"}

    refused = run_with(environment, "run", "nightly", "true")
    ran = run_with(environment, "run", "nightly", "-o", "min_write_interval=0", "true")

    assert (refused.returncode, ran.returncode) == (2, 0)
    assert "min_write_interval" in refused.stderr


@pytest.mark.parametrize("url", ["", "s3://other/locks", "gs://asynclock/locks"])
def test_no_other_store_gets_the_options_of_the_environment(
    url: str, folder: Path, target: str, tmp_path: Path
) -> None:
    """Options go only to the store of ASYNCLOCK_URL: a pasted URL of another one never gets its key."""
    secret = tmp_path / "secret"
    environment = {"ASYNCLOCK_URL": url, "ASYNCLOCK_OPTION_SECRET_ACCESS_KEY": f"file:{secret}"}

    ran = run_with(environment, "run", target, "true")

    assert ran.returncode == 0  # the file is not even looked for
    assert ran.stderr == (
        "asynclock: warning: ASYNCLOCK_OPTION_SECRET_ACCESS_KEY is not used here: the options of the "
        f"environment are for the store of ASYNCLOCK_URL, which is {'another' if url else 'not set'}; give "
        "-o, or set ASYNCLOCK_URL [AL-047]\n"
    )
    assert (folder / "nightly.json").exists()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ASYNCLOCK_OPTION_FSYNC", CANARY),
        ("ASYNCLOCK_OPTION_NO_SUCH", CANARY),
        ("ASYNCLOCK_OPTION_NO-NAME", CANARY),
        ("ASYNCLOCK_OPTION_URL", CANARY),
        ("ASYNCLOCK_OPTION_SECRET_ACCESS_KEY", f"env:{CANARY}"),
        ("ASYNCLOCK_URL", f"s3://key:{CANARY}@bucket"),
    ],
)
def test_a_wrong_variable_is_refused_without_its_value(folder: Path, variable: str, value: str) -> None:
    """2 and a sentence that does not repeat what may be a secret."""
    ran = run_with({"ASYNCLOCK_URL": f"file://{folder}", variable: value}, "run", "nightly", "true")

    assert ran.returncode == 2
    assert CANARY not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert locks(folder) == []


def test_a_pipeline_names_the_options_of_the_environment_that_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The spec has the options of its locks; the results are as ever."""
    monkeypatch.setenv("ASYNCLOCK_OPTION_REGION", "eu")

    assert run_command(["pipeline", "schema"]) == 0

    said = capsys.readouterr()
    assert json.loads(said.out)["properties"]
    assert said.err.startswith("asynclock: warning: ASYNCLOCK_OPTION_REGION is not used by pipelines: ")
    assert said.err.endswith(" [AL-047]\n")
