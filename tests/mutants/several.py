"""The mutants of several locks that are held at once, and of a job that is run once a period."""

from __future__ import annotations

from typing import Final

from tests.laboratory.checker import Invariant
from tests.mutants.mutant import Mutant
from tests.mutants.planting import Change

ENTER_ALL: Final = "asynclock._several:HoldAll.__aenter__"
TIE: Final = "asynclock._core.together:tie"
EXIT_ALL: Final = "asynclock._several:HoldAll.__aexit__"
FINISH_ALL: Final = "asynclock._core.together:finish_all"
RUN_ONCE: Final = "asynclock._once:run_once"
DUE: Final = "asynclock._once:Periods.due"

SEVERAL_MUTANTS: Final = (
    Mutant(
        "hold all: acquire in the order given",
        ENTER_ALL,
        "sorted(self._locks, key=lambda each: each.key)",
        "self._locks",
        Invariant.FAIR,
        "together",
    ),
    Mutant(
        "hold all: give each lock the whole timeout",
        ENTER_ALL,
        "None if $until is None else max(0.0, $until - clock())",
        "self._timeout",
        Invariant.TOGETHER,
        "together",
    ),
    Mutant(
        "hold all: keep the locks before the one that fails",
        ENTER_ALL,
        "await self.__aexit__(type($whole), $whole, $error.__traceback__)",
        "pass",
        Invariant.TOGETHER,
        "together",
    ),
    Mutant(
        "hold all: believe in the others when one is lost",
        TIE,
        "core.belief.end(End.WITH_ANOTHER, $reason)",
        "pass",
        Invariant.TOGETHER,
        "together",
    ),
    Mutant(
        "hold all: release one after another",
        FINISH_ALL,
        "await asyncio.gather(*finishing, return_exceptions=True)",
        "[await each for each in finishing]",
        Invariant.LEAVING_IS_SHORT,
        "together",
    ),
    Mutant(
        "hold all: say nothing of a loss that no cancellation has told",
        EXIT_ALL,
        "raise_loss(self._leases, $left)",
        "pass",
        Invariant.LOSS_ENDS_BODY,
        "together",
    ),
    Mutant(
        "once: look for the mark only before the lock",
        RUN_ONCE,
        "($period := await core.run(periods.due)) is None",
        "($period := early) is None",
        Invariant.ONE_RUN,
        "once",
        also=(
            Change(
                RUN_ONCE,
                "await core.run(periods.due) is not None",
                "(early := await core.run(periods.due)) is not None",
            ),
        ),
    ),
    Mutant(
        "once: mark the period before the run",
        RUN_ONCE,
        "$result = await work(*args, **kwargs)\n$mark",
        "$mark\n$result = await work(*args, **kwargs)",
        Invariant.RUN_AGAIN,
        "once",
    ),
    Mutant(
        "once: mark the period of a run that failed",
        RUN_ONCE,
        "$result = await work(*args, **kwargs)\n$mark",
        "try:\n    $result = await work(*args, **kwargs)\nfinally:\n    $mark",
        Invariant.RUN_AGAIN,
        "once",
    ),
    Mutant(
        "once: mark no period",
        RUN_ONCE,
        "await core.run(functools.partial(periods.note_done, $period, $lease))",
        "pass",
        Invariant.RUN_AGAIN,
        "once",
    ),
    Mutant(
        "once: take a run under way for one that is done",
        RUN_ONCE,
        "None if wait else 0",
        "0",
        Invariant.RUN_AGAIN,
        "once",
    ),
    Mutant(
        "once: take a lock that makes way for one that is held",
        RUN_ONCE,
        '(await lock.status()).state == "held"',
        "True",
        Invariant.RUN_AGAIN,
        "once",
    ),
    Mutant(
        "once: trust the first clock that shows a period",
        DUE,
        "$period == math.floor(($bounds[1] + $skew) / $every)",
        "True",
        Invariant.PERIODS,
        "once",
    ),
    Mutant(
        "once: run again in a period that is done",
        DUE,
        "$done >= $period * $every",
        "$done > $period * $every",
        Invariant.ONE_RUN,
        "once",
    ),
    Mutant(
        "once: take the mark of the last period for this one",
        DUE,
        "$done >= $period * $every",
        "$done >= ($period - 1) * $every",
        Invariant.RUN_AGAIN,
        "once",
    ),
)
