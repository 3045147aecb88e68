"""The sources that there are, by the name of their format."""

from __future__ import annotations

from importlib import import_module

from tidefold.sources.feed import Feed
from tidefold.sources.source import Source

# Imported when they are needed: each brings libraries of its own.
_CLASSES = {
    "csv": "tidefold.sources.csv_files:Csv",
    "debezium-avro": "tidefold.sources.debezium_avro:DebeziumAvro",
    "debezium-json": "tidefold.sources.debezium_json:DebeziumJson",
    "debezium-parquet": "tidefold.sources.debezium_parquet:DebeziumParquet",
    "json": "tidefold.sources.json_records:Json",
    "parquet": "tidefold.sources.parquet_files:Parquet",
}
FORMATS = tuple(_CLASSES)


def source_of(feed: Feed) -> Source:
    """The source that reads a feed; its format is one that the configuration allows."""
    module, _, name = _CLASSES[feed.format].partition(":")
    source: Source = getattr(import_module(module), name)(feed)
    return source
