"""What S3 and Azure say in XML: error codes and listings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from xml.etree import ElementTree as ET

from asynclock.backends._answers import Fault, FaultError

if TYPE_CHECKING:
    from asynclock.backend import Entry

_CODE_BYTES: Final = 128
"""Of the longest error code."""
_TAGS: Final = 250_000
"""In a page of a listing: three times those of 1,000 entries. Each takes a hundred bytes of memory."""


class Page(NamedTuple):
    """One page of a listing.

    Attributes:
        entries: With whole keys.
        more: What continues the listing; None: this is its last page.
    """

    entries: list[Entry]
    more: str | None


def error_code(body: bytes) -> str:
    """Return the error code in the body of an answer, or an empty string."""
    return _text_of(body, b"Code").decode(errors="replace")


def region_in(body: bytes) -> str:
    """Return where an error says that the bucket is, or an empty string."""
    return _text_of(body, b"Region").decode(errors="replace")


def is_error(body: bytes) -> bool:
    """Return whether a body is an error document, whatever the status of its answer."""
    start = body.lstrip()
    if start.startswith(b"<?xml"):
        start = start[start.find(b">") + 1 :].lstrip()
    return start.startswith((b"<Error>", b"<Error "))


def _text_of(body: bytes, tag: bytes) -> bytes:
    # By find, not by a regular expression: the body may be hostile, and this takes linear time.
    start = body.find(b"<" + tag + b">")
    end = body.find(b"<", start + 1)
    text = body[start + len(tag) + 2 : end].strip() if 0 <= start < end else b""
    return text if len(text) <= _CODE_BYTES else b""


def parse_listing(body: bytes, tag: str) -> ET.Element:
    """Return the root of a listing.

    Args:
        body: Of the answer.
        tag: Of the root, without its namespace.

    Raises:
        FaultError: The answer is no such listing.
    """
    if body.count(b"<") > _TAGS:
        raise FaultError(Fault.TOO_LONG, f"more than {_TAGS:,} tags")
    try:
        root = ET.fromstring(body)  # noqa: S314  expat itself limits what entities may expand to
    except ET.ParseError:
        raise FaultError(Fault.NO_LISTING, "it is no XML") from None
    if root.tag.rpartition("}")[2] != tag:
        raise FaultError(Fault.NO_LISTING, f"it has no {tag}")
    return root
