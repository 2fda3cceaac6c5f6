"""The shape of a spec's file, as a class and as a JSON schema for editors."""

from __future__ import annotations

import inspect
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from asynclock.spark.spec.checked import checked
from asynclock.spark.spec.environment import Settings
from asynclock.spark.spec.joins import ViewSpec
from asynclock.spark.spec.lock_settings import LocksTable
from asynclock.spark.spec.model import StreamSpec, TableSpec
from asynclock.spark.spec.service_settings import ServicesTable
from asynclock.spark.spec.spark import SparkSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_FILLED_IN: Final[Mapping[str, frozenset[str]]] = {
    "TableSpec": frozenset({"type", "merge", "concurrency"}),
    "StreamSpec": frozenset({"checkpoint", "format"}),
    "ViewSpec": frozenset({"streams"}),
}
"""Keys that a file need not have, and whose defaults depend on other keys."""


@checked
class Document:
    """A pipeline of asynclock: a Hudi table, and the streams that write it.

    Attributes:
        table: The Hudi table that the streams write together.
        locks: The place and times of the leases.
        services: When the table services run, and who runs them.
        spark: How Spark is started.
        streams: The sources of events, by their names.
        views: Joins of the streams, by their names.
        hudi: Options of Hudi that asynclock does not set itself, by their full names.
    """

    table: TableSpec
    streams: dict[str, StreamSpec]
    locks: LocksTable = field(default_factory=LocksTable)
    services: ServicesTable = field(default_factory=ServicesTable)
    spark: SparkSpec = field(default_factory=SparkSpec)
    views: dict[str, ViewSpec] = field(default_factory=dict)
    hudi: Settings = field(default_factory=dict)


def json_schema() -> dict[str, Any]:
    """Return a JSON schema of the file: its keys, and the type and the choices of each value.

    Combinations of values are checked by ``load_spec`` only.
    """
    schema = TypeAdapter(Document).json_schema(schema_generator=_ForEditors)
    return {"$schema": GenerateJsonSchema.schema_dialect, "title": "asynclock pipeline", **schema}


class _ForEditors(GenerateJsonSchema):
    """Describes each key in the words of its class, and offers no null, which TOML does not have."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002  as in the base
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _described(super().dataclass_schema(schema), schema["cls"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _described(super().model_schema(schema), schema["cls"])


def _described(schema: JsonSchemaValue, cls: type) -> JsonSchemaValue:
    summary, _, attributes = (inspect.getdoc(cls) or "").partition("Attributes:\n")
    filled_in = _FILLED_IN.get(cls.__name__, frozenset())
    said = {name.rstrip("_"): _plain(text) for name, text in _ATTRIBUTE.findall(attributes)}
    for name, value in schema["properties"].items():
        value["description"] = said[name]
        if name in filled_in or value.get("default", 0) in (None, {}, []):
            value.pop("default", None)
    required = [name for name in schema.get("required", ()) if name not in filled_in]
    kept = {key: value for key, value in schema.items() if key not in {"title", "required"}}
    return {**kept, "description": _plain(summary), **({"required": required} if required else {})}


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("None: ", "By default: ")
