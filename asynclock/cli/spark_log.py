"""Keeps what Spark and Hudi print away from the output of ``asynclock pipeline``: it goes to a file."""

from __future__ import annotations

import contextlib
import functools
import logging
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click

from asynclock.cli.output import tell
from asynclock.errors import ConfigError
from asynclock.events import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

_LOGGERS: Final = ("py4j", "pyspark", "py.warnings")
"""What speaks for Spark in this process; py4j logs the traceback of every batch that fails."""


def with_spark_log(function: F) -> F:
    """Give a command the option ``--log``, and send there what the Spark that it starts prints."""

    @click.option(
        "--log",
        metavar="FILE",
        help="Where what Spark and Hudi say goes; default: a new temporary file.",
    )
    @functools.wraps(function)
    def quiet(*args: Any, log: str | None, **words: Any) -> Any:  # noqa: ANN401  whatever the command takes
        with _spark_log(log), _waits_told():
            return function(*args, **words)

    return cast("F", quiet)


@contextlib.contextmanager
def _spark_log(path: str | None) -> Iterator[None]:
    from asynclock.spark.hudi.session import jvm_output_to  # noqa: PLC0415  needs the extra

    with contextlib.ExitStack() as resources:

        def open_file() -> BinaryIO:
            file = resources.enter_context(_opened(path))
            if path is None:
                tell(f"starting Spark; what it and Hudi say is in {file.name}")
            resources.enter_context(_python_too(file.name))
            return cast("BinaryIO", file)

        resources.enter_context(jvm_output_to(open_file))
        yield


@contextlib.contextmanager
def _waits_told() -> Iterator[None]:
    """Print what is waited for: INFO of the library's own log, and of the pipeline's only warnings."""
    quieter = logging.getLogger("asynclock.spark")
    before = logger.level, quieter.level
    logger.setLevel(logging.INFO)
    quieter.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before[0])
        quieter.setLevel(before[1])


def _opened(path: str | None) -> Any:  # noqa: ANN401  a file, of one kind or another
    if path is None:
        prefix = time.strftime("asynclock-pipeline-%Y%m%d-%H%M%S-")
        return tempfile.NamedTemporaryFile(prefix=prefix, suffix=".log", delete=False)
    try:
        return Path(path).open("ab")
    except OSError as error:
        raise ConfigError(setting="log", value=path, reason=f"cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _python_too(name: str) -> Iterator[None]:
    """Send what Spark's Python side logs, and warnings, to the file as well."""
    handler = logging.FileHandler(name)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    loggers = [logging.getLogger(each) for each in _LOGGERS]
    before = [each.propagate for each in loggers]
    with warnings.catch_warnings():
        logging.captureWarnings(capture=True)
        for each in loggers:
            each.addHandler(handler)
            each.propagate = False
        try:
            yield
        finally:
            for each, propagate in zip(loggers, before, strict=True):
                each.removeHandler(handler)
                each.propagate = propagate
            logging.captureWarnings(capture=False)
            handler.close()
