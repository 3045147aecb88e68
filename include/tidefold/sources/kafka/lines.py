"""A record of Kafka as a line of a landed file, as a sink of Kafka Connect writes it. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidefold.errors import InvalidInputError
from tidefold.sources.kafka.client import KafkaRecord
from tidefold.typed_json import make_decoder

_check = make_decoder(msgspec.Raw).decode
# How many different lists of headers are remembered: a connector sends the same with most records.
_HEADERS = 4096
# The first byte of a record whose schema is in a registry.
_REGISTRY = b"\0"


def make_renderer(topic: str, partition: int) -> Callable[[KafkaRecord], bytes]:
    """Returns what turns a record of a partition into its line.

    A key or value that is no JSON becomes a JSON text, so it can forge no field of the record. The reader of the
    format refuses it then. Raises InvalidInputError for records whose schema is in a registry.
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
        key, value, offset = _spell(record, record.key()), _spell(record, record.value()), record.offset()
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


def _spell(record: KafkaRecord, data: bytes | None) -> bytes:
    """Returns valid JSON without a line end in a text."""
    if data is None:
        return b"null"
    try:
        _check(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if data.startswith(_REGISTRY):
            raise InvalidInputError(
                "KAFKA_REGISTRY",
                f"The record at offset {record.offset()} has a schema in a registry, which is not read yet.",
                hint="Let the connector write JSON (`JsonConverter`), or land the topic by a sink that decodes it.",
            ) from None
        return msgspec.json.encode(data.decode(errors="backslashreplace"))
    return data
