"""A record of Kafka as a line of a landed file, as a sink of Kafka Connect writes it. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidefold.errors import InvalidInputError
from tidefold.sources.kafka.client import KafkaRecord
from tidefold.sources.kafka.registry import MAGIC, Registry
from tidefold.typed_json import make_decoder

_check = make_decoder(msgspec.Raw).decode
# How many different lists of headers are remembered: a connector sends the same with most records.
_HEADERS = 4096


def make_renderer(topic: str, partition: int, registry: Registry | None = None) -> Callable[[KafkaRecord], bytes]:
    """Returns what turns a record of a partition into its line.

    A key or value that is no JSON becomes a JSON text, so it can forge no field of the record. The reader of the
    format refuses it then. Raises TidefoldError for records whose schema cannot be had.
    """
    rendered: dict[tuple[tuple[str, bytes | None], ...], bytes] = {}
    head = b'{"topic":%s,"partition":%d,"offset":' % (msgspec.json.encode(topic), partition)

    def render(record: KafkaRecord) -> bytes:
        sent = tuple(record.headers() or ())
        headers = rendered.get(sent)
        if headers is None:
            pairs = [{"key": name, "value": None if v is None else v.decode(errors="replace")} for name, v in sent]
            headers = b',"headers":' + msgspec.json.encode(pairs) if pairs else b""
            if len(rendered) < _HEADERS:
                rendered[sent] = headers
        offset = record.offset()
        key, value = _spell(offset, record.key(), registry, is_key=True), _spell(offset, record.value(), registry)
        line = b'%s%d,"timestamp":%d,"key":%s,"value":%s%s}\n' % (
            head,
            offset,
            record.timestamp()[1],
            key,
            value,
            headers,
        )
        return line if line.find(b"\n") == len(line) - 1 else line[:-1].replace(b"\n", b" ") + b"\n"

    return render


def _spell(offset: int, data: bytes | None, registry: Registry | None, *, is_key: bool = False) -> bytes:
    """Returns valid JSON without a line end in a text."""
    if data is None:
        return b"null"
    if data.startswith(MAGIC):
        if registry is None:
            raise InvalidInputError(
                "KAFKA_REGISTRY",
                f"The record at offset {offset} has its schema in a registry, and none is configured.",
                hint="Set `source.kafka.registry` to the address of the registry, or to a folder of its schemas.",
            )
        if json := registry.render(data, is_key=is_key):
            return json
    try:
        _check(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.encode(data.decode(errors="backslashreplace"))
    return data
