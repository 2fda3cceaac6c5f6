"""Every error and every message about a problem has a code, which docs/reference/codes.md explains."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import io
import json
import logging
import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import asynclock
from asynclock import AsyncLockError
from asynclock._cli.app import run_command
from asynclock._cli.code_command import explanations
from asynclock._codes import Code
from asynclock._core import client, probing
from asynclock._core.defects import Defect
from asynclock.backend import Absent, Stored, Written
from asynclock.backends._memory import MemoryBackend
from asynclock.hudi._core.paths import LOCK_NAME, PROPERTIES
from tests.cli import command
from tests.contract import test_probe as broken
from tests.docs.story import FOLDER, ROOT, blocks, like, typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docs.story import Block

PAGE: Final = ROOT / "docs" / "reference" / "codes.md"
_CODE: Final = re.compile(r"\[AL-\d{3}\]")
PACKAGE: Final = Path(asynclock.__file__).parent
NEWS: Final = (
    "the audit trail of ",
    "The old holder may act until its next renewal or deadline.",
    "Reason: ",
    "_described(",
    "starting Spark; ",
    "{len(",
    "{output} written",
    "{name}: its object was deleted",
    "the archived timeline is left out; ",
    "the store answers again",
    "the table is ",
)
"""Beginnings of messages that report no problem of their own: results, and parts of what follows."""


class Inverted(MemoryBackend):
    """Accepts a write over any version but the present one."""

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:
        """Write if the condition fails."""
        stored = await self.get(key)
        if isinstance(stored, Absent) or stored.version == version:
            return await super().put_if_match(key, body, "none")
        return await self.put(key, body)


class KeepsMarkers(MemoryBackend):
    """Creates nothing where something was deleted."""

    deleted: frozenset[str] = frozenset()

    async def delete(self, key: str) -> None:
        """Delete, and leave a marker."""
        await super().delete(key)
        self.deleted |= {key}

    async def put_if_absent(self, key: str, body: bytes) -> Written:
        """Create, unless there is a marker."""
        if key in self.deleted:
            raise asynclock.PreconditionFailedError(
                backend=self.name, operation="put_if_absent", key=key, detail="412"
            )
        return await super().put_if_absent(key, body)


class KeepsAll(MemoryBackend):
    """Deletes nothing."""

    async def delete(self, key: str) -> None:
        """Refuse."""
        raise asynclock.AccessDeniedError(backend=self.name, operation="delete", key=key, detail="403")


class Denies(MemoryBackend):
    """Shows nothing."""

    async def get(self, key: str) -> Stored | Absent:
        """Refuse."""
        raise asynclock.AccessDeniedError(backend=self.name, operation="get", key=key, detail="403")


class TakesOneWrite(MemoryBackend):
    """Refuses every write of an object but the first."""

    min_write_interval = 0.0

    async def put_if_match(self, key: str, body: bytes, version: str) -> Written:  # noqa: ARG002
        """Refuse."""
        raise asynclock.BackendUnavailableError(
            backend=self.name, operation="put_if_match", key=key, detail="429: slow down"
        )


STORES: Final[dict[str, type[MemoryBackend]]] = {
    Code.DOCTOR_UNAVAILABLE: Denies,
    Code.NOT_SAFE: broken.IgnoresIfMatch,
    Code.DOCTOR_LEFT: KeepsAll,
    Code.DOCTOR_FAILED: broken.RefusesRacers,
    Code.CONDITIONS_IGNORED: broken.IgnoresIfMatch,
    Code.CONDITIONS_INVERTED: Inverted,
    Code.NOT_ATOMIC: broken.ChecksThenWrites,
    Code.NODES_APART: MemoryBackend,  # two of them, which are not one store
    Code.REFUSES_SHOWN: broken.NeverReplaces,
    Code.CHANGED_ON_THE_WAY: broken.DropsTheBody,
    Code.DELETE_MARKER: KeepsMarkers,
    Code.WRITES_REFUSED: broken.RefusesAndWrites,
    Code.STALE_READS: broken.CachesReads,
    Code.VERSIONS_REPEAT: broken.HashesBodies,
    Code.NO_DATES: broken.DatesObjectsOnly,
    Code.WRONG_CLOCK: broken.WrongClock,
    Code.ONE_WRITE_A_SECOND: TakesOneWrite,
}
"""By the code of a defect: a store that has it."""


async def old_table() -> MemoryBackend:
    """Return a store with a table whose lock a Hudi writer holds."""
    store = MemoryBackend()
    record = {"owner": "writer", "expired": False, "validUntil": int((time.time() + 60) * 1000)}
    await store.put(PROPERTIES[0], b"hoodie.table.version=8\n")
    await store.put(f"{LOCK_NAME}.json", json.dumps(record).encode())
    return store


def examples() -> Iterator[tuple[str, Block]]:
    """Yield each code of the page with the example below it."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for block in blocks(PAGE):
        heading = next(line for line in reversed(lines[: block.line]) if line.startswith("### "))
        yield heading[4:10], block


EXAMPLES: Final = [*examples()]


