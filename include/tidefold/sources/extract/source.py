"""Full extracts: files with all rows of a table, and which of them are one. Each ingest takes the next whole one.

The source of a file's format reads it. Its rows get the instant of the extract as their order.
`operations.ingest.extract` finds out later which of them are changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Protocol

import msgspec
import pyarrow as pa

from tidefold.changelog.schema import change_schema
from tidefold.domain.log_state import LogState, TableSpec
from tidefold.domain.table.table_spec import POSITION
from tidefold.errors import InvalidInputError, StorageError
from tidefold.sources.api import ParsedFile, Source
from tidefold.sources.feed import Feed
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.listing import LandedFile, Listing, list_any
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.landing.problems import FileProblem, report_changed
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.storage.safe_files import UnsafeFileError
from tidefold.typed_json import convert_value

NAME_FIELD = "{extract}"
_DIRECTIVES = {"%Y": r"\d{4}", **dict.fromkeys(("%m", "%d", "%H", "%M", "%S"), r"\d{2}"), "%f": r"\d{3,4}"}
_TIMES = ("T%H-%M-%S", "T%H:%M:%S", "T%H%M%S", "T%H-%M", "T%H:%M", "T%H%M", "")
_ISO = ("%Y%m%d-%H%M%S%f", *(f"{date}{time}" for time in _TIMES for date in ("%Y-%m-%d", "%Y%m%d", "%d.%m.%Y")))
# Digits after a date are a part number or a time. That decides whether files are one extract.
_UNCLEAR = re.compile(r"T\d|[-_.]?(\d{4}|\d\d?(h|am|pm)\b|\d\d[-_:.]\d\d[-_:.]\d\d)|.*\bhour=\d", re.IGNORECASE)
# In one extract, deletes come before the rows.
DELETE_RANK, ROW_RANK = 0, 1


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
        match = _pattern(one).search(name)
        if match is None:
            continue
        rest = name[match.end() :]
        if not date_format and _UNCLEAR.match(rest):
            return None
        try:
            moment = datetime.strptime(match[0], one).replace(tzinfo=UTC)
        except ValueError:
            return None
        end = rest.find("/")
        folder = name[: match.end() + end] if end >= 0 else ""
        return DatedName(match[0], int(moment.timestamp()) * 1_000_000, folder)
    return None


@cache
def _pattern(date_format: str) -> re.Pattern[str]:
    parts = re.split(r"(%[YmdHMSf])", date_format)
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


class ExtractOptions(msgspec.Struct, frozen=True):
    """How a log reads full extracts.

    marker: the file that marks an extract as complete; None: there is none.
    row_count: the file that contains how many rows an extract has; None: there is none.
    min_rows: an extract with fewer rows is refused.
    max_deletes: an extract that deletes a larger share of the rows is refused.
    accept: the dates, as in file names, of extracts that are ingested in spite of these two limits.
    date_format: how file names write the date of an extract; None: as ISO 8601.
    """

    marker: str | None = None
    row_count: str | None = None
    min_rows: int = 1
    max_deletes: float = 0.2
    accept: tuple[str, ...] = ()
    date_format: str | None = None


class FileFormat(Source, Protocol):
    """A source whose files may have any name. endings: of the names of its files."""

    endings: tuple[str, ...]

    def can_split(self, task: FileTask, shape: TableSpec) -> bool: ...


class FullExtracts:
    """`extract: full`, with the source of the files' format."""

    def __init__(self, feed: Feed, files: FileFormat) -> None:
        self._root = feed.path
        self._files = files
        options = {"patterns": "files", "leave_out": "leave_out", "record_path": "record_path"}
        self._of_listing = {own: feed.options[name] for own, name in options.items() if name in feed.options}
        self._options = convert_value(feed.options["extract"], ExtractOptions)

    def listing(self, state: LogState) -> Listing:
        """Returns the next complete extract, and the ingested files of earlier ones."""
        files, problems = list_any(self._root, self._files.endings, **self._of_listing)
        extracts, undated = group_extracts(files, self._options.date_format)
        beside = {path for one in extracts for path in self._files_beside(one)}
        others = [problem for problem in problems if problem.file not in beside]
        newest = find_newest(state)
        taken = {entry.name: entry.length for entry in state.landed}
        landed: list[LandedFile] = []
        for one in extracts:
            if newest is not None and one.instant <= newest:
                landed += [file for file in one.files if taken.get(file.name) == file.size]
                others += [_report_late(one, file, taken) for file in one.files if taken.get(file.name) != file.size]
                continue
            waits = self._find_missing(one)
            if waits is None:
                landed += one.files
                break
            others.append(waits)
        return Listing(tuple(landed), (*others, *undated))

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return Ending(file.size)

    def reader(self, shape: TableSpec) -> None:
        """Returns None: a refused row is not read again, because the next extract contains it."""

    def can_split(self, task: FileTask, shape: TableSpec) -> bool:
        return self._files.can_split(task, replace(shape, order=POSITION))

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        """Parses the rows of a file, each as an upsert at the instant of its extract."""
        dated = find_date(task.file.name, self._options.date_format)
        assert dated is not None
        parsed = self._files.parse(task, replace(shape, order=POSITION), quarantine)
        account = parsed.account
        account.stream = account.stream._replace(max_order=(dated.instant, ROW_RANK))
        table = None if parsed.table is None else _add_order(parsed.table, shape, dated.instant)
        return replace(parsed, table=table)

    def _files_beside(self, one: Extract) -> Iterable[str]:
        templates = (self._options.marker, self._options.row_count)
        return [path for template in templates if template and (path := one.path_of(template))]

    def _find_missing(self, one: Extract) -> FileProblem | None:
        """Returns why an extract is not complete; None: it is complete."""
        for template in filter(None, (self._options.marker, self._options.row_count)):
            path = one.path_of(template)
            if path is None:
                return _report_waiting(
                    one,
                    f"`{template}` does not say which extract it belongs to",
                    "Write `{extract}` in it for the date, or land each extract in a folder of its own.",
                )
            if not self._has(path):
                return _report_waiting(one, f"`{path}` does not exist", "Wait while the extract is being written.")
        if self._options.marker or self._options.row_count:
            return None
        if len(one.files) > 1 and self._options.min_rows <= 1:
            marker = "_SUCCESS" if one.folder else f"{NAME_FIELD}.done"
            last = f'Set `extract: {{marker: "{marker}"}}` and land `{one.path_of(marker)}` after its files'
            why = f"it has {len(one.files):,} files, and tidefold cannot tell whether these are all"
            return _report_waiting(one, why, f"{last}, or set `row_count` or `min_rows`.")
        for file in one.files:
            ending = self._files.ending(file, 0)
            if ending.problem:
                return ending.problem
            if ending.torn or not file.size:
                why = f"`{file.name}` has no end"
                why += f": line {ending.quote:,} or a later one opens a quote that stays open" if ending.quote else ""
                return _report_waiting(one, why, "Wait while the extract is being written, or land a correct one.")
        return None

    def _has(self, path: str) -> bool:
        """Whether a regular file with this path exists beside the extracts. Raises StorageError."""
        try:
            folder_at(self._root).open(path).close()
        except (FileNotFoundError, NotADirectoryError, UnsafeFileError):
            return False
        except OSError as error:
            raise StorageError("LANDING_UNREADABLE", f"`{path}` cannot be read: {error}.") from error
        return True


