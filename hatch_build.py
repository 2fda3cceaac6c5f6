"""Lets a release without the Java jar fail; other installs work without it, for the lock alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JAR = Path("asynclock/spark/jars/asynclock-hudi.jar")


class RequireJar(BuildHookInterface[Any]):
    """Checks for the jar where ``ASYNCLOCK_RELEASE`` is set, as ``make dist`` does."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  hatchling's signature
        """Refuse to build a release wheel without the jar."""
        if os.environ.get("ASYNCLOCK_RELEASE") and not (Path(self.root) / JAR).is_file():
            raise FileNotFoundError(f"{JAR} is missing, a release must have it; run: make jar")
