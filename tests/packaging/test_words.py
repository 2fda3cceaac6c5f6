"""Words that read as translated stay out of the texts: docstrings, comments, messages and pages."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
DONE: Final = (
    "asynclock/**/*.py",
    "benchmarks/**/*.py",
    "examples/**/*.py",
    "pytest_asynclock.py",
    "asynclock/spark/java/src/**/*.java",
    "*.md",
    "docs/*.md",
    "docs/backends/**/*.md",
    "docs/howto/**/*.md",
    "docs/reference/**/*.md",
    "docs/tutorials/**/*.md",
    "docs/concepts/**/*.md",
)
"""The package, its programs and all pages."""
TESTS: Final = ("tests/**/*.py", "tests/**/*.md")
PLAIN: Final = {
    r"inside of": "in, inside",
    r"anew": "again",
    r"beside(?![:(])": "next to",
    r"so many": "as many, that many, N",
    r"for ever": "forever",
    r"of then": "of that time",
    r"at the begin": "at the start",
    r"takes (it|them|this|that) for": "mistakes for",
    r"held to": "must follow, is checked by",
    r"go(es)? by": "uses",
    r"(?<!there\W)is no (lock|record|number|slot|call|loss|error|version|plain|cloud)": "is not a",
    r"whoever": "anyone who, the one that",
    r"bears?|borne": "carries, has",
    r"(be|is) told": "learns, sees, gets",
    r"had in time": "arrived in time",
    r"set out for": "began, was made for",
    r"be it": "whether",
    r"lest": "so that not",
    r"has it not": "if not",
    r"at hand": "available",
}
"""Patterns, and what to write instead."""
_BETWEEN: Final = r"(?:\s|#|//|\*)+"
"""Between two words, which a line may end between, also in a comment."""
_ANY: Final = re.compile(rf"\b({'|'.join(PLAIN).replace(' ', _BETWEEN)})\b", re.IGNORECASE)
# Names of invariants and of mutants have it.
_ALLOWED_IN_TESTS: Final = "beside"


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file that people read, each with its line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        without_code = re.sub(
            r"^```.*?^```",
            lambda block: block[0] if block[0].startswith("```{confval}") else "\n" * block[0].count("\n"),
            text,
            flags=re.MULTILINE | re.DOTALL,
        )
        yield 1, without_code
    elif _ANY.search(text):  # reading the tokens is the slow part, and most files have no such word
        comments, last = "", 0
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            line = token.start[0]
            if token.type == tokenize.COMMENT:
                if line != last + 1:
                    yield last - comments.count("\n"), comments
                    comments = ""
                comments += f"\n{token.string}" if comments else token.string
                last = line
            elif token.type == tokenize.STRING:
                yield line, token.string
        yield last - comments.count("\n"), comments


def test_no_text_reads_as_translated() -> None:
    """Use the plain word next to each pattern."""
    found = [
        f"{path.relative_to(ROOT)}:{line + text.count(chr(10), 0, word.start())}: {word[0]!r}"
        for pattern in (*DONE, *TESTS)
        for path in sorted(ROOT.glob(pattern))
        if path != Path(__file__)
        for line, text in prose(path)
        for word in _ANY.finditer(text)
        if pattern not in TESTS or word[0].lower() != _ALLOWED_IN_TESTS
    ]

    assert found == []


def test_every_pattern_finds_files() -> None:
    """A folder that moved would leave the list unnoticed."""
    assert [pattern for pattern in (*DONE, *TESTS) if not any(ROOT.glob(pattern))] == []


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".md", "It waits for\never.\n"),
        (".py", "# It waits for\n# ever.\n"),
        (".py", 'def wait():\n    """It waits for\n    ever."""\n'),
        (".java", "/** It waits for\n * ever. */\n"),
    ],
)
def test_a_word_is_found_across_lines(tmp_path: Path, suffix: str, text: str) -> None:
    """In a page, a comment and a docstring."""
    file = tmp_path / f"text{suffix}"
    file.write_text(text, encoding="utf-8")

    assert any(_ANY.search(found) for _, found in prose(file))
