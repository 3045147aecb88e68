"""Kinds of columns: how a database declares them, values at their limits, and what a value is on both sides.

A value of the database's own dump and one of the published table are equal if their canonical forms are.
"""

from __future__ import annotations

import base64
import datetime
import json
import random
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

Canon = Callable[[Any], Any]
Modes = Mapping[str, str]
_EXACT = Context(prec=2000)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Kind:
    """`ddl` is the type in the database; `value` draws a literal of it; `spec` is the line in `columns` that a person
    would write who knows the type and how the connector writes it; `must`: also where a schema is beside the records,
    because its values need another type than the usual one. `shown` is the expression that the dump selects, `source`
    and `table` make canonical forms. `large`: values lie out of line. `widens`: types that the column may be changed
    to.
    """

    name: str
    ddl: str
    value: Callable[[random.Random], str]
    spec: Callable[[Modes], str]
    shown: str = "{}"
    source: Canon = str
    table: Canon = str
    must: bool = False
    large: bool = False
    widens: tuple[str, ...] = ()
    fits: Callable[[Modes], bool] = lambda modes: True


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _fixed(text: str) -> Callable[[Modes], str]:
    return lambda modes: text


def _pick(*texts: str) -> Callable[[random.Random], str]:
    return lambda rnd: rnd.choice(texts)


def _whole(bits: int, unsigned: bool = False) -> Callable[[random.Random], str]:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda rnd: str(rnd.choice((low, high, 0, 1, rnd.randint(low, high), rnd.randint(0, 99))))


def _digits(precision: int, scale: int) -> Callable[[random.Random], str]:
    def drawn(rnd: random.Random) -> str:
        number = rnd.choice((10**precision - 1, 0, 1, rnd.randrange(10**precision)))
        text = str(number).rjust(scale + 1, "0")
        text = f"{text[:-scale]}.{text[-scale:]}" if scale else text
        return rnd.choice(("", "-")) + text if number else "0"

    return drawn


_ODD = ("", " ", "NULL", "null", "a'b", 'a"b', "🙂é漢", "‮x ", "a,b;{}[]", "__debezium", "0", "true", "𝔘𝔫𝔦")


def text(rnd: random.Random, most: int = 40) -> str:
    alphabet = "abcxyzÄß漢🙂 '\"{}%_,"
    return rnd.choice((*_ODD, "".join(rnd.choices(alphabet, k=rnd.randint(1, most)))))[:most]


def _large_text(rnd: random.Random) -> str:
    return quoted("".join(rnd.choices("abcdefghijklmnopqrstuvwxyzÄ漢0123456789", k=rnd.choice((2100, 2600, 9000)))))


def _float(form: str) -> Canon:
    return lambda value: repr(struct.unpack(form, struct.pack(form, float(value)))[0])


def _decimal(value: Any) -> str:
    return format(Decimal(value), "f")


def _number(value: Any) -> str:
    """A decimal of any scale: the connector leaves out zeros at its end."""
    text = str(value)
    return text if text[-1].isalpha() else format(Decimal(text).normalize(_EXACT), "f")


