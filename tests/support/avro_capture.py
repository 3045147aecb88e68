"""The records of tests/data/avro: as a broker has them, and as a sink lands them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidefold.sources.kafka.lines import make_renderer
from tidefold.sources.kafka.registry import Registry

AVRO = Path(__file__).parents[1] / "data" / "avro"


@dataclass(frozen=True)
class SentRecord:
    """A record as the client of Kafka gives it."""

    at: int
    sent_key: bytes | None
    sent_value: bytes | None
    sent_headers: list[tuple[str, bytes | None]] | None = None

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_760_000_000_000

    def key(self) -> bytes | None:
        return self.sent_key

    def value(self) -> bytes | None:
        return self.sent_value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.sent_headers


def read_topic(name: str, way: str = "_avro") -> Iterator[SentRecord]:
    """way: empty: as the JsonConverter writes them."""
    records = map(json.loads, gzip.decompress((AVRO / "records.jsonl.gz").read_bytes()).splitlines())
    for offset, one in enumerate(one for one in records if one["topic"] == name):
        headers = [(header["key"], json.dumps(header["value"]).encode()) for header in one["headers"]]
        yield SentRecord(offset, _bytes_of(one[f"key{way}"], way), _bytes_of(one[f"value{way}"], way), headers)


def _bytes_of(value: Any, way: str) -> bytes | None:
    if value is None:
        return None
    return base64.b64decode(value) if way else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def land(folder: Path, name: str, way: str = "_avro") -> None:
    """Writes one landed file of a topic, with the folder of schemas as its registry."""
    render = make_renderer(name, 0, Registry("schemas", AVRO, {}))
    (folder / name).mkdir(parents=True)
    (folder / name / f"{name}+0+0000000000.jsonl").write_bytes(b"".join(map(render, read_topic(name, way))))
