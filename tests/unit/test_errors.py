"""Errors: fields, texts and pickling."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Final

import pytest

import asynclock
from asynclock import LockStatus, errors
from asynclock.errors import AsyncLockError

STATUS = LockStatus(
    name="orders",
    url="memory://x/orders.json",
    state="held",
    owner="o",
    holder="host:1:job",
    fencing_token=7,
    valid_until_ms=1,
    remaining=2.5,
    age=0.5,
    version="v1",
)
CALL = {"backend": "s3", "operation": "get", "key": "orders.json", "detail": "403", "request_id": "4711"}
LOSS = {"key": "orders.json", "owner": "o", "fencing_token": 7, "reason": "deadline passed"}
FIELDS: dict[str, dict[str, object]] = {
    "AsyncLockError": {},
    "ConfigError": {"setting": "validity", "value": -1, "reason": "too small"},
    "SpecError": {"path": "a.toml", "line": 3, "key": "table.key", "value": [], "reason": "empty"},
    "BackendNotInstalledError": {"scheme": "s3", "extra": "s3"},
    "AcquireTimeoutError": {"key": "orders.json", "timeout": 1.5, "status": STATUS},
    "LeaseLostError": LOSS,
    "LeaseExpiredError": LOSS,
    "LeaseTakenOverError": LOSS | {"new_owner": "p", "new_token": 8},
    "LockChangedError": {"key": "orders.json", "expected": "v0", "status": STATUS},
    "TicketSpentError": {"key": "orders.json", "holder": "host:1:job"},
    "StaleTokenError": {"key": "pointer", "fencing_token": 7, "stored_token": 8},
    "RecordCorruptError": {"key": "orders.json", "reason": "empty", "version": "v1"},
    "BackendError": CALL | {"written": "no", "transient": True},
    "PreconditionFailedError": CALL | {"written": "unknown", "transient": True},
    "OutcomeUnknownError": CALL | {"written": "unknown", "transient": True},
    "BackendUnavailableError": CALL | {"written": "no", "transient": False},
    "AccessDeniedError": CALL | {"written": "no", "transient": False},
    "UnsupportedBackendError": CALL | {"written": "no", "transient": False},
}


def every_error() -> dict[str, type[AsyncLockError]]:
    """Return each error class of the tree by its name."""
    return {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, AsyncLockError)
    }


def test_every_error_is_tested_here() -> None:
    """A new error class needs its fields in this file."""
    assert set(FIELDS) == set(every_error())


@pytest.mark.parametrize("name", FIELDS)
def test_an_error_survives_pickling(name: str) -> None:
    """Spark and multiprocessing send errors between processes: class, text and fields arrive."""
    error = every_error()[name](**FIELDS[name])

    back = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes

    assert type(back) is type(error)
    assert str(back) == str(error)
    for field, value in FIELDS[name].items():
        assert getattr(back, field) == value


@pytest.mark.parametrize("name", [name for name, fields in FIELDS.items() if fields])
def test_fields_are_keyword_only(name: str) -> None:
    """No error takes its fields by position."""
    with pytest.raises(TypeError):
        every_error()[name](*FIELDS[name].values())


@pytest.mark.parametrize("name", FIELDS)
def test_every_error_is_a_top_level_name(name: str) -> None:
    """Users catch errors as ``asynclock.X``."""
    assert getattr(asynclock, name) is every_error()[name]


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("ConfigError", ValueError),
        ("BackendNotInstalledError", ImportError),
        ("AcquireTimeoutError", TimeoutError),
        ("SpecError", errors.ConfigError),
        ("LeaseExpiredError", errors.LeaseLostError),
        ("LeaseTakenOverError", errors.LeaseLostError),
        *((name, errors.BackendError) for name, fields in FIELDS.items() if "operation" in fields),
    ],
)
def test_the_error_classes_derive_as_documented(name: str, base: type[Exception]) -> None:
    """The tree is as documented, built-in bases included."""
    assert issubclass(every_error()[name], base)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("PreconditionFailedError", "unknown"),
        ("OutcomeUnknownError", "unknown"),
        ("BackendUnavailableError", "no"),
        ("AccessDeniedError", "no"),
        ("UnsupportedBackendError", "no"),
    ],
)
def test_a_failed_call_says_whether_it_may_have_written(name: str, written: str) -> None:
    """Each failure of the store says by itself what may have happened."""
    error = every_error()[name](**CALL)

    assert error.written == written  # type: ignore[attr-defined]
    assert ("nothing was written" in str(error)) == (written == "no")


def test_an_error_of_a_store_names_the_request() -> None:
    """The provider's support asks for its id first; it is an attribute and part of the text."""
    error = errors.OutcomeUnknownError(**CALL)
    without = errors.OutcomeUnknownError(**{**CALL, "request_id": None})

    assert error.request_id == "4711"
    assert str(error).endswith("(request id 4711) [AL-022]")
    assert "request id" not in str(without)