def _instant(value: Any) -> str:
    """Microseconds since 1970, of a datetime or of what the database counted."""
    if isinstance(value, datetime.datetime):
        value = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return str((value - _EPOCH) // datetime.timedelta(microseconds=1))
    return str(int(Decimal(value)))


def _bytes_of_hex(value: Any) -> bytes:
    return bytes.fromhex(value)


def _binary(modes: Modes) -> str:
    mode = modes["binary"]
    return {
        "bytes": "{type: binary, encoding: base64}",
        "base64": "{type: binary, encoding: base64}",
        "base64-url-safe": "{type: binary, encoding: base64url}",
        "hex": "{type: binary, encoding: hex}",
    }[mode]


def _precise(type_: str) -> Callable[[Modes], str]:
    promise = f"base64({type_.rpartition(',')[2].strip(')>')})"
    return lambda modes: f"{{type: '{type_}', encoding: {promise if modes['decimal'] == 'precise' else 'string'}}}"


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


def _bits(value: Any) -> str:
    """Of a bit string as bytes, lowest first: the number that it is."""
    return str(int.from_bytes(value, "little"))


def _day(rnd: random.Random) -> str:
    days = ("1700-01-01", "9999-12-31", "1970-01-01", "1969-12-31", "2000-02-29")
    drawn = datetime.date.fromordinal(rnd.randint(620000, 3652059)).isoformat()
    return rnd.choice((*days, drawn))


def _moment(rnd: random.Random) -> str:
    return f"{_day(rnd)} {rnd.choice(('00:00:00', '23:59:59.999999', '12:34:56.789', '07:08:09.000001'))}"


def _json_number(element: Any) -> str:
    return str(element)


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


def _says_scale(modes: Modes) -> bool:
    """Whether a decimal of a fixed scale can be read without knowing it."""
    return modes["schemas"] == "on" or modes["decimal"] == "string"


def _scaled(type_: str) -> list[Kind]:
    """A decimal, and the one of another scale that it becomes.

    In base64 without a schema such a change cannot be described (docs/how-to/change-columns.md).
    """
    sizes = {"numeric-scaled": (8, 2), "numeric-scaled-4": (12, 4)}
    made = []
    for name, (precision, scale) in sizes.items():
        size = f"({precision},{scale})"
        kind = Kind(name, f"{type_}{size}", _digits(precision, scale), _precise(f"decimal{size}"), fits=_says_scale)
        wider = tuple(other for other, (digits, _) in sizes.items() if digits > precision)
        made.append(replace(kind, source=_number, table=_number, widens=wider))
    return made


def postgres_kinds(rnd: random.Random) -> list[Kind]:
    precision = rnd.choice((5, 12, 18, 30, 38))
    scale = rnd.randint(0, min(precision, 10))
    return [
        Kind("int2", "smallint", _whole(16), _fixed("int"), widens=("int4", "int8")),
        Kind("int4", "integer", _whole(32), _fixed("int"), widens=("int8", "text")),
        Kind("int8", "bigint", _whole(64), _fixed("long"), widens=("text",)),
        Kind(
            "numeric",
            f"numeric({precision},{scale})",
            _digits(precision, scale),
            _precise(f"decimal({precision},{scale})"),
            source=_decimal,
            table=_decimal,
        ),
        Kind(
            "numeric-wide",
            "numeric(60,20)",
            _digits(60, 20),
            lambda m: "{type: string, encoding: decimal}",
            source=_decimal,
            table=_decimal,
            must=True,
            fits=_says_scale,
        ),
        Kind(
            "numeric-free",
            "numeric",
            _pick("0", "1.10", "-123456789012345678901234567890.000000001", "1e-30", "1e40", "100"),
            _fixed("{type: string, encoding: decimal}"),
            source=_number,
            table=_number,
            must=True,
        ),
        *_scaled("numeric"),
        Kind(
            "numeric-nan",
            "numeric",
            _pick("'NaN'", "'Infinity'", "'-Infinity'", "7.50"),
            _fixed("{type: string, encoding: decimal}"),
            source=_number,
            table=_number,
            must=True,
            fits=lambda modes: modes["decimal"] == "string",
        ),
        Kind(
            "float8",
            "double precision",
            _pick("'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "1.7976931348623157e308", "4.9e-324", "0.1"),
            _fixed("double"),
            source=_float("d"),
            table=_float("d"),
        ),
        Kind(
            "float4",
            "real",
            _pick("'NaN'", "'Infinity'", "3.4028235e38", "1e-45", "0.1", "16777216"),
            _fixed("float"),
            source=_float("f"),
            table=_float("f"),
            widens=("float8",),
        ),
        Kind("bool", "boolean", _pick("true", "false"), _fixed("boolean"), source=str.capitalize),
        Kind("text", "text", lambda r: quoted(text(r)), _fixed("string")),
        Kind("varchar", "varchar(60)", lambda r: quoted(text(r)), _fixed("string"), widens=("text",)),
        Kind("char", "char(9)", lambda r: quoted(text(r, 9)), _fixed("string"), shown="rpad({}::text,9)"),
        Kind("large-text", "text", _large_text, _fixed("string"), large=True),
        Kind(
            "large-bytes",
            "bytea",
            lambda r: f"'\\x{r.randbytes(r.choice((2100, 5000))).hex()}'",
            _binary,
            shown="encode({},'hex')",
            source=_bytes_of_hex,
            table=bytes,
            must=True,
            large=True,
        ),
        Kind(
            "bytes",
            "bytea",
            lambda r: f"'\\x{r.randbytes(r.choice((0, 1, 2, 30))).hex()}'",
            _binary,
            shown="encode({},'hex')",
            source=_bytes_of_hex,
            table=bytes,
            must=True,
        ),
        Kind("date", "date", lambda r: f"'{_day(r)}'", _fixed("{type: date, encoding: days}")),
        Kind(
            "date-any",
            "date",
            lambda r: r.choice((f"'{_day(r)}'", "'20000-01-01'")),
            _fixed("{type: string, encoding: days}"),
            source=_wide_text,
            must=True,
        ),
        Kind(
            "timestamp",
            "timestamp",
            lambda r: f"'{_moment(r)}'",
            _fixed("{type: timestamp, encoding: micros}"),
            shown=_MICROS,
            source=_instant,
            table=_instant,
        ),
        Kind(
            "timestamp-any",
            "timestamp",
            lambda r: r.choice((f"'{_moment(r)}'", "'infinity'", "'-infinity'", "'20000-01-01 01:02:03'")),
            _fixed("{type: string, encoding: micros}"),
            source=_wide_text,
            must=True,
        ),
        Kind(
            "timestamptz",
            "timestamptz",
            lambda r: f"'{_moment(r)}+00'",
            _fixed("{type: timestamp, encoding: iso}"),
            shown=_MICROS,
            source=_instant,
            table=_instant,
        ),
        Kind(
            "time",
            "time",
            _pick("'00:00:00'", "'23:59:59.999999'", "'12:34:56.7'"),
            _fixed("long"),
            shown=_MICROS,
            source=_instant,
        ),
        Kind(
            "timetz",
            "timetz",
            _pick("'00:00:00+00'", "'23:59:59.999999+00'", "'12:34:56+00'"),
            _fixed("string"),
            source=_zoned_time,
            table=_zoned_time,
        ),
        Kind(
            "interval",
            "interval",
            _pick("'1 year 2 mons 3 days 04:05:06.7'", "'0'", "'-1 day'", "'00:00:00.000001'"),
            _fixed("string"),
            shown=_INTERVAL,
            source=_interval,
            table=_interval,
        ),
        Kind("uuid", "uuid", lambda r: f"'{r.randbytes(16).hex()}'", _fixed("string")),
        Kind("json", "json", _pick("'{\"a\": [1, null]}'", "'null'", "'\"x\"'", "'1e2'"), _fixed("string")),
        Kind("jsonb", "jsonb", _pick('\'{"b":1,"a":[1.50,null]}\'', "'[]'", "'\"🙂\"'", "'{}'"), _fixed("string")),
        Kind(
            "inet",
            "inet",
            _pick("'10.0.0.1'", "'::1'", "'10.1.0.0/16'"),
            _fixed("string"),
            "case when {0} is not null then format('%s',{0}) end",
        ),
        Kind("macaddr", "macaddr", _pick("'08:00:2b:01:02:03'"), _fixed("string")),
        Kind("range", "int4range", _pick("'[1,5)'", "'empty'", "'[,7)'"), _fixed("string")),
        Kind("bit", "bit(1)", _pick("B'0'", "B'1'"), _fixed("boolean"), shown="({}=B'1')", source=str.capitalize),
        Kind(
            "bits",
            "bit(20)",
            lambda r: f"B'{r.randrange(2**20):020b}'",
            _fixed("{type: binary, encoding: base64}"),
            shown="({}::int)",
            table=_bits,
            must=True,
        ),
        Kind(
            "point",
            "point",
            _pick("'(1.5,-2)'", "'(0,0)'", "'(1e10,0.1)'"),
            _fixed("{type: string, encoding: json}"),
            source=_point,
            table=_point,
            must=True,
        ),
        Kind("oid", "oid", _pick("0", "4294967295"), _fixed("long")),
        Kind(
            "int-array",
            "integer[]",
            _arrays(_whole(32), "integer"),
            _fixed("array<int>"),
            shown="to_json({})",
            source=_list(str),
            table=_list(str),
        ),
        Kind(
            "text-array",
            "text[]",
            _arrays(lambda r: quoted(text(r)), "text"),
            _fixed("array<string>"),
            shown="to_json({})",
            source=_list(str),
            table=_list(str),
        ),
        Kind(
            "large-array",
            "text[]",
            lambda r: f"ARRAY[{_large_text(r)},NULL,{_large_text(r)}]",
            _fixed("array<string>"),
            shown="to_json({})",
            source=_list(str),
            table=_list(str),
            large=True,
        ),
        Kind(
            "uuid-array",
            "uuid[]",
            _arrays(lambda r: f"'{r.randbytes(16).hex()}'::uuid", "uuid"),
            _fixed("array<string>"),
            shown="to_json({})",
            source=_list(str),
            table=_list(str),
        ),
        Kind(
            "numeric-array",
            "numeric(10,2)[]",
            _arrays(_digits(10, 2), "numeric(10,2)"),
            lambda m: _precise("array<decimal(10,2)>")(m),
            shown="to_json({})",
            source=_list(_decimal),
            table=_list(_decimal),
        ),
    ]


def _maria_time(value: str) -> str:
    sign, hour, minute, second = re.fullmatch(r"(-?)(\d+):(\d+):([\d.]+)", value).groups()  # type: ignore[union-attr]
    micros = int((int(hour) * 3600 + int(minute) * 60 + Decimal(second)) * 1_000_000)
    return str(-micros if sign else micros)


def _maria_instant(value: Any) -> str:
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    return _instant(value)


def _maria_point(value: Any) -> tuple[float, float]:
    if value.startswith("POINT"):
        x, y = value[6:-1].split(" ")
        return float(x), float(y)
    wkb = base64.b64decode(json.loads(value)["wkb"])
    x, y = struct.unpack("<dd" if wkb[0] == 1 else ">dd", wkb[5:21])
    return x, y


def maria_text(rnd: random.Random, most: int = 40) -> str:
    """MariaDB compares trailing spaces away, and its literals know the backslash."""
    return text(rnd, most).rstrip().replace("\\", "/")


def maria_kinds(rnd: random.Random) -> list[Kind]:
    precision = rnd.choice((5, 12, 18, 30, 38))
    scale = rnd.randint(0, min(precision, 10))
    return [
        Kind("tinyint", "tinyint", _whole(8), _fixed("int"), widens=("int", "bigint")),
        Kind("smallint", "smallint unsigned", _whole(16, True), _fixed("int"), widens=("int", "bigint")),
        Kind("int", "int", _whole(32), _fixed("int"), widens=("bigint", "text")),
        Kind("uint", "int unsigned", _whole(32, True), _fixed("long"), widens=("bigint",)),
        Kind("bigint", "bigint", _whole(64), _fixed("long"), widens=("text",)),
        Kind(
            "ubigint",
            "bigint unsigned",
            _whole(64, True),
            lambda m: "{type: 'decimal(20,0)', encoding: base64(0)}",
            source=_decimal,
            table=_decimal,
            must=True,
        ),
        Kind(
            "decimal",
            f"decimal({precision},{scale})",
            _digits(precision, scale),
            _precise(f"decimal({precision},{scale})"),
            source=_decimal,
            table=_decimal,
        ),
        *_scaled("decimal"),
        Kind(
            "decimal-wide",
            "decimal(65,20)",
            _digits(65, 20),
            _fixed("{type: string, encoding: decimal}"),
            source=_decimal,
            table=_decimal,
            must=True,
            fits=_says_scale,
        ),
        Kind(
            "double",
            "double",
            _pick("1.7976931348623157e308", "-2.2250738585072014e-308", "0.1", "0", "1e100"),
            _fixed("double"),
            source=_float("d"),
            table=_float("d"),
        ),
        Kind(
            "float",
            "float",
            # In its snapshot the connector reads no more than six digits.
            _pick("0.1", "-1.5", "12345.5", "1e30"),
            _fixed("float"),
            shown="({}+0e0)",
            source=_float("f"),
            table=_float("f"),
        ),
        Kind(
            "bit",
            "bit(1)",
            _pick("b'0'", "b'1'"),
            _fixed("boolean"),
            shown="if({0} is null,null,if({0}=1,'True','False'))",
        ),
        Kind(
            "bits",
            "bit(20)",
            lambda r: f"b'{r.randrange(2**20):020b}'",
            _fixed("{type: binary, encoding: base64}"),
            shown="({}+0)",
            table=_bits,
            must=True,
        ),
        Kind("varchar", "varchar(60)", lambda r: quoted(maria_text(r)), _fixed("string"), widens=("text",)),
        Kind("char", "char(9)", lambda r: quoted(maria_text(r, 9)), _fixed("string")),
        Kind("text", "text", lambda r: quoted(maria_text(r)), _fixed("string")),
        Kind("large-text", "longtext", _large_text, _fixed("string"), large=True),
        Kind(
            "bytes",
            "varbinary(40)",
            lambda r: f"x'{r.randbytes(r.choice((0, 1, 2, 30))).hex()}'",
            _binary,
            shown="hex({})",
            source=_bytes_of_hex,
            table=bytes,
            must=True,
        ),
        Kind(
            "large-bytes",
            "mediumblob",
            lambda r: f"x'{r.randbytes(r.choice((3000, 9000))).hex()}'",
            _binary,
            shown="hex({})",
            source=_bytes_of_hex,
            table=bytes,
            must=True,
            large=True,
        ),
        Kind("date", "date", lambda r: f"'{_day(r)}'", _fixed("{type: date, encoding: days}")),
        Kind(
            "datetime",
            "datetime(6)",
            lambda r: f"'{_moment(r)}'",
            _fixed("{type: timestamp, encoding: micros}"),
            source=_maria_instant,
            table=_instant,
        ),
        Kind(
            "datetime-millis",
            "datetime(3)",
            lambda r: f"'{_day(r)} {r.choice(('00:00:00', '23:59:59.999', '12:34:56.001'))}'",
            _fixed("{type: timestamp, encoding: millis}"),
            source=_maria_instant,
            table=_instant,
        ),
        Kind(
            "timestamp",
            "timestamp(6) null",
            _pick("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'", "'2026-02-03 04:05:06.7'"),
            _fixed("{type: timestamp, encoding: iso}"),
            source=_maria_instant,
            table=_instant,
        ),
        Kind(
            "time",
            "time(6)",
            _pick("'00:00:00'", "'23:59:59.999999'", "'12:34:56.7'", "'100:00:00'", "'-10:00:00.5'"),
            _fixed("long"),
            source=_maria_time,
        ),
        Kind("year", "year", _pick("1901", "2155", "2026"), _fixed("int")),
        Kind("enum", "enum('a','b','ü')", _pick("'a'", "'b'", "'ü'"), _fixed("string")),
        Kind("set", "set('a','b','c')", _pick("'a'", "'a,c'", "'b'"), _fixed("string")),
        Kind("json", "json", _pick("'{\"a\": [1, null]}'", "'null'", "'\"x\"'", "'1e2'"), _fixed("string")),
        Kind(
            "point",
            "point",
            _pick("point(1.5,-2)", "point(0,0)", "point(1e10,0.1)"),
            _fixed("{type: string, encoding: json}"),
            shown="st_astext({})",
            source=_maria_point,
            table=_maria_point,
            must=True,
        ),
    ]
