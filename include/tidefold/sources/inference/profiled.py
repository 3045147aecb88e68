"""Reads sampled records of a known tool as rows, by its profile."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import msgspec

from tidefold.changelog.schema import CLEAR, DELETE
from tidefold.sources.inference.operations import OpCandidate, find_ops
from tidefold.sources.profiles.decoder import ProfileDecoder
from tidefold.sources.profiles.profile import Profile, find_path, recognise
from tidefold.sources.records.errors import RefusedRecordError

_encode = msgspec.json.Encoder(decimal_format="number").encode
Profiles = Mapping[str, Profile]
# The name under which sampled rows have their operation. No column has it.
_OP = ""
OPERATION = OpCandidate(_OP, ("upsert",), ("delete",), sure=True)


@dataclass(frozen=True, slots=True)
class ProfiledSample:
    """The rows of sampled records.

    table: the one whose records count; empty: the tool names none.
    key: as the records show it.
    notes: what a person must decide first.
    """

    name: str
    profile: Profile
    table: str
    rows: Sequence[dict[str, Any]]
    key: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, str]:
        return {"profile": self.name, **({"table": self.table} if self.table else {})}

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that order the changes, if each row has them."""
        has = {name for name in self.profile.fields if all(row.get(name) is not None for row in self.rows)}
        return next((one for one in self.profile.orders if self.rows and {*one} <= has), ())

    def read(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Returns the rows of more records."""
        return _read(self.profile, self.table, records)[0]


def sample_profile(records: Sequence[Mapping[str, Any]], profiles: Profiles) -> ProfiledSample | None:
    """Returns the rows of records that a known tool wrote; None: none did."""
    if not (name := recognise(records, profiles)):
        return None
    profile = profiles[name]
    tables = _name_tables(profile, records)
    rows, refusals = _read(profile, tables[0], records)
    notes = []
    if len(tables) > 1:
        notes.append(f"its records are of several tables ({', '.join(tables[:4])}): land each in a folder of its own")
    if refusals:
        notes.append(f"{len(refusals):,} of {len(records):,} sampled records would be refused: {refusals[0].detail}")
    own = [] if profile.op or profile.deleted or not rows else find_ops([*filter(None, rows[0])], rows)
    if own and own[0].sure:
        notes.append(f"its rows have an operation of their own, which no log reads: `{own[0].column}`. Land rows alone")
    sample = ProfiledSample(name, profile, tables[0], rows, _find_key(profile, records), tuple(notes))
    seen = {name for name in profile.fields if any(row.get(name) is not None for row in rows)}
    unused = {*profile.fields} - ({*sample.order} or seen)
    return replace(sample, rows=[{name: row[name] for name in row if name not in unused} for row in rows])


def _name_tables(profile: Profile, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the tables of the changes, that with the most first; one without a name if there are none."""
    decoder, tables = ProfileDecoder(profile, (), ()), Counter[str]()
    for record in records:
        if all(find_path(record, path) is not None for path in profile.has):
            with suppress(RefusedRecordError):
                tables.update(filter(None, decoder.tables(msgspec.Raw(_encode(record)))))
    return [table for table, _ in tables.most_common()] or [""]


def _read(
    profile: Profile, table: str, records: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[RefusedRecordError]]:
    rows: list[dict[str, Any]] = []
    refusals: list[RefusedRecordError] = []
    decoder = ProfileDecoder(profile, list(profile.fields), (), table or None)
    for record in records:
        try:
            changes = [*decoder.changes(msgspec.Raw(_encode(record)))]
        except RefusedRecordError as refused:
            refusals.append(refused)
            continue
        for change in changes:
            if change.op != CLEAR:
                row = json.loads(bytes(change.row), parse_float=Decimal)
                rows.append({**row, _OP: "delete" if change.op == DELETE else "upsert"})
    return rows, refusals


def _find_key(profile: Profile, records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    told = [names for one in records if profile.key and (names := find_path(one, profile.key))]
    return tuple(name["name"] if isinstance(name, dict) else str(name) for name in (told[0] if told else ()))
