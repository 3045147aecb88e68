"""The sources that there are: each is found by the name of its format, and is what the protocol asks for."""

from __future__ import annotations

import msgspec
import pytest

from tidefold.sources.api import FORMATS, source_of
from tidefold.sources.feed import Feed

NEEDED = {"state-json": {"kind": "value", "state_key": ["id"]}}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_its_source(name: str) -> None:
    source = source_of(Feed(name, "/landing", NEEDED.get(name, {})))
    assert all(callable(getattr(source, part)) for part in ("listing", "ending", "parse", "reader"))


def test_a_feed_goes_to_tasks_unchanged() -> None:
    feed = Feed("csv", "/landing", {"op": {"column": "op", "delete": ["D", "delete"]}, "header": True})
    assert msgspec.json.decode(msgspec.json.encode(feed), type=Feed) == feed
