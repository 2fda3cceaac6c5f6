"""``python -m asynclock`` is the command ``asynclock``."""

from __future__ import annotations

from asynclock.cli import main

main()
