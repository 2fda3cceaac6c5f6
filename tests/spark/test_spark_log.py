"""Where a command of the pipeline puts what Spark's Python side logs."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError

from asynclock.spark.cli.spark_log import with_spark_log
from asynclock.spark.hudi import session

if TYPE_CHECKING:
    from pathlib import Path

RESET = struct.pack("ii", 1, 0)


def call_of_a_lost_jvm() -> None:
    """Make a call of py4j, whose other end resets the connection instead of answering."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset() -> None:
            connection, _ = server.accept()
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()

        other = threading.Thread(target=reset)
        other.start()
        parameters = JavaParameters(port=server.getsockname()[1])
        gateway = ClientServer(java_parameters=parameters, python_parameters=PythonParameters(port=0))
        with pytest.raises(Py4JError):
            gateway.jvm.System.nanoTime()
        other.join()
        gateway.shutdown()


@with_spark_log
def verb() -> int:
    """Open the log as a command does that starts Spark; lose Spark, and warn of something else."""
    assert session._open_output is not None
    session._open_output()
    call_of_a_lost_jvm()
    logging.getLogger("botocore").warning("of the store")
    return 1


def test_a_lost_jvm_has_its_traceback_in_the_log_and_other_warnings_are_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """py4j logs a lost connection to the root logger; what is not of Spark stays where it was."""
    log = tmp_path / "spark.log"
    root = logging.getLogger()
    screen = logging.StreamHandler()
    root.addHandler(screen)
    try:
        verb(log=str(log))
        root.error("after the command")
    finally:
        root.removeHandler(screen)

    said = capsys.readouterr().err
    assert "Py4JNetworkError" in log.read_text()
    assert said == "of the store\nafter the command\n"
