"""A table with columns of every type that the table of types knows, and of some that it does not, at their limits."""

from __future__ import annotations

import random
from collections.abc import Iterator

_TEXTS = [
    "''",
    "'plain'",
    "'Ünïcödé ☃ 𝄞'",
    "E'tab\\tnl\\nq\"b\\\\s\\''",
    "'a:1'",
    "'n'",
    "E'\\x07bell'",
    "' trailing  '",
    "'1:n'",
    "'[0'",
    "'NULL'",
    "'a,b;{}'",
]
# By column: its type, and literals of its values.
KNOWN: dict[str, tuple[str, list[str]]] = {
    "i2": ("int2", ["-32768", "32767", "0", "-1"]),
    "i4": ("int4", ["-2147483648", "2147483647", "0"]),
    "i8": ("int8", ["-9223372036854775808", "9223372036854775807", "0", "42"]),
    "o": ("oid", ["0", "4294967295", "7"]),
    "n122": ("numeric(12,2)", ["0", "-0.01", "9999999999.99", "1.50", "-1.5", "100", "1"]),
    "n38": (
        "numeric(38,38)",
        ["0", "0.5", "-0.00000000000000000000000000000000000001", "0.99999999999999999999999999999999999999", "-0.10"],
    ),
    "n30": ("numeric(38,0)", ["0", "99999999999999999999999999999999999999", "-100"]),
    "nf": (
        "numeric",
        [
            "1.500",
            "0",
            "0.000",
            "-0.00000000000000000001",
            "123456789012345678901234567890.12",
            "1000",
            "1e40",
            "'NaN'",
            "1e-30",
            "-7.0",
        ],
    ),
    "nw": ("numeric(60,20)", ["0", "1.5", "123456789012345678901234567890123456789.00000000000000000001", "-100"]),
    "dom": ("price", ["1.5", "0", "9.99", "100"]),
    "f8": (
        "float8",
        ["0.1", "'-0'", "1e300", "5e-324", "'NaN'", "'Infinity'", "'-Infinity'", "1e20", "123456789", "0"],
    ),
    "f4": ("real", ["0.1", "3.4e38", "'-0'", "1.17549e-38", "16777216", "'NaN'", "'Infinity'"]),
    "ok": ("boolean", ["true", "false"]),
    "b1": ("bit(1)", ["B'0'", "B'1'"]),
    "name": ("text", _TEXTS),
    "vc": ("varchar(60)", _TEXTS),
    "pad": ("char(9)", ["'x'", "'ab  c'", "''", "'é☃'"]),
    "pad0": ("bpchar", ["'x  '", "''", "'ab'"]),
    "u": ("uuid", ["'00000000-0000-4000-8000-000000000001'", "'FFFFFFFF-0000-4000-8000-000000000001'"]),
    "j": ("json", ['\'{"b": 1, "a": [1.50, null, "é"]}\'', "'null'", "'1e2'", "'\"x\"'"]),
    "jb": ("jsonb", ['\'{"b":1,"a":[1.50,null]}\'', "'[]'", "'\"🙂\"'", "'null'"]),
    "ip": ("inet", ["'10.0.0.1'", "'::1'", "'10.1.0.0/16'"]),
    "cd": ("cidr", ["'10.1.0.0/16'", "'10.0.0.1/32'"]),
    "mac": ("macaddr", ["'08:00:2b:01:02:03'"]),
    "m": ("mood", ["'sad'", "'ok, fine'", "'it''s'"]),
    "ir": ("int4range", ["'[1,5)'", "'empty'", "'[,7)'"]),
    "nr": ("numrange", ["'[1.50,2]'", "'(,)'"]),
    "dr": ("daterange", ["'[2020-01-01,2021-01-01]'", "'[,infinity]'"]),
    "tr": ("tsrange", ["'[2020-01-01 10:00,2021-01-01 10:00:00.5)'", "'empty'"]),
    "d": (
        "date",
        [
            "'2026-11-27'",
            "'1582-10-20'",
            "'0001-01-01'",
            "'9999-12-31'",
            "'1969-12-31'",
            "'infinity'",
            "'-infinity'",
            "'0044-03-15 BC'",
            "'20000-01-01'",
            "'5874897-12-31'",
            "'4713-01-01 BC'",
            "'0001-12-31 BC'",
        ],
    ),
    "ts": (
        "timestamp",
        [
            "'2026-11-27 10:00:00.123456'",
            "'1969-12-31 23:59:59.999999'",
            "'0001-01-01 00:00:00'",
            "'2026-03-29 02:30:00'",
            "'infinity'",
            "'-infinity'",
            "'20000-01-01 01:02:03'",
            "'9999-12-31 23:59:59.999999'",
            "'0044-03-15 01:00 BC'",
            "'294276-01-01'",
        ],
    ),
    "ts3": ("timestamp(3)", ["'2026-11-27 10:00:00.123456'", "'1970-01-01'", "'infinity'"]),
    "tstz": (
        "timestamptz",
        [
            "'2026-11-27 10:00:00.5+02'",
            "'1970-01-01 00:00:00-08'",
            "'9999-12-31 23:00:00+00'",
            "'infinity'",
            "'0001-01-01 00:00:00+00'",
            "'20000-01-01 01:02:03'",
        ],
    ),
    "t": ("time", ["'00:00:00'", "'23:59:59.999999'", "'12:34:56.7'", "'24:00:00'"]),
    "t3": ("time(3)", ["'00:00:00'", "'23:59:59.999'", "'12:34:56.7'", "'24:00'"]),
    "by": ("bytea", ["''", "'\\x00ff'", "'\\x0a'"]),
    "ai": ("int[]", ["'{}'", "'{1,null,-5}'", "'{{1,2},{3,4}}'", "'[0:1]={1,2}'"]),
    "al": ("bigint[]", ["'{9223372036854775807}'", "'{}'"]),
    "at": ("text[]", ["'{}'", "array['x',null,'q\"\\/',E'\\t','']", "array[array['a','b']]"]),
    "ab": ("bool[]", ["'{t,f,null}'"]),
    "af": ("float8[]", ["'{0.1,-0,NaN,null}'"]),
    "an": ("numeric(10,2)[]", ["'{1.50,null,0,-0.01}'"]),
    "anf": ("numeric[]", ["'{1.50,null,0,1e30}'", "'{NaN}'"]),
    "ad": ("date[]", ["'{2020-01-01,null}'", "'{infinity}'"]),
    "ats": ("timestamp[]", ["'{\"2020-01-01 10:00:00.5\",null}'", "'{infinity}'"]),
    "atz": ("timestamptz[]", ["'{\"2020-01-01 10:00:00.5+02\",null}'"]),
    "au": ("uuid[]", ["'{00000000-0000-4000-8000-000000000001,null}'"]),
    "ap": ("char(4)[]", ["'{ab,null}'"]),
    "aj": ("jsonb[]", ["array['{\"a\":1}'::jsonb,null]"]),
}
# Of extensions, which not every server has.
EXTENDED: dict[str, tuple[str, list[str]]] = {
    "x": ("xml", ["'<a>1</a>'"]),
    "ci": ("citext", ["'AbC'", "''", "'é'"]),
    "lt": ("ltree", ["'a.b.c'", "'Top'"]),
}
UNKNOWN: dict[str, tuple[str, list[str]]] = {
    "nm": ("name", ["'abc'", "'x y'"]),
    "bits": ("bit(4)", ["B'0101'"]),
    "pt": ("point", ["'(1,2)'"]),
    "mo": ("money", ["'1.50'"]),
    "tv": ("tsvector", ["'a b'"]),
    "iv": ("interval", ["'1 year 2 mons'"]),
    "tz": ("timetz", ["'12:00:00+02'"]),
}
_OTHERS = (
    "create type mood as enum ('sad', 'ok, fine', 'it''s')",
    "create domain price as numeric(10,2) check (value > -1e9)",
)


def list_statements(rows: int, with_extensions: bool = False, seed: int = 1) -> Iterator[str]:
    """Yields the statements that make and fill the table."""
    all_ = {**KNOWN, **UNKNOWN, **(EXTENDED if with_extensions else {})}
    yield from _OTHERS
    yield from ("create extension citext", "create extension ltree") if with_extensions else ()
    columns = ", ".join(f"{name} {type_}" for name, (type_, _) in all_.items())
    yield f"create table edge (id bigint primary key, {columns})"
    drawn = random.Random(seed)
    for first in range(0, rows, 100):
        made = []
        for number in range(first, min(first + 100, rows)):
            values = ("null" if drawn.random() < 0.08 else drawn.choice(values) for _, values in all_.values())
            made.append(f"({number}, {', '.join(values)})")
        yield f"insert into edge values {', '.join(made)}"
