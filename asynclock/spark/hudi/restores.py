"""The mark of a restore that has begun: until it ends, table and checkpoints may not fit each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from asynclock.spark.errors import UnfinishedRestoreError

if TYPE_CHECKING:
    from asynclock.spark.hadoop import HadoopFiles
    from asynclock.spark.spec.model import Spec


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

    def savepoint(self) -> str | None:
        """Return the savepoint of the restore that has begun, or None."""
        text = self._files.read(self._url)
        return None if text is None else str(json.loads(text)["savepoint"])

    def put(self, savepoint: str) -> None:
        """Note that a restore begins."""
        self._files.write(self._url, json.dumps({"savepoint": savepoint}))

    def remove(self) -> None:
        """Note that it has ended."""
        self._files.delete(self._url)

    def refuse(self) -> None:
        """Make sure that no restore is unfinished. Call it only while there is no reservation.

        Raises:
            UnfinishedRestoreError: One has.
        """
        if (savepoint := self.savepoint()) is not None:
            raise UnfinishedRestoreError(
                path=self._spec.table.path, savepoint=savepoint, spec=str(self._spec.path)
            )