@pytest.mark.parametrize(("code", "block"), EXAMPLES, ids=[code for code, _ in EXAMPLES])
def test_an_example_shows_its_code(
    *,
    code: str,
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It raises the error, logs the sentence or prints it."""
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    if code in STORES:
        monkeypatch.setattr(probing, "open_backend", lambda *_, **__: STORES[code]())
    if code == Code.HUDI_LOCK:
        table = asyncio.run(old_table())
        monkeypatch.setattr(client, "open_backend", lambda *_, **__: table)
    text = block.text.replace(FOLDER, str(tmp_path))
    if block.language == "console":
        for command, expected in typed(Block_of(block, text)):
            words = shlex.split(command)
            while "=" in words[0]:
                monkeypatch.setenv(*words.pop(0).split("=", 1))
            said = _run(words, expected)
    else:
        said = execute(text)
    said = "\n".join([said, caplog.text, *capfd.readouterr()])

    assert f"[{code}]" in said
    assert [line for line in said.splitlines() if len(_CODE.findall(line)) > 1] == []


def Block_of(block: Block, text: str) -> Block:  # noqa: N802
    """Return a block with another text."""
    return type(block)(block.language, text, block.line)


def _run(words: list[str], expected: str) -> str:
    """Run a command; return what it printed, which is as the page says."""
    if words[1] == "run":  # ends all descendants of its process
        done = command.asynclock(*words[1:])
        assert like(expected, done.stdout + done.stderr), done
        return done.stdout + done.stderr
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        run_command(words[1:])
    said = out.getvalue() + err.getvalue()
    assert like(expected, said), said
    return said


def execute(program: str) -> str:
    """Run a program in this process; return the text of its error, if it raises one."""
    logger = logging.getLogger("asynclock")
    level = logger.level
    try:
        exec(compile(program, str(PAGE), "exec"), {"__name__": "__main__"})  # noqa: S102
    except AsyncLockError as error:
        return str(error)
    finally:
        logger.setLevel(level)
    return ""


def test_the_page_explains_every_code_and_no_other() -> None:
    """Each with its cause, its check, its cure and one example, in the order of the codes."""
    known = explanations()

    assert [*known] == sorted(Code)
    assert [code for code, _ in EXAMPLES] == [*known]
    for code, (_, text) in known.items():
        assert re.findall(r"^\*\*(\w+):\*\*", text, re.MULTILINE) == ["Cause", "Check", "Cure", "Example"], (
            code
        )


def test_every_code_is_given() -> None:
    """A code that nothing has is gone from the page, too."""
    given = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"\bCode\.([A-Z_]+)\b", path.read_text(encoding="utf-8"))
    }

    assert given == set(Code.__members__)


def errors(kind: type[AsyncLockError] = AsyncLockError) -> Iterator[type[AsyncLockError]]:
    """Yield the public errors of the package."""
    for each in kind.__subclasses__():
        if each.__module__ in {"asynclock.errors", "asynclock.spark.errors"}:
            yield each
            yield from errors(each)


def test_every_error_has_a_code_of_its_own() -> None:
    """With which its text ends."""
    importlib.import_module("asynclock.spark.errors")
    found = [*errors()]

    assert len(found) >= 26
    assert len({each.__dict__["code"] for each in found}) == len(found)
    assert str(asynclock.ConfigError(setting="a", value=1, reason="no")).endswith("no [AL-002]")


def test_every_defect_has_a_code() -> None:
    """And each code of a defect has a store with it above."""
    assert {defect.code for defect in Defect} <= STORES.keys()


def messages() -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of ``tell`` in the command, each with its place."""
    for path in [*PACKAGE.glob("_cli/*.py"), *PACKAGE.glob("spark/cli/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"tell", "tell_once"}:
                yield f"{path.name}:{node.lineno}", node


def test_every_message_of_the_command_has_a_code() -> None:
    """Its own or that of the error in it, unless it is news."""
    bare = []
    for place, call in messages():
        text = re.sub(r"^f?['\"]", "", ast.unparse(call.args[0]))
        of_an_error = re.search(r"\b(error|loss|lease\.lost|_sentence)\b", text)
        if len(call.args) == 1 and not of_an_error and not text.startswith(NEWS):
            bare.append(f"{place}: {text}")

    assert bare == []


def test_every_warning_about_a_lock_has_a_code() -> None:
    """The narrator logs warnings by one function, which wants a code."""
    source = (PACKAGE / "_core" / "narration.py").read_text(encoding="utf-8")

    assert source.count("self._say(logging.WARNING") == 1
    assert "self._say(logging.WARNING, coded(" in source


@pytest.mark.parametrize("word", ["AL-010", "al-10", "[AL-010]", "10"])
def test_explain_knows_a_code_however_it_is_written(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As text without markup."""
    assert run_command(["explain", word]) == 0

    said = capsys.readouterr().out
    assert said.startswith("AL-010: AcquireTimeoutError\n\nCause: the lock was not acquired")
    assert "\n\nExample:\n\nfrom asynclock import sync\n" in said
    assert "**" not in said
    assert "```" not in said


def test_explain_lists_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    """One a line, with its title."""
    assert run_command(["explain"]) == 0

    assert [line[:6] for line in capsys.readouterr().out.splitlines()] == sorted(Code)


def test_explain_refuses_what_is_no_code(capsys: pytest.CaptureFixture[str]) -> None:
    """With the way to the list."""
    assert run_command(["explain", "AL-999"]) == 2

    assert "see asynclock explain" in capsys.readouterr().err
