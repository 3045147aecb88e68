"""Decodes the records of a profile: each is some changes of rows, with their former keys and what orders them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tidefold.changelog.schema import CLEAR, DELETE, UPSERT
from tidefold.sources.profiles.profile import Profile
from tidefold.sources.profiles.unpack import FORMS, NULL, UNPACK, Fields, Raw, raw
from tidefold.sources.records.errors import UNDECODABLE, RefusedRecordError
from tidefold.typed_json import make_decoder

_fields: Callable[[Raw], Fields] = make_decoder(Fields).decode
_values = make_decoder(list[Raw]).decode
_value = make_decoder(str | int | bool | None).decode
A = TypeVar("A")
B = TypeVar("B")
_EMPTY = Raw(b"{}")
_BROKEN = (*UNDECODABLE, ValueError, KeyError, TypeError)


class RowChange(NamedTuple):
    """A change of a record. The row of a clear is an object of what orders it.

    former: the row that leaves its key; None: no key changed.
    """

    op: int
    row: Raw
    former: Raw | None = None


class ProfileDecoder:
    """Decodes the records of one log.

    columns: names that its rows have. key: names of the key columns, then their aliases.
    table: the table whose records count; None: all.
    """

    def __init__(self, profile: Profile, columns: Sequence[str], key: Sequence[str], table: str | None = None) -> None:
        self._profile, self._names, self._key, self._table = profile, key, frozenset(key), table
        self._beside = {name: path for name, path in profile.fields.items() if name in columns}
        pairs = ((UPSERT, profile.upsert), (DELETE, profile.delete), (CLEAR, profile.clear), (None, profile.ignore))
        self._ops = {word: op for op, words in pairs for word in words}
        paths = (profile.op, profile.deleted, profile.old, *profile.table, *profile.only, *profile.fields.values())
        self._beside_row = {path.partition(".")[0] for path in paths}
        self._unpack = UNPACK[profile.unpack] if profile.unpack else lambda record: [record]

    def changes(self, value: Raw) -> list[RowChange]:
        """Returns the changes of a record. Raises RefusedRecordError."""
        return [change for one in self._split(value) if (change := self._attempt(self._change, one))]

    def explain(self, refused: RefusedRecordError) -> RefusedRecordError:
        """Returns the refusal of a change; of one without its order, with what the tool needs for it."""
        if refused.reason == "ORDER_MISSING":
            refused.detail = f"{refused.detail} {self._profile.unplaced}".rstrip()
        return refused

    def tables(self, value: Raw) -> list[str]:
        """Returns the tables that a record names. Raises RefusedRecordError."""
        return [self._attempt(self._name, one) for one in self._split(value)]

    def _split(self, value: Raw) -> Iterable[Fields]:
        record = self._attempt(_fields, value)
        return self._attempt(self._unpack, record) if self._attempt(self._is_change, record) else ()

    def _attempt(self, read: Callable[[A], B], value: A) -> B:
        try:
            return read(value)
        except _BROKEN as error:
            why = f"The record is not as {self._profile.title} writes it: {error}."
            raise RefusedRecordError("NOT_A_RECORD", why) from error

    def _name(self, record: Fields) -> str:
        return ".".join(filter(None, (self._text(record, path) for path in self._profile.table)))

    def _is_change(self, record: Fields) -> bool:
        only = self._profile.only
        return all(text in (None, *words) for path, words in only.items() for text in [self._text(record, path)])

    def _change(self, record: Fields) -> RowChange | None:
        profile = self._profile
        named = self._name(record) if self._table else ""
        if named and self._table not in (named, named.rpartition(".")[2]):
            return None
        row = self._first(record, profile.row)
        op = self._op(record, row)
        if op is None:
            return None
        if op == CLEAR:
            if profile.table and not self._table:
                why = "It empties a table, and the log does not say which one is its own. Set `table` under `source`."
                raise RefusedRecordError("OP_UNKNOWN", why)
            return RowChange(CLEAR, self._add_fields(record, _EMPTY))
        if op == DELETE or (profile.deleted and self._find(record, profile.deleted) != NULL):
            op = DELETE
            row = self._first(record, (*profile.gone, *profile.row))
            if row is not None and bytes(row).startswith(b"["):  # The values of the key.
                row = raw(dict(zip(self._names, _values(row), strict=False)))
        if row is None:
            what = f"The record has no {' or '.join(profile.gone if op == DELETE else profile.row)}."
            is_null = op == UPSERT and profile.null_row and any(path in record for path in profile.row)
            why = profile.null_row if is_null else profile.unsent
            raise RefusedRecordError("AFTER_MISSING", f"{what} {why}".rstrip())
        if profile.deleted:
            mark = profile.deleted.rpartition(".")[2]
            row = raw({name: value for name, value in _fields(row).items() if name != mark})
        former = self._former(record, row) if op == UPSERT and profile.old else None
        return RowChange(op, self._add_fields(record, row), former)

    def _op(self, record: Fields, row: Raw | None) -> int | None:
        """Returns what a record does; None: nothing. Raises RefusedRecordError."""
        profile = self._profile
        if not profile.op:
            return DELETE if row is None else UPSERT
        word = self._text(record, profile.op)
        if word not in self._ops:
            expected = ", ".join((*profile.upsert, *profile.delete, *profile.clear))
            raise RefusedRecordError("OP_UNKNOWN", f"`{profile.op}` is {word!r:.40}, not one of {expected}.")
        return self._ops[word]

    def _former(self, record: Fields, row: Raw) -> Raw | None:
        """Returns the row under its former key, if the record shows another one."""
        old = self._first(record, (self._profile.old,))
        told = _fields(old) if old else {}
        if not self._key & told.keys():
            return None
        fields = _fields(row)
        changed = {name: told[name] for name in self._key & told.keys() if told[name] != fields.get(name, NULL)}
        return self._add_fields(record, raw({**fields, **changed})) if changed else None

    def _add_fields(self, record: Fields, row: Raw) -> Raw:
        """Returns the row with what lies beside it."""
        if not self._beside:
            return row
        beside = b",".join(self._read_field(record, name) for name in self._beside)
        inner = bytes(row)[1:]
        return Raw(b"{" + beside + (b"," if inner.strip() != b"}" else b"") + inner)

    def _read_field(self, record: Fields, name: str) -> bytes:
        value, form = self._find(record, self._beside[name]), self._profile.forms.get(name)
        if form and value != NULL:
            value = raw(FORMS[form](msgspec.json.decode(value)))
        return b'"%s":%s' % (name.encode(), bytes(value))

    def _first(self, record: Fields, paths: Sequence[str]) -> Raw | None:
        own = (
            raw({name: value for name, value in record.items() if name not in self._beside_row})
            if "." in paths
            else NULL
        )
        values = (own if path == "." else self._find(record, path) for path in paths)
        return next((value for value in values if value != NULL), None)

    def _text(self, record: Fields, path: str) -> str | None:
        value = _value(self._find(record, path))
        return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    def _find(self, record: Fields, path: str) -> Raw:
        part, _, rest = path.partition(".")
        value = record.get(part, NULL)
        return self._find(_fields(value), rest) if rest and value != NULL else value
