"""The ticket of a lock that is handed to another process: the name of an offer, not a key (rule 29)."""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple, NoReturn

from asynclock.errors import ConfigError

_VERSION: Final = 1
_MOST: Final = 4096
"""Characters: the name of a lock and its URL may be long."""
_SHOWN: Final = 40
_OWNER: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FIELDS: Final = {"v": int, "lock": str, "offer": str}


class Ticket(NamedTuple):
    """What a ticket says.

    Attributes:
        lock: URL of the lock, as the giver writes it, without secrets; only for people.
        offer: The owner in the offer's record, which no other record has.
    """

    lock: str
    offer: str

    def encode(self) -> str:
        """Return the text of the ticket, of letters, digits, ``-`` and ``_``."""
        fields = json.dumps({"v": _VERSION, "lock": self.lock, "offer": self.offer}, separators=(",", ":"))
        return urlsafe_b64encode(fields.encode()).decode().rstrip("=")


def read_ticket(text: str) -> Ticket:
    """Return what the text of a ticket says; it may come from anywhere.

    Raises:
        ConfigError: It is not a ticket; nothing was read or written.
    """
    if not isinstance(text, str) or len(text) > _MOST or not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        _refuse(text)
    try:
        fields = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        _refuse(text)
    if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != _FIELDS:
        _refuse(text)
    if fields["v"] != _VERSION or not _OWNER.fullmatch(fields["offer"]):
        _refuse(text)
    return Ticket(fields["lock"], fields["offer"])


def _refuse(text: object) -> NoReturn:
    shown = text if not isinstance(text, str) or len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    reason = (
        "is no ticket that this version of asynclock understands; pass on what transfer() returned, unchanged"
    )
    raise ConfigError(setting="ticket", value=shown, reason=reason)
