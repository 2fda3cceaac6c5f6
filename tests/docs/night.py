"""The sentences of docs/howto/night.md, by the heading of their section."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.docs.story import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

_PAGE: Final = (ROOT / "docs" / "howto" / "night.md").read_text(encoding="utf-8")
SENTENCES: Final[dict[str, str]] = dict(re.findall(r"^### (.+)\n\n```text\n(.+)\n```$", _PAGE, re.MULTILINE))


def is_said(section: str, lines: Iterable[str]) -> bool:
    """Whether one of the lines is the sentence of a section."""
    pattern = ".*".join(re.escape(part) for part in SENTENCES[section].split("…"))
    return any(re.fullmatch(pattern, line, re.DOTALL) for line in lines)
