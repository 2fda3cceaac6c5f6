"""The Kafka topic that a stream is read from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError
from asynclock.spark.spec.environment import FromEnvironment, refuse_literal_setting, resolved
from asynclock.spark.spec.service_settings import check_at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

_SERVERS: Final = re.compile(r"[^\s,:/@]+:\d{1,5}(,[^\s,:/@]+:\d{1,5})*")
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")  # as Kafka has it
_DECIDED: Final = frozenset({
    "bootstrap.servers", "group.id", "auto.offset.reset", "enable.auto.commit", "isolation.level",
    "key.deserializer", "value.deserializer", "interceptor.classes",
})  # fmt: skip

# Kafka's own are a minute and more, for which a stream could not be stopped.
_PATIENCE: Final = {"default.api.timeout.ms": "15000", "request.timeout.ms": "10000"}


@dataclass(frozen=True, kw_only=True)
class KafkaSpec:
    """A topic whose records are the events of a stream, one JSON object in the value of each.

    Attributes:
        servers: The brokers to ask first, ``host:port``, with commas between several.
        topic: Name of the topic; it is read from its earliest record on.
        options: Settings of Kafka's client, such as ``security.protocol``.
    """

    servers: str
    topic: str
    options: Mapping[str, str | FromEnvironment] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not _SERVERS.fullmatch(self.servers):
            reason = "must be the addresses of brokers, with commas between: host:port,host:port"
            raise ConfigError(setting="kafka.servers", value=self.servers, reason=reason)
        if not _TOPIC.fullmatch(self.topic):
            reason = "a topic's name has 1 to 249 letters, digits, dots, _ and -; correct it"
            raise ConfigError(setting="kafka.topic", value=self.topic, reason=reason)
        for name, value in self.options.items():
            setting = f"kafka.options.{name}"
            if name in _DECIDED:
                reason = "is decided by the pipeline, which reads each record once; remove it"
                raise ConfigError(setting=setting, value=value, reason=reason)
            refuse_literal_setting(setting, value)
        resolved({f"kafka.options.{name}": value for name, value in self.options.items()})

    @property
    def name(self) -> str:
        """The topic and its brokers, for errors."""
        return f"{self.topic} at {self.servers}"

    def client(self) -> dict[str, str]:
        """Return the settings of a client of Kafka, with what stands in the environment.

        Raises:
            ConfigError: A variable is not set.
        """
        given = {name: str(value) for name, value in resolved(dict(self.options)).items()}
        return {**_PATIENCE, **given, "bootstrap.servers": self.servers}


def check_source(
    *,
    source: str,
    kafka: KafkaSpec | None,
    format: str,  # noqa: A002  as the key is called
    max_files_per_trigger: int | None,
    max_records_per_trigger: int | None,
) -> None:
    """Make sure that a stream has one source, and no settings of the other kind; its keys by their names.

    Raises:
        ConfigError: It has none or two, or a setting that does not fit.
    """
    if bool(source) == bool(kafka):
        what = "there is a topic too" if source else "missing"
        reason = f'{what}; name the files, or a topic: kafka = {{ servers = "host:port", topic = "NAME" }}'
        raise ConfigError(setting="source", value=source, reason=reason)
    limits = {
        "max_files_per_trigger": max_files_per_trigger,
        "max_records_per_trigger": max_records_per_trigger,
    }
    for setting, most in limits.items():
        if most is not None:
            check_at_least(setting, most, 1)
    if kafka is None:
        if max_records_per_trigger is not None:
            reason = "files are read whole; use max_files_per_trigger"
            raise ConfigError(setting="max_records_per_trigger", value=max_records_per_trigger, reason=reason)
        return
    if format != "json":
        reason = "the records of a topic are JSON; remove it"
        raise ConfigError(setting="format", value=format, reason=reason)
    if max_files_per_trigger is not None:
        reason = "a topic has no files; use max_records_per_trigger"
        raise ConfigError(setting="max_files_per_trigger", value=max_files_per_trigger, reason=reason)
