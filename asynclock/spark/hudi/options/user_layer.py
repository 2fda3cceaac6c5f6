"""The layer of the user: options of the spec that no other layer sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asynclock.spark.hudi.options.option import Option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.spark.hudi.options.option import Use
    from asynclock.spark.spec.hudi_settings import HudiSpec

_WHY: Final = "The spec's [hudi]."


def user(spec: HudiSpec, use: Use) -> Iterator[Option]:
    """Yield the options of the user.

    Values of the environment are left out of statements: the catalog would store them in clear text.
    """
    options = spec.synced() if use == "sync" else spec.passed()
    for key, value in options.items():
        if use != "sql" or isinstance(value, str):
            yield Option(key, value, "user", _WHY)
