"""The lock's options under Hudi's names, checked by Hudi's rules.

Source: Hudi's ``StorageBasedLockConfig``, ``LockConfiguration`` and ``HoodieAWSConfig``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asynclock.errors import ConfigError
from asynclock.hudi._core import hoodie
from asynclock.hudi._core.paths import TablePath
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

STORAGE_LOCK_PROVIDER: Final = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
STORE_LOCK_PROVIDER: Final = "io.asynclock.hudi.StoreLockProvider"
"""The same lock with metrics. Sessions of ``asynclock.spark`` write with it."""
OURS: Final = "asynclock."
"""Prefix of options that Hudi does not have: those of the backend, ``max_clock_skew``, ``poll_interval``."""

_VALIDITY: Final = hoodie.WRITE_LOCK_STORAGE_VALIDITY_TIMEOUT_SECS
_RENEW_INTERVAL: Final = hoodie.WRITE_LOCK_STORAGE_RENEW_INTERVAL_SECS
_RENEW_INTERVAL_1_0: Final = hoodie.WRITE_LOCK_STORAGE_HEARTBEAT_POLL_SECS
_DEFAULT_VALIDITY: Final = 300
_DEFAULT_RENEW_INTERVAL: Final = 30
_DEFAULT_WAIT_MS: Final = 60_000
_MIN_VALIDITY: Final = 10
_MIN_RENEW_INTERVAL: Final = 1
_RENEWALS: Final = 10

_CREDENTIALS: Final = {
    hoodie.AWS_ACCESS_KEY: "access_key_id",
    hoodie.AWS_SECRET_KEY: "secret_access_key",
    hoodie.AWS_SESSION_TOKEN: "session_token",
    hoodie.WRITE_LOCK_AZURE_CONNECTION_STRING: "connection_string",
    hoodie.WRITE_LOCK_AZURE_SAS_TOKEN: "sas_token",
}
_SETTINGS: Final = frozenset({"max_clock_skew", "poll_interval"})
_NUMBERS: Final = frozenset({"min_write_interval"})
_FLAGS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class LockOptions:
    """The part of a Hudi write's options that concerns its lock.

    Attributes:
        settings: Times of the lease.
        wait: Seconds to wait for the lock.
        backend: Options of the backend, by the backend's names.
    """

    settings: LeaseSettings
    wait: float
    backend: dict[str, Any]

    @classmethod
    def read(cls, table: TablePath, options: Mapping[str, str] | None) -> LockOptions:
        """Read the lock's options from those of a write and ignore all others.

        Raises:
            ConfigError: A value breaks Hudi's rules, or the options are for another table or lock.
        """
        given = dict(options or {})
        _check_same_lock(table, given)
        validity = _whole(given, _VALIDITY, _DEFAULT_VALIDITY)
        name = _RENEW_INTERVAL if _RENEW_INTERVAL in given else _RENEW_INTERVAL_1_0
        interval = _whole(given, name, _DEFAULT_RENEW_INTERVAL)
        _check_times(validity, interval, name if name in given else _RENEW_INTERVAL)
        ours = {key.removeprefix(OURS): value for key, value in given.items() if key.startswith(OURS)}
        return cls(
            settings=LeaseSettings(
                validity=float(validity),
                renew_interval=float(interval),
                **{key: _number(OURS + key, value) for key, value in ours.items() if key in _SETTINGS},
            ),
            wait=_whole(given, hoodie.WRITE_LOCK_WAIT_TIME_MS, _DEFAULT_WAIT_MS) / 1000,
            backend=_backend_options(table, given, ours),
        )


def write_options(base_path: str, settings: LeaseSettings | None = None) -> dict[str, str]:
    """Return options that make a Hudi write take this same lock for its commit.

    ``df.write.format("hudi").options(**hudi.write_options(path), **yours).mode("append").save(path)``

    Args:
        base_path: The table, such as ``s3a://bucket/warehouse/orders``.
        settings: Times of Hudi's lease, in whole seconds; None: Hudi's defaults, 300 and 30. Leave it out on
            S3: Spark passes options as text, and Hudi's S3 client fails on a validity given as text, at least
            up to Hudi 1.1 ("Failed to load and initialize StorageLock").

    Raises:
        ConfigError: This lock cannot lock the table, or the times break Hudi's rules.
    """
    table = TablePath.parse(base_path)
    options = {
        hoodie.BASE_PATH: table.url,
        hoodie.WRITE_LOCK_PROVIDER: STORAGE_LOCK_PROVIDER,
        hoodie.WRITE_CONCURRENCY_MODE: "OPTIMISTIC_CONCURRENCY_CONTROL",
        # The older name, since every release reads it.
        hoodie.CLEANER_POLICY_FAILED_WRITES: "LAZY",
    }
    if settings is not None:
        times = {_VALIDITY: settings.validity, _RENEW_INTERVAL: settings.renew_interval}
        for name, seconds in times.items():
            if seconds != int(seconds):
                raise ConfigError(setting=name, value=seconds, reason="Hudi takes whole seconds only")
        _check_times(int(settings.validity), int(settings.renew_interval), _RENEW_INTERVAL)
        options |= {name: str(int(seconds)) for name, seconds in times.items()}
    return options


def _check_same_lock(table: TablePath, given: Mapping[str, object]) -> None:
    path = given.get(hoodie.BASE_PATH)
    if path is not None and TablePath.parse(str(path)).identity != table.identity:
        raise ConfigError(
            setting=hoodie.BASE_PATH, value=path, reason=f"the options are for another table than {table.url}"
        )
    provider = given.get(hoodie.WRITE_LOCK_PROVIDER)
    if provider not in {None, STORAGE_LOCK_PROVIDER, STORE_LOCK_PROVIDER}:
        raise ConfigError(
            setting=hoodie.WRITE_LOCK_PROVIDER,
            value=provider,
            reason=f"the writer takes a different lock, so they would not exclude each other; "
            f"every writer of the table must use {STORAGE_LOCK_PROVIDER}",
        )
    known = {_VALIDITY, _RENEW_INTERVAL, _RENEW_INTERVAL_1_0}
    for key in given:
        if key.startswith(hoodie.WRITE_LOCK_STORAGE_PREFIX) and key not in known:
            raise ConfigError(
                setting=key, value="...", reason=f"no such option; there are: {', '.join(sorted(known))}"
            )


def _check_times(validity: int, interval: int, interval_name: str) -> None:
    if interval < _MIN_RENEW_INTERVAL:
        raise ConfigError(setting=interval_name, value=interval, reason="must be at least 1 second")
    if validity < _MIN_VALIDITY:
        raise ConfigError(setting=_VALIDITY, value=validity, reason="must be at least 10 seconds")
    if validity < _RENEWALS * interval:
        raise ConfigError(
            setting=_VALIDITY,
            value=validity,
            reason=f"must be at least 10 times {interval_name} = {interval}; raise it, or lower that",
        )


def _backend_options(
    table: TablePath, given: Mapping[str, object], ours: Mapping[str, object]
) -> dict[str, Any]:
    family = table.identity.partition(":")[0]
    prefix = {"s3": hoodie.AWS_PREFIX, "az": hoodie.WRITE_LOCK_AZURE_PREFIX}.get(family)
    taken: dict[str, Any] = {
        name: value
        for key, name in _CREDENTIALS.items()
        if (value := given.get(key)) is not None and prefix is not None and key.startswith(prefix)
    }
    if family == "az" and len(taken) > 1:
        del taken["sas_token"]  # Hudi prefers the connection string
    if family == "az" and not taken and f"{OURS}credential" not in given:
        _refuse_azure_identity(given)
    return taken | {key: _typed(key, value) for key, value in ours.items() if key not in _SETTINGS}


def _refuse_azure_identity(given: Mapping[str, object]) -> None:
    for key in given:
        if key.startswith(hoodie.AZURE_IDENTITY_PREFIXES):
            raise ConfigError(
                setting=key,
                value="...",
                reason=f"give {OURS}credential, an async credential of azure.identity, instead; without "
                "one, DefaultAzureCredential is used, as in Hudi",
            )


def _whole(given: Mapping[str, object], name: str, default: int) -> int:
    value = given.get(name, default)
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConfigError(setting=name, value=value, reason="must be a whole number, 0 or more")
    return number


def _number(name: str, value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise ConfigError(setting=name, value=value, reason="must be a number of seconds") from None


def _typed(key: str, value: object) -> object:
    """Return a backend option in its own type; Spark passes all options as text."""
    if not isinstance(value, str):
        return value
    if key in _NUMBERS:
        return _number(OURS + key, value)
    return _FLAGS.get(value.lower(), value)
