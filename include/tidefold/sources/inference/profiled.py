"""Reads sampled records of a known tool as rows, by its profile."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from tidefold.changelog.schema import CLEAR, DELETE
from tidefold.sources.inference.operations import OpCandidate
from tidefold.sources.profiles.decoder import ProfileDecoder
from tidefold.sources.profiles.profile import Profile, find_path, recognise, shipped
from tidefold.sources.records.errors import RefusedRecordError

_encode = msgspec.json.Encoder(decimal_format="number").encode
# The name under which sampled rows have their operation. No column has it.
_OP = ""
OPERATION = OpCandidate(_OP, ("upsert",), ("delete",), sure=True)


@dataclass(frozen=True, slots=True)
class ProfiledSample:
    """The rows of sampled records.

    table: the one whose records count; empty: the tool names none.
    key: as the records show it.
    refused: how many a run would refuse; why: the first reason.
    """

    name: str
    profile: Profile
    table: str
    rows: Sequence[dict[str, Any]]
    key: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def options(self) -> dict[str, str]:
        return {"profile": self.name, **({"table": self.table} if self.table else {})}

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that order the changes, if each row has them."""
        full = (one for one in self.profile.orders if self.rows and not any(self._lacks(row, one) for row in self.rows))
        return next(full, ())

    @staticmethod
    def _lacks(row: Mapping[str, Any], names: Sequence[str]) -> bool:
        return any(row.get(name) is None for name in names)

    def read(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Returns the rows of more records."""
        return _read(self.profile, self.table, records)[0]


def sample_profile(records: Sequence[Mapping[str, Any]]) -> ProfiledSample | None:
    """Returns the rows of records that a known tool wrote; None: none did."""
    if not (name := recognise(records)):
        return None
    profile = shipped()[name]
    tables = Counter(_name_table(profile, one) for one in _list_changes(profile, records))
    table = next(iter(tables), "")
    rows, refusals = _read(profile, table, records)
    notes = []
    if len(tables) > 1:
        notes.append(f"its records are of several tables ({', '.join([*tables][:4])}): land each in a folder of its own")
    if refusals:
        notes.append(f"{len(refusals):,} of {len(records):,} sampled records would be refused: {refusals[0].detail}")
    used = {column for order in profile.orders for column in order if any(row.get(column) is not None for row in rows)}
    best = ProfiledSample(name, profile, table, rows, _find_key(profile, records), tuple(notes)).order
    unused = {*profile.fields} - ({*best} or used)
    rows = [{name: value for name, value in row.items() if name not in unused} for row in rows]
    return ProfiledSample(name, profile, table, rows, _find_key(profile, records), tuple(notes))


def _list_changes(profile: Profile, records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in records if all(find_path(one, path) is not None for path in profile.has)]


def _name_table(profile: Profile, record: Mapping[str, Any]) -> str:
    return ".".join(str(part) for path in profile.table if (part := find_path(record, path)))


def _read(
    profile: Profile, table: str, records: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[RefusedRecordError]]:
    decoder, rows, refusals = ProfileDecoder(profile, list(profile.fields), (), table or None), [], []
    for record in records:
        try:
            changes = [*decoder.changes(msgspec.Raw(_encode(record)))]
        except RefusedRecordError as refused:
            refusals.append(refused)
            continue
        for one in changes:
            if one.op != CLEAR:
                row = json.loads(bytes(one.row), parse_float=Decimal)
                rows.append({**row, _OP: "delete" if one.op == DELETE else "upsert"})
    return rows, refusals


def _find_key(profile: Profile, records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    told = (find_path(one, profile.key) for one in records) if profile.key else iter(())
    names = next((one for one in told if one), ())
    return tuple(one["name"] if isinstance(one, dict) else str(one) for one in names)
