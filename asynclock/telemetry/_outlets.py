"""Open the metrics that a text names, such as a value of the command's ``--metrics``."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asynclock.telemetry.otel import OpenTelemetry
    from asynclock.telemetry.prometheus import PrometheusMetrics

_OTEL: Final = "otel"
_LOOPBACK: Final = "127.0.0.1"
_HIGHEST_PORT: Final = 65535


@contextlib.contextmanager
def open_metrics(target: str | None) -> Iterator[OpenTelemetry | PrometheusMetrics | None]:
    """Yield the metrics for ``[HOST:]PORT`` or ``otel``; an endpoint is served while the context lasts.

    Raises:
        ConfigError: The value, the package or the SDK is missing or wrong, or the port is in use. Nothing was
            begun.
    """
    if target is None:
        yield None
    elif target == _OTEL:
        yield _open_telemetry()
    else:
        with _served(target) as metrics:
            yield metrics


def _open_telemetry() -> OpenTelemetry:
    if find_spec("opentelemetry") is None:
        raise _wrong(_OTEL, "needs opentelemetry-api and an SDK; run: pip install 'asynclock[otel]'")
    from opentelemetry.metrics import get_meter_provider  # noqa: PLC0415  of an extra

    from asynclock.telemetry.otel import OpenTelemetry  # noqa: PLC0415  needs the extra

    # Without an SDK the API drops every value and says nothing.
    if type(get_meter_provider()).__module__.startswith("opentelemetry.metrics"):
        reason = (
            "no SDK of OpenTelemetry is set up, so all metrics would be dropped; start the command by "
            "opentelemetry-instrument, which pip install opentelemetry-distro gives"
        )
        raise _wrong(_OTEL, reason)
    return OpenTelemetry()


@contextlib.contextmanager
def _served(target: str) -> Iterator[PrometheusMetrics]:
    host, _, port = target.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _HIGHEST_PORT):
        raise _wrong(target, "must be a port, HOST:PORT or otel")
    if find_spec("prometheus_client") is None:
        raise _wrong(target, "needs prometheus_client; run: pip install 'asynclock[prometheus]'")
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415  of an extra

    from asynclock.telemetry.prometheus import PrometheusMetrics  # noqa: PLC0415  needs the extra

    registry = CollectorRegistry()
    try:
        server, thread = start_http_server(int(port), addr=host.strip("[]") or _LOOPBACK, registry=registry)
    except OSError as error:
        raise _wrong(target, f"cannot be served there: {error.strerror or error}") from error
    try:
        yield PrometheusMetrics(registry)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _wrong(target: str, reason: str) -> ConfigError:
    return ConfigError(setting="metrics", value=target, reason=f"{reason}; nothing was begun")
