"""A Hudi writer as its RFC-91 describes it: three fields, its own wall clock, 0.5 s of drift."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from tests.laboratory.attack.bucket import Bucket
    from tests.laboratory.attack.judge import Claim, Judge

DRIFT = 0.5


class HudiWriter:
    """Takes one lock again and again, and dies with it at last or does not.

    Args:
        bucket: Where the lock is.
        judge: Told of what it believes.
        rng: Its dice.
        name: Of the writer.
        key: Of the lock object.
        validity: Seconds that it promises.
        ahead: By how much its wall clock is ahead of true time.
        until: True time at which it ends.
        dies: It ends without a release.
    """

    def __init__(
        self,
        bucket: Bucket,
        judge: Judge,
        rng: random.Random,
        *,
        name: str,
        key: str,
        validity: float,
        ahead: float,
        until: float,
        dies: bool,
    ) -> None:
        self.owner = ""
        self._name = name
        self._bucket, self._judge, self._rng, self._key = bucket, judge, rng, key
        self._validity, self._ahead, self._until, self._dies = validity, ahead, until, dies
        self._valid_until = 0.0
        self._version = ""
        self._rounds = 0
        self._believes = False
        self._busy = False
        """A write is under way."""
        self._claim: Claim | None = None
        self._later(validity * rng.random(), self._turn)

    @property
    def held(self) -> bool:
        """Whether it believes to hold the lock."""
        return self._believes and self._time() < self._valid_until

    def _time(self) -> float:
        return self._bucket.world.now + self._ahead

    def _later(self, seconds: float, call: object) -> None:
        self._bucket.world.at(self._bucket.world.now + seconds, call)  # type: ignore[arg-type]

    def _trip(self) -> float:
        return self._bucket.weather.trip * self._rng.uniform(0.2, 2.0)

    def _turn(self) -> None:
        if self._busy:
            self._later(self._trip(), self._turn)
        elif self._bucket.world.now >= self._until:
            self._end()
        elif not self.held:
            self._believes = False
            self._look()
        elif self._rng.random() < 0.4:
            self._release()
        else:
            self._write(expired=False)
            self._later(self._validity / 3, self._turn)

    def _end(self) -> None:
        if self.held and not self._dies:
            self._release(again=False)
        self._believes = False

    def _look(self) -> None:
        record = self._judge.head(self._key)
        free = record is None or record.get("expired") or record["validUntil"] / 1000 + DRIFT < self._time()
        if free:
            self._rounds += 1
            self.owner = f"{self._name}-{self._rounds}"
            thing = self._bucket.things.get(self._key)
            self._version = "" if thing is None else thing.version
            self._write(expired=False, first=True)
        self._later(self._validity / 5 + self._trip() * 3, self._turn)

    def _release(self, *, again: bool = True) -> None:
        self._believes = False
        self._write(expired=True)
        if again:
            self._later(self._validity * self._rng.random() * 2, self._turn)

    def _write(self, *, expired: bool, first: bool = False) -> None:
        base, owner = self._version or None, self.owner
        valid_until = self._valid_until if expired else self._time() + self._validity
        body = json.dumps({"expired": expired, "validUntil": int(valid_until * 1000), "owner": owner})

        self._busy = True

        def arrive() -> None:
            self._busy = False
            if self._bucket.too_soon(self._key):
                return
            written = self._bucket.put(self._key, body.encode(), base, self._name)
            if written is None:
                self._believes = False
                return
            self._version = written.version
            if not expired:
                self._valid_until = int(valid_until * 1000) / 1000
            if first and not expired:
                self._believes = True
                self._claim = self._judge.given(self._key, self._name, self, None)

        self._later(self._trip(), arrive)
