"""What S3 and Azure say in XML: error codes and listings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from asynclock.backend import Entry

_CODE: Final = re.compile(rb"<Code>\s*([^<]*?)\s*</Code>")


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
    found = _CODE.search(body)
    return found[1].decode(errors="replace") if found else ""


def parse_listing(body: bytes, tag: str) -> ET.Element:
    """Return the root of a listing.

    Args:
        body: Of the answer.
        tag: Of the root, without its namespace.

    Raises:
        ValueError: The answer is no such listing.
    """
    try:
        root = ET.fromstring(body)  # noqa: S314  expat itself limits what entities may expand to
    except ET.ParseError as error:
        raise ValueError("the listing is no XML") from error
    if root.tag.rpartition("}")[2] != tag:
        raise ValueError("the answer is no listing")
    return root
