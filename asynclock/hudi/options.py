"""Options by Hudi's names, under Hudi's rules.

Source: Hudi's ``StorageBasedLockConfig``, ``LockConfiguration`` and ``HoodieAWSConfig``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asynclock.errors import ConfigError
from asynclock.hudi.paths import TablePath
from asynclock.settings import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

PROVIDER: Final = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
_STORAGE: Final = "hoodie.write.lock.storage."
VALIDITY: Final = f"{_STORAGE}validity.timeout.secs"
RENEW_INTERVAL: Final = f"{_STORAGE}renew.interval.secs"
RENEW_INTERVAL_1_0: Final = f"{_STORAGE}heartbeat.poll.secs"
"""The name until Hudi 1.0.2, still read by later ones."""
WAIT_TIME: Final = "hoodie.write.lock.wait_time_ms"
LOCK_PROVIDER: Final = "hoodie.write.lock.provider"
BASE_PATH: Final = "hoodie.base.path"
OURS: Final = "asynclock."
"""Before options that Hudi has no name for: those of the backend, ``max_clock_skew``, ``poll_interval``."""
_AZURE: Final = "hoodie.write.lock.azure."

_DEFAULT_VALIDITY: Final = 300
_DEFAULT_RENEW_INTERVAL: Final = 30
_DEFAULT_WAIT_MS: Final = 60_000
_MIN_VALIDITY: Final = 10
_MIN_RENEW_INTERVAL: Final = 1
_RENEWALS: Final = 10

_CREDENTIALS: Final = {
    "hoodie.aws.access.key": "access_key_id",
    "hoodie.aws.secret.key": "secret_access_key",
    "hoodie.aws.session.token": "session_token",
    f"{_AZURE}connection.string": "connection_string",
    f"{_AZURE}sas.token": "sas_token",
}
_SETTINGS: Final = frozenset({"max_clock_skew", "poll_interval"})
_NUMBERS: Final = frozenset({"min_write_interval"})
_FLAGS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class LockOptions:
    """What the options of a Hudi write say about its lock.

    Attributes:
        settings: Times of the lease.
        wait: Seconds to wait for the lock.
        backend: Options of the backend, by its own names.
    """

    settings: LeaseSettings
    wait: float
    backend: dict[str, Any]

    @classmethod
    def read(cls, table: TablePath, options: Mapping[str, str] | None) -> LockOptions:
        """Take what concerns the lock from the options of a write; the rest is left alone.

        Raises:
            ConfigError: A value breaks Hudi's rules, or the options are of another table or lock.
        """
        given = dict(options or {})
        _check_same_lock(table, given)
        validity = _whole(given, VALIDITY, _DEFAULT_VALIDITY)
        name = RENEW_INTERVAL if RENEW_INTERVAL in given else RENEW_INTERVAL_1_0
        interval = _whole(given, name, _DEFAULT_RENEW_INTERVAL)
        _check_times(validity, interval, name if name in given else RENEW_INTERVAL)
        ours = {key.removeprefix(OURS): value for key, value in given.items() if key.startswith(OURS)}
        return cls(
            settings=LeaseSettings(
                validity=float(validity),
                renew_interval=float(interval),
                **{key: _number(OURS + key, value) for key, value in ours.items() if key in _SETTINGS},
            ),
            wait=_whole(given, WAIT_TIME, _DEFAULT_WAIT_MS) / 1000,
            backend=_backend_options(table, given, ours),
        )


def write_options(base_path: str, settings: LeaseSettings | None = None) -> dict[str, str]:
    """Options for a Hudi write on the Java side that takes this very lock for its commit.

    ``df.write.format("hudi").options(**hudi.write_options(path), **yours).mode("append").save(path)``

    Args:
        base_path: The table, such as ``s3a://bucket/warehouse/orders``.
        settings: Times of Hudi's lease, whole seconds; None: Hudi's own, 300 and 30. Hudi's S3 client
            fails on a validity set as text, as Spark sets it ("Failed to load and initialize
            StorageLock"), at least up to 1.1: leave it out on S3.

    Raises:
        ConfigError: The table cannot be locked so, or the times break Hudi's rules.
    """
    table = TablePath.parse(base_path)
    options = {
        BASE_PATH: table.url,
        LOCK_PROVIDER: PROVIDER,
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        # The name that every release reads.
        "hoodie.cleaner.policy.failed.writes": "LAZY",
    }
    if settings is not None:
        assert settings.renew_interval is not None  # noqa: S101  filled by LeaseSettings
        times = {VALIDITY: settings.validity, RENEW_INTERVAL: settings.renew_interval}
        for name, seconds in times.items():
            if seconds != int(seconds):
                raise ConfigError(setting=name, value=seconds, reason="Hudi takes whole seconds only")
        _check_times(int(settings.validity), int(settings.renew_interval), RENEW_INTERVAL)
        options |= {name: str(int(seconds)) for name, seconds in times.items()}
    return options


def _check_same_lock(table: TablePath, given: Mapping[str, object]) -> None:
    path = given.get(BASE_PATH)
    if path is not None and TablePath.parse(str(path)).identity != table.identity:
        raise ConfigError(
            setting=BASE_PATH, value=path, reason=f"the options are of another table than {table.url}"
        )
    provider = given.get(LOCK_PROVIDER)
    if provider is not None and provider != PROVIDER:
        raise ConfigError(
            setting=LOCK_PROVIDER,
            value=provider,
            reason=f"the writer takes another lock than this one, so they would not exclude each other; "
            f"every writer of the table must use {PROVIDER}",
        )
    known = {VALIDITY, RENEW_INTERVAL, RENEW_INTERVAL_1_0}
    for key in given:
        if key.startswith(_STORAGE) and key not in known:
            raise ConfigError(
                setting=key, value="...", reason=f"no such option; there are: {', '.join(sorted(known))}"
            )


def _check_times(validity: int, interval: int, interval_name: str) -> None:
    if interval < _MIN_RENEW_INTERVAL:
        raise ConfigError(setting=interval_name, value=interval, reason="must be at least 1 second")
    if validity < _MIN_VALIDITY:
        raise ConfigError(setting=VALIDITY, value=validity, reason="must be at least 10 seconds")
    if validity < _RENEWALS * interval:
        raise ConfigError(
            setting=VALIDITY,
            value=validity,
            reason=f"must be at least 10 times {interval_name} = {interval}; raise it, or lower that",
        )


def _backend_options(
    table: TablePath, given: Mapping[str, object], ours: Mapping[str, object]
) -> dict[str, Any]:
    family = table.identity.partition(":")[0]
    prefix = {"s3": "hoodie.aws.", "az": _AZURE}.get(family)
    taken: dict[str, Any] = {
        name: value
        for key, name in _CREDENTIALS.items()
        if (value := given.get(key)) is not None and prefix is not None and key.startswith(prefix)
    }
    if family == "az" and len(taken) > 1:
        del taken["sas_token"]  # Hudi takes the connection string first
    if family == "az" and not taken and f"{OURS}credential" not in given:
        _refuse_azure_identity(given)
    return taken | {key: _typed(key, value) for key, value in ours.items() if key not in _SETTINGS}


def _refuse_azure_identity(given: Mapping[str, object]) -> None:
    for key in given:
        if key.startswith((f"{_AZURE}managed.identity.", f"{_AZURE}client.")):
            raise ConfigError(
                setting=key,
                value="...",
                reason=f"give {OURS}credential, an async credential of azure.identity, instead; without "
                "any, DefaultAzureCredential is used, as by Hudi",
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
    """Read a backend option, which Spark passes as text."""
    if not isinstance(value, str):
        return value
    if key in _NUMBERS:
        return _number(OURS + key, value)
    return _FLAGS.get(value.lower(), value)
