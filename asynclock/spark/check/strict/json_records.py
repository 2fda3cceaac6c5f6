"""JSON lines: one object or several on each, every value as its text in the file."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # there, if without a type
from typing import IO, TYPE_CHECKING, Any, Final

from asynclock.spark.check.strict.envelope import Fields, NoChangeError, changed_row
from asynclock.spark.check.strict.rows import MALFORMED, MOST_CHARACTERS, Bad, BadFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.spark.check.strict.envelope import Fields
from asynclock.spark.check.strict.rows import Layout, Row

_ORDER_MARK: Final = b"\xef\xbb\xbf"
_DEEPEST: Final = 500
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_BLANK: Final = re.compile(r"[ \t\n\r]*")
# A character takes four bytes at most.
_MOST_BYTES: Final = 4 * MOST_CHARACTERS


class MalformedError(Exception):
    """The line is not JSON."""


def rows(file: IO[bytes], layout: Layout) -> Iterator[Row]:
    """The rows of a file of JSON lines.

    Raises:
        BadFileError: The file gives no rows, though some may have been yielded.
    """
    number = 0
    while line := file.readline(_MOST_BYTES + 1):
        number += 1
        if number == 1 and line.startswith(_ORDER_MARK):
            line = line[len(_ORDER_MARK) :]
        if not line.strip(b" \t\r\n"):
            continue
        try:
            text = line.decode()
        except UnicodeDecodeError:
            _check_length(line.decode(errors="replace"))
            yield Bad(number, MALFORMED)
            continue
        _check_length(text)
        try:
            _check_depth(text)
            found = list(_events(text, layout))
        except (ValueError, MalformedError) as error:
            yield Bad(number, f"it is not well-formed: {error}")
            continue
        except NoChangeError as error:
            yield Bad(number, str(error))
            continue
        for fields in found:
            yield _row(number, fields, layout)


def record(value: bytes | None, number: int, layout: Layout) -> Row:
    """The row of one record of a topic, which has one object.

    Args:
        value: Its bytes.
        number: Its place in the topic.
        layout: The columns.
    """
    try:
        text = (value or b"").decode()
        _check_length(text)
        _check_depth(text)
        found = list(_events(text, layout))
    except (ValueError, MalformedError, BadFileError) as error:
        return Bad(number, f"it is not well-formed: {error}")
    except NoChangeError as error:
        return Bad(number, str(error))
    if len(found) != 1:
        return Bad(number, f"it has {len(found)} objects")
    return _row(number, found[0], layout)


def _events(text: str, layout: Layout) -> Iterator[Fields]:
    """The fields of each event in a text."""
    found = objects(text)
    if not layout.enveloped:
        return found
    return (changed_row(change, layout.sources.values(), _one_object) for change in found)


def _one_object(text: str) -> Fields:
    _check_depth(text)
    found = list(objects(text))
    if len(found) != 1:
        raise MalformedError("it has several objects in a field")
    return found[0]


def _check_length(text: str) -> None:
    if len(text.rstrip("\n")) > MOST_CHARACTERS:
        raise BadFileError(f"a record is longer than {MOST_CHARACTERS:,} characters")


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= _DEEPEST:
        return
    depth = 0
    for character in _STRING.sub("", text):
        depth += (character in "[{") - (character in "]}")
        if depth > _DEEPEST:
            raise MalformedError(f"it is nested deeper than {_DEEPEST} levels")


def _row(number: int, fields: Fields, layout: Layout) -> Row:
    for name in fields:
        if (column := layout.miswritten(name)) is not None:
            return Bad(number, f"its field {name!r} differs from {column!r} in case alone")
    texts: list[str | None] = []
    for name, kind in layout.types.items():
        value, source = fields.get(layout.sources[name], (None, ""))
        if value is None:
            texts.append(None)
        elif isinstance(value, str):
            texts.append(value)
        elif kind != "string" and isinstance(value, dict | list):
            return Bad(number, f"{name} is no {kind}: {source}")
        else:
            texts.append(source)
    return layout.good(number, texts)


def objects(text: str) -> Iterator[Fields]:
    """The objects of a line; for each field its value and its text."""
    place = _skip(text, 0)
    while place < len(text):
        fields, place = _object(text, place)
        yield fields
        place = _skip(text, place)


def _object(text: str, place: int) -> tuple[dict[str, tuple[Any, str]], int]:
    # The outermost object by hand, because json does not give the places of values in the text.
    fields: dict[str, tuple[Any, str]] = {}
    place = _expect("{", text, place)
    if text.startswith("}", place):
        return fields, place + 1
    while True:
        name, place = scanstring(text, _expect('"', text, place, skip=False), True)
        place = _expect(":", text, _skip(text, place))
        value, end = _DECODER.raw_decode(text, place)
        _check_text(name)
        _check_inner(value)
        if name in fields:
            raise MalformedError(f"the name {name!r} is there twice")
        fields[name] = value, text[place:end]
        place = _skip(text, end)
        if text.startswith("}", place):
            return fields, place + 1
        place = _expect(",", text, place)


def _expect(character: str, text: str, place: int, *, skip: bool = True) -> int:
    if not text.startswith(character, place):
        raise MalformedError(f"{character} is missing at character {place + 1}")
    return _skip(text, place + 1) if skip else place + 1


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


class Token:
    """A number, or a name of one such as NaN; its text says which."""


def _token(_text: str) -> Token:
    return Token()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # In a field, only to see that it is well-formed.
    inner = dict(pairs)
    if len(inner) < len(pairs):
        raise MalformedError("a name is there twice in one object")
    for name, value in pairs:
        _check_text(name)
        _check_inner(value)
    return inner


def _check_inner(value: object) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, list):
        for one in value:
            _check_inner(one)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MalformedError("a \\u escape makes half a surrogate pair") from None


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_token, parse_int=_token, parse_constant=_token
)
