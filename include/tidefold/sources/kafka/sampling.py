"""Samples topics: lands their first and last records in folders, as an ingest lands them, for proposals of logs."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from tidefold.errors import TidefoldError
from tidefold.sources.kafka.client import Reach, Topic
from tidefold.sources.kafka.lines import make_renderer
from tidefold.sources.kafka.registry import Registry
from tidefold.sources.landing.folders import LandedName

# How many records at each end, of how many partitions.
_RECORDS, _PARTITIONS = 500, 3
_OWN = (
    (r"__.*|_schemas|_confluent.*|.*-repartition", "a program keeps it for itself"),
    (r"connect-.*|.*connect-(configs|offsets|status)", "Kafka Connect keeps its state in it"),
    (r"(.*[._-])?(schema-?(history|changes)|dbhistory)([._-].*)?", "Debezium keeps the history of schemas in it"),
    (r".*\.transaction", "Debezium's transaction topic is no table (docs/how-to/sets.md)"),
)
# Debezium tells changes of schemas in a topic that has the name of the connector.
_DDL = re.compile(rb'"ddl"\s*:.*"tableChanges"\s*:')


def sample_topics(
    servers: str, pattern: str, settings: Mapping[str, Any], open_registry: Callable[[], Registry | None], folder: Path
) -> tuple[dict[str, bool], dict[str, str]]:
    """Lands a sample of each topic below a folder. Raises TidefoldError.

    Returns the topics that landed, each with whether its schemas are in the registry; and the others, with why.
    """
    landed, left_out = dict[str, bool](), dict[str, str]()
    for name in fnmatch.filter(sorted(Topic(servers, pattern, settings).list_names()), pattern):
        registry, why = open_registry(), explain_own(name)
        try:
            why = why or _sample(Topic(servers, name, settings), registry, folder)
        except TidefoldError as error:
            hint = "Give --registry ADDRESS." if error.code == "KAFKA_REGISTRY" else error.hint or ""
            why = f"[{error.code}] {error.message} {hint}".rstrip()
        if why:
            left_out[name] = why
        else:
            landed[name] = bool(registry and registry.schemas)
    return landed, left_out


def explain_own(name: str) -> str:
    """Returns what a program keeps in the topic of this name; empty: it may have records of people."""
    return next((why for form, why in _OWN if re.fullmatch(form, name)), "")


def _sample(topic: Topic, registry: Registry | None, folder: Path) -> str:
    """Returns why nothing landed; empty: something did. Raises TidefoldError."""
    why = "it has no records"
    for partition, begin, end in choose_ranges(topic.describe()[1]):
        render = make_renderer(topic.name, partition, registry)
        lines = [render(record) for record in islice(topic.read(partition, begin, end), _RECORDS)]
        if any(map(_DDL.search, lines)):
            return _OWN[2][1]
        if lines:
            why, home = "", folder / f"topic.{topic.name}"  # Not one that looks like a folder for a day.
            home.mkdir(exist_ok=True)
            (home / str(LandedName(topic.name, partition, begin, "jsonl"))).write_bytes(b"".join(lines))
    return why


def choose_ranges(reaches: list[Reach]) -> Iterator[tuple[int, int, int]]:
    """Yields partition, begin and end of the first and the last records of the largest partitions."""
    for one in sorted(reaches, key=lambda one: one.first - one.end)[:_PARTITIONS]:
        middle = min(one.end, one.first + _RECORDS)
        for begin, end in ((one.first, middle), (max(middle, one.end - _RECORDS), one.end)):
            if begin < end:
                yield one.partition, begin, end
