"""Kinds of columns of MariaDB."""

from __future__ import annotations

import base64
import datetime
import json
import random
import re
import struct
from decimal import Decimal
from typing import Any

from torture.kinds import (
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
    pick,
    precise_spec,
    quoted,
    says_scale,
    scaled,
    text,
)


def _maria_time(value: str) -> str:
    sign, hour, minute, second = re.fullmatch(r"(-?)(\d+):(\d+):([\d.]+)", value).groups()  # type: ignore[union-attr]
    micros = int((int(hour) * 3600 + int(minute) * 60 + Decimal(second)) * 1_000_000)
    return str(-micros if sign else micros)


def _maria_instant(value: Any) -> str:
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    return instant_form(value)


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
        Kind("tinyint", "tinyint", draw_whole(8), fixed("int"), widens=("int", "bigint")),
        Kind("smallint", "smallint unsigned", draw_whole(16, True), fixed("int"), widens=("int", "bigint")),
        Kind("int", "int", draw_whole(32), fixed("int"), widens=("bigint", "text")),
        Kind("uint", "int unsigned", draw_whole(32, True), fixed("long"), widens=("bigint",)),
        Kind("bigint", "bigint", draw_whole(64), fixed("long"), widens=("text",)),
        Kind(
            "ubigint",
            "bigint unsigned",
            draw_whole(64, True),
            lambda m: "{type: 'decimal(20,0)', encoding: base64(0)}",
            source=decimal_form,
            table=decimal_form,
            must=True,
        ),
        Kind(
            "decimal",
            f"decimal({precision},{scale})",
            draw_digits(precision, scale),
            precise_spec(f"decimal({precision},{scale})"),
            source=decimal_form,
            table=decimal_form,
        ),
        *scaled("decimal"),
        Kind(
            "decimal-wide",
            "decimal(65,20)",
            draw_digits(65, 20),
            fixed("{type: string, encoding: decimal}"),
            source=decimal_form,
            table=decimal_form,
            must=True,
            fits=says_scale,
        ),
        Kind(
            "double",
            "double",
            pick("1.7976931348623157e308", "-2.2250738585072014e-308", "0.1", "0", "1e100"),
            fixed("double"),
            source=float_form("d"),
            table=float_form("d"),
        ),
        Kind(
            "float",
            "float",
            # In its snapshot the connector reads no more than six digits.
            pick("0.1", "-1.5", "12345.5", "1e30"),
            fixed("float"),
            shown="({}+0e0)",
            source=float_form("f"),
            table=float_form("f"),
        ),
        Kind(
            "bit",
            "bit(1)",
            pick("b'0'", "b'1'"),
            fixed("boolean"),
            shown="if({0} is null,null,if({0}=1,'True','False'))",
        ),
        Kind(
            "bits",
            "bit(20)",
            lambda r: f"b'{r.randrange(2**20):020b}'",
            fixed("{type: binary, encoding: base64}"),
            shown="({}+0)",
            table=bits_form,
            must=True,
        ),
        Kind("varchar", "varchar(60)", lambda r: quoted(maria_text(r)), fixed("string"), widens=("text",)),
        Kind("char", "char(9)", lambda r: quoted(maria_text(r, 9)), fixed("string")),
        Kind("text", "text", lambda r: quoted(maria_text(r)), fixed("string")),
        Kind("large-text", "longtext", draw_large_text, fixed("string"), large=True),
        Kind(
            "bytes",
            "varbinary(40)",
            lambda r: f"x'{r.randbytes(r.choice((0, 1, 2, 30))).hex()}'",
            binary_spec,
            shown="hex({})",
            source=bytes_of_hex,
            table=bytes,
            must=True,
        ),
        Kind(
            "large-bytes",
            "mediumblob",
            lambda r: f"x'{r.randbytes(r.choice((3000, 9000))).hex()}'",
            binary_spec,
            shown="hex({})",
            source=bytes_of_hex,
            table=bytes,
            must=True,
            large=True,
        ),
        Kind("date", "date", lambda r: f"'{draw_day(r)}'", fixed("{type: date, encoding: days}")),
        Kind(
            "datetime",
            "datetime(6)",
            lambda r: f"'{draw_moment(r)}'",
            fixed("{type: timestamp, encoding: micros}"),
            source=_maria_instant,
            table=instant_form,
        ),
        Kind(
            "datetime-millis",
            "datetime(3)",
            lambda r: f"'{draw_day(r)} {r.choice(('00:00:00', '23:59:59.999', '12:34:56.001'))}'",
            fixed("{type: timestamp, encoding: millis}"),
            source=_maria_instant,
            table=instant_form,
        ),
        Kind(
            "timestamp",
            "timestamp(6) null",
            pick("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'", "'2026-02-03 04:05:06.7'"),
            fixed("{type: timestamp, encoding: iso}"),
            source=_maria_instant,
            table=instant_form,
        ),
        Kind(
            "time",
            "time(6)",
            pick("'00:00:00'", "'23:59:59.999999'", "'12:34:56.7'", "'100:00:00'", "'-10:00:00.5'"),
            fixed("long"),
            source=_maria_time,
        ),
        Kind("year", "year", pick("1901", "2155", "2026"), fixed("int")),
        Kind("enum", "enum('a','b','ü')", pick("'a'", "'b'", "'ü'"), fixed("string")),
        Kind("set", "set('a','b','c')", pick("'a'", "'a,c'", "'b'"), fixed("string")),
        Kind("json", "json", pick("'{\"a\": [1, null]}'", "'null'", "'\"x\"'", "'1e2'"), fixed("string")),
        Kind(
            "point",
            "point",
            pick("point(1.5,-2)", "point(0,0)", "point(1e10,0.1)"),
            fixed("{type: string, encoding: json}"),
            shown="st_astext({})",
            source=_maria_point,
            table=_maria_point,
            must=True,
        ),
    ]
