"""The sources that there are: each is found by the name of its format, and is what the protocol asks for."""

from __future__ import annotations

import msgspec
import pytest

from tidefold.config import json_schema
from tidefold.sources.api import source_of
from tidefold.sources.feed import Feed

# Those that a configuration may name.
FORMATS = sorted(
    name
    for part in json_schema()["$defs"].values()
    if (kind := part.get("properties", {}).get("format"))
    for name in (kind.get("enum") or [kind.get("const")])
    if name != "custom"
)
NEEDED = {"state-json": {"kind": "value", "state_key": ["id"]}}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_its_source(name: str) -> None:
    source = source_of(Feed(name, "/landing", NEEDED.get(name, {})))
    assert all(callable(getattr(source, part)) for part in ("listing", "ending", "parse", "reader"))


def test_there_are_formats() -> None:
    assert len(FORMATS) > 8


def test_a_feed_goes_to_tasks_unchanged() -> None:
    feed = Feed("csv", "/landing", {"op": {"column": "op", "delete": ["D", "delete"]}, "header": True})
    assert msgspec.json.decode(msgspec.json.encode(feed), type=Feed) == feed
