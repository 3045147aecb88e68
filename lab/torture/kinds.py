"""Kinds of columns: how a database declares them, values at their limits, and what a value is on both sides.

A value of the database's own dump and one of the published table are equal if their canonical forms are.
"""

from __future__ import annotations

import datetime
import random
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


def fixed(text: str) -> Callable[[Modes], str]:
    return lambda modes: text


def pick(*texts: str) -> Callable[[random.Random], str]:
    return lambda rnd: rnd.choice(texts)


def draw_whole(bits: int, unsigned: bool = False) -> Callable[[random.Random], str]:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda rnd: str(rnd.choice((low, high, 0, 1, rnd.randint(low, high), rnd.randint(0, 99))))


def draw_digits(precision: int, scale: int) -> Callable[[random.Random], str]:
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


def draw_large_text(rnd: random.Random) -> str:
    return quoted("".join(rnd.choices("abcdefghijklmnopqrstuvwxyzÄ漢0123456789", k=rnd.choice((2100, 2600, 9000)))))


def float_form(form: str) -> Canon:
    return lambda value: repr(struct.unpack(form, struct.pack(form, float(value)))[0])


def decimal_form(value: Any) -> str:
    return format(Decimal(value), "f")


def number_form(value: Any) -> str:
    """A decimal of any scale: the connector leaves out zeros at its end."""
    text = str(value)
    return text if text[-1].isalpha() else format(Decimal(text).normalize(_EXACT), "f")


def instant_form(value: Any) -> str:
    """Microseconds since 1970, of a datetime or of what the database counted."""
    if isinstance(value, datetime.datetime):
        value = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return str((value - _EPOCH) // datetime.timedelta(microseconds=1))
    return str(int(Decimal(value)))


def bytes_of_hex(value: Any) -> bytes:
    return bytes.fromhex(value)


def binary_spec(modes: Modes) -> str:
    mode = modes["binary"]
    return {
        "bytes": "{type: binary, encoding: base64}",
        "base64": "{type: binary, encoding: base64}",
        "base64-url-safe": "{type: binary, encoding: base64url}",
        "hex": "{type: binary, encoding: hex}",
    }[mode]


def precise_spec(type_: str) -> Callable[[Modes], str]:
    promise = f"base64({type_.rpartition(',')[2].strip(')>')})"
    return lambda modes: f"{{type: '{type_}', encoding: {promise if modes['decimal'] == 'precise' else 'string'}}}"


def bits_form(value: Any) -> str:
    """Of a bit string as bytes, lowest first: the number that it is."""
    return str(int.from_bytes(value, "little"))


def draw_day(rnd: random.Random) -> str:
    days = ("1700-01-01", "9999-12-31", "1970-01-01", "1969-12-31", "2000-02-29")
    drawn = datetime.date.fromordinal(rnd.randint(620000, 3652059)).isoformat()
    return rnd.choice((*days, drawn))


def draw_moment(rnd: random.Random) -> str:
    return f"{draw_day(rnd)} {rnd.choice(('00:00:00', '23:59:59.999999', '12:34:56.789', '07:08:09.000001'))}"


def says_scale(modes: Modes) -> bool:
    """Whether a decimal of a fixed scale can be read without knowing it."""
    return modes["schemas"] == "on" or modes["decimal"] == "string"


def scaled(type_: str) -> list[Kind]:
    """A decimal, and the one of another scale that it becomes.

    In base64 without a schema such a change cannot be described (docs/how-to/change-columns.md).
    """
    sizes = {"numeric-scaled": (8, 2), "numeric-scaled-4": (12, 4)}
    made = []
    for name, (precision, scale) in sizes.items():
        size = f"({precision},{scale})"
        kind = Kind(
            name, f"{type_}{size}", draw_digits(precision, scale), precise_spec(f"decimal{size}"), fits=says_scale
        )
        wider = tuple(other for other, (digits, _) in sizes.items() if digits > precision)
        made.append(replace(kind, source=number_form, table=number_form, widens=wider))
    return made
