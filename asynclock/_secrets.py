"""Keep secrets out of everything that is shown (protocol rule 20)."""

from __future__ import annotations

import re
from typing import Any, Final

from asynclock._text import escaped

HIDDEN: Final = "..."
# Bounded, so that a search stays linear in the length of the text, which may be hostile.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:/+")
_AT: Final = re.compile(r".*(?:@|%40)", re.IGNORECASE | re.DOTALL)
_USER_ONLY: Final = re.compile(r"[^/\[:]*:(?!\d+(?:/|$))")
_TAIL: Final = re.compile(r"[?#]|%3f|%23", re.IGNORECASE)
_IN_TEXT: Final = re.compile(rf"{_SCHEME.pattern}\S*")
_PUNCTUATION: Final = "'\"`)],.;:}>"
_SECRET: Final = re.compile(
    r"secret|passw|passphrase|credential|token|connection.string|(?:account|customer|private|secret)_key",
    re.IGNORECASE,
)


def is_secret(setting: str) -> bool:
    """Return whether a setting of this name holds a secret; also for options of third-party backends."""
    # The last part of a dotted name is the setting, except in Hudi's names, which contain dots.
    name = setting if setting.startswith("hoodie.") else setting.rpartition(".")[2]
    return _SECRET.search(name) is not None


def clean_url(url: str) -> str:
    """Return a URL without user and password, query and fragment: nothing before its last ``@``."""
    scheme = found[0] if (found := _SCHEME.match(url)) else ""
    rest = url[len(scheme) :]
    user = _AT.match(rest)
    if scheme and user is None and _USER_ONLY.match(rest):
        return scheme + HIDDEN  # a key and its secret with the "@" missing
    if user:
        if _TAIL.search(user[0]):
            return scheme + HIDDEN  # a secret with a "?" in it, or a query with an "@" in it
        rest = f"{HIDDEN}@{rest[user.end() :]}"
    if tail := _TAIL.search(rest):
        rest = rest[: tail.start()] + tail[0] + HIDDEN
    return scheme + rest


def clean_text(text: str) -> str:
    """Return a text with the secrets of its URLs removed; text that starts with a scheme is one whole URL."""
    return clean_url(text) if _SCHEME.match(text) else _IN_TEXT.sub(_clean_found, text)


def clean_message(text: str) -> str:
    """Return a sentence that is safe for terminals and logs: no secrets in URLs, nothing unprintable."""
    return escaped(_IN_TEXT.sub(_clean_found, text))


def clean_value(value: Any) -> Any:  # noqa: ANN401  any value of a setting
    """Return a value without the secrets of the URLs and settings in it, at any depth."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bytes):
        return clean_text(value.decode("latin-1")).encode("latin-1")
    if value is None or isinstance(value, int | float):
        return value
    if type(value) is dict:
        return {
            clean_value(name): HIDDEN if is_secret(str(name)) else clean_value(item)
            for name, item in value.items()
        }
    if type(value) in {list, tuple, set, frozenset}:
        return type(value)(clean_value(item) for item in value)
    shown = repr(value)
    cleaned = clean_message(shown)
    return value if cleaned == shown else cleaned


def _clean_found(found: re.Match[str]) -> str:
    url = found[0].rstrip(_PUNCTUATION)
    return clean_url(url) + found[0][len(url) :]
