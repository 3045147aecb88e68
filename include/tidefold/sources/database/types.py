"""The one table of PostgreSQL's types: as which column a log has them, how they are read, and one text of each value.

The text of a value is the same in SQL of the database, and in DuckDB over rows of the log. It is of the
value as the log has it: what the connector loses, as zeros behind a number, it has not. A type that is not here is
refused by name, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidefold.domain.table.types import MAX_PRECISION, Type, parse_type

if TYPE_CHECKING:
    import pyarrow as pa

ENUM = "enum"
_WHOLE = ("int2", "int4", "int8")
_TIMES = {"date": "date", "timestamp": "timestamp", "timestamptz": "timestamp"}
# The connector sends their text as PostgreSQL writes it. (Not `name`: it streams null.)
_TEXTS = (
    *["text", "varchar", "citext", "uuid", "json", "jsonb", "xml", "ltree", "cidr", "macaddr", "macaddr8"],
    *["int4range", "int8range", "numrange", "daterange", "tsrange"],
    ENUM,
)
# Digits of a time of day, as the connector counts: milliseconds up to three.
_MILLIS = 3
_UNFIT_TIME = "not isfinite({c}) or {c} < '0001-01-01' or {c} >= '10000-01-01'"
_MICROS = "(extract(epoch from {c}) * 1000000)::bigint"
_INSTANT = f"case when {_UNFIT_TIME} then {{c}}::text else {_MICROS}::text end"
_PADDED = "textin(bpcharout({c}))"
_NUMBER = "trim_scale({c})::text"
# What is proposed for a type: type and encoding of a column of the log.
_USUAL = {
    **dict.fromkeys(("int2", "int4"), ("int", "")),
    **dict.fromkeys((*_TEXTS, "bpchar", "inet"), ("string", "")),
    **dict.fromkeys(("int8", "oid", "time"), ("long", "")),
    "bool": ("boolean", ""),
    "float8": ("double", ""),
    "float4": ("float", ""),
    "bytea": ("binary", ""),
    "date": ("date", ""),
    "timestamp": ("timestamp", ""),
    "timestamptz": ("timestamp", "iso"),
}


@dataclass(frozen=True, slots=True)
class DatabaseColumn:
    """A column as the catalogue has it, its domain resolved.

    type: PostgreSQL's name, `enum` for any enum; of an array that of its elements.
    size, scale: of `numeric(12,2)`, `char(9)`, `bit(4)`, and the digits of a second; -1: not said.
    declared: the type as people write it.
    """

    name: str
    type: str
    is_array: bool = False
    size: int = -1
    scale: int = 0
    declared: str = ""


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """How one column is read, as SQL in which `{c}` is the column.

    select: a value that ADBC gives right, and that Arrow casts to the type of the log's column.
    text: the one text of a value.
    unfit: which values the column of the log cannot have; empty: it can have all. `select` may give anything for them.
    local: the one text of a value of the log, in DuckDB.
    """

    select: str
    text: str
    unfit: str = ""
    local: str = ""

    def of(self, quoted: str) -> ColumnForm:
        """Returns the form with the name of the column, which is a quoted identifier, put in."""
        return ColumnForm(*(one.replace("{c}", quoted) for one in (self.select, self.text, self.unfit, self.local)))


_CAST = ColumnForm("{c}::text", "{c}::text")


def _iso_text(time: str) -> str:
    """The text of an instant of any year, as ISO 8601 and the log have it."""
    year = "(extract(year from {c})::int + (extract(year from {c}) < 0)::int)"
    sign = f"case when {year} < 0 then '-' when {year} > 9999 then '+' else '' end"
    month, day = (f"lpad(extract({part} from {{c}})::text, 2, '0')" for part in ("month", "day"))
    digits = f"lpad(abs({year})::text, greatest(4, length(abs({year})::text)), '0')"
    text = f"{sign} || {digits} || '-' || {month} || '-' || {day}{time}"
    return f"case when isfinite({{c}}) then {text} else {{c}}::text end"


_YEARS = {"date": _iso_text(""), "timestamp": _iso_text(""" || to_char({c}, '"T"HH24:MI:SS.US"Z"')""")}
# By type, and the name of the type of the log's column.
_FORMS: Mapping[tuple[str, str], ColumnForm] = {
    **{(one, column): ColumnForm("{c}", "{c}::text") for one in _WHOLE for column in ("int", "long")},
    ("int8", "int"): ColumnForm("{c}", "{c}::text", "{c} not between -2147483648 and 2147483647"),
    **{(one, "decimal"): _CAST for one in _WHOLE},
    **{(one, "string"): _CAST for one in (*_WHOLE, "oid", *_TEXTS)},
    ("oid", "long"): ColumnForm("{c}::bigint", "{c}::text"),
    # A cast to text would cut its blanks, and add a mask.
    ("bpchar", "string"): ColumnForm(_PADDED, _PADDED),
    ("inet", "string"): ColumnForm("textin(inet_out({c}))", "textin(inet_out({c}))"),
    # The connector's precise mode makes null of NaN.
    ("numeric", "decimal"): ColumnForm("{c}::text", "case when {c} <> 'NaN' then trim_scale({c})::text end"),
    ("numeric", "string"): ColumnForm("{c}::text", _NUMBER),
    ("bool", "boolean"): ColumnForm("{c}", "{c}::int::text"),
    ("bit", "boolean"): ColumnForm("{c} = B'1'", "{c}::int::text"),
    # By their bits, so that -0.0 is not 0.0. There is one NaN.
    ("float8", "double"): ColumnForm("{c}", "case when {c} = 'NaN' then 'NaN' else encode(float8send({c}), 'hex') end"),
    ("float4", "float"): ColumnForm("{c}", "case when {c} = 'NaN' then 'NaN' else encode(float4send({c}), 'hex') end"),
    ("bytea", "binary"): ColumnForm("{c}", "'x' || encode({c}, 'hex')"),
    ("date", "date"): ColumnForm(
        "{c}", "case when isfinite({c}) then ({c} - date '1970-01-01')::text else {c}::text end"
    ),
    **{(one, "timestamp"): ColumnForm("{c}", _INSTANT) for one in ("timestamp", "timestamptz")},
    **{(one, "string"): ColumnForm(text, text) for one, text in _YEARS.items()},
    ("time", "long"): ColumnForm(_MICROS, f"{_MICROS}::text"),
}


def find_form(source: DatabaseColumn, column: str) -> ColumnForm | None:
    """Returns how a column is read for a column of the log of this type; None: there is no way that is known."""
    type_ = parse_type(column)
    if source.is_array != bool(type_.element):
        return None
    form = _find_form(source, type_.element or type_)
    if form is None:
        return None
    is_number = source.type == "numeric" and (type_.element or type_).name == "string"
    local = _local_text(type_, "{c}", is_number)
    return replace(_list_form(form, column) if source.is_array else form, local=local)


def _find_form(source: DatabaseColumn, type_: Type) -> ColumnForm | None:
    form = _FORMS.get((source.type, type_.name))
    if form is None or (source.type == "bit" and source.size != 1):
        return None
    if source.type == "time" and 0 <= source.size <= _MILLIS:
        return ColumnForm(f"{_MICROS} / 1000", f"({_MICROS} / 1000)::text")
    if type_.name == "decimal":  # NaN is greater than every number.
        digits = f"abs({{c}}::numeric) >= 1e{type_.precision - type_.scale}"
        return ColumnForm(form.select, form.text, f"{digits} or scale(trim_scale({{c}}::numeric)) > {type_.scale}")
    if source.type in _TIMES and type_.name != "string":
        return ColumnForm(form.select, form.text, _UNFIT_TIME)
    return form


def _list_form(form: ColumnForm, column: str) -> ColumnForm:
    each = join_texts([(form.text.replace("{c}", "e"), column.removeprefix("array<").removesuffix(">"))])
    elements = "unnest({c}) with ordinality as u(e, n)"
    joined = f"(select coalesce(string_agg({each}, '' order by n), '') from {elements})"
    # A list of lists must not look like a list, which begins with a digit.
    text = f"case when array_ndims({{c}}) > 1 then {{c}}::text else cardinality({{c}}) || '[' || {joined} end"
    unfit = "array_ndims({c}) > 1"
    if form.unfit:
        unfit += f" or exists (select from unnest({{c}}) as u(e) where {form.unfit.replace('{c}', 'e')})"
    chosen = f"array(select {form.select.replace('{c}', 'e')} from {elements} order by n)"
    listed = f"case when {{c}} is not null then {chosen} end"
    return ColumnForm("{c}" if form.select == "{c}" else listed, text, unfit)


def join_texts(texts: Iterable[tuple[str, str]]) -> str:
    """Returns the SQL, of PostgreSQL and DuckDB, of one text of values, each with the type of its column.

    No two lists of values have the same: a comma ends each value, and none is in a number. Null is nothing.
    """
    return " || ".join(f"coalesce({_end_text(text, type_)}, ',')" for text, type_ in texts)


def _end_text(text: str, type_: str) -> str:
    if type_ != "string":
        return f"{text} || ','"
    return f"'=' || replace(replace({text}, chr(92), chr(92) || chr(92)), ',', chr(92) || ',') || ','"


def split_texts(joined: str) -> tuple[str, ...]:
    """Returns the texts of values that are not null, which `join_texts` has joined."""
    parts = re.findall(r"((?:[^,\\]|\\.)*),", joined, re.DOTALL)
    return tuple(re.sub(r"\\(.)", r"\1", one[1:], flags=re.DOTALL) if one.startswith("=") else one for one in parts)


def _local_text(type_: Type, value: str, is_number: bool) -> str:
    if type_.element:
        each = join_texts([(_local_text(type_.element, "e", is_number), type_.element.name)])
        return f"len({value}) || '[' || array_to_string(list_transform({value}, lambda e: {each}), '')"
    if is_number:  # As the connector wrote it, with or without zeros at its end.
        return f"case when contains({value}, '.') then rtrim(rtrim({value}, '0'), '.') else {value} end"
    if type_.name in ("double", "float"):
        bits = f"lower(hex({value}::bit::blob))"
        return f"case when isnan({value}) then 'NaN' when {value} is not null then {bits} end"
    if type_.name == "decimal" and type_.scale:
        text = f"{value}::varchar"
        if type_.scale == type_.precision:  # DuckDB writes no zero before the point.
            text = f"regexp_replace({text}, '^(-?)\\.', '\\1' || '0.')"
        return f"rtrim(rtrim({text}, '0'), '.')"
    simple = {
        "boolean": f"{value}::int::varchar",
        "date": f"({value} - date '1970-01-01')::varchar",
        "timestamp": f"epoch_us({value})::varchar",
        "binary": f"'x' || lower(hex({value}))",
    }
    return simple.get(type_.name, f"{value}::varchar")


def propose_type(source: DatabaseColumn) -> tuple[str, str] | None:
    """Returns type and encoding of a column of a log, for a connector with `decimal.handling.mode=string`.

    An empty encoding is the usual one. None: no type is known to have all values.
    """
    type_, encoding = _USUAL.get(source.type, ("", ""))
    if source.type == "numeric":
        is_exact = 0 < source.size <= MAX_PRECISION and 0 <= source.scale <= source.size
        type_, encoding = (f"decimal({source.size},{source.scale})", "string") if is_exact else ("string", "decimal")
    elif source.type == "bit" and source.size == 1:
        type_ = "boolean"
    elif source.type == "timestamp" and 0 <= source.size <= _MILLIS:
        encoding = "millis"
    return (f"array<{type_}>" if source.is_array else type_, encoding) if type_ else None


def to_column(values: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
    """Returns what `select` read as values of a column of the log. Raises ArrowInvalid for one that is unfit."""
    import pyarrow as pa

    from tidefold.changelog.schema import arrow_type

    chunks = [chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in values.chunks]
    return pa.chunked_array(chunks, chunks[0].type if chunks else pa.null()).cast(arrow_type(column))
