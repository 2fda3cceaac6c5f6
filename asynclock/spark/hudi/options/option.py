"""One option of Hudi, with the layer that sets it and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from asynclock.spark.spec.environment import FromEnvironment

Layer = Literal["place", "table", "merge", "concurrency", "services", "user"]
Use = Literal["write", "sql", "read", "compaction", "clustering", "cleaning", "sync"]
QueryType = Literal["snapshot", "read_optimized", "incremental"]

LAYERS: Final[tuple[Layer, ...]] = get_args(Layer)
USES: Final[tuple[Use, ...]] = get_args(Use)


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        key: Hudi's key.
        value: Its value, as text, or the environment variable that has it.
        layer: The layer that sets it.
        why: The reason for this value, as a sentence.
    """

    key: str
    value: str | FromEnvironment
    layer: Layer
    why: str
