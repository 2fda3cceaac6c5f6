"""The first example on the page of each store takes a lock in that store."""

from __future__ import annotations

import ast
import contextlib
import re
from typing import TYPE_CHECKING

from tests.docs.story import FOLDER, ROOT, blocks
from tests.laboratory.servers import AZURE_ACCOUNT, AZURE_KEY, BUCKET
from tests.servers.fixtures import azurite, fake_gcs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.laboratory.servers import Server

__all__ = ["azurite", "fake_gcs"]
STORES = ROOT / "docs" / "backends"


def take_a_lock(name: str, capsys: pytest.CaptureFixture[str], **here: str) -> None:
    """Run the example of a page with what is ``here`` in place of the page's words."""
    page = STORES / f"{name}.md"
    example = blocks(page)[0]
    assert example.language == "python"
    text = example.text
    for there, found in here.items():
        text = text.replace(there, found)

    exec(compile(text, str(page), "exec"), {})  # noqa: S102

    assert re.fullmatch(r"token \d+\n", capsys.readouterr().out)


def test_options_are_typed_wherever_a_page_passes_them() -> None:
    """So that an editor completes them, and a type checker finds a wrong one."""
    untyped, typed = [], 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        trees = [_parsed(block.text) for block in blocks(page) if block.language == "python"]
        nodes = [node for tree in trees if tree is not None for node in ast.walk(tree)]
        annotated = {
            ast.unparse(node.target)
            for node in nodes
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "BackendOptions"
        }
        for node in nodes:
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith(("connect", "probe")):
                continue
            given = {ast.unparse(word.value) for word in node.keywords if word.arg is None}
            typed += len(given & annotated)
            untyped += [f"{page.name}: {name}" for name in given - annotated]

    assert untyped == []
    assert typed >= 5


def _parsed(program: str) -> ast.Module | None:
    with contextlib.suppress(SyntaxError):  # a cell of a notebook, a line of a text
        return ast.parse(program)
    return None


def test_the_first_lock_on_s3(
    minio: Server, bucket: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an endpoint, and credentials of the environment."""
    for variable, value in bucket.items():
        if variable != "AWS_ENDPOINT_URL":
            monkeypatch.setenv(variable, value)

    take_a_lock("s3", capsys, **{"https://minio.example.com:9000": minio.endpoint})


def test_the_first_lock_on_cloud_storage(
    fake_gcs: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On an emulator, which takes no credentials."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_gcs.endpoint)

    take_a_lock("gcs", capsys, **{"my-bucket": BUCKET})


def test_the_first_lock_on_azure(
    azurite: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an account, and its key of the environment."""
    monkeypatch.setenv("AZURE_STORAGE_KEY", AZURE_KEY)
    account = f"{azurite.endpoint}/{AZURE_ACCOUNT}"

    take_a_lock("azure", capsys, **{"my-container": BUCKET, "https://account.blob.core.windows.net": account})


def test_the_first_lock_on_a_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder that does not exist yet."""
    take_a_lock("file", capsys, **{FOLDER: str(tmp_path)})


def test_the_first_lock_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """In this process."""
    take_a_lock("memory", capsys)
