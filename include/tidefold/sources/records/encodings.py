"""Converts values from the forms in which sources write them to the column's type, without loss.

A value is decoded strictly as its `json_type`. If that is not the column's type, `conversion` converts it. It raises
ValueError with the reason if no value of the column's type is equal.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, UnsetType

from tidefold.domain.table.types import Type, encodings_of, parse_promised_scale
from tidefold.sources.records import lossless_text
from tidefold.sources.records.lossless_text import NOT_FINITE, VariableScale

INT64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_NO_NUMBER = Literal["NaN", "Infinity", "-Infinity"]
# The greatest double whose nearest float is finite: the largest float is often written shorter, and thus larger.
_FLOAT32_MAX = 3.4028235677973362e38
# The greatest one whose nearest float is zero.
_FLOAT32_ZERO = 2.0**-150
# Dates (days) and timestamps (microseconds) since 1970, of the years 1 to 9999: every reader can show them. Values in
# another unit are mostly out of this range.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
COLUMN_TYPES: dict[str, Any] = {
    "boolean": bool,
    "int": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    "long": INT64,
    "float": Annotated[float, Meta(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)] | _NO_NUMBER,
    "double": float | _NO_NUMBER,
    "string": str,
    "date": Annotated[int, Meta(ge=_FIRST_DAY, le=_LAST_DAY)],
    "timestamp": Annotated[int, Meta(ge=_FIRST, le=_LAST)],
    "binary": bytes,
}
_JSON_TYPES: dict[tuple[str, str], Any] = {
    ("boolean", "number"): Literal[0, 1],
    ("decimal", "base64"): bytes | VariableScale,
    ("decimal", "string"): str,
    ("decimal", "number"): Decimal,
    ("date", "iso"): str,
    ("timestamp", "iso"): str,
    ("timestamp", "millis"): Annotated[int, Meta(ge=_FIRST // 1000, le=_LAST // 1000)],
    ("timestamp", "seconds"): Annotated[int, Meta(ge=_FIRST // 1_000_000, le=_LAST // 1_000_000)],
    ("timestamp", "nanos"): INT64,
    ("binary", "base64url"): str,
    ("binary", "hex"): str,
    # Any JSON value; the decoder leaves it as it is, even null.
    ("string", "json"): Raw,
    ("string", "decimal"): Raw,
    ("string", "base64"): bytes | VariableScale,
    **{("string", unit): INT64 | str for unit in ("days", "micros", "millis", "nanos")},
    ("timestamp", "days"): Annotated[int, Meta(ge=_FIRST_DAY, le=_LAST_DAY)],
    # What records had before the type of their column changed, and after it.
    ("boolean", "any"): bool | int | str,
    **{(name, "any"): int | float | str for name in ("int", "long", "float", "double")},
    ("decimal", "any"): Decimal,
    ("date", "any"): Annotated[int, Meta(ge=_FIRST_DAY, le=_LAST_DAY)] | str,
    ("timestamp", "any"): Annotated[int, Meta(ge=_FIRST, le=_LAST)] | str,
}
Conversion = Callable[[Any], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_EXACT = Context(prec=100)
_NUMBER = re.compile(r"-?\d{1,100}(\.\d{1,100})?([eE][+-]?\d{1,3})?", re.ASCII)
_OTHER_FORM = "let the source write that, or make the column a `string`"
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)Z?", re.ASCII)
_ZONE = r" ?(?:Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)"
_INSTANT = re.compile(rf"\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(?:\.\d{{1,6}}(\d{{0,3}}))?({_ZONE})?", re.ASCII)
_HEX = re.compile(r"([0-9a-fA-F]{2})*")
_BASE64URL = re.compile(r"[\w-]*={0,2}", re.ASCII)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


@dataclass(frozen=True, slots=True)
class Form:
    """How the values of a column are written.

    scale: of decimals as base64, by their schema or by the configuration's promise; None: not known.
    promised: only the configuration promises the scale.
    unsent: the placeholder that the schema declares for values that were not sent.
    """

    encoding: str = ""
    scale: int | None = None
    promised: bool = False
    unsent: str = ""


class ScaleError(ValueError):
    """The scale of a decimal in base64 is not known, or is not the promised one."""


def form_of(type_: Type, encoding: str) -> Form:
    """The configured form, or the usual one."""
    if (scale := parse_promised_scale(encoding)) is not None:
        return Form("base64", scale, promised=True)
    return Form(encoding or next(iter(encodings_of(type_)), ""))


def json_type(type_: Type, form: Form) -> Any:
    """The type that the decoder expects for a value that is not null."""
    if type_.element:
        return list[or_null(json_type(type_.element, form))]  # type: ignore[misc]
    return _JSON_TYPES.get((type_.name, form.encoding)) or COLUMN_TYPES[type_.name]


def or_null(kind: Any) -> Any:
    """The same, or null."""
    return kind if kind is Raw else kind | None


def or_unset(kind: Any) -> Any:
    """The same, or null, or nothing at all."""
    return kind if kind is Raw else kind | UnsetType | None


def conversion(type_: Type, form: Form) -> Conversion | None:
    """The function that converts a decoded value to the column's type; None: no conversion is needed."""
    if type_.element:
        kind = type_.element.name
        return _of_elements(_ELEMENTS[kind] if kind in _ELEMENTS else conversion(type_.element, form))
    if type_.name == "decimal":
        return _decimal(type_, form)
    if type_.name == "string" and form.encoding == "base64":
        return lambda value: lossless_text.format_unscaled(value, form.scale)
    return _CONVERSIONS.get((type_.name, form.encoding))


