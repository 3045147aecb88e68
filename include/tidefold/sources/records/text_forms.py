"""Brings texts of values to the one form that Arrow reads: times, numbers and booleans as sources spell them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.domain.table.types import UNITS

# Ways to write a time that are no ISO 8601. Day and month first differ where the day is 12 at most; no country writes
# the month before a dot.
FORMATS = (
    "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y", "%m/%d/%Y",
    "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d",
    "%d-%m-%Y %H:%M:%S", "%m-%d-%Y %H:%M:%S", "%d-%m-%Y", "%m-%d-%Y", "%Y%m%d%H%M%S", "%Y%m%d",
    "%d-%b-%Y %H:%M:%S", "%d-%b-%Y",
    "%d/%m/%Y %I:%M:%S %p", "%m/%d/%Y %I:%M:%S %p", "%d/%m/%Y %I:%M %p", "%m/%d/%Y %I:%M %p", "%Y/%m/%d %H:%M:%S.%f",
    "%d-%b-%y %I.%M.%S.%f %p", "%d-%b-%y %H:%M:%S", "%d-%b-%y", "%b %d, %Y, %I:%M:%S %p", "%b %d, %Y",
    "%d/%b/%y %I:%M %p", "%d/%b/%Y %H:%M:%S", "%d-%b-%y %I.%M.%S %p", "%d-%b-%Y %I:%M:%S %p",
)  # fmt: skip
_DAY_MONTH = re.compile("([0-9]{1,2})[/-]([0-9]{1,2})[/-][0-9]{4}")
_TOUCHING = "(?:%[YymdHIMSj]){2,}"
# The microseconds of the years 2000 to 2100.
_CENTURY = (946_684_800_000_000, 4_102_444_800_000_000)
# The decimal point and the mark between thousands, the likeliest first.
NUMBER_MARKS = ((".", ""), (",", ""), (",", "."), (".", ","), (",", " "), (".", " "), (".", "'"), (",", "'"))
_NUMBERS = ("int", "long", "float", "double", "decimal")
# Blanks and apostrophes that stand for the one on the keyboard.
_SAME = {" ": r"[ \x{00A0}\x{202F}]", "'": r"['\x{2019}]"}
_BOOLEANS = pa.array(["true", "false", "True", "False", "TRUE", "FALSE", "t", "f"])
_NORMAL_BOOLEANS = pa.array(["true", "false"] * 4)
_NAIVE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# What warehouses write behind an instant: `UTC` or a blank before the zone, and zeros behind the microsecond.
_SPELLED = r"( UTC| GMT| Z| [+-][0-9:]+|\.[0-9]{6}0+.*)$"
_PLAINER = ((r" ?(UTC|GMT|Z)$", "Z"), (r" ([+-][0-9]{2}(:?[0-9]{2})?)$", r"\1"), (r"(\.[0-9]{6})0+", r"\1"))


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a source spells values.

    formats: of times that are not ISO 8601, as Python's strptime has it.
    decimal, thousands: the characters within numbers; no thousands: empty.
    time_zone: of times without one; None: UTC.
    """

    formats: Sequence[str] = ()
    decimal: str = "."
    thousands: str = ""
    time_zone: str | None = None


PLAIN = Spelling()


def in_normal_form(texts: pa.Array, type_: str, spelling: Spelling) -> pa.Array:
    """The same values as texts that are read. A text in no known form becomes one that is refused later."""
    if type_ == "boolean":
        booleans = _NORMAL_BOOLEANS.take(pc.index_in(texts, _BOOLEANS))
        return pc.if_else(pc.is_valid(booleans), booleans, texts)
    if type_ in _NUMBERS:
        if pc.any(pc.ends_with(texts, "-")).as_py():  # SAP and mainframes write the sign behind the number.
            texts = pc.replace_substring_regex(texts, r"^([0-9].*)-$", r"-\1")
        return texts if (spelling.decimal, spelling.thousands) == (".", "") else _parse_numbers(texts, spelling)
    if type_ not in ("date", "timestamp"):
        return texts
    texts = _parse_times(texts, type_, spelling)
    if type_ == "date":
        return texts
    texts = _with_suffix(texts, _DAY, "T00:00:00Z")
    return _with_suffix(_without_words(texts), _NAIVE, "Z")


def _without_words(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(texts, _SPELLED)).as_py():
        return texts
    for pattern, plain in _PLAINER:
        texts = pc.replace_substring_regex(texts, pattern, plain)
    return texts


def _with_suffix(texts: pa.Array, pattern: str, suffix: str) -> pa.Array:
    longer = pc.binary_join_element_wise(texts, pa.scalar(suffix), pa.scalar(""))
    return pc.if_else(pc.match_substring_regex(texts, pattern), longer, texts)


def _parse_numbers(texts: pa.Array, spelling: Spelling) -> pa.Array:
    """Numbers with a point and without thousands; an empty text for any other one."""
    decimal, thousands = (_SAME.get(mark, re.escape(mark)) for mark in (spelling.decimal, spelling.thousands))
    groups = f"|[1-9][0-9]{{0,2}}({thousands}[0-9]{{3}})+" if thousands else ""
    right = pc.match_substring_regex(texts, f"^-?([0-9]+{groups})({decimal}[0-9]+)?$")
    plain = pc.replace_substring_regex(texts, thousands, "") if thousands else texts
    return pc.if_else(right, pc.replace_substring(plain, spelling.decimal, "."), pa.scalar(""))