def find_newest(state: LogState) -> int | None:
    """Returns the instant of the newest ingested extract of a log."""
    return max((p.stream.max_order[0] for p in state.positions if p.stream.max_order), default=None)


def read_row_count(root: str, one: Extract, options: ExtractOptions) -> int | None:
    """Returns the row count that was landed with an extract; None: there is none. Raises InvalidInputError."""
    path = one.path_of(options.row_count) if options.row_count else None
    if path is None:
        return None
    try:
        with folder_at(root).open(path) as stream:
            return int(stream.read(64))
    except (OSError, ValueError) as error:
        message = f"`{path}` does not contain the number of rows of extract {one.name}: {error}."
        raise InvalidInputError("EXTRACT_ROWS", message, hint="Write the number alone into it.") from error


def _add_order(table: pa.Table, shape: TableSpec, instant: int) -> pa.Table:
    """The rows with the order of their extract. Their offset stays: it depends on their content alone."""
    schema, count = change_schema(shape), table.num_rows
    added = {"_o0": instant, "_o1": ROW_RANK, "_ts": instant}
    columns = [
        pa.repeat(pa.scalar(added[f.name], pa.int64()), count) if f.name in added else table.column(f.name)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _report_waiting(one: Extract, why: str, hint: str) -> FileProblem:
    message = f"Extract {one.name} is not complete: {why}. Nothing of it was ingested."
    return FileProblem(one.files[-1].name, "EXTRACT_WAITING", message, hint, blocking=False)


def _report_late(one: Extract, file: LandedFile, taken: dict[str, int]) -> FileProblem:
    if file.name in taken:
        return replace(
            report_changed(file.name, f"has {file.size} bytes, but had {taken[file.name]} when it was ingested")
        )
    message = f"`{file.name}` belongs to extract {one.name}, but that extract or a newer one was ingested before."
    hint = "Remove the file. If its rows are needed, land a new extract with all rows."
    return FileProblem(file.name, "EXTRACT_LATE", message, hint, blocking=False)
