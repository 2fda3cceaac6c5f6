"""The page of answers shows the tables as they are."""

from __future__ import annotations

from tests.docs.answers_page import PAGE, render


def test_the_page_of_answers_shows_the_tables() -> None:
    """After a change of a table: ``python -m tests.docs.answers_page``."""
    assert PAGE.read_text() == render()