def _of_elements(convert: Conversion | None) -> Conversion | None:
    if convert is None:
        return None
    return lambda values: [None if value is None else convert(value) for value in values]


def _decimal(type_: Type, form: Form) -> Conversion:
    if form.encoding == "base64":
        return partial(_fit_unscaled, type_, form)
    if form.encoding == "string":
        return lambda value: fit_decimal(_number(value), type_)
    return lambda value: fit_decimal(value, type_)


def _fit_unscaled(type_: Type, form: Form, value: bytes | VariableScale) -> Decimal:
    if isinstance(value, VariableScale):
        return fit_decimal(_parse_unscaled(value.value, value.scale), type_)
    if form.scale is None:
        raise ScaleError(
            "is a decimal in base64, which does not show its scale. If all of its values have "
            f"{type_.scale} digits after the point, promise it: `encoding: base64({type_.scale})`"
        )
    number = _parse_unscaled(value, form.scale)
    try:
        return fit_decimal(number, type_)
    except ValueError as error:
        if not form.promised:
            raise
        why = f"{error} with the promised {form.encoding}({form.scale}): the source's column may have another scale now"
        raise ScaleError(why) from error


def _parse_unscaled(digits: bytes, scale: int) -> Decimal:
    """The number whose digits are a whole number of big-endian bytes in two's complement."""
    if not digits or len(digits) > 40 or abs(scale) > 1000:
        raise ValueError("is not a number in base64")
    return Decimal(int.from_bytes(digits, "big", signed=True)).scaleb(-scale, _EXACT)


