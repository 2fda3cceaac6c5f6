"""Makes text from outside safe to show, and tells the name of a lock from the key of its object."""

from __future__ import annotations

import codecs
import time
from typing import Final

MAX_SHOWN: Final = 256
SUFFIX: Final = ".json"
"""The suffix of a lock's name in the key of its object."""
# Look it up now: the first look-up of a codec reads a file, and a loss may be reported when none can be
# opened.
_encode: Final = codecs.getencoder("unicode_escape")


def printable(text: object, *, limit: int = MAX_SHOWN) -> str:
    """Return ``text`` as printable ASCII, cut to ``limit`` characters.

    Text from a lock file may be hostile: control characters and escape sequences would
    reach terminals and logs (protocol rule 20).
    """
    plain = _encode(str(text), "backslashreplace")[0].decode("ascii")
    return plain if len(plain) <= limit else f"{plain[: limit - 3]}..."


def escaped(text: str) -> str:
    """Return ``text`` with each unprintable character replaced by an escape sequence."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else printable(each) for each in text)


def clock(epoch: float) -> str:
    """Return a time of day in this machine's time zone, with the date if that is not today."""
    moment = time.localtime(epoch)
    today = moment[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", moment)
