"""The option ``--metrics``: where the metrics of a pipeline go."""

from __future__ import annotations

from typing import Final

import click

VARIABLE: Final = "ASYNCLOCK_METRICS"

metrics_option = click.option(
    "--metrics",
    metavar="[HOST:]PORT|otel",
    envvar=VARIABLE,
    show_envvar=True,
    help="Serve the metrics for Prometheus on this port (HOST is 127.0.0.1 unless given), or pass them to "
    "OpenTelemetry. Default: no metrics.",
)
