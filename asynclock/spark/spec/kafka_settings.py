"""The Kafka topic of a stream."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from asynclock.spark.spec.checked import checked, run_all, wrong
from asynclock.spark.spec.environment import Settings, refuse_literal_setting, resolved

_SERVERS: Final = re.compile(r"[^\s,:/@]+:\d{1,5}(,[^\s,:/@]+:\d{1,5})*")
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")  # as Kafka has it
_DECIDED: Final = frozenset({
    "bootstrap.servers", "group.id", "auto.offset.reset", "enable.auto.commit", "isolation.level",
    "key.deserializer", "value.deserializer", "interceptor.classes",
})  # fmt: skip

# Kafka's own are a minute and more; a stream could not be stopped for that long.
_PATIENCE: Final = {"default.api.timeout.ms": "15000", "request.timeout.ms": "10000"}


@checked
class KafkaSpec:
    """A topic whose records are the events of a stream, one JSON object in the value of each.

    Attributes:
        servers: The brokers to ask first, ``host:port``, with commas between several.
        topic: Name of the topic; it is read from its earliest record on.
        options: Settings of Kafka's client, such as ``security.protocol``.
    """

    servers: str
    topic: str
    options: Settings = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        run_all(self._check_servers, self._check_topic, self._check_options)

    def _check_servers(self) -> None:
        if not _SERVERS.fullmatch(self.servers):
            reason = "must be the addresses of brokers, with commas between: host:port,host:port"
            raise wrong("servers", self.servers, reason)

    def _check_topic(self) -> None:
        if not _TOPIC.fullmatch(self.topic):
            reason = "a topic's name has 1 to 249 letters, digits, dots, _ and -; correct it"
            raise wrong("topic", self.topic, reason)

    def _check_options(self) -> None:
        for name, value in self.options.items():
            if name in _DECIDED:
                reason = "is decided by the pipeline, which reads each record once; remove it"
                raise wrong(f"options.{name}", value, reason)
            refuse_literal_setting(f"options.{name}", value)
        resolved({f"options.{name}": value for name, value in self.options.items()})

    @property
    def name(self) -> str:
        """The topic and its brokers, for errors."""
        return f"{self.topic} at {self.servers}"

    def client(self) -> dict[str, str]:
        """Return the settings of a client of Kafka, with the values from the environment.

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
        ConfigError: It has no source or two, or a setting that does not fit.
    """
    if bool(source) == bool(kafka):
        what = "there is a topic too" if source else "missing"
        reason = f'{what}; name the files, or a topic: kafka = {{ servers = "host:port", topic = "NAME" }}'
        raise wrong("source", source, reason)
    if kafka is None:
        if max_records_per_trigger is not None:
            reason = "files are read whole; use max_files_per_trigger"
            raise wrong("max_records_per_trigger", max_records_per_trigger, reason)
        return
    if format != "json":
        reason = "the records of a topic are JSON; remove it"
        raise wrong("format", format, reason)
    if max_files_per_trigger is not None:
        reason = "a topic has no files; use max_records_per_trigger"
        raise wrong("max_files_per_trigger", max_files_per_trigger, reason)
