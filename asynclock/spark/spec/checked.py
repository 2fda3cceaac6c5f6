"""Classes of a spec whose values pydantic checks, with all problems at once and in our own sentences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, StrictBool, StrictInt, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from asynclock._shared.words import HIDDEN
from asynclock.errors import ConfigError
from asynclock.spark.spec.toml import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

Whole = StrictInt
Switch = StrictBool

# By the types of pydantic's errors: the right kind of value.
_EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list of strings",
    "dict_type": "a table",
    "mapping_type": "a table",
    "model_type": "a table",
    "dataclass_type": "a table",
}
_MISSING: Final[Mapping[str, str]] = {
    "every_commits": "a whole number",
    "n": "a whole number",
    "columns": "a list of columns",
}
"""The keys without a default whose values are not strings, and the right kind of value."""


class ProblemsError(ConfigError):
    """Several settings are wrong; as an error, the first of them.

    Attributes:
        each: An error for each, in the order in which they were found.
    """

    def __init__(self, each: tuple[ConfigError, ...]) -> None:
        super().__init__(setting=each[0].setting, value=each[0].value, reason=each[0].reason)
        self.each = each


def wrong(setting: str, value: object, reason: str) -> ConfigError:
    """Return the error of a wrong setting, named from the table that is checked."""
    return ConfigError(setting=setting, value=value, reason=reason)


def problems_of(error: ConfigError, *prefix: str) -> tuple[ConfigError, ...]:
    """Return the problems, with settings that are named from the table around the ``prefix``."""
    each = error.each if isinstance(error, ProblemsError) else (error,)
    if not prefix:
        return each
    return tuple(wrong(_joined(*prefix, one.setting), one.value, one.reason) for one in each)


def refuse(problems: Iterable[ConfigError]) -> NoReturn:
    """Raise at least one problem as one error.

    Raises:
        ConfigError: Always.
    """
    first, *others = problems
    raise ProblemsError((first, *others)) if others else first


def raise_all(problems: Iterable[ConfigError]) -> None:
    """Raise all problems as one error, or nothing if there are none.

    Raises:
        ConfigError: There is at least one problem.
    """
    if each := tuple(problems):
        refuse(each)


def run_all(*checks: Callable[[], object]) -> None:
    """Run each check, and raise all their problems as one error.

    Raises:
        ConfigError: At least one check failed.
    """
    found: list[ConfigError] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            found += problems_of(error)
    raise_all(found)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def checked(cls: type[T]) -> type[T]:
    """Make a frozen dataclass of ``cls`` that checks the values of its fields when it is made.

    A field with the alias ``as`` has this name in a file; in Python it is ``as_``. The class refuses wrong
    values with a ``ConfigError``. Its ``__post_init__`` checks their combinations, and runs only if every
    value is right by itself.
    """
    config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)
    made = dataclass(frozen=True, kw_only=True, config=config)(cls)
    init = made.__init__

    def __init__(self: object, **values: object) -> None:  # noqa: N807  replaces that of the dataclass
        found: list[ConfigError] = []
        try:
            init(self, **values)
        except ValidationError as error:
            found = _problems(error, cls)
        raise_all(found)  # not chained: pydantic's error shows values, which may be secrets

    made.__init__ = __init__  # type: ignore[method-assign]
    return cast("type[T]", made)


def read(cls: type[T], values: object, *, hide: bool = False, **inner: object) -> T:
    """Return the object that a table of the file describes.

    Args:
        cls: A class made by ``checked``, or a model of pydantic.
        values: The value from TOML; anything but a table is refused.
        hide: Whether the values of unknown keys are not shown, since they may be secrets.
        inner: Fields that a file cannot set.

    Raises:
        ConfigError: At least one key is unknown or missing, or one value is wrong.
    """
    found: list[ConfigError] = []
    given = values
    if isinstance(values, dict):
        known = _keys(cls) - inner.keys()
        found += [
            wrong(name, HIDDEN if hide else values[name], unknown_name(name, known))
            for name in values
            if name in inner
        ]
        given = {**values, **inner}
    try:
        made = TypeAdapter(cls).validate_python(given, by_alias=True, by_name=False)
    except ValidationError as error:
        found += _problems(error, cls, hide=hide, inner=inner)
    raise_all(found)
    return made


def _keys(cls: type) -> set[str]:
    """Return the keys that a file may use for a class."""
    found = getattr(cls, "__pydantic_fields__", {})
    return {field.alias or name for name, field in found.items()}


def _problems(
    error: ValidationError, cls: type, *, hide: bool = False, inner: Mapping[str, object] | None = None
) -> list[ConfigError]:
    found: list[ConfigError] = []
    for each in error.errors(include_url=False):
        kind, given, context = each["type"], each["input"], each.get("ctx", {})
        keys = [part for part in each["loc"] if isinstance(part, str)]
        setting = ".".join(keys)
        if isinstance(said := context.get("error"), ConfigError):
            found += problems_of(said, *keys)
        elif kind.startswith("missing"):
            expected = _MISSING.get(keys[-1], "a string")
            found.append(wrong(setting, None, f"missing; add {keys[-1]} = {expected}"))
        elif kind in {"extra_forbidden", "unexpected_keyword_argument"}:
            known = _keys(_inner_class(cls, keys[:-1])) - (inner or {}).keys()
            found.append(wrong(setting, HIDDEN if hide else given, unknown_name(keys[-1], known)))
        elif kind == "literal_error":
            known = set(re.findall(r"'([^']*)'", context["expected"]))
            reason = (
                unknown_name(given, known)
                if isinstance(given, str)
                else f"expected a string, found {given!r}"
            )
            found.append(wrong(setting, given, reason))
        elif kind == "greater_than_equal":
            found.append(wrong(setting, given, f"must be a whole number, {context['ge']} or more"))
        elif len(keys) < len(each["loc"]):
            found.append(wrong(setting, given, f"expected a list of strings, found {given!r} in it"))
        else:
            expected = _EXPECTED.get(kind, each["msg"])
            found.append(wrong(setting, given, f"expected {expected}, found {given!r}"))
    return found


def _inner_class(cls: type, keys: Iterable[str]) -> type:
    """Return the class of a table inside that of ``cls``."""
    for key in keys:
        fields = cast("Mapping[str, Any]", getattr(cls, "__pydantic_fields__", {}))
        kind = next((field.annotation for name, field in fields.items() if (field.alias or name) == key), cls)
        parts = [kind, *getattr(kind, "__args__", ())]
        cls = next((part for part in parts if hasattr(part, "__pydantic_fields__")), cls)
    return cls


def _joined(*parts: str) -> str:
    return ".".join(filter(None, parts))
