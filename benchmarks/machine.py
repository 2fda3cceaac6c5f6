"""What a benchmark ran on: its machine, and the versions of all that is compared."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import Final

from asynclock.spark.hudi.session import HUDI_BUNDLE
from benchmarks.measure import SCRATCH
from tests.laboratory.servers import FAKE_GCS, MINIO

_PACKAGES: Final = (
    "aiobotocore", "aiohttp", "anyio", "azure-storage-blob", "filelock", "gcloud-aio-storage", "moto",
    "orjson", "pyspark", "python-dynamodb-lock", "redis",
)  # fmt: skip
_PROGRAMS: Final = ("redis-server", "etcd", "java")


def describe() -> dict[str, str]:
    """Return facts by their name, for people to read."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    programs = [re.sub(r".*/|-[0-9a-f]{12}$", "", module).replace("@", " ") for module in (MINIO, FAKE_GCS)]
    programs += [f"Hudi {HUDI_BUNDLE.rpartition(':')[2]}", *filter(None, map(_program, _PROGRAMS))]
    return {
        "cores": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, disk {_file_system()}",
        "Python": sys.version.split()[0],
        "packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        "programs": ", ".join(programs),
    }


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", told.read_text(), re.MULTILINE) if told.exists() else None
    return found[1] if found else platform.machine()


def _file_system() -> str:
    """Return the type of the file system that scratch folders are on."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "of an unknown type"
    kinds = {Path(line.split()[1]): line.split()[2] for line in mounts.read_text().splitlines()}
    return next(kinds[folder] for folder in SCRATCH.resolve().parents if folder in kinds)


def _program(name: str) -> str | None:
    """Return name and version of a program; None if it is not installed."""
    if which(name) is None:
        return None
    done = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+[.\d]*", done.stdout + done.stderr)
    return f"{name} {found[0] if found else 'of an unknown version'}"
