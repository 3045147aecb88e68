"""Samples Debezium records in Avro and Parquet files of a Kafka sink. The files contain their types."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.sources.api import Feed
from tidefold.sources.debezium.avro_source import DebeziumAvro
from tidefold.sources.debezium.parquet_source import DebeziumParquet
from tidefold.sources.landing.folders import Place
from tidefold.sources.landing.listing import LandedFile, list_any, open_landed
from tidefold.sources.landing.streams import CutShortError, DamagedError

_SOURCES: dict[str, type[DebeziumAvro | DebeziumParquet]] = {
    "debezium-avro": DebeziumAvro,
    "debezium-parquet": DebeziumParquet,
}
_NAMED = re.compile(r"(?:(?P<plus>[\w.-]+)\+\d+\+\d+|(?P<dash>[\w.-]+)-\d+-\d+)(\.\w+)+", re.ASCII)
_ENVELOPE = {"op", "source", "after"}
_UNREADABLE = (OSError, pa.ArrowException, CutShortError, DamagedError)


def group_typed(
    directory: Place, tables: Sequence[PurePosixPath] = (), skipped: Collection[str] = ()
) -> dict[tuple[str, str], list[LandedFile]]:
    """Groups such files by format and topic, without those whose names are skipped."""
    found: dict[tuple[str, str], list[LandedFile]] = {}
    for format_, source in _SOURCES.items():
        for file in list_any(directory, [f".{extension}" for extension in source.extensions])[0]:
            named = _NAMED.fullmatch(PurePosixPath(file.name).name)
            below = file.name in skipped or any(PurePosixPath(file.name).is_relative_to(table) for table in tables)
            if named and not below and (format_ == "debezium-avro" or _has_envelopes(file)):
                found.setdefault((format_, named["plus"] or named["dash"]), []).append(file)
    return found


def _has_envelopes(file: LandedFile) -> bool:
    """Whether the columns of a Parquet file are those of a Debezium record."""
    try:
        with open_landed(file) as stream:
            schema = pq.read_schema(stream)
    except _UNREADABLE:
        return False
    value = schema.field("value").type if "value" in schema.names else pa.struct(list(schema))
    return pa.types.is_struct(value) and {field.name for field in value} >= _ENVELOPE


def sample_records(format_: str, file: LandedFile, count: int) -> list[dict[str, Any]]:
    """Returns the first records of a file in their JSON form."""
    source = _SOURCES[format_](Feed(format_, file.root))
    try:
        with open_landed(file) as stream:
            records = list(islice(source.sample(stream, file.size), count))
    except _UNREADABLE:
        return []  # A sample does not need the whole file. Ingest reports what is wrong with it.
    return [json.loads(msgspec.json.encode(record)) for record in records]
