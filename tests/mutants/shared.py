"""The mutants of what several may hold: a semaphore, and a reader-writer lock."""

from __future__ import annotations

from typing import Final

from tests.laboratory.checker import Invariant
from tests.mutants.mutant import Mutant
from tests.mutants.planting import Change

TRY: Final = "asynclock._core.slots:Part.acquire"
ADMITS: Final = "asynclock._core.semaphore:SemaphoreEngine.admits"
RUN_BEGAN: Final = "asynclock._core.protocol.waiting:SharedFairness.began"
NO_WRITER: Final = "asynclock._core.readwrite:Readers._no_writer"
READER_ADMITS: Final = "asynclock._core.readwrite:Readers.admits"
READER_READY: Final = "asynclock._core.readwrite:Readers.ready"
WRITER_ACQUIRE: Final = "asynclock._core.readwrite:Writer.acquire"
ALONE: Final = "asynclock._core.readwrite:Writer._alone"
LEAVE_OUT: Final = "asynclock._core.readwrite:Writer._leave_out_free"
CUT_OFF: Final = "asynclock._core.portal:cut_off_at"

SHARED_MUTANTS: Final = (
    Mutant(
        "look at the number of slots before the slot is confirmed",
        TRY,
        "await self._group.admits(self.slot)",
        "self.slot < self._group.slots",
        Invariant.SLOTS,
        "resized",
    ),
    Mutant(
        "hand out a slot that was lost during the look",
        TRY,
        "$admitted and $held.belief.end_if_due() > 0",
        "$admitted",
        Invariant.TOKEN_RISES,
        "resized",
    ),
    Mutant(
        "keep a slot whose look failed",
        TRY,
        "except BaseException:\n    await self.finish($held)\n    raise",
        "except BaseException:\n    raise",
        Invariant.TAKEOVER_BOUND,
        "semaphore",
    ),
    Mutant(
        "hand out a slot that the store has no more",
        ADMITS,
        "$slot < self.slots",
        "True",
        Invariant.SLOTS,
        "resized",
    ),
    Mutant(
        "count a run by the slot",
        RUN_BEGAN,
        "super().began($now, started_at=$start, owner=$owner, predecessor=self._run_owner)",
        "super().began($now, started_at=$start, owner=$owner, predecessor=None)",
        Invariant.FAIR,
        "slot-turns",
    ),
    Mutant(
        "cut off a round in the middle of its clean-up",
        CUT_OFF,
        "$loop.call_at($when, cancel_once, $task)",
        "$loop.call_at($when, $task.cancel)",
        Invariant.FAIR,
        "rwlock",
    ),
    Mutant(
        "look for a writer before the slot is confirmed",
        READER_ADMITS,
        "return await self._no_writer()",
        "return True",
        Invariant.BESIDE,
        "rwlock",
        also=(
            Change(
                READER_READY,
                "return ($first and not self._kept_out) or await self._no_writer()",
                "return await self._no_writer()",
            ),
        ),
    ),
    Mutant(
        "overlook one slot of the readers",
        ALONE,
        "range(self._readers.slots)",
        "range(1, self._readers.slots)",
        Invariant.BESIDE,
        "rwlock",
    ),
    Mutant(
        "take a slot that was read for one that was free",
        ALONE,
        "not $inside and $held.belief.end_if_due() > 0",
        "$held.belief.end_if_due() > 0",
        Invariant.BESIDE,
        "rwlock",
    ),
    Mutant(
        "take the wait of a lost lease for that of the next",
        WRITER_ACQUIRE,
        "$held = await super().acquire(timeout=$left, once=$once, at_most=$cap)",
        "looked = bool(locals().get('held'))\n"
        "$held = await super().acquire(timeout=$left, once=$once, at_most=$cap)",
        Invariant.BESIDE,
        "rwlock",
        also=(
            Change(
                WRITER_ACQUIRE,
                "$alone = await self._alone($held, $time)",
                "$alone = looked or await self._alone($held, $time)",
            ),
        ),
    ),
    Mutant(
        "let readers in beside a writer that waits",
        NO_WRITER,
        'self._kept_out = $status is not None and $status.state == "held"',
        "self._kept_out = False",
        Invariant.BESIDE,
        "rwlock",
    ),
    Mutant(
        "take the own readers for free",
        LEAVE_OUT,
        "$asked = [$part for $part in $readers if own or not $part.busy]",
        "$asked = $readers[:] = [$part for $part in $readers if own or not $part.busy]",
        Invariant.BESIDE,
        "rwlock",
    ),
)
