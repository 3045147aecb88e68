"""Writes values as text without loss, in the forms in which sources send them: what no type of a column can hold."""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec

from tidefold.typed_json import make_decoder

_NUMERAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
# Debezium writes numbers that JSON does not have as texts.
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
# How Debezium writes these three with `decimal.handling.mode=string`.
_NO_NUMBERS = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
# What the connector makes of the infinities of a timestamp, in microseconds.
_INFINITIES = {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"}
_DAY = 86_400


class VariableScale(msgspec.Struct, gc=False):
    """A decimal that brings its scale: io.debezium.data.VariableScaleDecimal."""

    scale: int
    value: bytes


_variable = make_decoder(VariableScale)


def json_text(value: msgspec.Raw) -> str | None:
    """A text as it is; anything else as the JSON that the source wrote."""
    text = bytes(value).decode()
    if text == "null":
        return None
    return str(msgspec.json.decode(value)) if text.startswith('"') else text


def decimal_text(value: msgspec.Raw) -> str | None:
    """Returns a decimal, in any form that is valid without a schema, digit by digit."""
    text = bytes(value).decode()
    if text.startswith("{"):
        try:
            return format_unscaled(_variable.decode(value), None)
        except msgspec.DecodeError as error:
            raise ValueError("is an object, not a decimal with its scale") from error
    plain = json_text(value)
    if plain is None or plain in NOT_FINITE or _NUMERAL.fullmatch(plain):
        return plain
    if plain not in _NO_NUMBERS:
        raise ValueError(f"{plain[:40]!r} is not a decimal")
    return _NO_NUMBERS[plain]


def format_unscaled(value: bytes | VariableScale, scale: int | None) -> str:
    """The number whose digits are a whole number of big-endian bytes in two's complement, with all of its digits."""
    digits = value.value if isinstance(value, VariableScale) else value
    scale = value.scale if isinstance(value, VariableScale) else scale
    if not digits or scale is None or abs(scale) > 20_000:
        raise ValueError("is not a number in base64")
    number = int.from_bytes(digits, "big", signed=True)
    text = format(Decimal(abs(number)), "f")  # `str` of a whole number has a limit of digits.
    sign = "-" if number < 0 else ""
    if scale <= 0:
        return sign + text + ("0" * -scale if number else "")
    text = text.rjust(scale + 1, "0")
    return f"{sign}{text[:-scale]}.{text[-scale:]}"


# Years outside 1 to 9999 are written as in ISO 8601 (`-0043-03-15`, `+10000-01-01`), and the infinities of PostgreSQL
# as in PostgreSQL.
def date_text(value: int | str) -> str:
    """A day since 1970; a text as it is."""
    return value if isinstance(value, str) else _date(value)


def instant_text(value: int | str, digits: int) -> str:
    """Returns the text of an instant since 1970 with this many decimal places of a second. Text stays as it is."""
    if isinstance(value, str):
        return value
    unit = 10**digits
    if digits == 6 and value in _INFINITIES:
        return _INFINITIES[value]
    seconds, part = divmod(value, unit)
    days, second = divmod(seconds, _DAY)
    shown = max(digits, 6)
    behind = str(part).rjust(digits, "0").ljust(shown, "0")
    return f"{_date(days)}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{behind}Z"


def _date(days: int) -> str:
    """A day since 1970 in the proleptic Gregorian calendar, of any year: days of an era of 400 years, from March on."""
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day = day - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (month <= 2)
    sign = "" if 0 <= year <= 9999 else "-" if year < 0 else "+"
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"
