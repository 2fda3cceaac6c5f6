"""A mistake is planted in the place of a decision, whatever the source around it looks like."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from tests.mutants.planting import JAVA, Change, NoSuchDecisionError, Patch, planted

SOURCE = dedent(
    '''
    """A module."""

    SPARE = 0.5

    def left(now, end):
        # Never negative.
        return max(end - now, 0.0)

    class Lease:
        """A lease."""

        def left(self, now):
            """Return what is left."""
            if (left := self.end - now) <= 0:
                self.ended = True
                self.tell("it has ended", at=now, by=self.owner)
                return 0.0
            return left

        async def release(self):
            try:
                await self.write(None)
            except (OSError, ValueError):
                pass
            except KeyError:
                raise
            self.ended = True
    '''
)


def assert_planted(change: Change, old: str, new: str) -> None:
    """Check that ``new`` stands in place of ``old`` in the source, and all else as it was."""
    assert SOURCE.count(old) == 1
    wanted = SOURCE.replace(old, new)
    assert ast.dump(ast.parse(change.planted(SOURCE))) == ast.dump(ast.parse(wanted))


def test_an_expression_is_found_inside_of_a_statement() -> None:
    """A decision that is an expression may be part of a statement."""
    change = Change("leases:left", "max(end - now, 0.0)", "end - now")

    assert_planted(change, "max(end - now, 0.0)", "end - now")


@pytest.mark.parametrize(
    "source",
    [
        "def left(now, end): return max(end-now, 0.0)",
        "def left(now, end):\n    return max(\n        end - now,  # may be negative\n        0.0,\n    )",
        "import math\n\n\ndef left(now, end):\n    return (max((end - now), (0.0)))",
    ],
    ids=["in one line", "over lines", "in brackets"],
)
def test_layout_does_not_matter(source: str) -> None:
    """Line breaks, comments, brackets and the lines ahead may change."""
    change = Change("leases:left", "return max(end - now, 0.0)", "return end - now")

    assert change.planted(source).endswith("return end - now")


def test_a_name_with_a_dollar_stands_for_anything() -> None:
    """A decision leaves open what does not matter: a variable may be renamed, an argument changed."""
    change = Change("leases:left", "max($left, 0.0)", "$left")

    assert_planted(change, "max(end - now, 0.0)", "end - now")


def test_a_repeated_name_stands_for_the_same() -> None:
    """``$a - $a`` does not fit the difference of two variables."""
    change = Change("leases:left", "$a - $a", "0.0")

    with pytest.raises(NoSuchDecisionError, match="0 times"):
        change.planted(SOURCE)
    assert change.planted("def left(now): return now - now").endswith("return 0.0")


def test_a_name_stands_for_a_variable_that_is_assigned_and_read() -> None:
    """Where a variable is assigned it is the same as where it is read."""
    change = Change(
        "leases:Lease.left", "if ($left := $end - now) <= 0: *$end_it\nreturn $left", "return 1.0"
    )

    assert change.planted(SOURCE).count("return 1.0") == 1


def test_statements_are_replaced_by_statements() -> None:
    """Some statements in a row are one decision."""
    change = Change("leases:Lease.left", "$ended = True\nself.tell(*$what, **$more)", "self.tell(**$more)")

    assert_planted(
        change,
        'self.ended = True\n            self.tell("it has ended", at=now, by=self.owner)',
        "self.tell(at=now, by=self.owner)",
    )


def test_the_rest_of_a_block_stays() -> None:
    """The mistake keeps what the decision leaves open."""
    change = Change("leases:Lease.left", "if $over:\n    self.ended = True\n    *$rest", "if $over: *$rest")

    assert_planted(change, "            self.ended = True\n            self.tell", "            self.tell")


def test_a_decision_may_reach_to_the_end_of_its_block() -> None:
    """The rest of a function is left open like the rest of a block in it."""
    source = "def close(self):\n    self.closed = True\n    self.tell()\n    self.clear()"
    change = Change("leases:close", "self.closed = True\n*$rest", "*$rest\nself.closed = True")

    assert change.planted(source) == (
        "def close(self):\n    self.tell()\n    self.clear()\n    self.closed = True"
    )


def test_a_clause_is_replaced() -> None:
    """What is done with an exception is a decision too."""
    change = Change(
        "leases:Lease.release",
        "except (OSError, ValueError): pass",
        "except (OSError, ValueError): return",
    )

    assert_planted(
        change, "(OSError, ValueError):\n            pass", "(OSError, ValueError):\n            return"
    )


def test_an_expression_may_become_a_statement() -> None:
    """``pass`` stands for a call that is not made."""
    change = Change("leases:Lease.left", "self.tell(*$all, **$more)", "pass")

    assert_planted(change, 'self.tell("it has ended", at=now, by=self.owner)', "pass")


def test_a_constant_of_a_module_is_replaced() -> None:
    """Without a function the decision is looked for in the whole module."""
    assert_planted(Change("leases", "SPARE = $seconds", "SPARE = 0.0"), "SPARE = 0.5", "SPARE = 0.0")


def test_only_the_named_function_is_searched() -> None:
    """The same decision of another function stays as it is."""
    change = Change("leases:Lease.release", "self.ended = True", "pass")

    assert_planted(change, "            raise\n        self.ended = True", "            raise\n        pass")


def test_the_error_for_a_missing_decision_shows_the_function() -> None:
    """What has become of the decision can be seen there."""
    change = Change("leases:left", "min($left, 0.0)", "$left")

    with pytest.raises(NoSuchDecisionError) as caught:
        change.planted(SOURCE)

    assert str(caught.value) == (
        "leases:left takes this decision 0 times, not once:\nmin($left, 0.0)\n"
        "What is there:\ndef left(now, end):\n    return max(end - now, 0.0)"
    )


def test_the_error_for_an_ambiguous_decision_shows_each_place() -> None:
    """Which of them is meant is for the author of the mutant to say."""
    change = Change("leases:Lease", "self.ended = $value", "pass")

    with pytest.raises(NoSuchDecisionError, match="2 times") as caught:
        change.planted(SOURCE)

    assert "line 16: self.ended = True\nline 28: self.ended = True" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "there"),
    [("leases:remaining", "left, Lease"), ("leases:Lease.remaining", "left, release")],
    ids=["function", "method"],
)
def test_the_error_for_a_missing_function_lists_its_neighbours(function: str, there: str) -> None:
    """The new name of a renamed function is among those of its class or module."""
    with pytest.raises(NoSuchDecisionError, match=f"remaining is defined 0 times.* place: {there}$"):
        Change(function, "pass", "return").planted(SOURCE)


def test_the_error_for_a_missing_module_names_its_path(tmp_path: Path) -> None:
    """A module that was moved or renamed is not where the mutant says."""
    change = Change("house.leases:left", "pass", "return")

    with pytest.raises(NoSuchDecisionError, match=r"house\.leases:left: there is no .*leases\.py"):
        planted([change], tmp_path)


def test_all_changes_of_one_module_are_planted(tmp_path: Path) -> None:
    """A mistake in two places of a module is planted in both; the file itself stays as it is."""
    file = tmp_path / "leases.py"
    file.write_text(SOURCE, encoding="utf-8")
    changes = (
        Change("leases:left", "max($left, 0.0)", "$left"),
        Change("leases:Lease.release", "self.ended = True", "pass"),
    )

    sources = planted(changes, tmp_path)

    assert list(sources) == [Path("leases.py")]
    assert sources[Path("leases.py")] == changes[1].planted(changes[0].planted(SOURCE))
    assert file.read_text(encoding="utf-8") == SOURCE


def test_a_mistake_must_not_name_what_its_decision_does_not() -> None:
    """Such a name stands for nothing."""
    with pytest.raises(ValueError, match=r"the mistake uses \$right, which the decision does not"):
        Change("leases:left", "max($left, 0.0)", "$right").planted(SOURCE)


def test_a_text_of_java_is_replaced_where_it_stands(tmp_path: Path) -> None:
    """Of a file below the Java sources; all else of it stays, the layout too."""
    (tmp_path / JAVA).mkdir(parents=True)
    (tmp_path / JAVA / "Tie.java").write_text("boolean wins = a > b; // a tie\n", encoding="utf-8")

    sources = planted([Patch("Tie.java", "a > b", "a >= b")], tmp_path)

    assert sources == {JAVA / "Tie.java": "boolean wins = a >= b; // a tie\n"}


@pytest.mark.parametrize(("old", "times"), [("c", 0), ("a", 2)])
def test_a_text_of_java_that_is_not_there_once_is_refused(old: str, times: int) -> None:
    """Nothing says which of two places is meant, or where the text has gone."""
    with pytest.raises(NoSuchDecisionError, match=f"^Tie.java has this text {times} times, not once"):
        Patch("Tie.java", old, "b").planted("a > b; a")
