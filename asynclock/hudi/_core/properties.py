"""Reads the ``hoodie.properties`` of a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from asynclock.backend import MAX_BODY, Stored
from asynclock.errors import ConfigError
from asynclock.hudi._core import hoodie
from asynclock.hudi._core.paths import PROPERTIES

if TYPE_CHECKING:
    from asynclock.backend import Backend
    from asynclock.hudi._core.paths import TablePath

_VERSION: Final = re.compile(rf"^{re.escape(hoodie.TABLE_VERSION)}\s*[=:]\s*(\d+)\s*$".encode(), re.MULTILINE)
_OLDEST: Final = 6
"""Hudi 0.14, the oldest release with a storage-based lock (0.14.2), writes tables of version 6."""
_INTERRUPTS: Final = 9
"""Writers of Hudi 1.0, which write versions up to 8, are not interrupted when they lose the lock."""


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of a Hudi table.

    Attributes:
        version: ``hoodie.table.version``; None if the file is too long to find it.
    """

    version: int | None

    @property
    def writers_may_overrun(self) -> bool:
        """Whether a Hudi writer of this table may keep writing after it lost the lock."""
        return self.version is not None and self.version < _INTERRUPTS


async def read_table(backend: Backend, table: TablePath) -> TableProperties:
    """Read a table's properties.

    Raises:
        ConfigError: There is no Hudi table, or its version is older than the storage-based lock.
        BackendError: The properties could not be read.
    """
    for key in PROPERTIES:
        stored = await backend.get(key)
        if isinstance(stored, Stored):
            break
    else:
        raise ConfigError(
            setting=hoodie.BASE_PATH,
            value=table.url,
            reason=f"there is no Hudi table: {PROPERTIES[0]} is missing; nothing was written",
        )
    found = _VERSION.search(stored.body)
    if found is None and len(stored.body) > MAX_BODY:
        return TableProperties(None)
    version = int(found[1]) if found else 0
    if version < _OLDEST:
        raise ConfigError(
            setting=hoodie.TABLE_VERSION,
            value=version,
            reason="no Hudi release that writes this layout takes the storage-based lock, so holding it "
            "would exclude nobody; upgrade the table to version 6 or later; nothing was written",
        )
    return TableProperties(version)
