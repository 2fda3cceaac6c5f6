"""The binding of a table to its locks, without a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from asynclock.errors import SpecError
from asynclock.spark.hudi.instants import BatchCommit
from asynclock.spark.hudi.locks import CREATION_LOCK, check_locks, claim_locks
from asynclock.spark.spec.load import load_spec
from tests.unit.specs import TEN_LINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asynclock.spark.spec.model import Spec

LOCKS = TEN_LINES + '[locks]\nurl = "locks"\n'


def nowhere(path: str) -> bool:
    """No path has a table."""
    assert path
    return False


def claim(spec: Spec, commit: BatchCommit | None = None) -> BatchCommit:
    """Bind the locks, and return the commit that then follows."""
    with spec.locks.connect() as client, client.lock(CREATION_LOCK).hold() as lease:
        table_id = claim_locks(spec, commit, nowhere, client=client, lease=lease)
    return BatchCommit(
        requested="1", completed="2", stream="a", query_id="q", batch_id=0, fencing_token=1, owner="o",
        buckets=4, key=("tailnum",), table_id=table_id, locks=spec.locks.url,
    )  # fmt: skip


def test_a_claimed_place_is_known_after_the_first_commit(write_spec: Callable[[str], Path]) -> None:
    """Until then the next writer claims it again, since no table has been written."""
    spec = load_spec(write_spec(LOCKS))

    assert check_locks(spec, None, nowhere) is False
    commit = claim(spec)

    assert check_locks(spec, None, nowhere) is False
    assert check_locks(spec, commit, nowhere) is True


def test_another_table_is_refused_before_and_under_the_lease(write_spec: Callable[[str], Path]) -> None:
    """Also where another writer has claimed the place since this one looked."""
    claim(load_spec(write_spec(LOCKS)))
    other = load_spec(write_spec(LOCKS.replace('"fleet"', '"trains"')))

    with pytest.raises(SpecError, match="two tables never share"):
        check_locks(other, None, nowhere)
    with pytest.raises(SpecError, match="two tables never share"):
        claim(other)


def test_a_table_of_another_id_at_the_same_path_is_refused(write_spec: Callable[[str], Path]) -> None:
    """One path may be two tables on two machines that share the store of the locks."""
    spec = load_spec(write_spec(LOCKS))
    commit = claim(spec)

    with pytest.raises(SpecError, match=f"belong to the table {commit.table_id}"):
        check_locks(spec, replace(commit, table_id="another"), nowhere)


def test_a_moved_table_is_accepted_and_a_copy_is_not(write_spec: Callable[[str], Path]) -> None:
    """A copy is known by the table that is still where the locks know it."""
    before = load_spec(write_spec(LOCKS))
    commit = claim(before)
    moved = load_spec(write_spec(LOCKS.replace('"fleet"', '"trains"')))

    with pytest.raises(SpecError, match="two tables never share"):
        check_locks(moved, commit, lambda path: path == before.table.path)
    assert check_locks(moved, commit, nowhere) is False
    claim(moved, commit)
    assert check_locks(moved, commit, nowhere) is True


def test_other_spellings_of_the_place_are_accepted(write_spec: Callable[[str], Path], tmp_path: Path) -> None:
    """Of the locks and of the table."""
    commit = claim(load_spec(write_spec(LOCKS)))
    (tmp_path / "link").symlink_to("locks")
    spelled = LOCKS.replace('"locks"', f'"file://{tmp_path}/link/"').replace('"fleet"', '"./fleet/"')

    assert check_locks(load_spec(write_spec(spelled)), commit, nowhere) is True


def test_moved_from_is_the_url_of_the_commits_or_nothing(write_spec: Callable[[str], Path]) -> None:
    """Locks that the table was not written under do not count as left."""
    commit = claim(load_spec(write_spec(LOCKS)))
    right = load_spec(write_spec(LOCKS.replace('"locks"', '"new"\nmoved_from = "locks"')))
    wrong = load_spec(write_spec(LOCKS.replace('"locks"', '"new"\nmoved_from = "lock"')))

    assert check_locks(right, commit, nowhere) is False
    with pytest.raises(SpecError, match=r"\[locks\] moved_from = "):
        check_locks(wrong, commit, nowhere)
    assert check_locks(right, claim(right, commit), nowhere) is True
