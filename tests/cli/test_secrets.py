"""No secret of a command line comes out again, and none need stand there."""

from __future__ import annotations

import base64
import os
import pty
import select
import stat
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import pytest

from asynclock import ConfigError
from asynclock._cli.app import run_command
from asynclock._cli.option_words import parse_options
from tests.cli.command import COMMAND, DEADLINE, asynclock
from tests.servers.fixtures import server
from tests.unit.test_secrets import CANARY, URLS

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = {
    "run": ["run", "{url}/nightly", "--", "true"],
    "status": ["status", "{url}/nightly"],
    "status --json": ["status", "{url}/nightly", "--json"],
    "list": ["list", "{url}/"],
    "break": ["break", "{url}/nightly", "--yes"],
    "doctor": ["doctor", "{url}"],
    "a word too many": ["status", "memory://x/nightly", "{url}/nightly"],
    "no such command": ["{url}/nightly"],
    "no CMD": ["run", "{url}/nightly"],
    "a number": ["run", "memory://x/nightly", "--wait", "{url}", "--", "true"],
    "an endpoint": ["doctor", "s3://bucket/locks", "-o", "endpoint_url={url}"],
    "-o": ["doctor", "memory://x", "-o", "{url}"],
}
WORDS = {
    "a secret without its key": ["-o", CANARY],
    "a secret with an equals sign at its end": ["-o", f"{CANARY}=="],
    "a key and its secret with a blank between": ["-o", "sas_token", CANARY],
    "an option without -o": [f"secret_access_key={CANARY}"],
    "a secret that is no option here": ["-o", f"secret_access_key={CANARY}"],
    "a variable that is not there": ["-o", f"secret_access_key=env:{CANARY}"],
    "a file that is not there": ["-o", f"secret_access_key=file:/{CANARY}"],
    "a number that is none": ["-o", f"min_write_interval={CANARY}"],
    "a flag that is none": ["-o", f"fsync={CANARY}"],
    "bytes that are none": ["-o", f"sse_customer_key={CANARY}?"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("url", URLS)
def test_no_command_shows_a_secret_of_a_url(
    command: str, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and neither the output nor the errors have the secret."""
    code = run_command([word.format(url=URLS[url]) for word in COMMANDS[command]])

    shown = capfd.readouterr()
    assert code == 2
    assert CANARY not in shown.out + shown.err
    assert shown.err.count("\n") <= 4


@pytest.mark.parametrize("command", ["run", "validate", "services"])
@pytest.mark.parametrize("url", [url for url in URLS if ":/" in URLS[url]])
def test_no_pipeline_command_shows_a_secret_of_a_url(
    command: str, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A URL in the place of a spec's path is not shown either."""
    code = run_command(["pipeline", command, URLS[url]])

    shown = capfd.readouterr()
    assert code == 2
    assert CANARY not in shown.out + shown.err


@pytest.mark.parametrize("words", WORDS)
def test_no_word_of_an_option_is_shown(words: str) -> None:
    """A word that may be a secret is refused without being repeated: exit code 2."""
    ran = asynclock("doctor", "memory://x", *WORDS[words])

    assert ran.returncode == 2
    assert CANARY not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "key", ["secret_access_key", "session_token", "sas_token", "connection_string", "token"]
)
def test_a_secret_comes_from_the_environment(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """KEY=env:NAME is the variable's value, without a warning."""
    monkeypatch.setenv("NAME_OF_MINE", CANARY)

    assert parse_options([f"{key}=env:NAME_OF_MINE"]) == {key: CANARY}


@pytest.mark.parametrize("content", [CANARY, f"{CANARY}\n", f"{CANARY}\r\n"])
def test_a_secret_comes_from_a_file(content: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """KEY=file:PATH is what is in the file, without the end of its line and without a warning."""
    path = tmp_path / "secret"
    path.write_bytes(content.encode())

    assert parse_options([f"credential=file:{path}"]) == {"credential": CANARY}
    assert capfd.readouterr().err == ""


def test_secrets_come_from_standard_input_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each KEY=- takes one line, in the order in which they are given, and not a byte more."""
    read, write = os.pipe()
    os.write(write, b"first\nsecond\nthe rest\n")
    os.close(write)
    kept = os.dup(0)
    try:
        os.dup2(read, 0)
        monkeypatch.setattr(sys, "stdin", None)
        found = parse_options(["secret_access_key=-", "region=eu", "session_token=-"])
        rest = os.read(0, 100)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(read)

    assert found == {"secret_access_key": "first", "region": "eu", "session_token": "second"}
    assert rest == b"the rest\n"


def test_a_terminal_is_asked_without_an_echo() -> None:
    """Where the standard input is a terminal, KEY=- asks for the option by name and shows nothing typed."""
    ours, theirs = pty.openpty()
    script = "from asynclock._cli.option_words import parse_options; print(parse_options(['sas_token=-']))"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as asked:
        assert asked.stderr is not None
        prompt = asked.stderr.read(len("sas_token: "))
        os.write(ours, f"{CANARY}\n".encode())
        shown, _ = asked.communicate(timeout=DEADLINE)
    echo = os.read(ours, 1024) if select.select([ours], [], [], 0)[0] else b""
    os.close(ours)
    os.close(theirs)

    assert prompt == "sas_token: "
    assert shown.strip() == str({"sas_token": CANARY})
    assert CANARY not in echo.decode()


def test_what_is_no_secret_is_taken_as_it_stands() -> None:
    """Only secrets are looked for elsewhere: a region may be called "env:x"."""
    assert parse_options(["region=env:x", "ca_file=file:y"]) == {"region": "env:x", "ca_file": "file:y"}


def test_a_customers_key_is_given_in_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only option of bytes can be given too."""
    key = bytes(range(32))
    monkeypatch.setenv("CUSTOMER_KEY", base64.b64encode(key).decode())

    assert parse_options(["sse_customer_key=env:CUSTOMER_KEY"]) == {"sse_customer_key": key}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"a\nb\n", "one line"),
        (b"\xff", "one line"),
        (b"x" * 70_000, "64 KiB"),
    ],
    ids=["empty", "an empty line", "two lines", "no text", "too long"],
)
def test_a_file_that_holds_no_secret_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    """One sentence says what is wrong with it, and shows nothing of it."""
    path = tmp_path / "secret"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=says):
        parse_options([f"sas_token=file:{path}"])


