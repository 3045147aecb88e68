"""How changes of one key become rows, and how late changes are handled: `order`, `merge` and `late` of a log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from tidefold.domain.table.table_spec import Deletes, Engine, Group, Merge
from tidefold.domain.table.table_spec_validation import inexact
from tidefold.yaml_files.model import StrictModel, Text, mistake

_SPAN = re.compile(r"([1-9]\d{0,8})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class GroupEntry(StrictModel):
    """Columns that a partial update sets together."""

    columns: list[Text] = Field(min_length=1, description="columns that are updated together")
    order: list[Text] = Field(
        default=[], description="columns that decide whether they are newer than the stored values"
    )


# Apache Paimon's name of an engine -> ours. Ledgers, messages and reports have ours.
_PAIMON = {
    "deduplicate": Engine.LAST,
    "first-row": Engine.FIRST,
    "partial-update": Engine.PARTIAL,
    "aggregation": Engine.AGGREGATE,
}


def _read_engine(value: Any) -> Any:
    return _PAIMON.get(value, value) if isinstance(value, str) else value


def _read_merge(value: Any) -> Any:
    return {"engine": value} if isinstance(value, str) else value


class MergeEntry(StrictModel):
    """How several changes of one key become a row: the merge engine and its settings."""

    engine: Annotated[
        Engine,
        BeforeValidator(_read_engine),
        WithJsonSchema({"enum": [*Engine, *_PAIMON]}),
    ] = Field(
        default=Engine.LAST,
        strict=False,
        description="last, first, partial, aggregate, history or append; the first four may also be written with "
        "Apache Paimon's names: deduplicate, first-row, partial-update and aggregation",
    )
    deletes: Deletes | None = Field(
        default=None,
        strict=False,
        description="apply, ignore or quarantine; default: apply if that gives exact rows",
    )
    groups: list[GroupEntry] = Field(default=[], description="partial updates: columns with an order of their own")
    aggregates: dict[str, Text] = Field(default={}, description="column: function that merges its values")

    def merge(self, source_ordered: bool) -> Merge:
        """Returns the merge rules in the form that the fold uses."""
        groups = tuple(Group(tuple(g.columns), tuple(g.order)) for g in self.groups)
        merge = Merge(self.engine, self.deletes or Deletes.APPLY, groups, tuple(sorted(self.aggregates.items())))
        exact = self.deletes or not inexact(merge, source_ordered)
        return merge if exact else replace(merge, deletes=Deletes.QUARANTINE)


# For the JSON Schema.
_MergeInput = MergeEntry | Engine | Literal["deduplicate", "first-row", "partial-update", "aggregation"]
MergeValue = Annotated[MergeEntry, BeforeValidator(_read_merge, json_schema_input_type=_MergeInput)]


def _check_span(value: Any) -> Any:
    if (type(value) is int and value > 0) or (isinstance(value, str) and _SPAN.fullmatch(value)):
        return value
    message = "must be a time such as 36h or 7d, or a whole number greater than zero."
    raise mistake("CONFIG_WRONG_TYPE", message)


class LateEntry(StrictModel):
    """How long deletes are remembered, and how older changes are handled."""

    renamed: ClassVar[Mapping[str, str]] = {"horizon": "allowed_lateness"}

    allowed_lateness: Annotated[
        Any,
        BeforeValidator(_check_span),
        WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"pattern": f"^{_SPAN.pattern}$"}]}),
    ] = Field(
        description="how far below the highest order a change may lie, and how long deletes are remembered: 36h, 7d, "
        "or a whole number"
    )
    policy: Literal["accept", "quarantine"] = Field(
        default="quarantine", description="how an older change is handled: quarantined, or accepted and folded"
    )

    def lateness(self, type_: str) -> int | None:
        """The allowed lateness in the unit of a column's order numbers; None when it does not fit the type."""
        if isinstance(self.allowed_lateness, int):
            return self.allowed_lateness if type_ in ("int", "long") else None
        found = _SPAN.fullmatch(self.allowed_lateness)
        assert found is not None
        seconds = int(found[1]) * _SECONDS[found[2]]
        if type_ == "date":
            return seconds // 86_400 if seconds % 86_400 == 0 else None
        return seconds * 1_000_000 if type_ == "timestamp" else None


def _ordering(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and value and all(isinstance(v, str) and v for v in value)):
        return value
    raise mistake("CONFIG_WRONG_TYPE", "must be the name of an order, or a list of columns.")


OrderValue = Annotated[
    Any,
    BeforeValidator(_ordering),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
