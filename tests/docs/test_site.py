"""The site builds without a warning, and its reference has every public name, key of a spec and command."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from dataclasses import fields
from inspect import ismodule
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pytest
from sphinx.util.inventory import InventoryFile

from asynclock._cli.app import command
from asynclock.backends import _azure as azure
from asynclock.backends import _gcs as gcs
from asynclock.backends import _local as local
from asynclock.backends import _memory as memory
from asynclock.backends import _s3 as s3
from asynclock.settings import LeaseSettings
from asynclock.spark.spec.dialect import CsvDialect
from asynclock.spark.spec.document import json_schema
from asynclock.spark.spec.joins import ViewSpec
from asynclock.spark.spec.model import TableSpec
from asynclock.spark.spec.spark import SparkSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
MODULES: Final = (
    "asynclock",
    "asynclock.sync",
    "asynclock.hudi",
    "asynclock.sync.hudi",
    "asynclock.spark",
    "asynclock.telemetry",
    "asynclock.testing",
    "pytest_asynclock",
)
OURS: Final = ("asynclock", "pytest_asynclock")
BACKENDS: Final = {"s3": s3, "gcs": gcs, "azure": azure, "file": local, "memory": memory}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as ``make docs`` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "docs", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def inventory(site: Path) -> dict[str, set[str]]:
    """Return the names that the reference describes, by their kind."""
    content = (site / "objects.inv").read_bytes()
    names: dict[str, set[str]] = {}
    for kind, found in InventoryFile.loads(content, uri="").data.items():
        names.setdefault(kind.partition(":")[0], set()).update(found)
        names.setdefault(kind, set()).update(found)
    return names


def public_names(module: str) -> Iterator[tuple[str, Any]]:
    """Yield the public names of a module, with what they are."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None) or [name for name in dir(found) if name[0] != "_"]
    for name in names:
        value = getattr(found, name)
        if not ismodule(value) and (getattr(value, "__module__", None) or "").startswith(OURS):
            yield name, value


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(inventory: dict[str, set[str]], module: str) -> None:
    """A name that another module has too, as ``asynclock.sync`` has the errors, is described there."""
    missing = [
        name
        for name, value in public_names(module)
        if f"{module}.{name}" not in inventory["py"]
        and not any(
            value is other and f"{elsewhere}.{name}" in inventory["py"]
            for elsewhere in ("asynclock", "asynclock.hudi")
            for _, other in public_names(elsewhere)
        )
    ]

    assert missing == []


def test_the_public_names_are_found() -> None:
    """The check above sees the names that users know best."""
    names = {name for name, _ in public_names("asynclock")}

    assert {"connect", "Lease", "LeaseLostError", "FencedObject"} <= names
    assert {"fixture", "Iterator"}.isdisjoint(names)


def test_every_key_of_a_spec_is_in_the_reference(inventory: dict[str, set[str]]) -> None:
    """And no other key is."""
    stream = "streams.NAME"
    expected = {
        *(f"table.{field.name}" for field in fields(TableSpec)),
        *(f"locks.{name}" for name in ("url", "moved_from")),
        *(f"locks.{field.name}" for field in fields(LeaseSettings)),
        *(f"spark.{field.name}" for field in fields(SparkSpec)),
        *(f"{stream}.{name}" for name in json_schema()["$defs"]["StreamSpec"]["properties"] if name != "csv"),
        *(f"{stream}.csv.{field.name}" for field in fields(CsvDialect)),
        *(f"services.{key}" for key in _service_keys()),
        *(f"views.NAME.{field.name}" for field in fields(ViewSpec) if field.name != "name"),
    }

    assert inventory["std:confval"] == expected


def _service_keys() -> Iterator[str]:
    """Yield the keys of ``[services]``, as the schema has them."""
    tables = json_schema()["$defs"]
    for name, value in tables["ServicesTable"]["properties"].items():
        inner = value.get("$ref", "").rpartition("/")[2]
        yield from (f"{name}.{key}" for key in tables[inner]["properties"]) if inner else [name]


@pytest.mark.parametrize("name", BACKENDS)
def test_every_option_of_a_backend_is_on_its_page(name: str) -> None:
    """And no other option is, besides ``trust_env``, which the clouds take and the rest ignore."""
    source = Path(str(BACKENDS[name].__file__)).read_text(encoding="utf-8")
    taken = source.partition("take_options(")[2].partition("\n    )")[0].partition("))")[0]
    expected = set(re.findall(r"\b(\w+)=(?:str|bool|float|bytes|object)\b", taken))
    if "trust_env" in source:
        expected.add("trust_env")
    page = (ROOT / "docs" / "backends" / f"{name}.md").read_text(encoding="utf-8")
    table = page.partition("| Option |")[2].partition("\n\n")[0]
    shown = {
        option
        for line in table.splitlines()[2:]
        for option in re.findall(r"`(\w+)`", line.removeprefix("|").partition("|")[0])
    }

    assert shown == expected


def test_every_command_is_in_the_reference(site: Path) -> None:
    """With each of its options."""
    page = (site / "reference" / "command.html").read_text(encoding="utf-8")

    def commands(group: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
        yield words, group
        for name, each in getattr(group, "commands", {}).items():
            yield from commands(each, f"{words} {name}")

    found = [*commands(command, "asynclock")]
    missing = [
        f"{words} {option}"
        for words, each in found
        if not each.hidden
        for parameter in each.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if f'id="cmdoption-{words.replace(" ", "-")}-{option.lstrip("-")}"' not in page
    ]

    assert len(found) > 10
    assert missing == []


def test_the_page_of_the_benchmarks_names_each() -> None:
    """Those of ``benchmarks/bench_*.py``, and no other."""
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    files = {path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py")}

    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == files
