"""The sentences of docs/howto/night.md, by the heading of their section."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from asynclock._codes import Code
from tests.docs.story import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

AT_A_DESK: Final = frozenset(
    {
        Code.USAGE,
        Code.CONFIG,
        Code.SPEC,
        Code.NOT_INSTALLED,
        Code.LOCK_CHANGED,
        Code.STORE,  # of a backend that is not ours
        Code.PRECONDITION_FAILED,  # of calls of a backend; locks handle it
        Code.NO_LOCK_HERE,
        Code.NOT_BROKEN,
        Code.ONE_PROCESS,
        Code.SECRET_SHOWN,
        Code.RIGHTS_NOT_TESTED,
        Code.OPTIONS_LEFT_OUT,
        *(code for code in Code if Code.DOCTOR_LEFT <= code <= Code.ONE_WRITE_A_SECOND),  # below NOT_SAFE
    }
)
"""Codes that answer somebody who types a command or writes a program. All others may wake somebody up."""
_PAGE: Final = (ROOT / "docs" / "howto" / "night.md").read_text(encoding="utf-8")
SENTENCES: Final[dict[str, str]] = dict(re.findall(r"^### (.+)\n\n```text\n(.+)\n```$", _PAGE, re.MULTILINE))


def is_said(section: str, lines: Iterable[str]) -> bool:
    """Whether one of the lines is the sentence of a section."""
    pattern = ".*".join(re.escape(part) for part in SENTENCES[section].split("…"))
    return any(re.fullmatch(pattern, line, re.DOTALL) for line in lines)