@pytest.mark.parametrize(
    ("name", "transient"),
    [
        ("PreconditionFailedError", True),
        ("OutcomeUnknownError", True),
        ("BackendUnavailableError", True),
        ("AccessDeniedError", False),
        ("UnsupportedBackendError", False),
    ],
)
def test_an_error_of_a_store_says_whether_waiting_helps(name: str, transient: bool) -> None:  # noqa: FBT001
    """By its class, if nothing else is said."""
    assert every_error()[name](**CALL).transient is transient  # type: ignore[attr-defined]


def test_a_missing_package_names_the_remedy() -> None:
    """The text can be copied into a shell."""
    error = errors.BackendNotInstalledError(scheme="s3", extra="s3")

    assert "pip install 'asynclock[s3]'" in str(error)


def test_text_from_a_lock_file_is_escaped() -> None:
    """A hostile holder cannot write escape sequences into a terminal or a log."""
    status = LockStatus(
        **{name: getattr(STATUS, name) for name in STATUS.__slots__} | {"holder": "\x1b[2J\n"}
    )

    text = str(errors.AcquireTimeoutError(key="orders.json", timeout=1.0, status=status))

    assert text.isprintable()
    assert "\\x1b[2J\\n" in text


def test_a_long_value_is_shown_in_part() -> None:
    """A setting of a megabyte does not flood the log."""
    assert len(str(errors.ConfigError(setting="name", value="x" * 10**6, reason="too long"))) < 500


def test_a_timeout_names_the_holder() -> None:
    """The text of a timeout names the holder that was seen."""
    text = str(errors.AcquireTimeoutError(key="orders.json", timeout=1.5, status=STATUS))

    assert "1.5 s" in text
    assert "host:1:job" in text


def test_a_spec_that_is_no_toml_names_its_line_and_no_key() -> None:
    """Where no key is to blame, none is shown."""
    error = errors.SpecError(path="fleet.toml", line=3, key="", value=None, reason="not valid TOML")

    assert str(error) == "fleet.toml:3: not valid TOML [AL-003]"


CODE: Final = re.compile(r"AL-\d{3}")
DENIED: Final = errors.AccessDeniedError(backend="s3", operation="get", key="a", detail="403 AccessDenied")
QUOTING: Final = {
    "AL-002": errors.ConfigError(setting="url", value="s3://a", reason=f"cannot be read: {DENIED}"),
    "AL-003": errors.SpecError(path="a", line=1, key="b", value="c", reason="no", others=(f"b: {DENIED}",)),
    "AL-010": errors.AcquireTimeoutError(key="a.json", timeout=5, reason=str(DENIED)),
    "AL-011": errors.LeaseLostError(key="a.json", owner="o", fencing_token=1, reason=str(DENIED)),
    "AL-020": errors.BackendError(backend="mine", operation="get", key="a", detail=str(DENIED)),
}


@pytest.mark.parametrize("code", QUOTING)
def test_an_error_that_quotes_another_has_its_own_code_only(code: str) -> None:
    """At its end; the quoted error keeps its words."""
    text = str(QUOTING[code])

    assert CODE.findall(text) == [code]
    assert text.endswith(f" [{code}]")
    assert "403 AccessDenied; nothing was written" in text


def test_an_error_of_a_users_class_ends_with_the_code_of_the_error_that_it_quotes() -> None:
    """It has none of its own, and the reader still finds the explanation."""

    class MineError(errors.AsyncLockError):
        pass

    assert str(MineError(f"{DENIED}; closing")).endswith("nothing was written; closing [AL-024]")
    assert str(MineError("closing")) == "closing"
