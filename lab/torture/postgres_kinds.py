"""Kinds of columns of PostgreSQL."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from torture.kinds import (
    Canon,
    Kind,
    binary_spec,
    bits_form,
    bytes_of_hex,
    decimal_form,
    draw_day,
    draw_digits,
    draw_large_text,
    draw_moment,
    draw_whole,
    fixed,
    float_form,
    instant_form,
    number_form,
    pick,
    precise_spec,
    quoted,
    says_scale,
    scaled,
    text,
)


def _list(element: Canon) -> Canon:
    def canon(value: Any) -> Any:
        found = json.loads(value, parse_float=Decimal) if isinstance(value, str) else value
        return tuple(None if one is None else element(one) for one in found)

    return canon


def _array(rnd: random.Random, draw: Callable[[random.Random], str], type_: str) -> str:
    elements = ["NULL" if rnd.random() < 0.15 else draw(rnd) for _ in range(rnd.choice((0, 1, 3)))]
    return f"ARRAY[{','.join(elements)}]::{type_}[]"


def _arrays(draw: Callable[[random.Random], str], type_: str) -> Callable[[random.Random], str]:
    return lambda rnd: _array(rnd, draw, type_)


_INTERVAL = (
    "'P'||extract(year from {0})::int||'Y'||extract(month from {0})::int||'M'||extract(day from {0})::int||'DT'||"
    "extract(hour from {0})::int||'H'||extract(minute from {0})::int||'M'||"
    "trim_scale(extract(second from {0}))||'S'"
)


def _interval(value: str) -> str:
    """With the same fraction of a second however many digits it has."""
    return re.sub(r"(\d+\.\d*?)0*S$", lambda found: found[1].rstrip(".") + "S", value)


def _point(value: Any) -> tuple[float, float]:
    if isinstance(value, str) and value.startswith("("):
        x, y = value[1:-1].split(",")
        return float(x), float(y)
    found = json.loads(value)
    return float(found["x"]), float(found["y"])


def _zoned_time(value: str) -> str:
    """A time of day in UTC with the fraction that it has."""
    hour, minute, second, zone = re.fullmatch(r"(\d+):(\d+)(?::([\d.]+))?(Z|[+-].*)?", value).groups()  # type: ignore[union-attr]
    return f"{hour}:{minute}:{Decimal(second or 0).normalize():f}{'' if zone in (None, 'Z', '+00') else zone}"


_MICROS = "(extract(epoch from {})*1000000)::numeric(30,0)"


def _wide_text(value: str) -> str:
    """PostgreSQL's instants of any year as ISO 8601 with six digits."""
    if value in ("infinity", "-infinity"):
        return value
    day, _, time = value.partition(" ")
    year = day.split("-")[0]
    day = f"+{day}" if len(year) > 4 else day
    if not time:
        return day
    whole, _, part = time.partition(".")
    return f"{day}T{whole}.{part.ljust(6, '0')}Z"


