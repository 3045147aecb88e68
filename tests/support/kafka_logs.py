"""A log that reads a topic of the tests' broker, and what the broker sends it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from support.kafka_broker import KafkaBroker


def dump(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass
class TopicLog:
    """A log `items` of plain JSON rows in a folder, which the configuration reads from a topic of its own."""

    broker: KafkaBroker
    folder: Path
    topic: str = field(default_factory=lambda: f"shop.items-{uuid.uuid4().hex[:8]}")
    servers: str = ""

    def configure(self, source: str = "", retention: str = "{}", **kafka: object) -> None:
        """Writes the configuration. source: the place of the files, as YAML; empty: the topic."""
        options = {"servers": self.servers or self.broker.servers, "topic": self.topic, **kafka}
        source = source or f"kafka: {json.dumps(options)}"
        text = "version: 1\nstore: store\nspark: {above: 8GB}\n"
        text += f"retention: {retention}\nlogs:\n  items:\n"
        text += f"    source: {{format: json, {source}}}\n"
        text += "    key: [id]\n    columns: {id: long, text: string}\n    quality: {max_refused: 1}\n"
        (self.folder / "tidefold.yaml").write_text(text)

    def send(self, ids: Iterable[int], text: str = "a", partition: int = 0) -> None:
        rows = ({"key": dump({"id": i}), "value": dump({"id": i, "text": text})} for i in ids)
        self.broker.send(self.topic, rows, partition)

    def send_transaction(self, ids: Iterable[int], *, commits: bool) -> None:
        producer = self.broker.producer(**{"transactional.id": uuid.uuid4().hex})
        producer.init_transactions()
        producer.begin_transaction()
        for i in ids:
            producer.produce(self.topic, key=dump({"id": i}), value=dump({"id": i, "text": "t"}), partition=0)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
        self.broker.settle(self.topic)

    def read_rows(self) -> dict[int, str]:
        rows = DeltaTable(self.folder / "store" / "tables" / "items").to_pyarrow_table().to_pylist()
        return {row["id"]: row["text"] for row in rows}

    def list_landed(self) -> list[str]:
        return sorted(file.name for file in (self.folder / "store" / "landed" / "items").glob("*.zst"))

    def read_landed(self) -> list[bytes]:
        """The landed lines, in the order of the names of their files."""
        files = sorted((self.folder / "store" / "landed" / "items").glob("*.zst"))
        return [line for file in files for line in pa.CompressedInputStream(str(file), "zstd").read().splitlines()]

    def list_marks(self) -> list[str]:
        return sorted(file.stem for file in (self.folder / "store" / "landed" / "items" / "_topic").glob("*.json"))

    def files_with(self, text: str) -> list[Path]:
        return [p for p in self.folder.rglob("*") if p.is_file() and text.encode() in p.read_bytes()]
