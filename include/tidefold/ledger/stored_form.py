"""Converts values whose stored form differs in the names or the grouping of fields.

Stored documents keep the names that they began with: every released store stays readable (I27). So the code can rename
fields, or group them into one value, without a new format.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from tidefold.domain.log_state import ChangeSet, LogState, Snapshot
from tidefold.typed_json import convert_value, decode_json

T = TypeVar("T")

# Of a class: which stored name a field has that the code calls otherwise.
STORED_NAMES: dict[type, dict[str, str]] = {
    LogState: {"deletion": "dropped", "generation": "life"},
    Snapshot: {
        "started_at": "instant",
        "abort_reason": "reason",
        "restored_from": "origin",
        "published_at": "shown",
        "kind_reason": "because",
        "bytes_read": "read",
        "max_commit_time": "until",
    },
}
# Of a class: the field whose own fields are stored in its place.
EMBEDDED: dict[type, str] = {ChangeSet: "location"}


def encode(value: Any) -> bytes:
    """Returns a value, or a tuple of values, as the stored JSON document."""
    return msgspec.json.encode(_to_stored(value))


def to_document(value: Any) -> Any:
    """Returns a value as plain dicts and lists, with the names of stored documents."""
    return msgspec.to_builtins(_to_stored(value))


def decode_stored(data: bytes, kind: type[T]) -> T:
    """Returns the value of a stored document. Raises msgspec.DecodeError."""
    wanted: Any = kind
    stored = find_stored_type(wanted)
    found: Any = decode_json(data, stored)
    value: T = found if stored is wanted else convert_value(found, wanted, from_attributes=True)
    return value


def list_stored_names(kind: type) -> tuple[str, ...]:
    """Returns the names of a class's fields in stored documents, in their order."""
    names = STORED_NAMES.get(kind, {})
    embedded = EMBEDDED.get(kind)
    hints = get_type_hints(kind)
    found: list[str] = []
    for one in fields(kind):
        found += list_stored_names(hints[one.name]) if one.name == embedded else [names.get(one.name, one.name)]
    return tuple(found)


def _to_stored(value: Any) -> Any:
    """Replaces values whose stored form differs by dicts, at any depth."""
    if isinstance(value, tuple | list):
        return [_to_stored(one) for one in value]
    kind: Any = type(value)
    parts = _list_parts(kind)
    if parts is None:
        return value
    embedded = EMBEDDED.get(kind)
    found: dict[str, Any] = {}
    for name, stored_name in parts:
        part = _to_stored(getattr(value, name))
        if name == embedded:
            found |= msgspec.to_builtins(part)
        else:
            found[stored_name] = part
    return found


@cache
def _list_parts(kind: Any) -> tuple[tuple[str, str], ...] | None:
    """Returns the fields of a class and their stored names; None if its values are stored as they are."""
    if find_stored_type(kind) is kind or not is_dataclass(kind):
        return None
    names = STORED_NAMES.get(kind, {}) if isinstance(kind, type) else {}
    return tuple((one.name, names.get(one.name, one.name)) for one in fields(kind))


@cache
def find_stored_type(kind: Any) -> Any:
    """Returns the type of the stored form of a type: itself, if all names are the same."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _make_stored_class(kind)
    arguments = get_args(kind)
    if not arguments:
        return kind
    stored = tuple(find_stored_type(one) if one is not Ellipsis else one for one in arguments)
    if stored == arguments:
        return kind
    if get_origin(kind) in (Union, types.UnionType):
        return Union[stored]  # noqa: UP007
    origin: Any = get_origin(kind)
    return origin[stored]


def _make_stored_class(kind: type) -> Any:
    hints = get_type_hints(kind)
    names, embedded = STORED_NAMES.get(kind, {}), EMBEDDED.get(kind)
    members: list[Any] = []
    for one in fields(kind):
        if one.name == embedded:
            inner = get_type_hints(hints[one.name])
            members += [(part.name, inner[part.name]) for part in fields(hints[one.name])]
        else:
            default = () if one.default is MISSING else (one.default,)
            members.append((one.name, find_stored_type(hints[one.name]), *default))
    if not names and not embedded and all(hints[one[0]] == one[1] for one in members):
        return kind
    namespace = {embedded: property(_join(hints[embedded]))} if embedded else {}
    return msgspec.defstruct(f"Stored{kind.__name__}", members, rename=names or None, namespace=namespace, frozen=True)


def _join(kind: type) -> Callable[[Any], Any]:
    """Returns the function that builds the embedded value from a stored one."""
    own = [one.name for one in fields(kind)]
    return lambda stored: kind(*(getattr(stored, name) for name in own))