def _number(text: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a finite number")
    return Decimal(text)


def fit_decimal(value: Decimal, type_: Type) -> Decimal:
    """The same number. Raises ValueError if the type has no room for all of its digits."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a finite number")
    if not value:
        return Decimal(0)
    if -exponent > type_.scale and any(digits[type_.scale + exponent :]):
        raise ValueError(f"has more than {type_.scale} digits after the decimal point")
    if value.adjusted() >= type_.precision - type_.scale:
        raise ValueError(f"has more than {type_.precision - type_.scale} digits before the decimal point")
    return value.quantize(Decimal(1).scaleb(-type_.scale), context=_EXACT)


def _days(text: str) -> int:
    parts = _DATE.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text[:40]!r} is not a date of ISO 8601 such as 2026-01-31: {_OTHER_FORM}")
    try:
        return date.fromisoformat(parts[1]).toordinal() + _FIRST_DAY - 1
    except ValueError:
        pass
    raise ValueError(f"{text[:40]!r} is not a date of the years 1 to 9999")


def _micros(text: str) -> int:
    """Microseconds of an instant in ISO 8601; one without a zone is UTC."""
    parts = _INSTANT.fullmatch(text)
    if parts and (parts[2] or "").strip("0"):
        raise ValueError("has fractions of a microsecond")
    try:
        at = datetime.fromisoformat(_plain_zone(text, parts[3] or "")) if parts else None
    except ValueError:
        at = None
    if at is not None:
        micros = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MICRO
        if _FIRST <= micros <= _LAST:
            return micros
    if parts is None:
        raise ValueError(f"{text[:40]!r} is not an instant of ISO 8601 such as 2026-01-31T12:00:00Z: {_OTHER_FORM}")
    raise ValueError(f"{text[:40]!r} is not an instant of the years 1 to 9999")


def _plain_zone(text: str, zone: str) -> str:
    """The instant as ISO 8601 has it: warehouses write ` UTC`, or a blank before the zone."""
    if not zone.startswith(" ") and zone not in ("UTC", "GMT"):
        return text
    plain = zone.strip()
    return text.removesuffix(zone) + ("Z" if plain in ("UTC", "GMT") else plain)


def _whole_micros(nanos: int) -> int:
    if nanos % 1000:
        raise ValueError("has fractions of a microsecond")
    return nanos // 1000


def _from_base64url(text: str) -> bytes:
    if not _BASE64URL.fullmatch(text) or len(text.rstrip("=")) % 4 == 1:
        raise ValueError("is not base64 for URLs")
    return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))


def _from_hex(text: str) -> bytes:
    if not _HEX.fullmatch(text):
        raise ValueError("is not hexadecimal text")
    return bytes.fromhex(text)


def _exact(value: float | str) -> Decimal:
    return _number(value) if isinstance(value, str) else Decimal(value)


def _whole_of_any(value: float | str, low: int, high: int) -> int:
    number = _exact(value)
    if not low <= number <= high or number % 1:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number from {low} to {high}")
    return int(number)


def _require_no_zero(value: float | str) -> float | str:
    """Refuses a number that is nearer to zero than to any other float."""
    if not isinstance(value, str) and 0 < abs(value) <= _FLOAT32_ZERO:
        raise ValueError(f"{str(value)[:40]!r} would become 0 as `float`: make the column `double`")
    return value


# Numbers of an array come as texts, too.
_ELEMENTS: dict[str, Conversion] = {"float": lambda value: float(_require_no_zero(value)), "double": float}


def _float_of_any(value: float | str, most: float) -> float:
    if value in NOT_FINITE:
        return float(value)
    number = _exact(value)
    if abs(number) > Decimal(most):
        raise ValueError(f"{str(value)[:40]!r} is out of range")
    return float(number)


def _boolean_of_any(value: bool | int | str) -> bool:
    boolean = _BOOLEANS.get(str(value).lower())
    if boolean is None:
        raise ValueError(f"{str(value)[:40]!r} is not a boolean")
    return boolean


_CONVERSIONS: dict[tuple[str, str], Conversion] = {
    ("boolean", "number"): bool,
    ("date", "iso"): _days,
    ("timestamp", "iso"): _micros,
    ("timestamp", "millis"): lambda millis: millis * 1000,
    ("timestamp", "seconds"): lambda seconds: seconds * 1_000_000,
    ("timestamp", "nanos"): _whole_micros,
    ("binary", "base64url"): _from_base64url,
    ("binary", "hex"): _from_hex,
    ("string", "json"): lossless_text.json_text,
    ("string", "decimal"): lossless_text.decimal_text,
    ("string", "days"): lossless_text.date_text,
    ("string", "micros"): partial(lossless_text.instant_text, digits=6),
    ("string", "millis"): partial(lossless_text.instant_text, digits=3),
    ("string", "nanos"): partial(lossless_text.instant_text, digits=9),
    ("timestamp", "days"): lambda days: days * 86_400_000_000,
    ("boolean", "any"): _boolean_of_any,
    ("int", "any"): partial(_whole_of_any, low=-(2**31), high=2**31 - 1),
    ("long", "any"): partial(_whole_of_any, low=-(2**63), high=2**63 - 1),
    ("float", "number"): _require_no_zero,
    ("float", "any"): lambda value: float(_require_no_zero(_float_of_any(value, _FLOAT32_MAX))),
    ("double", "any"): partial(_float_of_any, most=sys.float_info.max),
    ("date", "any"): lambda value: _days(value) if isinstance(value, str) else value,
    ("timestamp", "any"): lambda value: _micros(value) if isinstance(value, str) else value,
}
