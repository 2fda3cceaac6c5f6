"""A real Kafka broker of this machine, from Maven's jars, and topics with records byte for byte.

The broker is its own controller (KRaft). Records are sent by Kafka's client in the JVM of a Spark session
that has Spark's connector, so that partition, order and bytes are those that a test asks for.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asynclock._cli.run_guard import Guard
from tests.laboratory._installed import maven_jars
from tests.laboratory.cores import SHORT_LIVED_JVM
from tests.laboratory.servers import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

KAFKA: Final = "org.apache.kafka:kafka_2.13:3.9.1"
_READY_WITHIN: Final = 60.0
_STOP_WITHIN: Final = 30.0
_CLUSTER: Final = "4L6g3nShT-eMCtK--X86sw"
_RECORDS_TO_DELETE: Final = "org.apache.kafka.clients.admin.RecordsToDelete"
_MEMORY: Final = "-Xmx256m"
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/records
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""


class Broker:
    """A broker that can be stopped and started again, with its records.

    Args:
        folder: An empty folder for its records.

    Attributes:
        servers: Its address, ``host:port``.
    """

    def __init__(self, folder: Path) -> None:
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self._port = port
        self._log = folder / "server.log"
        self._properties = folder / "server.properties"
        self._properties.write_text(_PROPERTIES.format(port=port, controller=controller, folder=folder))
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        tool = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._properties)]
        subprocess.run(_java(*tool), check=True, capture_output=True)

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: It does not.
        """
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # A killed test run leaves no broker behind.
        self._guard = Guard(self._process.pid, grace=_STOP_WITHIN)
        deadline = time.monotonic() + _READY_WITHIN
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return
            time.sleep(0.05)
        message = f"the broker did not start: {self._log.read_text(errors='replace')[-2000:]}"
        raise RuntimeError(message)

    def stop(self) -> None:
        """Stop it, if it runs; its records stay."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._guard is not None:
            self._guard.dismiss()
        process.terminate()
        try:
            process.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def broker() -> Iterator[Broker]:
    """Run a broker for the time of the block."""
    shared = "/dev/shm"  # noqa: S108  a tmpfs: the disk's noise is not what is tested
    place = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(
        prefix="asynclock-kafka-", dir=place, ignore_cleanup_errors=True
    ) as folder:
        made = Broker(Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.stop()


class Topic:
    """A new topic, to which records are sent.

    Args:
        spark: A session with Spark's connector.
        servers: The broker.
        partitions: Of the topic.

    Attributes:
        name: Its name.
    """

    def __init__(self, spark: SparkSession, servers: str, *, partitions: int = 1) -> None:
        self.name = f"flights-{uuid.uuid4().hex[:8]}"
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._settings = self._jvm.java.util.HashMap()
        for name, value in {"bootstrap.servers": servers, "acks": "all"}.items():
            self._settings.put(name, value)
        with self._admin() as admin:
            new = self._jvm.org.apache.kafka.clients.admin.NewTopic(
                self.name, partitions, self._jvm.Short.parseShort("1")
            )
            admin.createTopics(self._jvm.java.util.List.of(new)).all().get()

    def send(self, events: Iterable[dict[str, object]], *, partition: int = 0) -> None:
        """Append events to a partition, each as one JSON object."""
        self.send_bytes((json.dumps(event).encode() for event in events), partition=partition)

    def send_bytes(self, values: Iterable[bytes | None], *, partition: int = 0) -> None:
        """Append records to a partition, as they stand; None is a record without a value."""
        clients = self._jvm.org.apache.kafka.clients.producer
        serializer = self._jvm.org.apache.kafka.common.serialization.ByteArraySerializer
        producer = clients.KafkaProducer(self._settings, serializer(), serializer())
        try:
            for value in values:
                sent = None if value is None else bytearray(value)
                producer.send(
                    clients.ProducerRecord(self.name, self._jvm.Integer.valueOf(partition), None, sent)
                )
            producer.flush()
        finally:
            producer.close()

    def drop_before(self, offset: int, *, partition: int = 0) -> None:
        """Delete the records of a partition below an offset, as its retention does."""
        jvm = self._jvm
        with self._admin() as admin:
            wanted = jvm.java.util.HashMap()
            # By reflection: py4j finds the instance method of the same name and not the static one.
            kind = jvm.Thread.currentThread().getContextClassLoader().loadClass(_RECORDS_TO_DELETE)
            types, values = (self._gateway.new_array(of, 1) for of in (jvm.Class, jvm.Object))
            types[0], values[0] = jvm.Long.TYPE, jvm.Long.valueOf(offset)
            below = kind.getMethod("beforeOffset", types).invoke(None, values)
            wanted.put(jvm.org.apache.kafka.common.TopicPartition(self.name, partition), below)
            admin.deleteRecords(wanted).all().get()

    @contextlib.contextmanager
    def _admin(self) -> Iterator[Any]:
        admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(self._settings)
        try:
            yield admin
        finally:
            admin.close()


def _java(*words: str) -> list[str]:
    return ["java", _MEMORY, *SHORT_LIVED_JVM.split(), "-cp", f"{maven_jars(KAFKA)}/*", *words]
