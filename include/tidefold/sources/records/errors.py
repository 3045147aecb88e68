"""Finds why a record is refused: a slow, exact look at a line that the strict decoder does not accept."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import Engine
from tidefold.sources.records.record_types import NOTHING, AnyHead, RecordHead, SourceBlock
from tidefold.sources.records.unavailable_values import Placeholder
from tidefold.typed_json import convert_value, make_decoder

UPSERTS = ("r", "c", "u")
_AFTER = "`after`"
_NULL = msgspec.Raw(b"null")
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MOST_DIGITS = 400
_JSON_KINDS = {bool: "boolean", int: "long", float: "double", str: "string"}
_heads, _any_heads = make_decoder(RecordHead), make_decoder(AnyHead)


# Refused until a retry has looked up what the log had under a key.
KEY_TAKEN_OVER, KEY_CHANGE = "KEY_TAKEN_OVER", "UNAVAILABLE_AFTER_KEY_CHANGE"
AWAITING = (KEY_TAKEN_OVER, KEY_CHANGE)


def is_awaiting(one: Any) -> bool:
    """Whether a refused record (with `reason` and `since`) needs what the log had under a key."""
    return bool(one.since) or one.reason in AWAITING


class RefusedRecordError(Exception):
    """A record must be quarantined.

    reason, detail: a stable code, and one sentence.
    order: its order in the source, if the record has one and was not sent before.
    early: as in StreamPosition, when it was refused.
    since: the order of the first record of its key in its transaction, if its key may have had two rows meanwhile; a
        retry then reads it with its file. Empty: its key had one row, or that order is not known.
    brings: unknown columns with their types, if all types are known.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.order: tuple[int, ...] | None = None
        self.early: tuple[int, ...] = ()
        self.since: tuple[int, ...] = ()
        self.brings: tuple[tuple[str, str], ...] = ()


def head_of(line: bytes) -> RecordHead:
    """Topic, partition and offset of a line. Raises RefusedRecordError if they cannot be read."""
    _check_json(line)
    try:
        return _heads.decode(line)
    except UNDECODABLE as error:
        cure = " If the lines are values alone, set `record: value`." if "missing required field" in str(error) else ""
        raise RefusedRecordError("NOT_A_RECORD", f"{error}.{cure}") from error


def any_head_of(line: bytes) -> AnyHead:
    """The same of a line that may be a value alone."""
    _check_json(line)
    if line.strip() == b"null":
        return AnyHead(value=_NULL)
    try:
        head = _any_heads.decode(line)
    except UNDECODABLE as error:
        raise RefusedRecordError("NOT_A_RECORD", f"{error}.") from error
    if head.value == NOTHING:
        head.value = msgspec.Raw(line)
        told = decode_plain(head.value)
        if not ("op" in told or "payload" in told or is_ignored(head)):
            raise RefusedRecordError(
                "NOT_A_RECORD", "The line is neither a Kafka record (key, value, offset) nor a value alone."
            )
    return head


def _check_json(line: bytes) -> None:
    try:
        msgspec.json.decode(line)
    except msgspec.ValidationError:
        pass  # A number that fits no type; whether it matters depends on its field.
    except UNDECODABLE as error:
        is_text = not isinstance(error, UnicodeDecodeError)
        raise RefusedRecordError("BROKEN_JSON" if is_text else "NOT_UTF8", f"{error}.") from error


def names_in(line: bytes) -> frozenset[str]:
    """The names of the columns in a line: in its row, else in `before` or in its key."""
    try:
        record = decode_plain(msgspec.Raw(line))
    except (ValueError, *UNDECODABLE):  # Before msgspec 0.21, a DecodeError is no ValueError.
        return frozenset()
    if not isinstance(record, dict):
        return frozenset()
    value, key = (_payload(one) for one in (record.get("value", record), record.get("key")))
    rows = (value.get("after"), value.get("before"), key) if isinstance(value, dict) else (key,)
    return frozenset(next((row for row in rows if isinstance(row, dict)), ()))


def _payload(value: Any) -> Any:
    return value["payload"] if isinstance(value, dict) and isinstance(value.get("payload"), dict) else value


def find_source(line: bytes) -> tuple[str | None, SourceBlock | None]:
    """The op and the `source` block of a refused line, as far as they are readable."""
    try:
        value = _value(any_head_of(line))
        source = convert_value(value.get("source"), SourceBlock) if isinstance(value, dict) else None
    except (RefusedRecordError, ValueError, *UNDECODABLE):
        return None, None
    return (str(value["op"]) if source and "op" in value else None), source


def is_tombstone(head: AnyHead) -> bool:
    """Whether the value is null, with or without a schema beside it."""
    return _value(head) is None


