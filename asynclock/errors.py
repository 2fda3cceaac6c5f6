"""Every error that asynclock raises.

AsyncLockError
├─ ConfigError(ValueError)
│   └─ SpecError
├─ BackendNotInstalledError(ImportError)
├─ AcquireTimeoutError(TimeoutError)
├─ LeaseLostError
│   ├─ LeaseExpiredError
│   └─ LeaseTakenOverError
├─ LockChangedError
├─ TicketSpentError
├─ StaleTokenError
├─ RecordCorruptError
└─ BackendError
    ├─ PreconditionFailedError
    ├─ OutcomeUnknownError
    ├─ BackendUnavailableError
    ├─ AccessDeniedError
    └─ UnsupportedBackendError

Fields are keyword-only attributes. Every error survives pickling, because Spark and
multiprocessing send errors between processes. Texts and fields show no part of a URL that may hold a
secret: nothing before its last ``@``, no query, no fragment. The text is printable, and ends with the code of
the error, such as ``[AL-010]``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from asynclock._codes import Code, coded
from asynclock._secrets import HIDDEN, clean_message, clean_text, clean_value, is_secret
from asynclock._text import SUFFIX, clock, printable

if TYPE_CHECKING:
    from collections.abc import Callable


def _name(key: str) -> str:
    """Return the name of the lock whose object is ``key``, as ``LockClient.lock`` takes it."""
    return key.removesuffix(SUFFIX)


def _holder(status: Any) -> str:  # noqa: ANN401  LockStatus is defined above this layer
    """Return the holder of a lock in words. A kept lock has no holder any more, only a time."""
    if not status.kept:
        return f"holder {printable(status.holder or status.owner)}"
    if status.store_time is None or status.remaining is None:
        return "kept by at_least, or for a ticket"
    return f"kept until {clock(status.store_time + status.remaining)}"


class AsyncLockError(Exception):
    """Base of all errors of asynclock.

    Args:
        text: What happened and what to do.
        fields: The attributes of the error.

    Attributes:
        code: The code of this kind of error, such as ``AL-010``, with which its text ends. It never changes;
            ``asynclock explain CODE`` says what to do. None: a class that is not ours has none.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    code: ClassVar[str | None] = None

    def __init__(self, text: str = "", **fields: object) -> None:
        super().__init__(clean_message(text))
        for name, value in fields.items():
            setattr(self, name, clean_text(value) if isinstance(value, str) else value)

    def __str__(self) -> str:
        return coded(super().__str__(), self.code)

    def __reduce__(self) -> tuple[Callable[[], AsyncLockError], tuple[()]]:
        # The default reduce passes positional arguments, which these constructors refuse.
        return partial(type(self), **{name: getattr(self, name) for name in self._fields}), ()


class ConfigError(AsyncLockError, ValueError):
    """A setting, URL, name or option is wrong; nothing was read or written.

    Attributes:
        setting: Name of the setting.
        value: The value that was given, without secrets.
        reason: What is wrong with it and what is allowed.
    """

    code: ClassVar[str | None] = Code.CONFIG
    _fields: ClassVar[tuple[str, ...]] = ("setting", "value", "reason")
    setting: str
    value: Any
    reason: str

    def __init__(self, *, setting: str, value: object, reason: str) -> None:
        shown = HIDDEN if value is not None and is_secret(setting) else clean_value(value)
        super().__init__(
            f"{setting}={printable(repr(shown))}: {reason}", setting=setting, value=shown, reason=reason
        )


class SpecError(ConfigError):
    """A pipeline spec is wrong; nothing was read from the sources or written.

    Attributes:
        path: The spec file.
        line: Line of the key in the file, from 1. If the key is missing, the line of the nearest table
            around it, or 0 if there is none.
        key: Dotted name of the key, for example ``streams.departures.ordering``; empty if the file
            is not TOML.
        others: What else is wrong in the spec, a line of text for each problem. The text of the error has
            them below its own line; the other attributes are of the first problem.
    """

    code: ClassVar[str | None] = Code.SPEC
    _fields: ClassVar[tuple[str, ...]] = ("path", "line", "key", "value", "reason", "others")

    def __init__(
        self, *, path: str, line: int, key: str, value: object, reason: str, others: tuple[str, ...] = ()
    ) -> None:
        super().__init__(setting=key, value=value, reason=reason)
        wrong = f"{key}={printable(repr(self.value))}: " if key else ""
        self.path: str = clean_text(path)
        self.line: int = line
        self.key: str = self.setting
        place = f"{self.path}:{line}" if line else self.path
        self.others: tuple[str, ...] = tuple(map(clean_message, others))
        self.args: tuple[Any, ...] = ("\n".join([clean_message(f"{place}: {wrong}{reason}"), *self.others]),)