def _parse_times(texts: pa.Array, type_: str, spelling: Spelling) -> pa.Array:
    """Texts in one of the formats, as ISO 8601. Python reads them: Arrow takes the 31st of February for a day."""
    if not spelling.formats and (spelling.time_zone is None or type_ == "date"):
        return texts
    once = texts.dictionary_encode()
    normal = [_iso(text, type_, spelling) for text in once.dictionary.to_pylist()]
    return pa.array(normal, pa.string()).take(once.indices)


def _iso(text: str, type_: str, spelling: Spelling) -> str:
    for format_ in spelling.formats:
        if (at := _parse_time(text, format_)) is None:
            continue
        if type_ == "timestamp":
            return at.isoformat() if at.tzinfo else _in_utc(at, spelling.time_zone)
        if (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0):
            return at.date().isoformat()
    return localize(text, spelling.time_zone) if type_ == "timestamp" else text


def localize(text: str, time_zone: str | None) -> str:
    """Returns an ISO 8601 time without a zone as one of the zone; any other text as it is."""
    if time_zone is None or not re.fullmatch(f"{_NAIVE}|{_DAY}", text):
        return text
    try:
        return _in_utc(datetime.fromisoformat(text), time_zone)
    except ValueError:
        return text


def _in_utc(at: datetime, time_zone: str | None) -> str:
    """Returns a local time in UTC: the earlier one if clocks showed it twice, a text that is none if they never did."""
    zone = ZoneInfo(time_zone) if time_zone else UTC
    try:
        instant = at.replace(tzinfo=zone).astimezone(UTC)
        is_shown = instant.astimezone(zone).replace(tzinfo=None) == at
    except OverflowError:  # The years 0 and 10000, where readers have no time.
        return f"{at} in no year of UTC"
    return instant.isoformat() if is_shown else f"{at} in no hour of {time_zone}"


def find_formats(text: str, type_: str, first: str = "") -> list[str]:
    """The first format that makes a date or a timestamp of a text, and the one with day and month swapped if it fits.

    first: what comes first in other values of the column, `d` or `m`; empty: not known.
    """
    formats = [f for f in FORMATS if type_ == "timestamp" or (type_ == "date" and "%H" not in f and "%I" not in f)]
    fitting = next(([f, swap_day_month(f)] for f in formats if is_as(text, f)), [])
    both = [f for f in dict.fromkeys(fitting) if f in FORMATS and is_as(text, f)]
    return [f for f in both if f.startswith(f"%{first}")] or both


def swap_day_month(format_: str) -> str:
    """Returns the format with the month first instead of the day, or the other way; else the same format."""
    return re.sub("^%([dm])([^%]*)%([dm])", r"%\3\2%\1", format_)


def find_ambiguous(formats: Sequence[str]) -> tuple[str, dict[str, datetime]] | None:
    """Returns a text that formats read as different times, with these by their formats; None: there is none."""
    moment = datetime(2011, 12, 10, 12, 13, 14, tzinfo=UTC)
    for text in map(moment.strftime, formats):
        times = {format_: time for format_ in formats if (time := _parse_time(text, format_))}
        if len(set(times.values())) > 1:
            return text, times
    return None


def find_first(texts: Iterable[str]) -> str:
    """Whether the day (`d`) or the month (`m`) comes first, by the numbers above 12; empty: they do not decide."""
    begins = [match for text in texts if (match := _DAY_MONTH.match(text))]
    firsts = {"d" if int(match[1]) > 12 else "m" for match in begins if int(match[1]) > 12 or int(match[2]) > 12}
    return firsts.pop() if len(firsts) == 1 else ""


def is_as(text: str, format_: str) -> bool:
    """Whether a text is a time in this format."""
    return text[:1].isalnum() and _parse_time(text, format_) is not None


def _parse_time(text: str, format_: str) -> datetime | None:
    """Returns the time; None: the text is none. Where directives touch, each needs all of its digits."""
    widths = _list_widths(format_)
    try:
        return datetime.strptime(text, format_) if widths is None or widths.fullmatch(text) else None
    except ValueError:
        return None


@cache
def _list_widths(format_: str) -> re.Pattern[str] | None:
    """Returns what texts of a format look like; None: no directives touch. Python alone takes a digit for two."""

    def widen(match: re.Match[str]) -> str:
        digits = sum({"Y": 4, "j": 3}.get(name, 2) for name in match[1][1::2]) if match[1] else 0
        return rf"\d{{{digits}}}" + (r"\d{1,6}" if match[2] else "") if digits else ".+"

    if not re.search(_TOUCHING, format_):
        return None
    spaced = re.escape(format_).replace(r"\ ", r"\s+")
    return re.compile(re.sub(rf"({_TOUCHING})(%f)?|%.", widen, spaced), re.IGNORECASE)


def find_unit(low: int, high: int) -> str:
    """Returns the unit in which numbers from `low` to `high` are times of 2000 to 2100, since 1970; empty: none."""
    return next((u for u, micros in UNITS.items() if low * micros >= _CENTURY[0] and high * micros < _CENTURY[1]), "")
