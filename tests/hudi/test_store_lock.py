"""``StoreLockProvider``: Hudi's commit lock in a store, as sessions of ``asynclock.spark`` take it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.hudi.conftest import Table
    from tests.hudi.harness import Providers


@pytest.fixture
def both(jvm: Providers, table: Table) -> Providers:
    """Hudi's provider and asynclock's on one table."""
    jvm.provider("hudis", table.base)
    jvm.store_provider("ours", table.base)
    return jvm


@pytest.mark.parametrize(("one", "other"), [("hudis", "ours"), ("ours", "hudis")])
def test_it_and_hudis_provider_exclude_each_other(both: Providers, one: str, other: str) -> None:
    """They take the same lock object."""
    answers = [both.ask(word) for word in (f"tryLock {one}", f"tryLock {other}", f"unlock {one}")]
    answers.append(both.ask(f"tryLockFor {other} 10000"))
    both.ask(f"unlock {other}")

    assert answers == ["true", "false", "ok", "true"]


def test_it_counts_what_the_lock_has_cost(both: Providers, table: Table) -> None:
    """The time until it was taken and until it was given back, and the time in between."""
    assert both.use(table.base) == [0, 0, 0]

    both.ask("tryLockFor ours 10000")
    both.ask("unlock ours")
    taken, waited, held = both.use(table.base)
    both.ask("unlock ours")

    assert (taken, waited > 0, held > 0) == (1, True, True)
    assert both.use(table.base) == [taken, waited, held]


def test_a_wait_in_vain_ends_and_counts(both: Providers, table: Table) -> None:
    """For as long as it was asked to wait; the lock stays with its holder."""
    both.ask("tryLock hudis")

    answer = both.ask("tryLockFor ours 300")
    taken, waited, held = both.use(table.base)

    assert (answer, taken, held) == ("false", 0, 0)
    assert waited >= 300e6
    assert both.ask("tryLock ours") == "false"
    both.ask("unlock hudis")


def test_its_validity_is_taken_from_hadoops_configuration(jvm: Providers, table: Table) -> None:
    """As text, which is all that Spark has; Hudi's own client of S3 would not start with it."""
    jvm.store_provider("ours", table.base, validity=77)

    before = time.time()
    assert jvm.ask("tryLock ours") == "true"
    after = time.time()
    _, until, _ = jvm.ask("getLock ours").split(" ")
    jvm.ask("unlock ours")

    assert before + 76.9 < int(until) / 1e3 < after + 77.1