def is_ignored(head: AnyHead) -> bool:
    """Whether it is a message of the connector: heartbeat, transaction mark, schema change, logical message."""
    value = _value(head)
    if not isinstance(value, dict):
        return False
    if "op" in value:
        return bool(value["op"] == "m")
    heartbeat = bool(value) and set(value) <= {"ts_ms", "ts_us", "ts_ns"}
    transaction = value.get("status") in ("BEGIN", "END") and "id" in value
    return heartbeat or transaction or "ddl" in value or "tableChanges" in value


class ToldColumn(NamedTuple):
    """What the schema of a record tells of a column.

    type: empty: no type fits it.
    default: what rows from before the column have, as the configuration writes it; empty: the schema does not show it.
    """

    type: str
    default: str = ""


def refusal_of(
    head: AnyHead, shape: TableSpec, why: str, told: Mapping[str, ToldColumn], placeholder: Placeholder
) -> RefusedRecordError:
    """The reason why a well-formed record was refused.

    why: the message of the strict decoder.
    told: its columns, as far as its schema has them.
    placeholder: of values that were not sent.
    """
    value = _value(head)
    if not isinstance(value, dict):
        return RefusedRecordError("NOT_A_RECORD", "The value is not an object.")
    op = value.get("op")
    if op in UPSERTS:
        refusal = _check_row(value.get("after"), shape, told)
        row = {} if refusal or op == "u" else value["after"]
        refusal = not_sent(unsent) if (unsent := [n for n, v in row.items() if placeholder.is_in(v)]) else refusal
    elif op in ("d", "t"):
        refusal = None
    else:
        return unknown_op(op)
    if refusal is None and not isinstance(value.get("source"), dict):
        refusal = RefusedRecordError("ORDER_MISSING", "The record has no source block.")
    return refusal or misread(why, value.get("after") or {} if op in UPSERTS and not told else {}, shape)


def misread(why: str, row: Mapping[str, Any], shape: TableSpec) -> RefusedRecordError:
    """The refusal of a row with a value of another type than the configured one. Says how times are read from text."""
    times = (c for c in shape.columns if c.type in ("date", "timestamp") and not c.encoding)
    place = re.search(r"at `\$(?:\.after)?\.(\w+)`$", why)
    if place and isinstance(value := row.get(place[1]), str | int | float | bool):
        why = f"`{place[1]}` is {str(value)[:80]!r}: {why}"
    text = next((c for c in times if isinstance(row.get(c.name), str)), None)
    cure = f" For ISO 8601 set `{text.name}: {{type: {text.type}, encoding: iso}}`." if text else ""
    return RefusedRecordError("VALUE_INVALID", f"{why}.{cure}")


def unknown_op(op: object) -> RefusedRecordError:
    """The refusal of an unknown op. Case matters."""
    if op is None:
        return RefusedRecordError("OP_UNKNOWN", "The value has no op. A Debezium envelope needs op and source.")
    return RefusedRecordError("OP_UNKNOWN", f"op {str(op)[:40]!r} is not one of r, c, u, d, t, m.")


def _check_row(row: Any, shape: TableSpec, told: Mapping[str, ToldColumn]) -> RefusedRecordError | None:
    if row is None:
        return RefusedRecordError("AFTER_MISSING", "An insert or update has no `after`.")
    if not isinstance(row, dict):
        return RefusedRecordError("VALUE_INVALID", "`after` is not an object.")
    return _check_columns(row, shape, told)


def _check_columns(
    row: Mapping[str, Any], shape: TableSpec, told: Mapping[str, ToldColumn]
) -> RefusedRecordError | None:
    names = {*(c.name for c in shape.columns), *shape.ignored}
    nothing = ToldColumn("")
    new = {name: (told.get(name, nothing), value) for name, value in row.items() if name not in names}
    unknown = {name: one.type or infer_type(value) for name, (one, value) in new.items()}
    null = [name for name in shape.key if row.get(name) is None]
    if null and not (unknown and any(name not in row for name in null)):
        return RefusedRecordError("KEY_NULL", f"Key column {', '.join(null)} is null or missing.")
    missing = {c.name: c.type for c in shape.columns if c.name not in row and not c.may_lack}
    if unknown:
        return unknown_column(_AFTER, unknown, missing, {name: one.default for name, (one, _) in new.items()})
    return missing_column(_AFTER, missing) if missing else None


def infer_type(value: Any) -> str:
    """The type of a column that accepts this JSON value as it is; empty: none is certain."""
    if isinstance(value, list):
        kinds = {infer_type(one) for one in value if one is not None}
        element = kinds.pop() if len(kinds) == 1 else ""
        return f"array<{element}>" if element and not element.startswith("array") else ""
    kind = _JSON_KINDS.get(type(value), "")
    return "" if kind == "long" and not -(2**63) <= value < 2**63 else kind


