"""Full extracts: files with all rows of a table. Each ingest takes the next complete extract, all of its files or none.

The source of a file's format reads it. Its rows get the instant of the extract as their order.
`operations.ingest.extract` finds out later which of them are changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from tidefold.changelog.schema import change_schema
from tidefold.domain.log_state import LogState, TableSpec
from tidefold.domain.table.table_spec import POSITION
from tidefold.errors import InvalidInputError, StorageError
from tidefold.sources.api import Feed, Listing, ParsedFile, Source
from tidefold.sources.extract.names import Extract, find_date, group_extracts
from tidefold.sources.extract.options import ExtractOptions
from tidefold.sources.ingest.accounting import FilePosition
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.listing import LandedFile, list_any
from tidefold.sources.landing.problems import FileProblem, report_changed
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.storage.safe_files import UnsafeFileError
from tidefold.typed_json import convert_value

# In one extract, deletes come before the rows.
DELETE_RANK, ROW_RANK = 0, 1


class FileFormat(Source, Protocol):
    """A source whose files may have any name. endings: of the names of its files."""

    endings: tuple[str, ...]


class FullExtracts:
    """`extract: full`, with the source of the files' format."""

    def __init__(self, feed: Feed, files: FileFormat) -> None:
        self._root = feed.path
        self._files = files
        self._patterns: Sequence[str] = feed.options.get("files", ())
        self._options = convert_value(feed.options["extract"], ExtractOptions)

    def listing(self, state: LogState) -> Listing:
        """Returns the next complete extract, and the ingested files of earlier ones."""
        files, problems = list_any(self._root, self._files.endings, patterns=self._patterns)
        extracts, undated = group_extracts(files, self._options.date_format)
        beside = {path for one in extracts for path in self._files_beside(one)}
        others = [problem for problem in problems if problem.file not in beside]
        newest = find_newest(state)
        taken = {entry.name: entry.length for entry in state.landed}
        found: list[LandedFile] = []
        for one in extracts:
            if newest is not None and one.instant <= newest:
                found += [file for file in one.files if taken.get(file.name) == file.size]
                others += [_report_late(one, file, taken) for file in one.files if taken.get(file.name) != file.size]
                continue
            waits = self._find_missing(one)
            if waits is None:
                found += one.files
                break
            others.append(waits)
        return Listing(tuple(found), (*others, *undated))

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return Ending(file.size)

    def reader(self, shape: TableSpec, place: FilePosition) -> None:
        """Returns None: a refused row is not read again, because the next extract contains it."""

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
            return _report_waiting(
                one,
                f"it has {len(one.files):,} files, and tidefold cannot tell whether these are all",
                "Set `extract: {marker: _SUCCESS}`, `row_count` or `min_rows`.",
            )
        for file in one.files:
            ending = self._files.ending(file, 0)
            if ending.problem:
                return ending.problem
            if ending.torn or not file.size:
                return _report_waiting(one, f"`{file.name}` has no end", "Wait while the extract is being written.")
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
    return max((position.high[0] for position in state.positions if position.high), default=None)


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
    given = {"_o0": instant, "_o1": ROW_RANK, "_ts": instant}
    columns = [
        pa.repeat(pa.scalar(given[f.name], pa.int64()), count) if f.name in given else table.column(f.name)
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
