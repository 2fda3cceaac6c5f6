"""The experiments of docs/concepts/breaks.md print what the page says."""

from __future__ import annotations

import contextlib
import io
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.story import ROOT, Block, blocks

if TYPE_CHECKING:
    from pathlib import Path

PAGE: Final = ROOT / "docs" / "concepts" / "breaks.md"
KIT, *REST = blocks(PAGE)
EXPERIMENTS: Final = [
    (program, shown)
    for program, shown in pairwise(REST)
    if (program.language, shown.language) == ("python", "text")
]


@pytest.mark.parametrize(
    ("program", "shown"), EXPERIMENTS, ids=[f"line {each.line}" for each, _ in EXPERIMENTS]
)
def test_an_experiment_comes_out_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Block, shown: Block
) -> None:
    """In this process, with the first block of the page as the module ``breaks``."""
    (tmp_path / "breaks.py").write_text(KIT.text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "breaks", raising=False)
    said = io.StringIO()

    with contextlib.redirect_stdout(said):
        exec(compile(program.text, str(PAGE), "exec"), {"__name__": "__main__"})  # noqa: S102

    assert said.getvalue() == shown.text


def test_every_experiment_is_run() -> None:
    """Each program of the page is followed by what it prints."""
    assert KIT.text.startswith("# breaks.py\n")
    assert 2 * len(EXPERIMENTS) == len(REST) == 12
