"""The work of one Spark task of an ingest: parses landed files of one log into one segment (decision 0003)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec
import pyarrow as pa

from tidefold.changelog.segment import WrittenChangeSet, write_segment
from tidefold.lifecycle.values import Shape
from tidefold.sources.batches import grouped
from tidefold.sources.debezium import Account
from tidefold.sources.parse_file import UnfitFileError, parse_file
from tidefold.sources.plan import FileTask
from tidefold.sources.problems import Problem
from tidefold.sources.quarantine import QuarantineWriter
from tidefold.storage import open_store


@dataclass(frozen=True, slots=True)
class ParseTask:
    """What one task takes: files of one log, in offset order within each partition.

    `store` is the store's address; `segment` and `quarantine` are free paths in it for what the task finds.
    """

    store: str
    log: str
    shape: Shape
    segment: str
    quarantine: str
    files: tuple[FileTask, ...]

    @property
    def weight(self) -> int:
        return sum(f.weight for f in self.files)


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of one file. With a `problem` nothing was taken of it; `checksum` is of all bytes up to `until`."""

    name: str
    problem: Problem | None = None
    account: Account | None = None
    checksum: str = ""
    written: WrittenChangeSet | None = None


@dataclass(frozen=True, slots=True)
class ParseResult:
    """One result a file, in the order of the task; a partition ends with its first problem.

    `segment` and `quarantine` are the paths written, None where nothing was to be written.
    """

    files: tuple[FileResult, ...]
    segment: str | None
    quarantine: str | None


def parse(text: str) -> str:
    """Takes a ParseTask and gives a ParseResult, both as JSON. Writes one segment and one quarantine file at most."""
    task = msgspec.json.decode(text, type=ParseTask)
    store = open_store(task.store, Path("/"))
    results: list[FileResult] = []
    with QuarantineWriter() as quarantine:
        tables = ((task.log, table) for table in grouped(_tables(task, quarantine, results), task.shape))
        first = next(tables, None)
        written = write_segment(store, task.segment, chain([first], tables)) if first else []
        refused = quarantine.store(store, task.quarantine)
    result = ParseResult(
        tuple(_with_written(results, written)),
        task.segment if written else None,
        task.quarantine if refused else None,
    )
    return msgspec.json.encode(result).decode()


def _tables(task: ParseTask, quarantine: QuarantineWriter, results: list[FileResult]) -> Iterator[tuple[str, pa.Table]]:
    """One table at a time, so that the task holds the changes of one file only."""
    stopped: set[int] = set()
    for file_task in task.files:
        file = file_task.file
        if file.partition in stopped:
            continue
        mark = quarantine.mark()
        try:
            parsed = parse_file(file_task, task.shape, quarantine)
        except UnfitFileError as unfit:
            quarantine.drop_after(mark)
            stopped.add(file.partition)
            results.append(FileResult(file.name, problem=unfit.problem))
            continue
        results.append(FileResult(file.name, account=parsed.account, checksum=parsed.checksum))
        if parsed.table is not None:
            yield parsed.table


def _with_written(results: list[FileResult], written: list[WrittenChangeSet]) -> Iterator[FileResult]:
    ordinals = iter(written)
    for result in results:
        if result.account and result.account.changes:
            yield FileResult(result.name, None, result.account, result.checksum, next(ordinals))
        else:
            yield result