def postgres_kinds(rnd: random.Random) -> list[Kind]:
    precision = rnd.choice((5, 12, 18, 30, 38))
    scale = rnd.randint(0, min(precision, 10))
    return [
        Kind("int2", "smallint", draw_whole(16), fixed("int"), widens=("int4", "int8")),
        Kind("int4", "integer", draw_whole(32), fixed("int"), widens=("int8", "text")),
        Kind("int8", "bigint", draw_whole(64), fixed("long"), widens=("text",)),
        Kind(
            "numeric",
            f"numeric({precision},{scale})",
            draw_digits(precision, scale),
            precise_spec(f"decimal({precision},{scale})"),
            source=decimal_form,
            table=decimal_form,
        ),
        Kind(
            "numeric-wide",
            "numeric(60,20)",
            draw_digits(60, 20),
            lambda m: "{type: string, encoding: decimal}",
            source=decimal_form,
            table=decimal_form,
            must=True,
            fits=says_scale,
        ),
        Kind(
            "numeric-free",
            "numeric",
            pick("0", "1.10", "-123456789012345678901234567890.000000001", "1e-30", "1e40", "100"),
            fixed("{type: string, encoding: decimal}"),
            source=number_form,
            table=number_form,
            must=True,
        ),
        *scaled("numeric"),
        Kind(
            "numeric-nan",
            "numeric",
            pick("'NaN'", "'Infinity'", "'-Infinity'", "7.50"),
            fixed("{type: string, encoding: decimal}"),
            source=number_form,
            table=number_form,
            must=True,
            fits=lambda modes: modes["decimal"] == "string",
        ),
        Kind(
            "float8",
            "double precision",
            pick("'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "1.7976931348623157e308", "4.9e-324", "0.1"),
            fixed("double"),
            source=float_form("d"),
            table=float_form("d"),
        ),
        Kind(
            "float4",
            "real",
            pick("'NaN'", "'Infinity'", "3.4028235e38", "1e-45", "0.1", "16777216"),
            fixed("float"),
            source=float_form("f"),
            table=float_form("f"),
            widens=("float8",),
        ),
        Kind("bool", "boolean", pick("true", "false"), fixed("boolean"), source=str.capitalize),
        Kind("text", "text", lambda r: quoted(text(r)), fixed("string")),
        Kind("varchar", "varchar(60)", lambda r: quoted(text(r)), fixed("string"), widens=("text",)),
        Kind("char", "char(9)", lambda r: quoted(text(r, 9)), fixed("string"), shown="rpad({}::text,9)"),
        Kind("large-text", "text", draw_large_text, fixed("string"), large=True),
        Kind(
            "large-bytes",
            "bytea",
            lambda r: f"'\\x{r.randbytes(r.choice((2100, 5000))).hex()}'",
            binary_spec,
            shown="encode({},'hex')",
            source=bytes_of_hex,
            table=bytes,
            must=True,
            large=True,
        ),
        Kind(
            "bytes",
            "bytea",
            lambda r: f"'\\x{r.randbytes(r.choice((0, 1, 2, 30))).hex()}'",
            binary_spec,
            shown="encode({},'hex')",
            source=bytes_of_hex,
            table=bytes,
            must=True,
        ),
        Kind("date", "date", lambda r: f"'{draw_day(r)}'", fixed("{type: date, encoding: days}")),
        Kind(
            "date-any",
            "date",
            lambda r: r.choice((f"'{draw_day(r)}'", "'20000-01-01'")),
            fixed("{type: string, encoding: days}"),
            source=_wide_text,
            must=True,
        ),
        Kind(
            "timestamp",
            "timestamp",
            lambda r: f"'{draw_moment(r)}'",
            fixed("{type: timestamp, encoding: micros}"),
            shown=_MICROS,
            source=instant_form,
            table=instant_form,
        ),
        Kind(
            "timestamp-any",
            "timestamp",
            lambda r: r.choice((f"'{draw_moment(r)}'", "'infinity'", "'-infinity'", "'20000-01-01 01:02:03'")),
            fixed("{type: string, encoding: micros}"),
            source=_wide_text,
            must=True,
        ),
        Kind(
            "timestamptz",
            "timestamptz",
            lambda r: f"'{draw_moment(r)}+00'",
            fixed("{type: timestamp, encoding: iso}"),
            shown=_MICROS,
            source=instant_form,
            table=instant_form,
        ),
        Kind(
            "time",
            "time",
            pick("'00:00:00'", "'23:59:59.999999'", "'12:34:56.7'"),
            fixed("long"),
            shown=_MICROS,
            source=instant_form,
        ),
        Kind(
            "timetz",
            "timetz",
            pick("'00:00:00+00'", "'23:59:59.999999+00'", "'12:34:56+00'"),
            fixed("string"),
            source=_zoned_time,
            table=_zoned_time,
        ),
        Kind(
            "interval",
            "interval",
            pick("'1 year 2 mons 3 days 04:05:06.7'", "'0'", "'-1 day'", "'00:00:00.000001'"),
            fixed("string"),
            shown=_INTERVAL,
            source=_interval,
            table=_interval,
        ),
        Kind("uuid", "uuid", lambda r: f"'{r.randbytes(16).hex()}'", fixed("string")),
        Kind("json", "json", pick("'{\"a\": [1, null]}'", "'null'", "'\"x\"'", "'1e2'"), fixed("string")),
        Kind("jsonb", "jsonb", pick('\'{"b":1,"a":[1.50,null]}\'', "'[]'", "'\"🙂\"'", "'{}'"), fixed("string")),
        Kind(
            "inet",
            "inet",
            pick("'10.0.0.1'", "'::1'", "'10.1.0.0/16'"),
            fixed("string"),
            "case when {0} is not null then format('%s',{0}) end",
        ),
        Kind("macaddr", "macaddr", pick("'08:00:2b:01:02:03'"), fixed("string")),
        Kind("range", "int4range", pick("'[1,5)'", "'empty'", "'[,7)'"), fixed("string")),
        Kind("bit", "bit(1)", pick("B'0'", "B'1'"), fixed("boolean"), shown="({}=B'1')", source=str.capitalize),
        Kind(
            "bits",
            "bit(20)",
            lambda r: f"B'{r.randrange(2**20):020b}'",
            fixed("{type: binary, encoding: base64}"),
            shown="({}::int)",
            table=bits_form,
            must=True,
        ),
        Kind(
            "point",
            "point",
            pick("'(1.5,-2)'", "'(0,0)'", "'(1e10,0.1)'"),
            fixed("{type: string, encoding: json}"),
            source=_point,
            table=_point,
            must=True,
        ),
        Kind("oid", "oid", pick("0", "4294967295"), fixed("long")),
        Kind(
            "int-array",
            "integer[]",
            _arrays(draw_whole(32), "integer"),
            fixed("array<int>"),
            shown="to_json({})",
            source=_list(str),
            table=_list(str),
        ),
        Kind(
            "text-array",
            "text[]",
            _arrays(lambda r: quoted(text(r)), "text"),
            fixed("array<string>"),
            shown="to_json({})",
            source=_list(str),
            table=_list(str),
        ),
        Kind(
            "large-array",
            "text[]",
            lambda r: f"ARRAY[{draw_large_text(r)},NULL,{draw_large_text(r)}]",
            fixed("array<string>"),
            shown="to_json({})",
            source=_list(str),
            table=_list(str),
            large=True,
        ),
        Kind(
            "uuid-array",
            "uuid[]",
            _arrays(lambda r: f"'{r.randbytes(16).hex()}'::uuid", "uuid"),
            fixed("array<string>"),
            shown="to_json({})",
            source=_list(str),
            table=_list(str),
        ),
        Kind(
            "numeric-array",
            "numeric(10,2)[]",
            _arrays(draw_digits(10, 2), "numeric(10,2)"),
            lambda m: precise_spec("array<decimal(10,2)>")(m),
            shown="to_json({})",
            source=_list(decimal_form),
            table=_list(decimal_form),
        ),
    ]
