"""What a client writes into records: owners and nonces, fencing tokens and promises (rules 2, 4 and 11)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final
from uuid import UUID

from asynclock._core.protocol.decisions import next_token, next_token_without_dates, promise
from asynclock.clock import ClockReading
from asynclock.errors import ConfigError, UnsupportedBackendError

if TYPE_CHECKING:
    from random import Random

    from asynclock._core.protocol.timing import Timing
    from asynclock._core.record import LockRecord
    from asynclock.clock import Clock, StoreTime

_ROUNDED: Final = 1 - 1e-9


class Issuer:
    """Issues what a client writes into its records, by the store's time.

    Attributes:
        holder: The client's name in its records.
        dateless: The store never sends a Date, so this machine's wall clock makes tokens and promises.
    """

    def __init__(
        self, *, clock: Clock, timing: Timing, time: StoreTime, dateless: bool, rng: Random, holder: str
    ) -> None:
        self.holder = holder
        # One answer without a Date does not make a store dateless.
        self.dateless: bool = dateless
        self._clock = clock
        self._timing = timing
        self._time = time
        self._rng = rng

    def knows_time(self, now: ClockReading | None = None) -> bool:
        """Whether a record can be made ``now`` (default: read the clocks); else read first, for a Date."""
        return (
            self.dateless
            or self._time.bounds(ClockReading.now(self._clock) if now is None else now) is not None
        )

    def fresh_owner(self) -> str:
        """Return a new owner id."""
        return str(UUID(bytes=self._rng.randbytes(16), version=4))

    def fresh_nonce(self) -> str:
        """Return a new nonce, 32 hex digits."""
        return self._rng.randbytes(16).hex()

    def promise(self, now: ClockReading, *, lease: float | None = None) -> int | None:
        """Return the ``validUntil`` to publish at ``now`` for ``lease`` seconds, or for L (rule 4).

        None: no usable Date yet, read again.
        """
        latest = self._time.latest(now)
        if latest is not None:
            return promise(latest, self._timing, by_wall=self._time.by_wall, lease=lease)
        return promise(now.wall, self._timing, lease=lease) if self.dateless else None

    def renewed(self, record: LockRecord, now: ClockReading, ends_in: float | None) -> LockRecord:
        """Return the record that renews ``record`` at ``now``.

        Its ``validUntil`` never falls (rule 4), unless belief has an end of its own: then the record promises
        no more than the ``ends_in`` seconds that are left (rule 27).
        """
        nonce, until = self.fresh_nonce(), record.valid_until_ms
        if ends_in is None:
            return record._replace(nonce=nonce, valid_until_ms=max(until, self.promise(now) or 0))
        lease = self._timing.promised(ends_in)
        until = self.promise(now, lease=lease) or until
        return record._replace(nonce=nonce, valid_until_ms=until).lasting(lease)

    def next_token(self, key: str, predecessor: LockRecord | None, now: ClockReading) -> int | None:
        """Return the token to write over ``predecessor`` (rule 11); None: no usable Date yet, read again.

        Raises ConfigError or UnsupportedBackendError if none can be made after a Hudi writer.
        """
        if self.dateless:
            if (token := next_token_without_dates(predecessor, now.wall)) is not None:
                return token
            raise UnsupportedBackendError(
                backend="store",
                operation="acquire",
                key=key,
                detail="a Hudi writer dropped the fencing token, and the store's answers have no "
                "Date to make a new one from; use a store whose answers do",
            )
        timing, dropped = self._timing, predecessor is not None and predecessor.epoch is None
        if dropped and timing.longest_trip_for_future < timing.request_timeout * _ROUNDED:
            raise ConfigError(
                setting="validity",
                value=timing.validity,
                reason="a Hudi writer dropped the fencing token; to make a new one the validity must be at "
                "least 1.25 * (max_clock_skew + the store's clock resolution) = "
                f"{1.25 * timing.slack:g} s",
            )
        bounds = self._time.bounds(now)
        return None if bounds is None else next_token(predecessor, bounds, timing)

    def until_settled(self, settled_at: float | None) -> float:
        """Return seconds until store time has surely reached ``settled_at``, if any (rule 11), else 0.0."""
        if settled_at is None:
            return 0.0
        bounds = self._time.bounds(ClockReading.now(self._clock))
        earliest = -math.inf if bounds is None else bounds[0] + self._timing.resolution
        return max(0.0, min(settled_at - earliest, 2 * self._timing.slack))
