"""The stores of clouds in virtual time: their latencies, and fleets whose answers are known without them."""

from __future__ import annotations

import statistics

import pytest

from asynclock import LeaseSettings
from benchmarks.modelled import CLOUDS, Cloud, acquisitions, day, takeovers

SHORT = LeaseSettings(validity=4.0, max_clock_skew=0.0, poll_interval=0.1)
QUICK = Cloud(median=0.01, tail=0.02, write=5.0, read=0.4)


@pytest.mark.parametrize("name", CLOUDS)
def test_answers_take_as_long_as_others_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An acquisition by the client that released last is one write, and one by a new client two requests."""
    monkeypatch.setattr("benchmarks.modelled.ACQUISITIONS", 60)

    first, again = acquisitions(CLOUDS[name])

    assert statistics.median(again) == pytest.approx(CLOUDS[name].median, rel=0.25)
    assert statistics.median(first) == pytest.approx(2 * CLOUDS[name].median, rel=0.25)
    assert max(again) < 2 * CLOUDS[name].tail


def test_every_orphan_is_taken_and_none_before_its_record_has_expired() -> None:
    """Those of two processes of ten; a record is at most a renewal old when its holder dies."""
    taken = takeovers(QUICK, SHORT, locks=20)

    assert len(taken) == 4
    assert min(taken) > SHORT.validity - SHORT.renew_interval - SHORT.poll_interval
    assert max(taken) < SHORT.takeover_bound(1.0)


def test_a_day_has_a_write_for_each_renewal_and_a_read_for_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in a part of it, with their prices."""
    monkeypatch.setattr("benchmarks.modelled._HOUR", 20.0)

    found = day(QUICK, SHORT)

    assert found.writes / 24 == pytest.approx(20 / SHORT.renew_interval, abs=1)
    assert 20 / SHORT.poll_interval < found.reads / 24 < 2 * 20 / SHORT.poll_interval
    assert found.writes_dollars == pytest.approx(found.writes * 5e-6)
    assert found.reads_dollars == pytest.approx(found.reads * 0.4e-6)
