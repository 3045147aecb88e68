"""The sources that there are, by format."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from tidefold.errors import NotFoundError
from tidefold.sources.api import Source
from tidefold.sources.feed import Feed

# Imported when they are needed: each brings libraries of its own.
_CLASSES = {
    "csv": "tidefold.sources.files.base:Csv",
    "debezium-avro": "tidefold.sources.debezium.typed_records:DebeziumAvro",
    "debezium-json": "tidefold.sources.debezium.json_source:DebeziumJson",
    "debezium-parquet": "tidefold.sources.debezium.typed_records:DebeziumParquet",
    "delta": "tidefold.sources.extract.delta:DeltaExtracts",
    "delta-cdf": "tidefold.sources.delta.source:DeltaFeed",
    "json": "tidefold.sources.json_lines.source:Json",
    "parquet": "tidefold.sources.files.parquet:Parquet",
    "state-json": "tidefold.sources.state.source:StateJson",
}
FORMATS = tuple(_CLASSES)
CUSTOM = "custom"
# Where installed packages name their sources. A configuration cannot have code loaded from anywhere else.
GROUP = "tidefold.sources"


def custom_sources() -> tuple[str, ...]:
    """The names of the sources that installed packages bring."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def source_of(feed: Feed) -> Source:
    """The source that reads a feed. Raises NotFoundError when the package that brings it is not installed."""
    if feed.format == CUSTOM:
        return _custom(feed)
    module, _, name = _CLASSES[feed.format].partition(":")
    source: Any = getattr(import_module(module), name)(feed)
    if not feed.options.get("extract") or feed.format == "delta":
        return cast("Source", source)
    from tidefold.sources.extract.source import FullExtracts

    return FullExtracts(feed, source)


def _custom(feed: Feed) -> Source:
    name = str(feed.options["name"])
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        raise NotFoundError(
            "SOURCE_UNKNOWN",
            f"No installed package provides a source `{name}`.",
            hint=f"Install the package that provides it. Installed sources: {', '.join(custom_sources()) or 'none'}.",
        )
    source: Source = points[0].load()(Feed(feed.format, feed.path, feed.options["options"]))
    return source
