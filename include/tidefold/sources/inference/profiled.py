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
from tidefold.sources.profiles.profile import Profile, find_path, is_strange, recognise
from tidefold.sources.records.errors import RefusedRecordError

_encode = msgspec.json.Encoder(decimal_format="number").encode
Profiles = Mapping[str, Profile]
# The name under which sampled rows have their operation. No column has it.
_OP = ""
# So much of a strange record is shown.
_SHOWN = 100
OPERATION = OpCandidate(_OP, ("upsert",), ("delete",), sure=True)


@dataclass(frozen=True, slots=True)
class ProfiledSample:
    """The rows of sampled records.

    table: the one whose records count; empty: the tool names none.
    key: as the records show it.
    notes: what a person must decide first.
    remarks: what else a run would refuse.
    """

    name: str
    profile: Profile
    table: str
    rows: Sequence[dict[str, Any]]
    key: tuple[str, ...]
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

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
        return _read(self.profile, self.table, records, self.key)[0]


def sample_profiles(records: Sequence[Mapping[str, Any]], profiles: Profiles) -> list[ProfiledSample]:
    """Returns the rows of each table, of records that a known tool wrote; none: no tool did."""
    name = recognise(records, profiles)
    return (
        [_sample(name, profiles[name], table, records) for table in _name_tables(profiles[name], records)]
        if name
        else []
    )


def _sample(name: str, profile: Profile, table: str, records: Sequence[Mapping[str, Any]]) -> ProfiledSample:
    key = _find_key(profile, table, records)
    rows, refusals = _read(profile, table, records, key)
    whole = {find_path(one, profile.op) for one in records if any(find_path(one, path) for path in profile.row)}

    def is_usual(record: Mapping[str, Any], why: str) -> bool:
        """Whether the tool writes such a record now and then. Its operation has rows elsewhere."""
        return bool(profile.null_row) and why.endswith(profile.null_row) and find_path(record, profile.op) in whole

    blocking = [why for record, why in refusals if not is_usual(record, why)]
    usual = [why for record, why in refusals if is_usual(record, why)]
    of_all = f"of {len(records):,} sampled records"
    notes = [f"{len(blocking):,} {of_all} would be refused: {blocking[0]}"] if blocking else []
    remarks = [f"{len(usual):,} {of_all} would be refused: {usual[0]}"] if usual else []
    if strange := [record for record in records if is_strange(profile, record)]:
        shown = _encode(strange[0]).decode()[:_SHOWN]
        remarks.append(
            f"{len(strange):,} {of_all} would be refused, or left out: {profile.title} writes none as {shown}"
        )
    own = [] if profile.op or profile.deleted or not rows else find_ops([*filter(None, rows[0])], rows)
    if own and own[0].sure:
        notes.append(f"its rows have an operation of their own, which no log reads: `{own[0].column}`. Land rows alone")
    sample = ProfiledSample(name, profile, table, rows, key, tuple(notes), tuple(remarks))
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
    profile: Profile, table: str, records: Sequence[Mapping[str, Any]], key: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], list[tuple[Mapping[str, Any], str]]]:
    """Returns the rows, and the records that a run would refuse, each with the reason."""
    rows: list[dict[str, Any]] = []
    refusals: list[tuple[Mapping[str, Any], str]] = []
    decoder = ProfileDecoder(profile, list(profile.fields), key, table or None)
    for record in (one for one in records if not is_strange(profile, one)):
        try:
            changes = [*decoder.changes(msgspec.Raw(_encode(record)))]
        except RefusedRecordError as refused:
            refusals.append((record, refused.detail))
            continue
        for change in changes:
            if change.op != CLEAR:
                row = json.loads(bytes(change.row), parse_float=Decimal)
                rows.append({**row, _OP: "delete" if change.op == DELETE else "upsert"})
    return rows, refusals


def _find_key(profile: Profile, table: str, records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the names of the key, as the records of the table show them."""
    decoder, told = ProfileDecoder(profile, (), ()), []
    for one in records:
        names = find_path(one, profile.key) if profile.key else None
        with suppress(RefusedRecordError):
            if names and (not table or table in decoder.tables(msgspec.Raw(_encode(one)))):
                told.append((names, find_path(one, profile.row[0])))
    if not told or profile.key not in profile.gone or isinstance(told[0][0], dict):
        return tuple(name["name"] if isinstance(name, dict) else str(name) for name in (told[0][0] if told else ()))
    # Only the values of the key are told.
    pairs = [(key, row) for key, row in told if isinstance(row, dict)]
    fit = [
        [n for n in row if all(r.get(n) == k[at] for k, r in pairs)] for key, row in pairs[:1] for at in range(len(key))
    ]
    return tuple(names[0] for names in fit) if all(len(names) == 1 for names in fit) else ()
