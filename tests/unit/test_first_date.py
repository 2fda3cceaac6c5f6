"""A store that sends Dates: what is done before the first usable one (protocol, rule 11)."""

from __future__ import annotations

import pytest

from asynclock import AcquireTimeoutError
from asynclock.testing.faulty import Fault
from tests.unit.kit import SETTINGS, World, faulty, in_virtual_time

FIRST_WITHOUT_A_DATE = (0.1, 2 * 86_400.0, 2 * 3600.0)


@pytest.mark.parametrize("wall_error", FIRST_WITHOUT_A_DATE)
@pytest.mark.parametrize("answers", [1, 3])
def test_one_answer_without_a_date_does_not_make_a_token_of_the_wall_clock(
    world: World, wall_error: float, answers: int
) -> None:
    """A store that sends Dates is asked again: the token and the promise come from its clock."""

    async def story() -> None:
        async with world.client(wall_error=wall_error) as client:
            faulty(client).inject(Fault.NO_DATE, operation="get", times=answers)
            lease = await client.lock("orders").acquire()

            assert lease.fencing_token / 1e6 == pytest.approx(world.now, abs=1.0, rel=0)
            assert world.record().valid_until_ms / 1000 == pytest.approx(
                world.now + SETTINGS.validity, abs=60.0, rel=0
            )

    world.loop.run_until_complete(story())


@in_virtual_time
async def test_without_any_usable_date_a_timeout_says_why(world: World) -> None:
    """Nobody is left to guess that a proxy strips the Date header off."""
    async with world.client() as client:
        faulty(client).inject(Fault.NO_DATE, times=1000)
        with pytest.raises(AcquireTimeoutError) as caught:
            await client.lock("orders").acquire(timeout=3)

    assert "Date" in str(caught.value.__cause__)
    assert not world.writes()
