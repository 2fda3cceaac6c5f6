"""Does what a page says, as its reader would: saves its files, runs its programs, types its commands.

The rules, which every page under ``docs/tutorials`` and ``docs/howto`` keeps:

* A block whose first line is a comment with a file name (``# worker.py``) is saved under that name.
* Any other block of Python is a program, and runs in a process of its own.
* In a block of ``console`` each line after ``$`` is typed into one shell. What stands below it is its output,
  with ``...`` for what differs each time; without anything below it, any output will do. A command that fails
  must be followed by ``$ echo $?``.
* ``pip install`` is left out: the tests run what is installed.
* Each line of a ``crontab`` is run as cron does; a manifest in YAML runs the command of its container, a
  workflow of GitHub its last step.
* ``/tmp/asynclock-docs`` is a folder of the test, and the ports from 8731 to 8739 are free ones.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    path
    for folder in ("tutorials", "howto")
    for path in (ROOT / "docs" / folder).glob("*.md")
    if path.name != "index.md"
)
FOLDER: Final = "/tmp/asynclock-docs"  # noqa: S108  the pages' own words
_BLOCK: Final = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_NAMED: Final = re.compile(r"# ([\w-]+\.\w+)\n")
_COMMAND: Final = re.compile(r"^\$ ((?:.*\\\n)*.*)\n?", re.MULTILINE)
_CRON: Final = re.compile(r"(?:\S+ ){5}(.*)")
_END: Final = "-- end of the command --"
_PORT: Final = re.compile(r"\b873[1-9]\b")
_DEADLINE: Final = 300.0
"""Seconds for one command: a page that waits for what never comes fails, with what it has printed."""


@dataclass(frozen=True)
class Block:
    """A block of code, its language, and the line of the page where it begins."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[2], textwrap.dedent(found[3]), text.count("\n", 0, found.start()) + 1)
        for found in _BLOCK.finditer(text)
    ]


def typed(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block of ``console``, each with the output below it."""
    starts = [*_COMMAND.finditer(block.text)]
    assert starts, f"line {block.line}: no command begins with '$ '"
    for found, following in zip(starts, [*starts[1:], None], strict=True):
        end = following.start() if following else len(block.text)
        yield found[1].rstrip("\n"), block.text[found.end() : end]


def like(expected: str, found: str) -> bool:
    """Whether an output is as the page says."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return not expected.strip() or doctest.OutputChecker().check_output(expected, found, flags)


class Shell:
    """One shell for all commands of a page, whose standard error is in the output."""

    def __init__(self, folder: Path, environment: Mapping[str, str], deadline: float = _DEADLINE) -> None:
        self._deadline = deadline
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            text=True,
            start_new_session=True,
        )

    def run(self, command: str) -> tuple[int, str]:
        """Type a command; return its exit code, which the next ``$?`` has too, and its output."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(
            f"{command}\n__code=$?; printf '\\n%s %s\\n' '{_END}' $__code; (exit $__code)\n"
        )
        self._shell.stdin.flush()
        output = []
        deadline = threading.Timer(self._deadline, self._kill)
        deadline.start()
        try:
            for line in self._shell.stdout:
                if line.startswith(_END):
                    return int(line.removeprefix(_END)), "".join(output).removesuffix("\n")
                output.append(line)
        finally:
            deadline.cancel()
        raise AssertionError(
            f"{command}\nhas ended the shell, or not ended in time; so far:\n{''.join(output)}"
        )

    def close(self) -> None:
        """End it and what it started."""
        self._kill()
        self._shell.communicate()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)


class Story:
    """The reader of one page."""

    def __init__(
        self,
        page: Path,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        command: Callable[[list[str]], tuple[int, str]] | None = None,
    ) -> None:
        self._page = page
        self._folder = folder
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environment = os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1"} | dict(environment or {})
        self._command = command
        self._ports: dict[str, str] = {}
        self.ran = 0

    def play(self, *, program: Callable[[str], Any] | None = None) -> None:
        """Do all that the page says.

        Args:
            program: Runs a program in Python; None: a process does.
        """
        shell = Shell(self._folder, self._environment)
        try:
            for block in blocks(self._page):
                text = self._here(block.text)
                if named := _NAMED.match(text):
                    (self._folder / named[1]).write_text(text, encoding="utf-8")
                if block.language == "console":
                    self._type(block, shell)
                elif block.language == "crontab":
                    for line in text.splitlines():
                        self._expect(block, line, *shell.run(_CRON.fullmatch(line)[1]))  # type: ignore[index]
                elif block.language == "yaml":
                    self._expect(block, text, *shell.run(_command(yaml.safe_load(text))))
                elif block.language == "python" and not named:
                    self._program(block, text, shell, program)
                elif not named:
                    continue
                self.ran += 1
        finally:
            shell.close()

    def _here(self, text: str) -> str:
        """Return a text with the folder and the ports of this test in place of the page's."""
        text = text.replace(FOLDER, str(self._folder))
        return _PORT.sub(lambda found: self._ports.setdefault(found[0], str(_free_port())), text)

    def _program(self, block: Block, text: str, shell: Shell, program: Callable[[str], Any] | None) -> None:
        if program is not None:
            program(text)
            return
        file = self._folder / f".line-{block.line}.py"
        file.write_text(text, encoding="utf-8")
        self._expect(block, text, *shell.run(f"python {shlex.quote(str(file))}"))

    def _type(self, block: Block, shell: Shell) -> None:
        commands = [*typed(block)]
        for (written, expected), following in zip(commands, [*commands[1:], ("", "")], strict=True):
            command = self._here(written)
            if command.startswith("pip install"):
                continue
            if self._command is not None and command.startswith("asynclock pipeline"):
                code, output = self._command(shlex.split(command)[1:])
            else:
                code, output = shell.run(command)
            if following[0] != "echo $?":
                self._expect(block, command, code, output)
            wanted = self._here(expected)
            assert like(wanted, output), f"line {block.line}: {command}\n{output}\nbut not\n{wanted}"

    def _expect(self, block: Block, what: str, code: int, output: str) -> None:
        assert code == 0, f"{self._page.name}, line {block.line}: {what}\nexit code {code}\n{output}"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _command(manifest: Any) -> str:  # noqa: ANN401  what YAML has
    """Return the last step of a workflow, or the command of a manifest's first container, for a shell."""
    if "jobs" in manifest:
        (job,) = manifest["jobs"].values()
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in job.get("env", {}).items())
        return f"env {settings} sh -ec {shlex.quote(job['steps'][-1]['run'])}"
    while "containers" not in manifest:
        manifest = manifest.get("jobTemplate") or manifest.get("template") or manifest["spec"]
    container = manifest["containers"][0]
    return shlex.join([*container.get("command", ()), *container.get("args", ())])
