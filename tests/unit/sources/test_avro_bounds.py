"""Avro from outside stays bounded by its bytes: no stack overflow, no endless values, no block that unpacks to more."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tidefold.sources.debezium.avro_file import MAX_BLOCK, read_header, read_records
from tidefold.sources.landing.streams import DamagedError

SYNC = bytes(range(16))


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": one} for i, one in enumerate(types)]}


def number(value: int) -> bytes:
    rest, found = value << 1 if value >= 0 else ((-value) << 1) - 1, b""
    while rest > 127:
        found, rest = found + bytes([rest & 127 | 128]), rest >> 7
    return found + bytes([rest])


def avro(schema: Any, data: bytes = b"\0", count: int = 1, codec: str = "null") -> bytes:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    metadata = {b"avro.codec": codec.encode(), b"avro.schema": text}
    pairs = b"".join(number(len(part)) + part for pair in metadata.items() for part in pair)
    header = b"Obj\x01" + number(len(metadata)) + pairs + b"\0" + SYNC
    return header + number(count) + number(len(data)) + data + SYNC


def read(data: bytes) -> list[Any]:
    stream = io.BytesIO(data)
    return list(read_records(stream, read_header(stream), len(data)))


def doubled(times: int, leaf: Any) -> dict[str, Any]:
    """A record of two records of two records: 2^times leaves, and a schema of a few lines."""
    found = record(leaf, leaf, name="R0")
    for i in range(1, times):
        found = record(found, f"R{i - 1}", name=f"R{i}")
    return found


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record("R"), "contains itself"),
        (record(["null", "R"]), "contains itself"),
        (record({"type": "array", "items": "R"}), "contains itself"),
        (record({"type": "map", "values": ["null", "R"]}), "contains itself"),
        (record({**record(["null", "n.R"], name="S"), "namespace": "n"}) | {"namespace": "n"}, "contains itself"),
        (record({"type": "array", "items": "null"}), "take no bytes"),
        (record({"type": "array", "items": record(name="E")}), "take no bytes"),
        (record({"type": "array", "items": record("null", name="E")}), "take no bytes"),
        (record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), "take no bytes"),
        (record({"type": "array", "items": record("int", *["null"] * 100, name="E")}), "types without bytes"),
        (record("int", doubled(5, "null")), "types without bytes"),
        (record(doubled(30, "int")), "more than 500,000 types"),
        (b'{"type":"array","items":' * 100 + b'"int"' + b"}" * 100, "nested deeper"),
        (b'{"type":' * 100_000 + b'"int"' + b"}" * 100_000, "cannot be read"),
    ],
)  # fmt: skip
def test_a_schema_whose_values_can_outgrow_their_bytes_is_refused_with_its_header(schema: Any, why: str) -> None:
    with pytest.raises(DamagedError, match=why):
        read_header(io.BytesIO(avro(schema)))


def test_a_schema_may_name_a_type_often_and_have_null_as_a_field() -> None:
    row = record("int", ["null", "string"], name="Row")
    envelope = record("null", ["null", row], ["null", "Row"], {"type": "array", "items": ["null", "Row"]}, name="Env")
    assert read(avro(envelope, b"\0\2\2\0\0")) == [{"f0": None, "f1": None, "f2": {"f0": 1, "f1": None}, "f3": []}]


def test_a_block_cannot_claim_more_records_than_bytes() -> None:
    with pytest.raises(DamagedError, match="claims 1,152,921,504,606,846,976 records"):
        read(avro(record(), b"", 1 << 60))


def test_a_block_cannot_claim_more_bytes_than_are_allowed() -> None:
    data = avro(record("int")).removesuffix(number(1) + number(1) + b"\0" + SYNC)
    for length in (MAX_BLOCK + 1, 1 << 62, -1):
        with pytest.raises(DamagedError, match="longer than 64 MiB"):
            read(data + number(1) + number(length) + b"\0" + SYNC)


def _deflate(data: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(data) + machine.flush()


def _snappy(data: bytes) -> bytes:
    return pa.compress(data, codec="snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstandard": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("codec", PACKERS)
def test_a_block_that_unpacks_to_too_much_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1 << 16
    monkeypatch.setattr("tidefold.sources.debezium.avro_file.MAX_BLOCK", most)
    text = b"a" * (most - 3)
    assert read(avro(record("string"), PACKERS[codec](number(len(text)) + text), codec=codec)) == [
        {"f0": text.decode()}
    ]
    with pytest.raises(DamagedError, match="more than"):
        read(avro(record("string"), PACKERS[codec](b"\0" * (most + 1)), codec=codec))
    with pytest.raises(DamagedError):
        read(avro(record("string"), PACKERS[codec](b"\0" * 1000)[:-6], codec=codec))
