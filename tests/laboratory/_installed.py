"""Programs from the registries of Go, npm and Maven, found or installed into a cache; others of Debian."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_INSTALL_WITHIN: Final = 900.0


def cache() -> Path:
    """Return the folder where installed servers stay, outside of any checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("ASYNCLOCK_CACHE") or Path(base) / "asynclock")


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Let only one process of this machine be in the body; a name stands for what they share."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def go_binary(name: str, module: str) -> str:
    """Return the path of a program: of that version in the cache, on ``PATH``, or installed.

    Args:
        name: Name of the program.
        module: What it is built from, ``module@version``; Go checks it by its database of sums.

    Raises:
        RuntimeError: It could not be installed.
    """
    folder = cache() / "bin" / module.rpartition("/")[2]
    program = folder / name
    if found := (str(program) if program.exists() else shutil.which(name)):
        return found

    def build(partial: Path) -> None:
        # GOGC: the compiler collects its garbage less often, which saves a fifth of the processor's time.
        environment = {"GOBIN": str(partial), "GOFLAGS": "-buildvcs=false", "GOGC": "400"}
        _install(module, ["go", "install", module], environment)

    _make(folder, program, build)
    return str(program)


def go_program(name: str, source: Path) -> str:
    """Return the path of a program, built from a folder with a ``go.mod`` if the cache does not have it.

    Raises:
        RuntimeError: It could not be built.
    """
    digest = sha256(b"".join(each.read_bytes() for each in sorted(source.iterdir()))).hexdigest()
    program = cache() / "bin" / f"{name}-{digest[:12]}" / name

    def build(partial: Path) -> None:
        command = ["go", "build", "-C", str(source), "-buildvcs=false", "-o", str(partial / name), "."]
        _install(name, command, {})

    _make(program.parent, program, build)
    return str(program)


def go_version(binary: str) -> str:
    """Return the module and version that a program was built from, for it may come from ``PATH``."""
    go = shutil.which("go")
    said = ""
    if go is not None:
        done = subprocess.run([go, "version", "-m", binary], capture_output=True, text=True, check=False)
        said = done.stdout
    for line in said.splitlines():
        if (words := line.split())[:1] == ["mod"]:
            return f"{words[1].rpartition('/')[2]}@{words[2]}"
    return f"{Path(binary).name} of an unknown version"


def npm_binary(name: str, locked: Path) -> str:
    """Return the path of a program: of that version in the cache, on ``PATH``, or installed.

    Args:
        name: Name of the program.
        locked: A folder with a ``package.json`` of one dependency, and its ``package-lock.json``:
            what is installed has the hashes that are in there, and none of its scripts is run.

    Raises:
        RuntimeError: It could not be installed.
    """
    ((package, version),) = json.loads((locked / "package.json").read_text())["dependencies"].items()
    lock = sha256((locked / "package-lock.json").read_bytes()).hexdigest()
    folder = cache() / "npm" / f"{package}@{version}-{lock[:12]}"
    program = folder / "node_modules" / ".bin" / name
    if found := (str(program) if program.exists() else shutil.which(name)):
        return found

    def build(partial: Path) -> None:
        shutil.copytree(locked, partial)
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts"]
        _install(f"{package}@{version}", ["npm", "ci", *quiet, "--prefix", str(partial)], {})

    _make(folder, program, build)
    return str(program)


def npm_version(binary: str) -> str:
    """Return the package and version that a program belongs to, for it may come from ``PATH``."""
    for folder in Path(binary).resolve().parents:
        if (about := folder / "package.json").is_file():
            package = json.loads(about.read_text())
            return f"{package['name']}@{package['version']}"
    return f"{Path(binary).name} of an unknown version"


def debian_program(name: str, *packages: str) -> str:
    """Return the path of a program: on ``PATH``, or installed with Debian's packages.

    Args:
        name: Name of the program.
        packages: What brings it; installed for the whole machine, which only root may.

    Raises:
        RuntimeError: It is missing and could not be installed.
    """
    if (path := shutil.which(name)) is None:
        _install_debian(name, packages)
        path = shutil.which(name)
    if path is None:
        message = f"{name} is missing after the installation of {' '.join(packages)}"
        raise RuntimeError(message)
    return path


def _install_debian(name: str, packages: tuple[str, ...]) -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        message = f"{name} is missing; install it (Debian: apt-get install {' '.join(packages)})"
        raise RuntimeError(message)
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    for command in (install, ["apt-get", "update"], install):
        done = subprocess.run(
            [*command, "-o", "DPkg::Lock::Timeout=600"],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=_INSTALL_WITHIN,
            check=False,
        )
        if command is install and done.returncode == 0:
            return
    message = f"{' '.join(install)} failed: {done.stderr[-2000:]}"
    raise RuntimeError(message)


def maven_jars(coordinates: str) -> Path:
    """Return a folder with a jar and all that it needs to run, from the cache or installed into it.

    Args:
        coordinates: ``group:artifact:version``; Maven checks what it downloads by the registry's sums.

    Raises:
        RuntimeError: It could not be installed.
    """
    group, artifact, version = coordinates.split(":")
    folder = cache() / "maven" / f"{artifact}-{version}"

    def build(partial: Path) -> None:
        partial.mkdir(parents=True)
        (partial / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>asynclock</groupId><artifactId>cached</artifactId><version>1</version>"
            f"<dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency></dependencies></project>"
        )
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
        maven = ["mvn", "--quiet", "--batch-mode", "--file", str(partial / "pom.xml"), *copy]
        _install(coordinates, maven, {})

    _make(folder, folder, build)
    return folder


def _make(folder: Path, whole: Path, build: Callable[[Path], None]) -> None:
    """Make a folder if ``whole``, in it, is not there: one process does, others wait, none sees a part."""
    with one_at_a_time(folder.name):
        if whole.exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        build(partial)
        partial.rename(folder)


def _install(what: str, command: list[str], environment: dict[str, str]) -> None:
    tool = command[0]
    if shutil.which(tool) is None:
        message = f"{tool} is missing; it installs {what}, which the tests run against"
        raise RuntimeError(message)
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"installing {what} into the cache", file=sys.stderr, flush=True)  # noqa: T201  it takes minutes
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_INSTALL_WITHIN,
        check=False,
    )
    if done.returncode:
        message = f"{' '.join(command)} failed: {done.stderr[-2000:]}"
        raise RuntimeError(message)
