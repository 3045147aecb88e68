"""Values of a source's options: formats of times and dates, time zones, encodings, delimiters."""

from __future__ import annotations

import codecs
import re
from datetime import UTC, date, datetime
from difflib import get_close_matches
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator, BeforeValidator, Field

from tidefold.yaml_files.messages import Text, mistake

# `CEST` is like `EST` only in its letters: the abbreviations of these are looked up.
_ZONES = [f"Europe/{city}" for city in ("Berlin", "London", "Athens", "Lisbon", "Moscow")]
_ZONES += [f"America/{city}" for city in ("New_York", "Chicago", "Denver", "Los_Angeles")]


def _check_time_format(value: str) -> str:
    """Requires a time format that can parse what it writes."""
    try:
        datetime.strptime(datetime(2026, 1, 31, 12, tzinfo=UTC).strftime(value), value)
    except ValueError:
        parts = "%Y year, %m month, %d day, %H hour, %M minute, %S second, %f fraction of a second"
        hint = f'Write it as "%d.%m.%Y %H:%M:%S": {parts}.'
        raise mistake("CONFIG_UNKNOWN_VALUE", "is not a time format.", hint) from None
    return value


def _check_time_formats(formats: list[str]) -> list[str]:
    """Refuses formats that read one text as different times: the first one would take values of the other."""
    if len(formats) < 2:
        return formats
    # It loads Arrow, which other configurations do not need.
    from tidefold.sources.records.text_forms import find_ambiguous

    if ambiguous := find_ambiguous(formats):
        text, times = ambiguous
        shown = ", ".join(f'"{name}" as {time:%Y-%m-%d %H:%M:%S}' for name, time in times.items())
        hint = "Keep the one that the source writes. Correct files of the other, or name them in `leave_out`."
        raise mistake("TIME_FORMATS_AMBIGUOUS", f"read `{text}` as different times: {shown}.", hint)
    return formats


def _check_date_format(value: str) -> str:
    if not {"%Y", "%m", "%d"} <= set(re.findall("%.", value)) <= {"%Y", "%m", "%d", "%H", "%M", "%S"}:
        hint = 'For example "%Y%m%d_%H%M". It needs %Y, %m and %d, and may have %H, %M and %S.'
        raise mistake("CONFIG_UNKNOWN_VALUE", "is not a format for the date of an extract.", hint)
    return _check_time_format(value)


def _read_date_names(value: Any) -> Any:
    """Turns dates and numbers back into text: YAML parses 2026-01-31 and 20260131, but here they are parts of names."""
    return [str(one) if isinstance(one, date | int) else one for one in value] if isinstance(value, list) else value


def _read_delimiter(value: Any) -> Any:
    """Turns the two characters that YAML's `'\\t'` gives into a tab."""
    return "\t" if value in ("\\t", "tab") else value


def _check_encoding(value: str) -> str:
    try:
        name = codecs.lookup(value).name
        ascii_stays = '\n\r",;\t|'.encode(name) == b'\n\r",;\t|'
    except (LookupError, UnicodeError):
        ascii_stays = False
    if not ascii_stays:
        hint = "Use an encoding such as `utf-8`, `latin-1` or `cp1252`. Convert UTF-16 files before they land."
        raise mistake(
            "CONFIG_UNKNOWN_VALUE", "must be an encoding that keeps ASCII bytes: tidefold splits lines at them.", hint
        )
    return name


def _check_time_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = [zone for zone in _ZONES if value in {ZoneInfo(zone).tzname(datetime(2026, m, 1)) for m in (1, 7)}]
        near = near or get_close_matches(value, available_timezones(), 1)
        hint = f"Did you mean `{near[0]}`?" if near else "Use a name such as `Europe/Berlin` or `UTC`."
        raise mistake("CONFIG_UNKNOWN_VALUE", "is not the name of a time zone.", hint) from None
    return value


TimeFormat = Annotated[Text, AfterValidator(_check_time_format)]
TimeFormats = Annotated[list[TimeFormat], AfterValidator(_check_time_formats)]
DateFormat = Annotated[Text, AfterValidator(_check_date_format)]
# Dates in names of files.
DateNames = Annotated[list[Text], BeforeValidator(_read_date_names)]
TimeZone = Annotated[Text, AfterValidator(_check_time_zone)]
Delimiter = Annotated[str, BeforeValidator(_read_delimiter), Field(min_length=1, max_length=1)]
Encoding = Annotated[str, AfterValidator(_check_encoding)]
