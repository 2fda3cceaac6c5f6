"""Nasty files for ``pipeline init``: what is drafted, what is said, and why nothing is."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import ConfigError
from asynclock.spark.draft.draft import draft_spec
from asynclock.spark.spec.load import load_spec
from tests.spark.corpus_kit import CORPUS, EXPECTED

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(path for path in (CORPUS / "init").iterdir() if not path.name.endswith(EXPECTED))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nasty_file_is_drafted_or_refused_as_is_written_beside_it(file: Path, tmp_path: Path) -> None:
    """Key, ordering and names of the draft, each warning, or the sentence that refuses it."""
    expected = json.loads(file.with_name(file.name + EXPECTED).read_text("utf-8"))
    folder = tmp_path / "init"
    folder.mkdir()
    shutil.copy(file, folder)
    spec_file = tmp_path / "spec.toml"
    said: list[str] = []
    if "refused" in expected:
        with pytest.raises(ConfigError) as caught:
            draft_spec([folder], file=spec_file, warn=said.append)
        assert expected["refused"] in str(caught.value)
        return

    text = draft_spec([folder], file=spec_file, warn=said.append)

    assert len(said) == len(expected["says"]), said
    assert all(part in sentence for part, sentence in zip(expected["says"], said, strict=True))
    spec_file.write_text(text, encoding="utf-8")
    (stream,) = (spec := load_spec(spec_file)).streams
    assert (list(spec.table.key), stream.ordering) == (expected["key"], (expected["ordering"],))
    assert all(part in text for part in expected.get("comments", ()))
    if "sources" in expected:
        assert dict(stream.sources(spec.table)) == expected["sources"]
    if "encoding" in expected:
        assert stream.dialect is not None
        assert stream.dialect.encoding == expected["encoding"]
