"""The events of a client as logs, metrics and traces.

``asynclock.telemetry.otel`` (extra ``otel``) and ``asynclock.telemetry.prometheus`` (extra ``prometheus``)
each have a listener for ``connect(url, events=...)``; ``all_of`` combines several. The log ``asynclock``
needs no listener: its records contain the fields of their event, and ``JsonFormatter`` writes them.
"""

from __future__ import annotations

from asynclock.telemetry.listeners import all_of
from asynclock.telemetry.logs import JsonFormatter

__all__ = ["JsonFormatter", "all_of"]
