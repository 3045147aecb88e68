"""Infers column types from sampled values: from texts, as CSV files contain them, and from JSON values."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidefold.domain.wording import count_noun
from tidefold.sources.inference.proposal import NUMERIC, ProposedColumn
from tidefold.sources.records.text_forms import (
    FORMATS,
    NUMBER_MARKS,
    PLAIN,
    Spelling,
    find_unit,
    in_normal_form,
    is_as,
    swap_day_month,
)

_WHOLE = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_FRACTION = re.compile(r"-?\d+\.\d+", re.ASCII)
_FLOAT = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?|NaN|-?Infinity", re.ASCII)
_CODE = re.compile(r"\d+[eE]\d+", re.ASCII)
_LEADING_ZERO = re.compile(r"-?0\d+", re.ASCII)
DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
UNZONED = "without a zone: read in `time_zone`"
_ZONE = r" ?(Z|UTC|GMT|[+-]\d\d(:?\d\d)?)"
INSTANT = re.compile(rf"\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{{1,6}}0*)?)?({_ZONE})?", re.ASCII)
_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)
MONEY = re.compile(
    r"(^|_)(price|amount|total|cost|sum|balance|fee|tax|vat|net|gross|salary|revenue|discount|amt|value|limit|rate)(_|$)",
    re.IGNORECASE,
)
_TIMES = re.compile(
    r"(^|_)(ts|time|timestamp|at|on|date|datetime|created|updated|modified|changed)(_|$)|_?(ms|us)$", re.IGNORECASE
)
_BOOLEANS = {"true", "false", "True", "False", "TRUE", "FALSE", "t", "f"}
_MOST_DIGITS, _MONEY_SCALE, _DIGITS = 38, 4, 18
# Digits behind the point of numbers in JSON, which does not say whether they are exact.
_ROOM = 9
# Words for no value, too short to be certain.
_GAPS = ("na", "-", "--", "?", "n.a.", "k.a.", "#n/a")
_NAMED_ONLY = ("%Y%m%d%H%M%S", "%Y%m%d")
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAY = re.compile(
    rf"(\w{{3,9}},? )?(\d{{1,4}}([-./])\d{{1,2}}\3\d{{1,4}}|\d{{1,2}}[-./ ]{_MONTH}[-./, ]+\d{{2,4}}|"
    rf"{_MONTH} +\d{{1,2}},? \d{{4}})(?!\d).*",
    re.IGNORECASE,
)
_CODES = "EUR|USD|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|CZK|BRL"
_CURRENCY = re.compile(rf"(?=.*\d)[-(]*((\$|€|£|¥|{_CODES}) ?-?[\d.,' ]+|[\d.,' ]+(\$|€|£|¥|{_CODES}))[-)]*")


_MARKED = re.compile(r"-?\d[\d.,'\u2019 \u00a0\u202f]*-?")
_KINDS = {dict: "object", list: "list", str: "text", int: "number", Decimal: "number", bool: "boolean"}


def find_spellings(columns: Iterable[Sequence[str | None]]) -> list[Spelling]:
    """Returns the ways in which the numbers of all columns can be read, each with other results."""
    spellings = [Spelling(decimal=decimal, thousands=thousands) for decimal, thousands in NUMBER_MARKS]
    results: dict[tuple[tuple[str, ...], ...], Spelling] = {}
    numbers = []
    for column in columns:
        values = sorted({value for value in column if value is not None})
        if not all(map(_MARKED.fullmatch, values)) or all(map(str.isdigit, values)):
            continue
        if any(respell(values, one) for one in spellings):
            numbers.append(values)
    for one in spellings:
        plain = [respell(values, one) for values in numbers]
        # Groups of digits between blanks alone may be no numbers.
        is_shown = one.thousands not in (" ", "'") or any("." in text for texts in plain for text in texts or ())
        if all(plain) and is_shown:
            results.setdefault(tuple(tuple(texts or ()) for texts in plain), one)
    return list(results.values()) or [PLAIN]


def respell(values: Sequence[str], spelling: Spelling) -> list[str] | None:
    """Returns the values as plain numbers; None: not all are numbers of this spelling."""
    plain: list[str] = in_normal_form(pa.array(values, pa.string()), "double", spelling).to_pylist()
    return plain if all(_FRACTION.fullmatch(text) or _WHOLE.fullmatch(text) for text in plain) else None


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts.

    formats: all time formats that fit its values, other than ISO 8601.
    """

    column: ProposedColumn
    formats: tuple[str, ...] = ()