def missing_column(what: str, types: Mapping[str, str]) -> RefusedRecordError:
    """The refusal of a record without a column that is not optional."""
    names = ", ".join(types)[:200]
    lines = ", ".join(f"`{name}: {{type: '{type_}', default: null}}`" for name, type_ in list(types.items())[:3])[:200]
    detail = f"{what} has no {names}. tidefold does not read a missing column as null. "
    if what == _AFTER:
        detail += (
            "The source dropped or renamed it: if it was dropped, remove it from `columns`, with `schema_evolution: "
            "{drop: evolve}`. To keep its values, and null in later rows, "
        )
    else:
        detail += "To do so, "
    detail += f"set {lines} in `columns`."
    return RefusedRecordError("MISSING_COLUMN", detail)


def refuse_dropped(names: Sequence[str]) -> RefusedRecordError:
    """The refusal of a record without columns that earlier records of its partition brought."""
    detail = (
        f"`after` has no {', '.join(names)[:200]}, which earlier records have: the source dropped or renamed it. Its "
        "`default` only counts for records from before the column. If it was dropped, remove it from `columns` (or, if "
        "the source added it by itself, name it in `ignored`), with `schema_evolution: {drop: evolve}`."
    )
    return RefusedRecordError("MISSING_COLUMN", detail)


def unknown_column(
    what: str, types: Mapping[str, str], missing: Collection[str] = (), defaults: Mapping[str, str] | None = None
) -> RefusedRecordError:
    """Returns the refusal of a record with columns that are not configured.

    If the record also lacks configured columns, one of them may have a new name, so only a person can decide.

    types: the type of each unknown column, if the source has it.
    defaults: see `ToldColumn`; None: rows from before the column have null.
    """
    names = ", ".join(types)[:200]
    values = dict.fromkeys(types, "null") if defaults is None else defaults
    lines = [
        f"`{name}: {{type: '{type_ or 'TYPE'}', default: {values[name] or '[?]'}}}`"
        for name, type_ in list(types.items())[:3]
    ]
    detail = (
        f"{what} has {names}, which is not configured. To ingest it, add {', '.join(lines)[:300]} to `columns`; to "
        "leave it out, add it to `ignored`."
    )
    if untyped := [name for name, type_ in types.items() if not type_]:
        detail += (
            f" The record shows no type for {', '.join(untyped)[:200]}, such as when the value is null: choose one, "
            "such as `string`, and write it in place of TYPE."
        )
    if unseen := [name for name in types if not values[name]]:
        detail += (
            f" The record does not show which default {', '.join(unseen)[:200]} has at the source, so what rows from "
            "before it have: write it in place of [?], `null` if there is none."
        )
    if missing:
        detail += (
            f" The record lacks {', '.join(missing)[:200]}. If a column was renamed, add its old name to `aliases`."
        )
    refused = RefusedRecordError("UNKNOWN_COLUMN", detail)
    has_default = any(values[name] not in ("", "null") for name in types)
    refused.brings = tuple(types.items()) if all(types.values()) and not missing and not has_default else ()
    return refused


def not_sent(names: Sequence[str], *, moved: bool = False) -> RefusedRecordError:
    """The refusal of a record whose values the connector did not send, if no earlier row has them.

    moved: the row had another key before.
    """
    subject = f"{', '.join(names)[:200]} was not sent"
    if moved:
        reason, why = "UNAVAILABLE_AFTER_KEY_CHANGE", "its value is in the row of the old key"
    else:
        reason, why = "UNAVAILABLE_VALUE", "no earlier row has it"
    return RefusedRecordError(reason, f"{subject}: {why}.")


def not_kept(names: Sequence[str], shape: TableSpec) -> RefusedRecordError | None:
    """The refusal of a record whose values the source did not send; None: the log keeps those that the row had."""
    if own := [name for name in names if name in (*shape.key, *shape.order_by)]:
        detail = f"The source did not send {', '.join(own)[:200]}, which identifies or orders the row."
    elif shape.keeps_unsent:
        return None
    elif shape.merge.engine is Engine.LAST:
        detail = f"{', '.join(names)[:200]} was not sent, and a log that columns order cannot take it from the row."
    else:
        detail = (
            f"{', '.join(names)[:200]} was not sent, and `merge: {shape.merge.engine}` cannot take it from the row."
        )
    return RefusedRecordError("UNAVAILABLE_VALUE", detail)


def _value(head: AnyHead) -> Any:
    """The value without its schema."""
    value = decode_plain(head.value)
    wrapped = isinstance(value, dict) and "payload" in value and "op" not in value
    return value["payload"] if wrapped else value


def decode_plain(raw: msgspec.Raw | bytes) -> Any:
    """A JSON value whose names and presence are of interest."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        # A number beyond every type.
        return json.loads(bytes(raw), parse_int=_parse_number)


def _parse_number(digits: str) -> int | float:
    """A whole number. One that no type holds becomes a float, because Python refuses to parse thousands of digits."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)
