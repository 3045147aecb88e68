"""The place in time that the name of a landed file says: date, time, hour, fraction and counters, as one number."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

# Folders of a year, a month and a day; a date as `31.01.2026`; then a date as in ISO 8601.
_FOLDERS = re.compile(r"(?<![^/])(?:year=)?((?:19|20)\d\d)/(?:month=)?(\d\d?)/(?:day=)?(\d\d?)(?=/)", re.IGNORECASE)
_DOTTED = re.compile(r"(?<!\d)(?<!\d[-.])(\d\d)\.(\d\d)\.(\d{4})(?!\d)")
_DAY = re.compile(r"(?<!\d)((?:19|20)\d\d)([-_.]?)(\d\d)\2(\d\d)(?=(\d*))")
# What may follow the date: a time to the second or its fraction, to the minute, or the hour.
_ZONE = r"(?!\d)(Z|\+\d\d:?\d\d)?(?![^\W_])"
_CLOCKS = (
    re.compile(rf"[T_ -]?(\d\d)([-:._]?)(\d\d)\2(\d\d)(?:[.,]?(\d{{1,6}}))?{_ZONE}"),
    re.compile(rf"(?:T|(?=\d)|[_ -](?=\d\d[-:.]))(\d\d)([-:.]?)(\d\d)()(){_ZONE}"),
    re.compile(rf"(?:T|(?=\d))(\d\d)()()()(){_ZONE}"),
)
_HOUR = re.compile(r"(?<![^\W_])(?:(?:h|hh|hour)=(\d\d?)|(\d\d?)(?:h|(am|pm)))(?![^\W_])", re.IGNORECASE)
_EPOCH = re.compile(r"(?<![^\W_])(\d{10})(\d{3}|\d{6})?(?![^\W_])")
UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
# What orders nothing: ids of any job, of a transaction of Databricks, and the partition beside an offset of Kafka.
_IDS = re.compile(rf"{UUID}|(?<![^\W_])tid-\d+|\+\d+(?=\+\d{{10}})")
_COUNTER = re.compile(
    r"(?<![^\W_])(?:p|part|page|chunk|batch|seq|no|nr|file|run|v|version)?(\d+)(?![^\W_])", re.IGNORECASE
)
_DAYS, _HOURS, _MINUTES, _SECONDS = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
_UNCLEAR = -(1 << 63)


def find_time(path: str, zone: str | None = None) -> int | None:
    """Returns the time in the name of a file, else in its innermost folder that has one, in microseconds since 1970.

    What follows the date counts: a time, an hour, a fraction; and numbers, each as so many microseconds. None: there is
    no date, or a name has two, or it is unclear.
    zone: the time zone of names without one; None: UTC.
    """
    time = _read(path, zone)
    return None if time == _UNCLEAR else time


def is_unclear(path: str) -> bool:
    """Whether digits follow the date in a name that could put files in order, but do not say how."""
    return _read(path, None) == _UNCLEAR


def split_names(names: Collection[str], zone: str | None = None, *, dated: bool | None = None) -> tuple[bool, set[str]]:
    """Returns whether names have a time, and those that do not fit: of the other kind, or unclear.

    dated: whether they have one; None: the first clear name decides.
    """
    times = {name: find_time(name, zone) for name in names}
    unclear = {name for name in times if is_unclear(name)}
    if dated is None:
        dated = next((time is not None for name, time in times.items() if name not in unclear), False)
    return dated, unclear | {name for name, time in times.items() if (time is not None) != dated}


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Returns by what names are sorted: digits count as numbers, so that `-9` comes before `-10`."""
    return tuple((0, int(p), p) if p.isdigit() else (1, 0, p) for p in re.split(r"([0-9]{1,4000})", name) if p)


@lru_cache(1 << 16)
def _read(path: str, zone: str | None) -> int | None:
    parts = _FOLDERS.sub(lambda m: f"{m[1]}-{m[2]:0>2}-{m[3]:0>2}", path).split("/")
    for at in range(len(parts) - 1, -1, -1):
        name = "/".join([_DOTTED.sub(r"\3-\2-\1", parts[at]), *parts[at + 1 :]])
        days = [(day, match) for match in _DAY.finditer(name) if (day := _read_day(match))]
        ends = [*(match.start() for _, match in days), len(name)][1:]
        times = {_place(day, name[match.end() : end], zone) for (day, match), end in zip(days, ends, strict=False)}
        if times:
            return times.pop() if len(times) == 1 else None
    return None


def _read_day(match: re.Match[str]) -> datetime | None:
    """Returns the day; None: it is none, or the beginning of a longer number."""
    if len(match[5]) not in (0, 2, 4, *range(6, 13)):
        return None
    try:
        return datetime(int(match[1]), int(match[3]), int(match[4]), tzinfo=UTC)
    except ValueError:
        return None


def _place(day: datetime, rest: str, zone: str | None) -> int:
    """Returns the time of a day and of what follows it. What is too large for the unit of the time is unclear."""
    moment, micros, room, spelled = day, 0, _DAYS, None
    # First, because the digits may also be those of a clock. Far from the date they are no time.
    part = next((one for one in _EPOCH.finditer(rest) if abs(int(one[1]) - day.timestamp()) < 2 * 86_400), None)
    if part:
        moment, spelled = datetime.fromtimestamp(int(part[1]), UTC), "Z"
        micros, room = _fraction(part[2])
    elif part := next((one for pattern in _CLOCKS if (one := pattern.match(rest))), None):
        hour, _, minute, second, fraction, spelled = part.groups()
        if int(hour) > 23 or int(minute or 0) > 59 or int(second or 0) > 59:
            return _UNCLEAR
        moment += timedelta(hours=int(hour), minutes=int(minute or 0), seconds=int(second or 0))
        micros, room = _fraction(fraction) if second else (0, _MINUTES if minute else _HOURS)
    elif re.match(r"T?\d|[_ -]\d{6}(?!\d)", rest):
        return _UNCLEAR
    elif part := _HOUR.search(rest):
        hours = int(part[1] or part[2])
        hours = hours % 12 + 12 * (part[3].lower() == "pm") if part[3] else hours
        moment, room = moment + timedelta(hours=hours), _HOURS
    counted = _count(rest[: part.start()] + rest[part.end() :] if part else rest)
    if counted >= room:
        return _UNCLEAR
    if spelled is None:
        moment = moment.replace(tzinfo=UTC if zone is None else ZoneInfo(zone))
    offset = int(spelled[1:3]) * 60 + int(spelled[-2:]) if spelled and spelled != "Z" else 0
    return (int(moment.timestamp()) - 60 * offset) * _SECONDS + micros + counted


def _fraction(digits: str | None) -> tuple[int, int]:
    """Returns the microseconds of a fraction of a second, and how many its last digit has."""
    return int((digits or "").ljust(6, "0")), 10 ** (6 - len(digits or ""))


def _count(rest: str) -> int:
    """Returns the numbers that stand alone, without ids, as one. A later one decides between equal ones."""
    counted = 0
    for number in _COUNTER.findall(_IDS.sub("", rest)):
        counted = counted * max(1000, 10 ** len(number)) + int(number)
    return counted
