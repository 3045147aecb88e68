"""Debezium records as JSON lines, in files that a Kafka sink landed."""

from __future__ import annotations

from tidefold.lifecycle.values import Shape
from tidefold.sources.account import Place
from tidefold.sources.debezium import RecordReader
from tidefold.sources.kafka_lines import KafkaLines
from tidefold.sources.source import Reader


class DebeziumJson(KafkaLines):
    """`format: debezium-json`."""

    def reader(self, shape: Shape, place: Place) -> Reader:
        return RecordReader(shape, place)
