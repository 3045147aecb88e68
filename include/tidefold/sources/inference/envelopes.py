"""Infers the columns of Debezium records without a schema, and finds sampled records that a proposal would refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.domain.table.table_spec_validation import column_mistakes
from tidefold.sources.debezium.envelope import EnvelopeReader
from tidefold.sources.inference.proposal import ProposedColumn
from tidefold.sources.ingest.accounting import FilePosition
from tidefold.sources.records.errors import RefusedRecordError, infer_type
from tidefold.sources.records.unavailable_values import is_unavailable

_encode = msgspec.json.Encoder().encode


_Infer = Callable[[str, Sequence[Any]], ProposedColumn]


def infer_column(name: str, seen: Sequence[Any], infer_plain: _Infer) -> ProposedColumn:
    """Infers a column from its values. It is text if only text fits; `infer_plain` decides for numbers and texts."""
    values = [value for value in seen if value is not None and not is_unavailable(value)]
    if values and all(isinstance(value, dict) and set(value) == {"scale", "value"} for value in values):
        return ProposedColumn(name, "string", "decimals, each with a scale of its own", "decimal")
    if values and all(isinstance(value, list) for value in values):
        kinds = {infer_type([one]) for value in values for one in value if one is not None}
        if not kinds:
            return ProposedColumn(name, "array<string>", "only empty lists seen: check the type")
        kind = kinds.pop() if len(kinds) == 1 else ""
        return ProposedColumn(name, kind) if kind else ProposedColumn(name, "string", "lists, as JSON", "json")
    found = infer_plain(name, values)
    if found.type is not None or not values:
        return found
    return ProposedColumn(name, "string", "values of several kinds, as JSON", "json")


def find_refused(
    key: Sequence[str], columns: Sequence[ProposedColumn], order: str, sample: Sequence[Mapping[str, Any]]
) -> str:
    """Describes the sampled records that the proposal would refuse, in one sentence; empty: none."""
    proposed = tuple(Column(c.name, c.type or "string", c.encoding) for c in columns)
    if next(column_mistakes([column.name for column in proposed]), None):
        return ""  # Another message reports this.
    shape = TableSpec(tuple(key), proposed, order, key_groups=1, buckets=1)
    reader = EnvelopeReader(shape, FilePosition("", 0))
    reasons: Counter[str] = Counter()
    first = ""
    for record in sample:
        line = _encode(_wrap(record))
        reader.begin_single_record(0)
        reader.preview_chunk(line)
        try:
            reader.take(line)
        except RefusedRecordError as refused:
            reasons[refused.reason] += 1
            first = first or refused.detail
        reader.drain_batch()
    if not reasons:
        return ""
    counted = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    return f"{reasons.total()} of {len(sample)} sampled records would be refused ({counted}): {first}"


def _wrap(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record as it landed, without its position."""
    value, schema = record.get("value"), record.get("value schema")
    payload = {"schema": schema, "payload": value} if schema and value is not None else value
    return {"key": record.get("key"), "value": payload}
