"""The number of buckets that fits the size of a table."""

from __future__ import annotations

from typing import Final

DEFAULT: Final = 4
_BYTES: Final = 1 << 30


def advised(size: int) -> int:
    """Return the number of buckets for the size of a table: about 1 GiB each, and at least the default.

    Args:
        size: Bytes of the table, or of the files that it is read from, which are usually larger.
    """
    return max(DEFAULT, -(-size // _BYTES))