def column_of_texts(name: str, seen: Sequence[str | None], spelling: Spelling = PLAIN) -> TextColumn:
    """Infers the narrowest type that fits all texts."""
    values = [value for value in seen if value is not None]
    is_respelled = spelling != PLAIN or any(value.endswith("-") for value in values)
    values = (is_respelled and respell(values, spelling)) or values
    if not values:
        return TextColumn(ProposedColumn(name, "string", "only nulls seen: check the type"))
    if formats := _formats(name, values):
        timed = any("%H" in format_ or "%I" in format_ for format_ in formats)
        return TextColumn(ProposedColumn(name, "timestamp" if timed else "date", f"as {values[0]}"), formats)
    if any(map(_LEADING_ZERO.fullmatch, values)):
        return TextColumn(ProposedColumn(name, "string", _text_note(values)))
    for type_, fits in _TEXT_TYPES.items():
        if all(map(fits, values)):
            moment = _time_of(name, [*map(int, values)]) if type_ == "long" else None
            return TextColumn(moment or ProposedColumn(name, type_, _note_of(type_, values)))
    if all(map(_WHOLE.fullmatch, values)):
        return TextColumn(ProposedColumn(name, f"decimal({_MOST_DIGITS},0)", "too long for `long`"))
    if all(_FRACTION.fullmatch(v) or _WHOLE.fullmatch(v) for v in values):
        return TextColumn(_fraction(name, [Decimal(v) for v in values]))
    if all(map(_FLOAT.fullmatch, values)) and any(map(_CODE.fullmatch, values)) and not any("." in v for v in values):
        return TextColumn(ProposedColumn(name, "string", "codes, or numbers with an exponent: `double` reads those"))
    if all(map(_FLOAT.fullmatch, values)):
        return TextColumn(ProposedColumn(name, "double"))
    return TextColumn(ProposedColumn(name, "string", _text_note(values) or _gap_note(values) or _form_note(values)))


def _is_long(text: str) -> bool:
    return bool(_WHOLE.fullmatch(text)) and -(2**63) <= Decimal(text) < 2**63


_TEXT_TYPES: dict[str, Callable[[str], object]] = {
    "boolean": _BOOLEANS.__contains__,
    "long": _is_long,
    "date": lambda text: DATE.fullmatch(text) and _is_iso(text),
    "timestamp": lambda text: INSTANT.fullmatch(text) and _is_iso(text),
}


def _is_iso(text: str) -> bool:
    try:
        datetime.fromisoformat(text[:10] + re.sub(rf"(\.\d+)?({_ZONE})?$", "", text[10:]))
    except ValueError:
        return False
    return True


def _note_of(type_: str, values: Sequence[str]) -> str:
    if type_ == "long":
        return whole_number_note([int(v) for v in values])
    zoned = [v for v in values if re.search(_ZONE + "$", v[10:])]
    return UNZONED if type_ == "timestamp" and not zoned else ""


def whole_number_note(values: Sequence[int]) -> str:
    """Explains why `long` is proposed for every whole number: a later value outside `int` would be refused."""
    low, high = min(values), max(values)
    note = f"{low} to {high} seen"
    return f"{note}: `int` would fit" if low >= -(2**31) and high < 2**31 else note


def _text_note(values: Sequence[str]) -> str:
    if any(map(_LEADING_ZERO.fullmatch, values)) and all(re.fullmatch(r"-?\d+", v) for v in values):
        return "digits with leading zeros: as text they stay"
    return ""


def _form_note(values: Sequence[str]) -> str:
    """Explains times and amounts that stay text, because no format and no number fits them."""
    if note := _day_note(values, "unless `timestamp_formats` below `source` has their format"):
        return note
    if all(map(_CURRENCY.fullmatch, values)):
        return "amounts with a currency: they stay text, because no number has one"
    return ""


def _day_note(values: Sequence[str], but: str) -> str:
    """Explains days in another form than ISO 8601 that stay text. but: how they become times."""
    if not all(map(_DAY.fullmatch, values)):
        return ""
    for format_ in FORMATS:
        other = swap_day_month(format_)
        day, month = (
            [v for v in values if is_as(v, one) and not is_as(v, two)]
            for one, two in ((format_, other), (other, format_))
        )
        if day and month and all(is_as(v, format_) or is_as(v, other) for v in values):
            return f"if these are times: they stay text, because no one format fits {day[0]} and {month[0]}"
    return f"if these are times: they stay text, {but}"


def _gap_note(values: Sequence[str]) -> str:
    """Explains numbers with a word for none among them. The word may be a value of another column."""
    words = {value for value in values if value.strip().casefold() in _GAPS}
    if not words or not all(_FLOAT.fullmatch(value) for value in values if value not in words):
        return ""
    listed = ", ".join(f'"{word}"' for word in sorted(words))
    return f'numbers, and {listed}: `null: ["", {listed}]` below `source` makes these null in every column'


def _fraction(name: str, values: Sequence[Decimal], encoding: str = "") -> ProposedColumn:
    """Proposes decimal for money: numbers with equally many decimal places, or a column with such a name."""
    scales = {max(0, -int(value.as_tuple().exponent)) for value in values}
    scale, digits = max(scales), max(1, *(value.adjusted() + 1 for value in values))
    room = max(_ROOM, 2 * scale)
    if encoding == "number":
        if scale > _ROOM or digits + room > _MOST_DIGITS:
            return ProposedColumn(name, "double")
        note = f"{count_noun(scale, 'digit')} behind the point seen, {room} fit; `double` takes any, inexactly"
        return ProposedColumn(name, f"decimal({_MOST_DIGITS},{room})", note, other="double")
    if scale <= _MONEY_SCALE and (MONEY.search(name) or len(scales) == 1) and digits + max(scale, 2) <= _MOST_DIGITS:
        seen, scale = count_noun(scale, "digit"), max(scale, 2)
        note = f"{seen} behind the point seen: more than {scale} are refused; `double` takes any, inexactly"
        precision = min(max(_DIGITS, digits + scale + 2), _MOST_DIGITS)
        return ProposedColumn(name, f"decimal({precision},{scale})", note, encoding)
    is_exact = not encoding and scale <= _ROOM and digits + _ROOM <= _MOST_DIGITS
    return ProposedColumn(name, "double", other=NUMERIC if is_exact else "")


