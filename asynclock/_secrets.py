"""Keeps secrets out of all output (protocol rule 20)."""

from __future__ import annotations

import re
from typing import Any, Final

from asynclock._text import escaped

HIDDEN: Final = "..."
# Compiled on first use, not on import; ``re`` caches them. The first is bounded, so that a search stays
# linear in the length of the text, which may be hostile.
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]{0,30}:/+"
_AT: Final = r"(?is).*(?:@|%40)"
_USER_ONLY: Final = r"[^/\[:]*:(?!\d+(?:/|$))"
_TAIL: Final = r"(?i)[?#]|%3f|%23"
_IN_TEXT: Final = rf"{_SCHEME}\S*"
_PUNCTUATION: Final = "'\"`)],.;:}>"
_HIDES: Final = (
    r"(?i)secret|passw|passphrase|credential|token|connection.string|(?:account|customer|private|secret)_key"
)


def is_secret(setting: str) -> bool:
    """Return whether a setting of this name holds a secret; also for options of third-party backends."""
    # The last part of a dotted name is the setting, except in Hudi's names, which contain dots.
    name = setting if setting.startswith("hoodie.") else setting.rpartition(".")[2]
    return re.search(_HIDES, name) is not None


def clean_url(url: str) -> str:
    """Return a URL without user and password, query and fragment: nothing before its last ``@``."""
    scheme = found[0] if (found := re.match(_SCHEME, url)) else ""
    rest = url[len(scheme) :]
    user = re.match(_AT, rest)
    if scheme and user is None and re.match(_USER_ONLY, rest):
        return scheme + HIDDEN  # a key and its secret with the "@" missing
    if user:
        if re.search(_TAIL, user[0]):
            return scheme + HIDDEN  # a secret with a "?" in it, or a query with an "@" in it
        rest = f"{HIDDEN}@{rest[user.end() :]}"
    if tail := re.search(_TAIL, rest):
        rest = rest[: tail.start()] + tail[0] + HIDDEN
    return scheme + rest


def clean_text(text: str) -> str:
    """Return a text without the secrets of its URLs. Text that starts with a scheme is one whole URL."""
    return clean_url(text) if re.match(_SCHEME, text) else re.sub(_IN_TEXT, _clean_found, text)


def clean_message(text: str) -> str:
    """Return a sentence that is safe for terminals and logs: no secrets in URLs, nothing unprintable."""
    return escaped(re.sub(_IN_TEXT, _clean_found, text))


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
