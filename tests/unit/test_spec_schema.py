"""The JSON schema of specs: it takes every spec of the docs and tests, and refuses wrong ones."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from asynclock._cli.app import run_command
from asynclock.spark.spec.document import json_schema
from tests.unit.specs import SPEC, TEN_LINES
from tests.unit.test_spec_mistakes import BAD

ROOT = Path(__file__).parents[2]
OF_SHAPE = {
    "unknown-key", "unknown-table", "unknown-stream-key", "no-columns", "no-ordering", "validity-as-text",
    "validity-as-bool", "half-a-bucket", "key-of-numbers", "key-as-text", "unknown-type", "unknown-format",
    "unknown-policy", "no-files-a-batch",
}  # fmt: skip
"""The mistakes that an editor shows; ``load_spec`` finds the others."""
SCHEMA = json_schema()
CHECK = jsonschema.Draft202012Validator(SCHEMA)


def shown() -> list[Any]:
    """The specs of the docs and the README, each named by its file."""
    found = [pytest.param((ROOT / "examples/fleet.toml").read_text(), id="examples/fleet.toml")]
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, block in enumerate(re.findall(r"```toml\n(.*?)```", path.read_text(), re.DOTALL)):
            if "project" not in tomllib.loads(block):  # a pyproject.toml
                found.append(pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}"))
    return found


def whole(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a spec with the tables that it leaves out."""
    rest = tomllib.loads(TEN_LINES)
    keys = part.keys() - SCHEMA["properties"].keys()  # of a table whose header is not shown
    of_table = {name: part[name] for name in keys & SCHEMA["$defs"]["TableSpec"]["properties"].keys()}
    of_stream = {name: part[name] for name in keys - of_table.keys()}
    if keys:
        part = {"table": of_table, "streams": {"a": of_stream}}
    streams = {
        name: {**rest["streams"]["arrivals"], **stream} for name, stream in part.get("streams", {}).items()
    }
    merged = {**rest, **part, "table": {**rest["table"], **part.get("table", {})}}
    return {**merged, "streams": streams or rest["streams"]}


def test_it_is_a_schema() -> None:
    """A validator takes it, and each key has a description."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    for table in SCHEMA["$defs"].values():
        assert all(value["description"] for value in table["properties"].values())


@pytest.mark.parametrize("text", [SPEC, TEN_LINES, *shown()])
def test_every_spec_that_we_show_fits(text: str) -> None:
    """No right spec is marked as wrong in an editor."""
    assert [error.message for error in CHECK.iter_errors(whole(tomllib.loads(text)))] == []


@pytest.mark.parametrize("mistake", [case for case in BAD if case.id in OF_SHAPE])
def test_a_mistake_in_shape_is_refused(mistake: Any) -> None:  # noqa: ANN401  a parameter of the other test
    """An editor marks it before anything runs."""
    ((old, new, *_),) = mistake.values if hasattr(mistake, "values") else (mistake,)

    assert not CHECK.is_valid(tomllib.loads(SPEC.replace(old, new, 1)))


def test_every_mistake_in_shape_is_there() -> None:
    """None has been renamed."""
    assert {case.id for case in BAD} >= OF_SHAPE


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON on the standard output."""
    assert run_command(["pipeline", "schema"]) == 0

    assert json.loads(capsys.readouterr().out) == SCHEMA
