"""The log ``asynclock`` as JSON lines."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import TYPE_CHECKING

import asynclock
import asynclock.sync
from asynclock.events import Events
from asynclock.telemetry import JsonFormatter
from tests.telemetry.conftest import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable


def lines(act: Callable[[logging.Logger], object]) -> list[str]:
    """Return what is written while ``act`` runs."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("asynclock")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False  # pytest-xdist cannot send a report that holds a lone surrogate
    try:
        act(logger)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
    return stream.getvalue().splitlines()


def test_each_event_is_one_object_with_its_facts() -> None:
    """Of a lock that is acquired and released."""

    def act(_: logging.Logger) -> None:
        with asynclock.sync.connect("memory://logs") as client, client.lock("orders").hold():
            pass

    told = [json.loads(line) for line in lines(act)]
    assert [each["asynclock.event"] for each in told] == ["acquired", "released"]
    assert {each["asynclock.lock.name"] for each in told} == {"orders"}
    assert {each["asynclock.lock.url"] for each in told} == {"memory://logs/orders"}
    assert all(each["asynclock.duration"] >= 0 and each["timestamp"].endswith("+00:00") for each in told)
    assert {each["severity"] for each in told} == {"DEBUG"}


def test_hostile_text_stays_on_its_line_and_secrets_stay_out() -> None:
    """A holder with a newline and quotes, and a URL with a password."""

    def act(_: logging.Logger) -> None:
        events = Events(None, url="s3://key:secret@bucket/locks")
        events.emit("lost", "orders.json", HOSTILE, 1, HOSTILE)

    (line,) = lines(act)
    assert line.isascii()
    assert line.isprintable()
    assert "secret" not in line
    assert json.loads(line)["asynclock.event"] == "lost"


def test_any_record_becomes_an_object() -> None:
    """With an exception, a lone surrogate, and extra fields that JSON does not have."""

    def act(logger: logging.Logger) -> None:
        try:
            int("https://user:secret@host/")
        except ValueError:
            logger.exception("a\nb\ud800", extra={"limit": float("nan"), "what": object, "count": 3})

    (line,) = lines(act)
    told = json.loads(line)
    assert (told["message"], told["count"], told["limit"]) == ("a\nb\ud800", 3, "nan")
    assert "ValueError" in told["exception"]
    assert "secret" not in line
    assert "class" in told["what"]


def test_the_library_loads_no_exporter() -> None:
    """``import asynclock.telemetry`` imports neither OpenTelemetry nor Prometheus."""
    import subprocess  # noqa: PLC0415  only here

    code = "import sys, asynclock.telemetry; print([m for m in sys.modules if m[:5] in ('opent', 'prome')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
