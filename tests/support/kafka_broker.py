"""A real Kafka broker of one node (KRaft) on free ports of this machine, from Maven's artifacts."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from support.certificates import Authority

_ROOT = Path(__file__).parents[2]
JARS = Path(os.environ.get("TIDEFOLD_KAFKA_JARS", _ROOT / ".jars" / "kafka"))
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
_JAVA = ("java", "-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{control}
listeners={outside},CONTROLLER://127.0.0.1:{control}
advertised.listeners={outside}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
listener.name.ssl.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={data}.key.pem
ssl.truststore.type=PEM
ssl.truststore.location={data}.authority.pem
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_reader="{secret}";
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
auto.create.topics.enable=false
log.retention.check.interval.ms=500
log.cleaner.backoff.ms=200
log.segment.delete.delay.ms=100
log.initial.task.delay.ms=100
"""


def find_reason() -> str:
    """Returns why no broker can be started here; empty: one can."""
    if not next(JARS.glob("kafka_2.13-*.jar"), None):
        return f"no jars of Kafka in {JARS}: `make kafka-jars` fetches them"
    try:
        import confluent_kafka  # noqa: F401
    except ModuleNotFoundError:
        return "confluent-kafka is not installed"
    return ""


class KafkaBroker:
    """The broker, and what a test asks of it.

    secret: the password of the user `reader` at `sasl`, which speaks TLS. tls: asks its clients for a certificate.
    """

    secret = "s3cr3t-of-reader"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.servers, self.sasl, self.tls = (f"127.0.0.1:{_find_port()}" for _ in range(3))
        outside = f"PLAINTEXT://{self.servers},SASL_SSL://{self.sasl},SSL://{self.tls}"
        text = _PROPERTIES.format(outside=outside, control=_find_port(), data=folder / "data", secret=self.secret)
        self.authority = Authority()
        (folder / "data.key.pem").write_text("".join(self.authority.issue("broker")))
        (folder / "data.authority.pem").write_text(self.authority.pem)
        (folder / "server.properties").write_text(text)
        self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", _CLUSTER, "-c").wait()
        self.start()

    def start(self) -> None:
        self.process = self._java("kafka.Kafka")
        host, port = self.servers.split(":")
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                return
            assert self.process.poll() is None, (self._folder / "log.txt").read_text()[-2000:]
            time.sleep(0.05)
        raise TimeoutError("the broker does not answer")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _java(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self._folder / "log.txt").open("ab")
        options = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{JARS}/*")
        command = (*_JAVA, *options, *words, str(self._folder / "server.properties"))
        return subprocess.Popen(command, stdout=log, stderr=log)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        from confluent_kafka.admin import NewTopic

        named = {name.replace("_", "."): value for name, value in config.items()}
        _wait(self._admin.create_topics([NewTopic(topic, partitions, 1, config=named)]))
        self._await(topic, partitions)

    def delete(self, topic: str) -> None:
        _wait(self._admin.delete_topics([topic]))
        self._await(topic, 0)

    def _await(self, topic: str, partitions: int) -> None:
        """Waits until the broker tells clients what it did: it answers before."""
        from confluent_kafka import KafkaException, TopicCollection

        until, there = time.monotonic() + 60, -1
        while there != partitions:
            assert time.monotonic() < until
            try:
                (answer,) = self._admin.describe_topics(TopicCollection([topic])).values()
                there = len(answer.result().partitions)
            except KafkaException:
                there = 0

    def forget(self, topic: str, before: int, partition: int = 0) -> None:
        """Deletes the records below an offset, as retention does."""
        from confluent_kafka import TopicPartition

        _wait(self._admin.delete_records([TopicPartition(topic, partition, before)]))

    def compact(self, topic: str, last: Mapping[str, Any], offsets: int) -> None:
        """Sends a last record until compaction has deleted at least so many others before it."""
        from tidefold.sources.kafka.client import Topic

        until, read = time.monotonic() + 120, Topic(self.servers, topic, {})
        while True:
            self.send(topic, [last])
            ((_, end),) = [(one.first, one.end) for one in read.describe()[1]]
            if end - sum(1 for _ in read.read(0, 0, end)) >= offsets:
                return
            assert time.monotonic() < until

    def grow(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        _wait(self._admin.create_partitions([NewPartitions(topic, partitions)]))
        self._await(topic, partitions)

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.servers, "acks": "all", "linger.ms": 5, **settings})

    def send(self, topic: str, records: Iterable[Mapping[str, Any]], partition: int = 0) -> None:
        """Sends records: key, value and headers, as bytes."""
        producer = self.producer()
        for record in records:
            producer.produce(topic, partition=partition, **record)
            producer.poll(0)
        producer.flush()

    def settle(self, topic: str) -> None:
        """Waits until the broker has written the marks of ended transactions, which follow its answer."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec

        # One that knew the broker before it was killed is refused.
        admin = AdminClient({"bootstrap.servers": self.servers})

        def find_end(level: Any) -> int:
            asked = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}, isolation_level=level)
            return int(next(iter(asked.values())).result().offset)

        until = time.monotonic() + 60
        while find_end(IsolationLevel.READ_COMMITTED) < find_end(IsolationLevel.READ_UNCOMMITTED):
            assert time.monotonic() < until

    @cached_property
    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers})


def _wait(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result()


def _find_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
