"""The only user of the client of Kafka: what the partitions of a topic hold, and the records of a range of offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidefold.domain.wording import count_noun
from tidefold.errors import NotFoundError, RefusedError, StorageError, TidefoldError
from tidefold.sources.connections import FindConnection, find_in_environment, make_package_error, read_connection

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_BATCH, _POLL, _SILENCE, _TIMEOUT = 1_000, 1.0, 30.0, 10.0
# The settings of a connection that are for a registry of schemas, not for the client.
PREFIX = "schema.registry."
# Settings whose values may be in messages.
_TOLD = ("security.protocol", "sasl.mechanism", "sasl.mechanisms")
# The client writes its log to standard error, unless it gets a logger.
_silent = logging.Logger("kafka", logging.CRITICAL + 1)
# The next steps if a topic was made again, and if records are gone, of a log and of a set's transaction topic.
_AGAIN = (
    "Let the source send all rows (Debezium: a new snapshot). Then start the log again: `tidefold retain drop LOG`, "
    "and remove its folder below `landed` in the store.",
    "Let Debezium make a new snapshot. Remove the set from the configuration, and start its logs again: `tidefold "
    "retain drop LOG`. Then configure the set under another name.",
)
_GONE = (
    "Raise the topic's retention. To go on without them: `tidefold step ingest LOG --accept-gap REASON`. To lose "
    "nothing, let the source send their rows again first (Debezium: a new snapshot).",
    f"Raise the topic's retention. The set cannot go on without them. {_AGAIN[1]}",
)


def read_settings(name: str | None, find: FindConnection = find_in_environment) -> Mapping[str, Any]:
    """Returns the settings of a client that the extra of a connection has. Raises InvalidInputError without them."""
    return read_connection(name, find).extra if name else {}


@dataclass(frozen=True, slots=True)
class Reach:
    """The offsets [first, end) that a partition holds now. No open transaction began before `end`."""

    partition: int
    first: int
    end: int


class KafkaRecord(Protocol):
    """A record as the client gives it."""

    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


class Topic:
    """One topic. It joins no consumer group and commits nothing to the broker.

    settings: of the client, with secrets; no message has one of their values.
    of_set: whether it has the transactions of a set.
    """

    def __init__(self, servers: str, name: str, settings: Mapping[str, Any], *, of_set: bool = False) -> None:
        self.servers, self.name, self._words = servers, name, ""
        self.again, self._gone = _AGAIN[of_set], _GONE[of_set]
        self._secrets = [str(value) for name, value in settings.items() if name not in _TOLD and len(str(value)) > 1]
        own = {name: value for name, value in settings.items() if not name.startswith(PREFIX)}
        self._settings = {**own, "bootstrap.servers": servers, "error_cb": self._hear, "logger": _silent}

    def list_names(self) -> list[str]:
        """Returns the names of all topics of the brokers. Raises StorageError."""
        with self._failures():
            from confluent_kafka.admin import AdminClient

            admin = AdminClient(self._settings)
            try:
                return list(admin.list_topics(timeout=_TIMEOUT).topics)
            finally:
                admin.poll(0)  # Lets the client say why.

    def describe(self) -> tuple[str, list[Reach]]:
        """Returns the id of the topic, and what each partition holds. Raises NotFoundError, StorageError."""
        with self._failures():
            from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
            from confluent_kafka.admin import AdminClient, OffsetSpec

            admin = AdminClient(self._settings)
            try:
                (asked,) = admin.describe_topics(TopicCollection([self.name]), request_timeout=_TIMEOUT).values()
                topic = asked.result(_SILENCE)
                at = [TopicPartition(self.name, one.id) for one in topic.partitions]
                how = {"isolation_level": IsolationLevel.READ_COMMITTED, "request_timeout": _TIMEOUT}
                first, end = (
                    {place.partition: answer.result(_SILENCE).offset for place, answer in asked.items()}
                    for asked in [
                        admin.list_offsets(dict.fromkeys(at, spec), **how)
                        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
                    ]
                )
            finally:
                admin.poll(0)  # Lets the client say why.
        bits = topic.topic_id.get_most_significant_bits(), topic.topic_id.get_least_significant_bits()
        # Its text has a slash or a plus in some.
        topic_id = "".join(f"{half % (1 << 64):016x}" for half in bits)
        return topic_id, [Reach(number, first[number], end[number]) for number in sorted(first)]

    def find_cleanup(self) -> str:
        """Returns what the broker does with old records: delete, compact or both; empty: it does not say."""
        with self._failures():
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient, ConfigResource

            admin = AdminClient(self._settings)  # A client that nothing names is gone before it has the answer.
            asked = [ConfigResource(ConfigResource.Type.TOPIC, self.name)]
            (answer,) = admin.describe_configs(asked, request_timeout=_TIMEOUT).values()
            with suppress(KafkaException):  # Without the right to ask.
                return str(answer.result(_SILENCE)["cleanup.policy"].value)
            return ""

    def read(self, partition: int, start: int, end: int) -> Iterator[KafkaRecord]:
        """Yields the committed records at [start, end).

        Raises RefusedError (KAFKA_GAP) when records of the range were deleted, StorageError.
        """
        at = start
        with self._failures(), self._open_consumer(partition, start) as consumer:
            silent = 0.0
            while at < end:
                messages = consumer.consume(_BATCH, _POLL)
                silent = 0.0 if messages else silent + _POLL
                if silent >= _SILENCE:
                    raise self._unreadable(self._words or f"partition {partition} is silent")
                self._require_all(consumer, messages, partition, at)
                for message in messages:
                    at = message.offset()
                    if at >= end:
                        break
                    if not message.error():
                        yield message
                        at += 1

    def _require_all(self, consumer: Any, messages: Sequence[Any], partition: int, at: int) -> None:
        """Raises TidefoldError if messages are errors, or offsets are missing because they were deleted meanwhile."""
        from confluent_kafka import TopicPartition

        skipped, failure = None, None
        for message in messages:
            error, offset = message.error(), message.offset()
            if error and error.code() != error._PARTITION_EOF:
                failure, skipped = error, at if skipped is None else skipped
                break
            skipped = at if offset > at and skipped is None else skipped
            at = offset if error else offset + 1
        # Compacted and aborted records, and marks of transactions, are missing without a loss.
        if skipped is not None and (not failure or failure.code() == failure._AUTO_OFFSET_RESET):
            first, _ = consumer.get_watermark_offsets(TopicPartition(self.name, partition), timeout=_TIMEOUT)
            if first > skipped:
                raise self.make_gap_error(partition, skipped, first)
        if failure:
            raise self._convert(failure)

    @contextmanager
    def _open_consumer(self, partition: int, start: int) -> Iterator[Any]:
        from confluent_kafka import Consumer, TopicPartition

        fixed = {
            "group.id": "tidefold",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
        consumer = Consumer({**self._settings, **fixed})
        try:
            consumer.assign([TopicPartition(self.name, partition, start)])
            yield consumer
        finally:
            consumer.close()

    def _hear(self, error: KafkaError) -> None:
        if error.code() != error._ALL_BROKERS_DOWN:
            self._words = error.str()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Converts what the client raises."""
        try:
            from confluent_kafka import KafkaException
        except ModuleNotFoundError as error:
            raise make_package_error("KAFKA_EXTRA", "A topic", "confluent-kafka", "kafka") from error
        try:
            yield
        except KafkaException as error:
            raise self._convert(error.args[0]) from None
        except (ValueError, TypeError, TimeoutError) as error:
            raise self._unreadable(str(error) or type(error).__name__) from None

    def _convert(self, error: KafkaError) -> TidefoldError:
        if error.code() == error.UNKNOWN_TOPIC_OR_PART:
            return NotFoundError(
                "KAFKA_TOPIC_MISSING",
                f"There is no topic `{self.name}` at `{self.servers}`.",
                hint="Correct `source.kafka`, or create the topic. A broker also hides a topic without the right to "
                "describe it.",
            )
        return self._unreadable(f"{error.str()} ({self._words})" if self._words else error.str())

    def _unreadable(self, words: str) -> StorageError:
        for secret in self._secrets:
            words = words.replace(secret, "***")
        return StorageError(
            "KAFKA_UNREADABLE",
            f"Topic `{self.name}` at `{self.servers}` cannot be read: {words.rstrip('.')}.",
            hint="Check the broker, `source.kafka` and its connection. What had landed before is ingested.",
        )

    def make_gap_error(self, partition: int, start: int, first: int) -> RefusedError:
        """The error of a partition that no longer has the offsets [start, first)."""
        gone = count_noun(first - start, "record")
        return RefusedError(
            "KAFKA_GAP",
            f"Topic `{self.name}` partition {partition} begins at offset {first}, and the log needs offset {start}: up "
            f"to {gone} were deleted before they were read. The partition stops.",
            hint=self._gone,
        )