class BackendNotInstalledError(AsyncLockError, ImportError):
    """The package behind a URL scheme is not installed; nothing was read or written.

    Attributes:
        scheme: The URL scheme.
        extra: The extra of asynclock that installs it.
    """

    code: ClassVar[str | None] = Code.NOT_INSTALLED
    _fields = ("scheme", "extra")
    scheme: str
    extra: str

    def __init__(self, *, scheme: str, extra: str) -> None:
        super().__init__(
            f"{scheme}:// needs a package that is not installed; run: pip install 'asynclock[{extra}]'",
            scheme=scheme,
            extra=extra,
        )


class AcquireTimeoutError(AsyncLockError, TimeoutError):
    """The lock was not acquired before the timeout; the attempt has been cleaned up.

    Attributes:
        key: Key of the lock object.
        timeout: The time that was allowed, in seconds.
        status: The ``LockStatus`` last seen, or None if the store was never read.
        reason: What the store failed with at the end; None: others held the lock.
    """

    code: ClassVar[str | None] = Code.ACQUIRE_TIMEOUT
    _fields: ClassVar[tuple[str, ...]] = ("key", "timeout", "status", "reason")
    key: str
    timeout: float
    status: Any
    reason: str | None

    def __init__(
        self,
        *,
        key: str,
        timeout: float,
        status: Any = None,  # noqa: ANN401  LockStatus is defined above this layer
        reason: str | None = None,
    ) -> None:
        held = "" if reason is None else f": {reason}"
        if status is not None and status.state in {"held", "expired"}:
            held += f"; last seen {status.state}, {_holder(status)}"
        super().__init__(
            f"lock {_name(key)!r} was not acquired within {timeout:g} s{held}",
            key=key,
            timeout=timeout,
            status=status,
            reason=reason,
        )


class LeaseLostError(AsyncLockError):
    """The lease no longer holds the lock; a loss is final for its lease.

    Attributes:
        key: Key of the lock object.
        owner: Owner id of the lost lease.
        fencing_token: Its token.
        reason: Why, in words.
    """

    code: ClassVar[str | None] = Code.LEASE_LOST
    _fields: ClassVar[tuple[str, ...]] = ("key", "owner", "fencing_token", "reason")
    key: str
    owner: str
    fencing_token: int
    reason: str

    def __init__(self, *, key: str, owner: str, fencing_token: int, reason: str) -> None:
        super().__init__(
            f"lease on {_name(key)!r} lost ({reason}); stop writing, and acquire again before you go on",
            key=key,
            owner=owner,
            fencing_token=fencing_token,
            reason=reason,
        )


class LeaseExpiredError(LeaseLostError):
    """The deadline passed on this machine before a renewal was confirmed, or ``at_most`` was reached."""

    code: ClassVar[str | None] = Code.LEASE_EXPIRED


class LeaseTakenOverError(LeaseLostError):
    """The store shows another record: taken over after expiry, broken by an operator, or deleted.

    Attributes:
        new_owner: Owner found in the store, or None if there was none to read.
        new_token: Its fencing token, or None.
    """

    code: ClassVar[str | None] = Code.LEASE_TAKEN_OVER
    _fields: ClassVar[tuple[str, ...]] = (*LeaseLostError._fields, "new_owner", "new_token")

    def __init__(
        self,
        *,
        key: str,
        owner: str,
        fencing_token: int,
        reason: str,
        new_owner: str | None = None,
        new_token: int | None = None,
    ) -> None:
        super().__init__(key=key, owner=owner, fencing_token=fencing_token, reason=reason)
        self.new_owner: str | None = None if new_owner is None else clean_text(new_owner)
        self.new_token = new_token


class LockChangedError(AsyncLockError):
    """The lock is live, or its version is not the expected one; nothing was written.

    Attributes:
        key: Key of the lock object.
        expected: The version that was expected.
        status: The ``LockStatus`` found instead.
    """

    code: ClassVar[str | None] = Code.LOCK_CHANGED
    _fields = ("key", "expected", "status")
    key: str
    expected: str | None
    status: Any

    def __init__(self, *, key: str, expected: str | None, status: Any) -> None:  # noqa: ANN401  LockStatus is defined above this layer
        if status.version == expected:
            text = f"lock {_name(key)!r} is {status.state}, not expired; nothing was written"
            text += "; only force=True, or --force of the command, breaks it"
        else:
            text = f"lock {_name(key)!r} changed since it was looked at; nothing was written; look again"
        super().__init__(text, key=key, expected=expected, status=status)


class TicketSpentError(AsyncLockError):
    """The offer of a ticket is gone: used, broken, or taken by another after its time; nothing was written.

    Attributes:
        key: Key of the lock object.
        holder: Who holds the lock now, in its own words; None if nobody does.
    """

    code: ClassVar[str | None] = Code.TICKET_SPENT
    _fields = ("key", "holder")
    key: str
    holder: str | None

    def __init__(self, *, key: str, holder: str | None = None) -> None:
        now = f"{printable(holder)} holds it" if holder else "nobody holds it"
        super().__init__(
            f"the ticket of lock {_name(key)!r} is spent, and {now} now; nothing was written; another "
            "process may have done its work already",
            key=key,
            holder=holder,
        )


