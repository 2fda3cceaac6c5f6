"""Which branches of the protocol no behaviour is asked to reach, why, and what covers them."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import asynclock._core.protocol

PROTOCOL: Final = Path(asynclock._core.protocol.__path__[0])
_ONE_THREAD: Final = "another thread between two steps of this one: a behaviour has one"
_MEMORY: Final = "what is forgotten to save memory"
_RACES: Final = "tests/unit/test_belief_races.py::"
_NO_LOOP: Final = "a closed event loop: the specification has no processes and threads (16 to 18)"
_OTHER_OBJECT: Final = "an object other than a lock: a fenced one, or the number of slots"
_SLOTS: Final = "turns of a semaphore (14, 31): Semaphore.tla has no time"
_SETTINGS: Final = "an argument that is refused"
_SAID: Final = "only what is said of it"


class Left(NamedTuple):
    """Why a branch is not asked for, and a test that covers it.

    Attributes:
        why: The reason.
        test: The test.
    """

    why: str
    test: str


NOT_ASKED: Final[dict[tuple[str, str, str], Left]] = {
    ("body.py", "if self._unreported and self._home.is_closed():", "self.report()"): Left(
        _NO_LOOP, "tests/unit/test_loss.py::test_a_loss_on_a_closed_loop_is_told_by_whoever_finds_it"
    ),
    (
        "claim.py",
        "if kept_until > objects.clock.boot() and not objects.issuer.knows_time():",
        "await objects.read(self._key)  # readers do not trust a promise from an old Date (rule 8)",
    ): Left(
        "a Date that is too old to be carried: the specification has no age of Dates",
        "tests/unit/test_at_least.py::test_a_kept_record_can_be_judged_where_the_last_date_is_old",
    ),
    ("decisions.py", "for watcher in tuple(self.watchers):", "watcher(seen, verdict)"): Left(
        _SAID, "tests/unit/test_lead.py::test_candidates_are_told_who_leads_without_a_request_more"
    ),
    ("decisions.py", "if not self.is_of(seen):", "return math.inf"): Left(
        "a guard: every answer that is judged was noted before",
        "tests/unit/test_decisions.py::test_an_observation_is_of_the_version_judged",
    ),
    (
        "decisions.py",
        "if latest - earliest - timing.resolution > timing.longest_trip_for_future:",
        "return None  # a holder that died while it settled could be followed by a lower token",
    ): Left(
        "a guard: with settings that are not refused a request times out before",
        "tests/unit/test_settings.py::"
        "test_a_token_from_the_future_is_reached_before_its_lease_can_be_taken_over",
    ),
    (
        "issuer.py",
        "if dropped and timing.longest_trip_for_future < timing.request_timeout * _ROUNDED:",
        "raise ConfigError(",
    ): Left(
        _SETTINGS,
        "tests/unit/test_settings.py::test_behind_a_hudi_writer_the_validity_must_cover_a_request_too",
    ),
    ("timing.py", "if settings.validity < self.slack:", "raise ConfigError("): Left(
        _SETTINGS, "tests/unit/test_settings.py::test_a_validity_below_skew_and_resolution_is_refused"
    ),
    ("objects.py", "if self.verifier.needed:", "await self.pace(key)"): Left(
        _OTHER_OBJECT, "tests/unit/test_semaphore.py::test_more_slots_are_there_at_once"
    ),
    ("objects.py", "if self._backend.min_write_interval > 0:", "if version is None:"): Left(
        _OTHER_OBJECT, "tests/unit/test_semaphore.py::test_more_slots_are_there_at_once"
    ),
    (
        "objects.py",
        "if version is None:",
        'await self.request("put_if_absent", key, self._backend.put_if_absent(key, body))',
    ): Left(_OTHER_OBJECT, "tests/unit/test_semaphore.py::test_more_slots_are_there_at_once"),
    (
        "objects.py",
        "if version is None:",
        'await self.request("put_if_match", key, self._backend.put_if_match(key, body, version))',
    ): Left(_OTHER_OBJECT, "tests/unit/test_semaphore.py::test_more_slots_are_there_at_once"),
    (
        "refusals.py",
        "if back != base or re.fullmatch(_COMPRESSED, base):",
        'return "ETags are changed on the way, as by a proxy that compresses answers"',
    ): Left(
        _SAID,
        "tests/unit/test_refusals.py::"
        "test_a_version_that_is_another_in_every_read_is_recognised_by_its_record",
    ),
    ("release.py", "if self._stop(loss) or self in self._in_flight.unfreed:", "try:"): Left(
        _NO_LOOP,
        "tests/unit/test_close_elsewhere.py::test_a_client_whose_loop_was_closed_releases_on_another",
    ),
    (
        "schedule.py",
        "if held.body.is_gone:",
        'held.release.let_go("the event loop of its holder was closed")',
    ): Left(_NO_LOOP, "tests/unit/test_dropped_leases.py::test_a_lease_whose_loop_was_closed_is_lost"),
    (
        "unanswered.py",
        'if getattr(self._backend, "opening", False):',
        'asked = [*self.requests.values(), *(("", each.asked) for each in self._listings)]',
    ): Left(_SAID, "tests/unit/test_close.py::test_closing_is_bounded_where_nothing_answers"),
    (
        "waiting.py",
        "if self.away_for(now) <= 0:",
        "super().ended(now, jittered=jittered)",
    ): Left(_SLOTS, "tests/unit/test_semaphore.py::test_a_run_is_one_of_all_slots"),
    ("waiting.py", "if self.away_for(now) <= 0:", "the end"): Left(
        _SLOTS, "tests/unit/test_semaphore.py::test_a_run_is_one_of_all_slots"
    ),
    ("belief.py", "if (left := self.left()) > 0:", "return left"): Left(
        _ONE_THREAD, _RACES + "test_a_renewal_may_land_between_two_looks"
    ),
    ("belief.py", "if isinstance(self.lost, LeaseExpiredError):", "return 0.0"): Left(
        _ONE_THREAD, _RACES + "test_a_release_may_come_before_the_deadline_is_noticed"
    ),
    ("belief.py", "if not self._ends:", "return 0.0"): Left(
        _ONE_THREAD, _RACES + "test_a_renewal_may_land_between_two_looks"
    ),
    (
        "belief.py",
        "if self._ends:  # another thread has found the deadline passed just now",
        "self.sent = before",
    ): Left(_ONE_THREAD, _RACES + "test_the_answer_of_a_renewal_comes_after_the_loss"),
    ("belief.py", "elif first is end:", "if first is end and loss is not None:"): Left(
        _ONE_THREAD, _RACES + "test_a_release_may_come_before_the_deadline_is_noticed"
    ),
    (
        "objects.py",
        "if len(pauses) >= _MOST_PAUSES:",
        "for each in [each for each, at in pauses.items() if at <= now]:",
    ): Left(_MEMORY, _RACES + "test_pauses_between_writes_are_forgotten_once_they_are_over"),
    (
        "objects.py",
        "for each in [each for each, at in pauses.items() if at <= now]:",
        "del pauses[each]",
    ): Left(_MEMORY, _RACES + "test_pauses_between_writes_are_forgotten_once_they_are_over"),
    (
        "objects.py",
        "for each in [each for each, at in pauses.items() if at <= now]:",
        "pauses[key] = now + self._backend.min_write_interval",
    ): Left(_MEMORY, _RACES + "test_pauses_between_writes_are_forgotten_once_they_are_over"),
    (
        "refusals.py",
        'if base.startswith("W/"):',
        'return "the ETag is weak, so no If-Match matches it: something before the store has changed it"',
    ): Left(_SAID, _RACES + "test_a_weak_etag_is_named_as_the_cause"),
    (
        "objects.py",
        "if self.verifier.needed:",
        "await self.verifier.verify(key, within=self.timing.request_timeout)",
    ): Left(_OTHER_OBJECT, _RACES + "test_what_is_no_lock_is_written_as_a_lock_is"),
    ("objects.py", "if self._backend.min_write_interval > 0:", "self._note_write(key)"): Left(
        _OTHER_OBJECT, _RACES + "test_what_is_no_lock_is_written_as_a_lock_is"
    ),
    ("objects.py", "if self.closed is not None:", "call.close()"): Left(
        "a guard: what is under way is cut off when its client is closed",
        _RACES + "test_a_closed_client_sends_nothing_more",
    ),
    ("ending.py", "if self.future.done():", "call()"): Left(
        "a guard: no lock ends in the step in which its acquisition does",
        _RACES + "test_what_waits_for_the_end_of_a_lock_that_has_ended_runs_at_once",
    ),
    (
        "release.py",
        "if self._stop(loss) or self in self._in_flight.unfreed:",
        "the end",
    ): Left(_NO_LOOP, _RACES + "test_an_exit_writes_nothing_for_a_lock_that_was_lost_before"),
    (
        "release.py",
        "if self._objects.closed is None:",
        "raise  # its loop ends: it is freed at the exit, through another",
    ): Left(_NO_LOOP, _RACES + "test_a_release_whose_loop_ends_is_left_to_the_exit"),
    (
        "stake.py",
        "if self._objects.closed is None:",
        "raise  # its loop ends: it is freed at the exit, through another",
    ): Left(_NO_LOOP, _RACES + "test_what_an_acquisition_left_is_freed_by_the_exit_too"),
    ("unanswered.py", 'if getattr(self._backend, "opening", False):', "self._opening_at = now"): Left(
        _SAID, "tests/unit/test_narration.py::test_a_client_that_is_still_opened_does_not_blame_the_store"
    ),
}
"""By file, the line that branches, and the line that it leads to."""


def text_of(branch: tuple[str, int, int]) -> tuple[str, str, str]:
    """Return a branch, given by file and lines, as ``NOT_ASKED`` names it."""
    name, first, last = branch
    lines = (PROTOCOL / name).read_text(encoding="utf-8").splitlines()
    return name, lines[first - 1].strip(), lines[last - 1].strip() if last > 0 else "the end"
