"""Reads the schema beside a record (Kafka Connect's JSON, or one like it): forms and types of its columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.domain.table.types import MAX_PRECISION, Type, parse_promised_scale, parse_type
from tidefold.sources.records.encodings import Form, conversion, form_of, json_type
from tidefold.sources.records.errors import RefusedRecordError, ToldColumn
from tidefold.sources.records.lossless_text import date_text, instant_text
from tidefold.sources.records.unavailable_values import DECLARED
from tidefold.typed_json import decode_json

_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
# How many digits a decimal has, if the schema says it; beside it `scale`.
PRECISION = "connect.decimal.precision"
# Which types a column may have, each with the encoding of its values then: by the name of a schema,
_NAMED: dict[str, dict[str, str]] = {
    f"{_CONNECT}Decimal": {"decimal": "base64", "string": "base64"},
    # Its scale changes from value to value: only a text holds all of them.
    _VARIABLE: {"string": "base64", "decimal": "base64"},
    f"{_CONNECT}Date": {"date": "days", "int": "", "long": "", "string": "days", "timestamp": "days"},
    f"{_TIME}Date": {"date": "days", "int": "", "long": "", "string": "days", "timestamp": "days"},
    f"{_CONNECT}Timestamp": {"timestamp": "millis", "long": "", "string": "millis"},
    f"{_TIME}Timestamp": {"timestamp": "millis", "long": "", "string": "millis"},
    f"{_TIME}MicroTimestamp": {"timestamp": "micros", "long": "", "string": "micros"},
    f"{_TIME}NanoTimestamp": {"timestamp": "nanos", "long": "", "string": "nanos"},
    f"{_TIME}ZonedTimestamp": {"timestamp": "iso", "string": ""},
    f"{_TIME}IsoTimestamp": {"timestamp": "iso", "string": ""},
    f"{_TIME}IsoDate": {"date": "iso", "string": ""},
}
# by its type, whatever its name (times of day, durations, years, json, xml, enums, uuids, bits ...),
_TYPED: dict[str, dict[str, str]] = {
    "boolean": {"boolean": "boolean"},
    "int8": {"int": "", "long": ""},
    "int16": {"int": "", "long": ""},
    "int32": {"int": "", "long": ""},
    "int64": {"long": "", "int": ""},
    "float": {"float": "", "double": ""},
    "double": {"double": "", "float": "", "decimal": "number"},
    "string": {"string": "", "decimal": "string"},
    "bytes": {"binary": "base64", "string": ""},
    # Geometry, hstore, arrays of arrays.
    "struct": {"string": "json"},
    "map": {"string": "json"},
    "array": {"string": "json"},
}
# Types whose values `encoding: any` reads.
_PLAIN = frozenset(("boolean", "int8", "int16", "int32", "int64", "float", "double", "string"))
# and by its type where it has no name: then the configuration may say what it means.
_UNNAMED: dict[str, dict[str, tuple[str, ...]]] = {
    "int8": {"boolean": ("number",), "decimal": ("number",)},
    "int16": {"boolean": ("number",), "decimal": ("number",)},
    "int32": {"boolean": ("number",), "date": ("days",), "decimal": ("number",)},
    "int64": {"timestamp": ("micros", "millis", "seconds", "nanos"), "decimal": ("number",)},
    "string": {"binary": ("base64", "base64url", "hex"), "date": ("iso",), "timestamp": ("iso",)},
}


# How the configuration writes the values of a type.
_WRITERS: dict[str, Callable[[Any], str]] = {
    "boolean": lambda value: str(value).lower(),
    "string": json.dumps,
    "date": date_text,
    "timestamp": partial(instant_text, digits=6),
    "binary": lambda value: "",
    "array": lambda value: "",
}


def forms_of(schema: Any, shape: TableSpec) -> tuple[Form, ...]:
    """The form of each column by the schema of an envelope. Raises RefusedRecordError for a type that does not fit."""
    fields = _after(schema)
    forms = ((_form(fields.get(c.name), c, parse_type(c.type)), fields.get(c.name) or {}) for c in shape.columns)
    return tuple(replace(form, unsent=str(_parameters(schema).get(DECLARED, ""))) for form, schema in forms)


def column_names(schema: Any) -> tuple[str, ...]:
    """The columns of a row, by the schema of an envelope."""
    return tuple(_after(schema))


def schema_beside(value: msgspec.Raw) -> Any:
    """The schema in which a value is wrapped, if it is."""
    try:
        envelope = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return None
    return envelope.get("schema") if isinstance(envelope, dict) else None


def columns_by(schema: Any) -> dict[str, ToldColumn]:
    """The columns for the schema of an envelope, as far as the schema gives enough."""
    told = {name: ToldColumn(_type_told(field), _default_told(field)) for name, field in _after(schema).items()}
    return {name: one for name, one in told.items() if one.type}


def decimals_of(schema: Any) -> list[str]:
    """The columns that are decimals, by the schema of an envelope, also those without a scale that fits."""
    return [name for name, field in _after(schema).items() if field.get("name") in (_VARIABLE, f"{_CONNECT}Decimal")]


def numeric_forms(schema: Any) -> dict[str, tuple[str, str]]:
    """Type and encoding of the columns that a row has as numbers or base64, by the schema of the row."""
    forms = {}
    for name, field in _fields(schema).items():
        type_text = _type_told(field)
        if type_text.partition("(")[0] in ("decimal", "date", "timestamp", "double", "float"):
            form = _form(field, Column(name, type_text), parse_type(type_text))
            forms[name] = (type_text, form.encoding if form.scale is None else f"{form.encoding}({form.scale})")
    return forms


def explain_losses(schema: Any, key: Collection[str]) -> list[str]:
    """Describes what the connector and its converter do to values, as far as the schema of an envelope shows it."""
    fields = _after(schema)
    named = {field: schema.get("name") for field, schema in fields.items()}
    sources = {field: str(_parameters(schema).get("__debezium.source.column.type")) for field, schema in fields.items()}
    losses = {
        "a null arrives as the default of the column, unless the converter has `replace.null.with.default=false`": [
            field for field, schema in fields.items() if schema.get("optional") and schema.get("default") is not None
        ],
        "`time.precision.mode=connect` turns a TIME of MySQL or MariaDB beyond a day into null": [
            field for field in fields if named[field] == f"{_CONNECT}Time"
        ],
        "`time.precision.mode=connect` cuts keys to milliseconds, so several rows may have one key": [
            field for field in fields if named[field] == f"{_CONNECT}Timestamp" and field in key
        ],
        "numbers from 2^63 on arrive as others, unless the connector has `bigint.unsigned.handling.mode=precise`": [
            field for field in fields if "BIGINT UNSIGNED" in sources[field] and fields[field].get("type") == "int64"
        ],
    }
    return [f"{', '.join(names)}: {why} (docs/reference/debezium.md)" for why, names in losses.items() if names]


def _default_told(schema: Mapping[str, Any]) -> str:
    if schema.get("default") is None:
        return "null" if schema.get("optional") else ""
    type_text = _type_told(schema)
    try:
        type_ = parse_type(type_text)
        form = _form(schema, Column("default", type_text), type_)
        value = decode_json(msgspec.json.encode(schema["default"]), json_type(type_, form))
        convert = conversion(type_, form)
        value = convert(value) if convert else value
    # What is no default in the words of the schema is not shown.
    except (ValueError, msgspec.DecodeError, RefusedRecordError):
        return ""
    return _WRITERS.get(type_.name, str)(value)


def _after(schema: Any) -> Mapping[str, Mapping[str, Any]]:
    return _fields(next((f for f in _fields(schema).values() if f.get("field") == "after"), None))


def _type_told(schema: Mapping[str, Any]) -> str:
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        element = _type_told(schema["items"])
        return "string" if element.startswith("array") else f"array<{element}>" if element else ""
    kind = next(iter(_NAMED.get(str(schema.get("name"))) or _TYPED.get(str(schema.get("type")), {})), "")
    scale, precision = _scale(schema), _parameters(schema).get(PRECISION)
    if scale is not None and (kind == "decimal" or precision is not None):
        fits = 0 <= scale <= int(precision or MAX_PRECISION) <= MAX_PRECISION
        return f"decimal({precision or MAX_PRECISION},{scale})" if fits else "string"
    return "" if kind == "decimal" else kind


def _fields(schema: Any) -> Mapping[str, Mapping[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    named = [f for f in fields if isinstance(f, dict)] if isinstance(fields, list) else []
    return {str(f.get("field")): f for f in named}


def _form(schema: Mapping[str, Any] | None, column: Column, type_: Type) -> Form:
    if schema is None:  # The row itself then says that the column is missing.
        return form_of(type_, column.encoding)
    if type_.element and schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return _form(schema["items"], column, type_.element)
    kind, name = str(schema.get("type")), schema.get("name")
    form = _NAMED.get(str(name)) or _TYPED.get(kind, {})
    if type_.name == "string" and column.encoding == "json" and "string" not in form:
        return Form("json")
    if type_.name == "string" and column.encoding == "decimal" and kind == "string" and not name:
        return Form("decimal")
    if type_.name in form:
        scale, promise = _scale(schema), parse_promised_scale(column.encoding)
        if None not in (scale, promise) and scale != promise:
            detail = f"By the record's schema `{column.name}` has scale {scale}, not the promised {promise}."
            raise RefusedRecordError("DECIMAL_SCALE", detail)
        return Form(form[type_.name], scale)
    if column.encoding == "any" and kind in _PLAIN and not name:
        return Form("any")
    allowed = () if name else _UNNAMED.get(kind, {}).get(type_.name, ())
    if allowed:
        return Form(column.encoding if column.encoding in allowed else allowed[0])
    subject = f"By the record's schema `{column.name}` is {str(name or kind)[:80]}"
    raise RefusedRecordError("VALUE_INVALID", f"{subject}, which cannot be a column of {type_.name}.")


def _parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = schema.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _scale(schema: Mapping[str, Any]) -> int | None:
    scale = _parameters(schema).get("scale")
    try:
        return None if scale is None else int(scale)
    except (TypeError, ValueError):
        return None