class StaleTokenError(AsyncLockError):
    """The fenced object has been written under a newer token; nothing was written.

    Attributes:
        key: Key of the fenced object.
        fencing_token: The token of the lease that was used.
        stored_token: The newer token found in the object.
    """

    code: ClassVar[str | None] = Code.STALE_TOKEN
    _fields = ("key", "fencing_token", "stored_token")
    key: str
    fencing_token: int
    stored_token: int

    def __init__(self, *, key: str, fencing_token: int, stored_token: int) -> None:
        super().__init__(
            f"{key!r} was written under token {stored_token}, newer than {fencing_token}; "
            "nothing was written; another holder has taken over",
            key=key,
            fencing_token=fencing_token,
            stored_token=stored_token,
        )


class RecordCorruptError(AsyncLockError):
    """The object is not a valid lock record or fenced object; nothing was written.

    A corrupt lock is neither held nor free.

    Attributes:
        key: Key of the object, or an empty string if only a body was parsed.
        reason: What is wrong with it.
        version: Its version, or None if only a body was parsed.
    """

    code: ClassVar[str | None] = Code.RECORD_CORRUPT
    _fields = ("key", "reason", "version")
    key: str
    reason: str
    version: str | None

    def __init__(self, *, key: str, reason: str, version: str | None = None) -> None:
        super().__init__(
            f"object {key!r} is corrupt ({reason}); nothing was written; find out who wrote it, or what "
            "changed it on the way here; if it is a lock, break_lock() replaces it",
            key=key,
            reason=reason,
            version=version,
        )


class BackendError(AsyncLockError):
    """A call to the store failed. The provider's error is not chained, because it may hold secrets.

    Attributes:
        backend: Name of the backend.
        operation: ``get``, ``put_if_absent``, ``put_if_match``, ``list``, ``put`` or ``delete``.
        key: Key of the object.
        detail: What the store or the transport said, without secrets.
        written: ``"no"`` or ``"unknown"``.
        transient: Whether the same call may succeed later if only the store changes. Otherwise waiting is
            useless, and an acquisition raises the error at once. A held lease still lasts until its deadline.
        request_id: Id for the provider's support; None: the answer had none, or there was no answer.
    """

    code: ClassVar[str | None] = Code.STORE
    _fields = ("backend", "operation", "key", "detail", "written", "transient", "request_id")
    backend: str
    operation: str
    key: str
    detail: str
    request_id: str | None
    _written: ClassVar[Literal["no", "unknown"]] = "unknown"
    _transient: ClassVar[bool] = True

    def __init__(
        self,
        *,
        backend: str,
        operation: str,
        key: str,
        detail: str,
        written: Literal["no", "unknown"] | None = None,
        transient: bool | None = None,
        request_id: str | None = None,
    ) -> None:
        self.written: Literal["no", "unknown"] = self._written if written is None else written
        self.transient: bool = self._transient if transient is None else transient
        outcome = "nothing was written" if self.written == "no" else "it may have been written"
        if request_id is not None:
            outcome += f" (request id {printable(request_id)})"
        super().__init__(
            f"{backend}: {operation}{f' {key!r}' if key else ''} failed: {detail}; {outcome}",
            backend=backend,
            operation=operation,
            key=key,
            detail=detail,
            request_id=request_id,
        )


class PreconditionFailedError(BackendError):
    """The store refused the condition. A copy that a layer below sent may have been written: read back."""

    code: ClassVar[str | None] = Code.PRECONDITION_FAILED


class OutcomeUnknownError(BackendError):
    """The request was sent, but no answer says whether it was applied: read back."""

    code: ClassVar[str | None] = Code.OUTCOME_UNKNOWN


class BackendUnavailableError(BackendError):
    """The store throttled (429), or the call failed before a byte was sent.

    ``transient`` is False if waiting does not help, for example with an untrusted certificate.
    """

    code: ClassVar[str | None] = Code.STORE_UNAVAILABLE
    _written = "no"


class AccessDeniedError(BackendError):
    """The store or a proxy refused the credentials or the permission, or there are no credentials."""

    code: ClassVar[str | None] = Code.ACCESS_DENIED
    _written = "no"
    _transient = False


class UnsupportedBackendError(BackendError):
    """The store cannot be used for locks as it is configured, or at this address; waiting does not help.

    It ignores conditions, refuses to write over what it shows, sends no Dates, retains objects, is in
    another region or does not exist. To test it, run ``asynclock doctor URL``.
    """

    code: ClassVar[str | None] = Code.STORE_UNSUPPORTED
    _written = "no"
    _transient = False
