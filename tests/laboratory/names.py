"""The names in the simulated store."""

from __future__ import annotations

from typing import Final

URL: Final = "memory://"
NAME: Final = "lock"
KEY: Final = "lock.json"
FENCED_KEY: Final = "fenced"
MARK_KEY: Final = "lock.once"
NAMES: Final = ("accounts", NAME, "orders")
"""Of the locks that are held together."""
