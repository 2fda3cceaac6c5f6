"""Why some branches of ``asynclock/protocol/`` are reached by no simulated history."""

from __future__ import annotations

from typing import Final

WHY: Final[dict[tuple[str, str], str]] = {}
"""By file and the line that branches."""
