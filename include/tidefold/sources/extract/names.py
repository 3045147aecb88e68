"""Finds which landed files are one full extract, and the instant of it, by the date in their names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.problems import FileProblem

NAME_FIELD = "{extract}"
_DIRECTIVES = {"%Y": r"\d{4}", **dict.fromkeys(("%m", "%d", "%H", "%M", "%S"), r"\d{2}")}
_TIMES = ("T%H-%M-%S", "T%H:%M:%S", "T%H%M%S", "T%H-%M", "T%H:%M", "T%H%M", "")
_ISO = tuple(f"{date}{time}" for time in _TIMES for date in ("%Y-%m-%d", "%Y%m%d"))
# Digits after a date are a part number or a time. That decides whether files are one extract.
_UNCLEAR = re.compile(r"T\d|[-_.]?\d{4}|.*\bhour=\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Extract:
    """A full extract.

    name: the date as the names of its files have it.
    instant: the same in microseconds since 1970, UTC.
    folder: the folder whose name has the date; empty: the names of the files have it.
    files: its files, ordered by name.
    """

    name: str
    instant: int
    folder: str
    files: tuple[LandedFile, ...]

    def path_of(self, template: str) -> str | None:
        """The path of a file beside the extract. None if the template does not say which extract it belongs to."""
        if NAME_FIELD in template:
            return template.replace(NAME_FIELD, self.name)
        return f"{self.folder}/{template}" if self.folder else None


@dataclass(frozen=True, slots=True)
class DatedName:
    """The date in a name: its text, the instant in microseconds, and the folder that has it (empty: the file)."""

    text: str
    instant: int
    folder: str


def find_date(name: str, date_format: str | None) -> DatedName | None:
    """The date in the path of a file, folders first. None if there is none, or what follows may be a time."""
    for one in (date_format,) if date_format else _ISO:
        found = _pattern(one).search(name)
        if found is None:
            continue
        rest = name[found.end() :]
        if not date_format and _UNCLEAR.match(rest):
            return None
        try:
            moment = datetime.strptime(found[0], one).replace(tzinfo=UTC)
        except ValueError:
            return None
        end = rest.find("/")
        folder = name[: found.end() + end] if end >= 0 else ""
        return DatedName(found[0], int(moment.timestamp()) * 1_000_000, folder)
    return None


@cache
def _pattern(date_format: str) -> re.Pattern[str]:
    parts = re.split(r"(%[YmdHMS])", date_format)
    return re.compile(rf"(?<!\d){''.join(_DIRECTIVES.get(part) or re.escape(part) for part in parts)}(?!\d)")


def time_of(version: LandedFile) -> int | None:
    """When a version of a Delta table was committed, in microseconds; None: it is not known."""
    return round(version.stamp.changed * 1e6) or None


def group_extracts(
    files: Iterable[LandedFile], date_format: str | None
) -> tuple[tuple[Extract, ...], tuple[FileProblem, ...]]:
    """The extracts from the oldest on, and a problem for each file whose name has no clear date."""
    groups: dict[int, list[tuple[DatedName, LandedFile]]] = {}
    problems = []
    for file in files:
        dated = find_date(file.name, date_format)
        if dated is None:
            problems.append(_report_undated(file.name))
        else:
            groups.setdefault(dated.instant, []).append((dated, file))
    return tuple(_make_extract(instant, groups[instant]) for instant in sorted(groups)), tuple(problems)


def _make_extract(instant: int, members: Sequence[tuple[DatedName, LandedFile]]) -> Extract:
    first = members[0][0]
    folders = {dated.folder for dated, _ in members}
    folder = first.folder if len(folders) == 1 else ""
    return Extract(first.text, instant, folder, tuple(sorted((f for _, f in members), key=lambda f: f.name)))


def _report_undated(name: str) -> FileProblem:
    message = f"`{name}` has no clear date in its path, so tidefold cannot tell which extract it belongs to."
    hint = (
        "Land it as `2026-01-31/part-0.csv` or `customers-2026-01-31.csv`, or with `T06-00` after the date. For "
        'other names set `extract: {date_format: ...}`, as "%Y%m%d_%H%M%S".'
    )
    return FileProblem(name, "EXTRACT_NAME", message, hint, blocking=False)
