"""Profiles: how the tools of change feeds write their records, as data (decision 0083)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from tidefold.errors import InvalidInputError
from tidefold.sources.profiles.unpack import FORMS, UNPACK
from tidefold.typed_json import convert_value

# A file of a user's own; other names are those of the shipped profiles.
ENDING = ".toml"
# The folder beside the configuration in which `init` looks for them.
OWN = "profiles"
# One of so many records may be strange.
_FEW = 4


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a tool writes a change. A path such as `metadata.operation` names a field within a field.

    title: the name of the tool.
    has: paths that each change has; by them `init` recognises it.
    unpack: what makes an object of paths of a record first; see `unpack.py`.
    op: the path of the operation; empty: a record with a row is an upsert, any other a delete.
    upsert, delete, clear, ignore: its values; a clear empties the table.
    only: values that a path must have; a record with another one is no change.
    row, gone: paths of the new row and of a deleted one; the first that is there counts. `.` is the record itself,
        without what other paths name.
    deleted: a path that makes an upsert a delete, unless it is null.
    old: the path of the row before, or of its key, as far as the record has it.
    lacks: what it cannot say, and how it can; `init` prints it.
    unsent: what lets the tool write the row of an upsert that has none.
    unplaced: which records have no order, and the next step.
    null_row: what it means that such a row is there, as null, though others are not.
    absent: what a field is that a row lacks: `null`; `kept`; `partial`: kept, and each update lacks some; empty: the
        tool writes all.
    table: the paths of the parts of the table's name.
    key: the path of the names of the key, or of an object with it.
    fields: columns that lie beside the row, by name; forms: how their values are written.
    orders: the columns that order changes, the best set first.
    """

    title: str
    has: tuple[str, ...]
    row: tuple[str, ...]
    gone: tuple[str, ...] = ()
    deleted: str = ""
    unpack: str = ""
    op: str = ""
    upsert: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    only: Mapping[str, tuple[str, ...]] = {}
    old: str = ""
    lacks: str = ""
    unsent: str = ""
    unplaced: str = ""
    null_row: str = ""
    absent: Literal["", "null", "kept", "partial"] = ""
    table: tuple[str, ...] = ()
    key: str = ""
    fields: Mapping[str, str] = {}
    forms: Mapping[str, str] = {}
    orders: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        named = [name for order in self.orders for name in order] + list(self.forms)
        unknown = [name for name in named if name not in self.fields]
        unknown += [name for name in self.forms.values() if name not in FORMS]
        unknown += [self.unpack] if self.unpack and self.unpack not in UNPACK else []
        if unknown:
            raise ValueError(f"{unknown[0]} is not known")


@cache
def list_shipped() -> Mapping[str, Profile]:
    """Returns the profiles of this package by name."""
    files = sorted(Path(__file__).parent.glob(f"*{ENDING}"))
    return {file.stem: _read(file) for file in files}


def load_profile(name: str, folder: Path) -> Profile:
    """Returns a shipped profile, or the one in a file below the folder. Raises InvalidInputError."""
    if name.endswith(ENDING):
        return _read(folder / name)
    if profile := list_shipped().get(name):
        return profile
    hint = f"Profiles are {', '.join(list_shipped())}; `NAME{ENDING}` names a file of your own."
    raise InvalidInputError("PROFILE_UNKNOWN", f"There is no profile `{name}`.", hint=hint)


def _read(file: Path) -> Profile:
    try:
        return convert_value(tomllib.loads(file.read_text(encoding="utf-8")), Profile)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        hint = "docs/how-to/extend.md names the keys of a profile."
        raise InvalidInputError("PROFILE_UNREADABLE", f"`{file}` is no profile: {error}.", hint=hint) from error


def find_path(record: Any, path: str) -> Any:
    """Returns the value at a path of plain values; None: it is not there."""
    for part in path.split("."):
        record = record.get(part) if isinstance(record, dict) else None
    return record


def list_profiles(folder: Path) -> Mapping[str, Profile]:
    """Returns the profiles of a user, which come first, and the shipped ones. Raises InvalidInputError."""
    files = sorted((folder / OWN).glob(f"*{ENDING}"))
    return {**{f"{OWN}/{file.name}": _read(file) for file in files}, **list_shipped()}


def recognise(records: Sequence[Mapping[str, Any]], profiles: Mapping[str, Profile]) -> str:
    """Returns the name of the profile that most of the sampled records have; empty: none."""
    strange = {
        name: sum(is_strange(profile, one) for one in records)
        for name, profile in profiles.items()
        if any(_is_change(profile, one) for one in records)
    }
    best = min(strange, key=lambda name: strange[name], default="")
    return best if best and strange[best] * _FEW <= len(records) else ""


def is_strange(profile: Profile, record: Mapping[str, Any]) -> bool:
    """Returns whether a record is neither a change of the tool nor a line beside them."""
    return not (_is_change(profile, record) or _is_control(profile, record))


def _is_change(profile: Profile, record: Mapping[str, Any]) -> bool:
    return all(_has_path(record, path) for path in profile.has)


def _has_path(record: Mapping[str, Any], path: str) -> bool:
    """Whether something lies at a path, if only null."""
    above, _, name = path.rpartition(".")
    within = find_path(record, above) if above else record
    return isinstance(within, dict) and name in within


def _is_control(profile: Profile, record: Mapping[str, Any]) -> bool:
    op = find_path(record, profile.op) if profile.op else None
    is_other = any(find_path(record, path) not in (None, *values) for path, values in profile.only.items())
    return is_other or op in (*profile.ignore, *profile.clear)
