"""The mark of a restore that has begun: until it ends, table and checkpoints may not fit each other."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asynclock.spark.errors import UnfinishedRestoreError

if TYPE_CHECKING:
    from asynclock.spark.hadoop import HadoopFiles
    from asynclock.spark.spec.model import Spec


@dataclass(frozen=True, kw_only=True)
class Restore:
    """A restore that has begun.

    Attributes:
        savepoint: The savepoint.
        spec: The file of its spec.
        streams: The streams whose checkpoints it sets back.
    """

    savepoint: str
    spec: str
    streams: list[str]


class RestoreMark:
    """The mark of one table, a file next to it.

    Args:
        spec: The table.
        files: The files of its store.
    """

    def __init__(self, spec: Spec, files: HadoopFiles) -> None:
        self._spec = spec
        self._files = files
        self._url = f"{spec.table.kept}/restore.json"

    def found(self) -> Restore | None:
        """Return the restore that has begun, or None."""
        text = self._files.read(self._url)
        return None if text is None else Restore(**json.loads(text))

    def put(self, savepoint: str) -> None:
        """Note that a restore to a savepoint begins, with the spec of this mark."""
        streams = [stream.name for stream in self._spec.streams]
        begun = Restore(savepoint=savepoint, spec=str(self._spec.path), streams=streams)
        self._files.write(self._url, json.dumps(dataclasses.asdict(begun)))

    def remove(self) -> None:
        """Note that it has ended."""
        self._files.delete(self._url)

    def refuse(self) -> None:
        """Make sure that no restore is unfinished. Call it only while there is no reservation.

        Raises:
            UnfinishedRestoreError: One has.
        """
        if (begun := self.found()) is not None:
            raise UnfinishedRestoreError(
                path=self._spec.table.path, savepoint=begun.savepoint, spec=begun.spec
            )
