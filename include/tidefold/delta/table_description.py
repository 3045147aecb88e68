"""What the published table says about itself beside rows and columns: comments, properties, its change data feed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltalake import Schema

from tidefold.changelog.schema import table_schema
from tidefold.domain.snapshot.manifest import Manifest

# Files that plain readers of older versions use are tidefold's to remove, never a clock's.
PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.logRetentionDuration": "interval 3650 days",
}
_OWN = "tidefold."
# The second one tells a feed that tidefold writes from one that another program switched on.
_FEED = {"delta.enableChangeDataFeed": "true", f"{_OWN}changeFeed": "true"}


@dataclass(frozen=True, slots=True)
class TableDescription:
    """The description of a published table.

    comment: of the table.
    comments: of its columns, by name.
    facts: properties of the table, without the prefix `tidefold.`.
    change_feed: its versions have a change data feed.
    """

    comment: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    change_feed: bool = False

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table."""
        feed = _FEED if self.change_feed else {}
        return {**PROPERTIES, **feed, **{f"{_OWN}{name}": value for name, value in self.facts.items()}}

    def describe(self, manifest: Manifest) -> Schema:
        """Returns the schema of a snapshot with the comments of its columns."""
        schema = delta_schema(manifest)
        if not self.comments:
            return schema
        document = json.loads(schema.to_json())
        for one in document["fields"]:
            if comment := self.comments.get(one["name"]):
                one["metadata"] = {**one["metadata"], "comment": comment}
        return Schema.from_json(json.dumps(document))


def delta_schema(manifest: Manifest) -> Schema:
    """Returns the schema of a snapshot for readers, without comments."""
    return Schema.from_arrow(table_schema(manifest.shape))


def drop_comments(schema: str) -> str:
    """Returns the JSON of a schema without the comments of its columns, which change no row."""
    document: dict[str, Any] = json.loads(schema)
    for one in document["fields"]:
        one["metadata"].pop("comment", None)
    return json.dumps(document, sort_keys=True)


def find_comments(schema: str) -> dict[str, str]:
    """Returns the comments of the columns in the JSON of a schema."""
    found = {one["name"]: one["metadata"].get("comment") for one in json.loads(schema)["fields"]}
    return {name: comment for name, comment in found.items() if comment}


def is_as_described(properties: Mapping[str, str]) -> bool:
    """Whether only tidefold has set the properties of a table."""
    feed = _FEED if any(properties.get(name) == "true" for name in _FEED) else {}
    foreign = {name: value for name, value in properties.items() if name in _FEED or not name.startswith(_OWN)}
    return foreign == {**PROPERTIES, **feed}