def test_a_folder_is_no_secret(tmp_path: Path) -> None:
    """The command says why it cannot read a file."""
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        parse_options([f"sas_token=file:{tmp_path}"])


def test_a_secret_in_the_clear_is_taken_with_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    """The warning names the option and the three other ways, and not the secret."""
    assert parse_options([f"secret_access_key={CANARY}"]) == {"secret_access_key": CANARY}

    warning = capfd.readouterr().err
    assert CANARY not in warning
    assert all(way in warning for way in ("secret_access_key=env:", "=file:", "=-", "ps"))


def test_the_help_says_how_to_give_a_secret() -> None:
    """Asynclock --help names the three ways, and the help of a command with -o leads there."""
    text = " ".join(asynclock("--help").stdout.split())

    assert all(way in text for way in ("KEY=env:NAME", "KEY=file:PATH", "KEY=-"))
    assert "See asynclock --help" in " ".join(asynclock("run", "--help").stdout.split())


def test_a_lock_is_held_with_a_secret_of_standard_input() -> None:
    """The first line is the key of a real store, the rest is CMD's; no warning is needed."""
    store = server("s3")
    options = {name: value for name, value in store.options.items() if name != "secret_access_key"}
    words = [word for name, value in options.items() for word in ("-o", f"{name}={_plain(value)}")]
    words += ["-o", "secret_access_key=-"]
    line = f"{store.options['secret_access_key']}\nfor CMD\nand more"

    ran = subprocess.run(
        [*COMMAND, "run", f"{store.url}/{uuid.uuid4()}/nightly", *words, "--", "cat"],
        input=line,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "for CMD\nand more", "")


def test_a_secret_comes_through_a_pipe(tmp_path: Path) -> None:
    """file:PATH reads a FIFO too, as a shell's <(pass show x) is."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    with subprocess.Popen(["/bin/sh", "-c", f"printf {CANARY} > '{path}'"]):
        assert parse_options([f"sas_token=file:{path}"]) == {"sas_token": CANARY}


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
