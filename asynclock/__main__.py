"""``python -m asynclock`` is the command ``asynclock``."""

from __future__ import annotations

from asynclock._cli import main

main()