def _formats(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """Returns all formats that fit every value. Formats of digits only count if the column name suggests a time."""
    tried = [f for f in FORMATS if f not in _NAMED_ONLY or _TIMES.search(name)]
    return tuple(format_ for format_ in tried if all(is_as(value, format_) for value in values))


def column_of_values(name: str, seen: Sequence[Any]) -> ProposedColumn:
    """Infers the type of a JSON field. Numbers with a decimal point were read as Decimal."""
    values = [v for v in seen if v is not None]
    kinds = {type(v) for v in values}
    if not kinds:
        return ProposedColumn(name, "string", "only nulls seen: check the type")
    if kinds == {int}:
        return _whole(name, values)
    if float in kinds <= {int, Decimal, float}:
        return ProposedColumn(name, "double", "NaN and the infinities are no JSON: their records are refused")
    if kinds <= {int, Decimal}:
        return _fraction(name, [Decimal(v) for v in values], "number")
    if kinds == {str}:
        return _text(name, values)
    if kinds == {list}:
        return _list(name, values)
    if kinds == {bool}:
        return ProposedColumn(name, "boolean")
    names = ", ".join(sorted(_KINDS.get(kind, kind.__name__) for kind in kinds))
    return ProposedColumn(name, None, f"no type fits what was seen ({names})")


def _whole(name: str, values: Sequence[int]) -> ProposedColumn:
    low, high = min(values), max(values)
    if low < -(2**63) or high >= 2**63:
        return ProposedColumn(name, f"decimal({_MOST_DIGITS},0)", "too long for `long`")
    return _time_of(name, values) or ProposedColumn(name, "long", whole_number_note(values))


def _time_of(name: str, values: Sequence[int]) -> ProposedColumn | None:
    """Returns a column of numbers since 1970, if its name and all values say so."""
    unit = find_unit(min(values), max(values)) if _TIMES.search(name) else ""
    note = f"{unit} since 1970; `long` keeps the number"
    return ProposedColumn(name, "timestamp", note, unit, other="long") if unit else None


def _text(name: str, values: Sequence[str]) -> ProposedColumn:
    if all(DATE.fullmatch(v) and _is_iso(v) for v in values):
        return ProposedColumn(name, "date", "", "iso")
    if all(INSTANT.fullmatch(v) and _is_iso(v) for v in values):
        return ProposedColumn(name, "timestamp", "", "iso")
    if MONEY.search(name) and all(_FRACTION.fullmatch(v) or _WHOLE.fullmatch(v) for v in values):
        return _fraction(name, [Decimal(v) for v in values], "string")
    return text_column(name, values)


def text_column(name: str, values: Sequence[str]) -> ProposedColumn:
    """Returns a column of texts, which may be numbers: text keeps all of their digits."""
    if all(_FRACTION.fullmatch(v) or _WHOLE.fullmatch(v) for v in values) and any("." in v for v in values):
        return ProposedColumn(name, "string", "numbers, as text", other=NUMERIC)
    note = base64_note(name, values) or _day_note(values, "unless the source writes ISO 8601, or numbers since 1970")
    return ProposedColumn(name, "string", note)


def base64_note(name: str, values: Sequence[str]) -> str:
    """Explains the default of Debezium: it writes decimals as base64, and the values do not show their scale."""
    distinct = set(values)
    looks = all(v and len(v) <= 24 and _BASE64.fullmatch(v) and _is_base64(v) for v in distinct)
    coded = any(re.search(r"[=+/]", v) for v in distinct) or MONEY.search(name)
    if not (looks and coded):
        return ""
    number = int.from_bytes(base64.b64decode(values[0]), "big", signed=True)
    return (
        f"is it a decimal in base64, as Debezium writes it? {values[0]} is {number} then, without its point: "
        "`{type: 'decimal(18,2)', encoding: base64(2)}` promises that all values have 2 digits behind it, and makes "
        f"it {Decimal(number).scaleb(-2)}"
    )


def _is_base64(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) > 0
    except binascii.Error:
        return False


def _list(name: str, values: Sequence[list[Any]]) -> ProposedColumn:
    elements = [element for value in values for element in value]
    inner = column_of_values(name, elements) if elements else ProposedColumn(name, "string")
    if inner.type is None or inner.type.startswith("array") or inner.encoding:
        plain = {type(e) for e in elements} == {str}
        return ProposedColumn(name, "array<string>" if plain else None, "" if plain else "no type fits its elements")
    return ProposedColumn(name, f"array<{inner.type}>", "" if elements else "only empty lists seen: check the type")
