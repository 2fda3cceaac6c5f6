"""The files of a run: what was done to it, and what was sampled."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

What = Literal["kill", "stop", "cont", "restart", "fault", "disk_full", "clock"]


class Journal:
    """Writes ``chaos.jsonl`` and ``watch.jsonl``, one object a line, with the time of each in UTC.

    Args:
        folder: Where; it is emptied first, and the drivers record their runs there, too.

    Attributes:
        folder: As given.
    """

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder.resolve()  # the drivers run elsewhere
        self._mutex = threading.Lock()

    def chaos(self, what: What, *, process: str = "", pid: int | None = None, detail: str = "") -> None:
        """Note what was done.

        Args:
            what: Kind of the deed.
            process: Name of the process it was done to; empty: to all.
            pid: Its id.
            detail: In words.
        """
        self._write("chaos", what=what, process=process, pid=pid, detail=detail)

    def watch(self, who: str, counts: dict[str, float], *, rest: int | None, work: int) -> None:
        """Note a sample; see ``leaks.Sample``."""
        self._write("watch", who=who, rest=rest, work=work, **counts)

    def _write(self, kind: str, **facts: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"time": now, "kind": kind, **facts})
        with self._mutex, (self.folder / f"{kind}.jsonl").open("a") as file:
            print(line, file=file)
