"""Sends the output of Spark and Hudi to a file, away from the output of ``asynclock pipeline``."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click

from asynclock._shared.command import DONE, tell
from asynclock._shared.internals import logger
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

_KEPT: Final = 20
_LOGGERS: Final = ("py4j", "pyspark", "py.warnings", "root")
"""Spark's loggers in this process; py4j logs the traceback of a lost JVM to the root logger."""


def with_spark_log(function: F) -> F:
    """Give a command the option ``--log``, and send the output of its Spark there."""

    @click.option(
        "--log",
        metavar="FILE",
        help="File for the output of Spark and Hudi; default: a new file of the user's, removed after "
        "success.",
    )
    @functools.wraps(function)
    def quiet(*args: Any, log: str | None, **words: Any) -> Any:  # noqa: ANN401  the arguments of any command
        with _spark_log(log) as own, _waits_told():
            code = function(*args, **words)
            own.keep = code != DONE
            return code

    return cast("F", quiet)


@dataclass
class _OwnLog:
    """The log file that this command chose itself, if it started Spark at all."""

    path: Path | None = None
    keep: bool = True


@contextlib.contextmanager
def _spark_log(path: str | None) -> Iterator[_OwnLog]:
    from asynclock.spark.hudi.session import jvm_output_to  # noqa: PLC0415  needs the extra

    own = _OwnLog()
    with contextlib.ExitStack() as resources:

        def open_file() -> BinaryIO:
            file = resources.enter_context(_opened(path))
            if path is None:
                own.path = Path(file.name)
                tell(f"starting Spark; its output and Hudi's are in {file.name}")
            resources.enter_context(_python_too(file.name))
            return cast("BinaryIO", file)

        resources.enter_context(jvm_output_to(open_file))
        yield own
    if own.path is not None and not own.keep:
        with contextlib.suppress(OSError):
            own.path.unlink()


@contextlib.contextmanager
def _waits_told() -> Iterator[None]:
    """Print waits: records from INFO on in the library's own log, only warnings in the pipeline's."""
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
        return _new_log().open("xb")
    try:
        return Path(path).open("ab")
    except OSError as error:
        raise ConfigError(setting="log", value=path, reason=f"cannot be written: {error.strerror}") from error


def _new_log() -> Path:
    """Return the path of a new log in the folder of logs, and remove the oldest ones there."""
    try:
        state = os.environ.get("XDG_STATE_HOME")
        folder = (Path(state) if state else Path("~/.local/state").expanduser()) / "asynclock" / "logs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError
    except (OSError, RuntimeError):  # no home, or no permission to write there
        folder = Path(tempfile.mkdtemp(prefix="asynclock-logs-"))
    with contextlib.suppress(OSError):
        for old in sorted(folder.glob("pipeline-*.log"))[:-_KEPT]:
            old.unlink()
    return folder / f"pipeline-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"


@contextlib.contextmanager
def _python_too(name: str) -> Iterator[None]:
    """Send the logs of Spark's Python side, and warnings, to the file instead of to the screen."""
    root = logging.getLogger()
    screen = list(root.handlers)
    file = logging.FileHandler(name)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    file.addFilter(_is_of_spark)
    with warnings.catch_warnings():
        logging.captureWarnings(capture=True)
        for each in screen:
            each.addFilter(_is_not_of_spark)
        root.addHandler(file)
        try:
            yield
        finally:
            root.removeHandler(file)
            for each in screen:
                each.removeFilter(_is_not_of_spark)
            logging.captureWarnings(capture=False)
            file.close()


def _is_of_spark(record: logging.LogRecord) -> bool:
    return record.name in _LOGGERS or record.name.startswith(("py4j.", "pyspark."))


def _is_not_of_spark(record: logging.LogRecord) -> bool:
    return not _is_of_spark(record)
