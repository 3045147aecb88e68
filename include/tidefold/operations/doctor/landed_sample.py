"""Reads landed files that the next run of each log would read, one of each layout, to find misfits. Writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.config import Config
from tidefold.config.models.log import LogConfig
from tidefold.domain.log_state import LogState
from tidefold.domain.wording import count_noun
from tidefold.errors import TidefoldError
from tidefold.ledger import Ledger
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel
from tidefold.sources.api import Source, UnfitFileError, source_of
from tidefold.sources.feed import Feed
from tidefold.sources.landing.listing import LandedFile, open_landed
from tidefold.sources.landing.plan import newest_files, plan_files
from tidefold.sources.landing.problems import FileProblem
from tidefold.sources.quarantine.writer import FirstRefusal
from tidefold.storage import Store, open_store

# More of a file, the files of more logs, or more files of a log would take too long.
_MOST_BYTES, _MOST_LOGS, _MOST_FILES = 1 << 20, 100, 20
_LINES = ("csv", "json", "debezium-json", "state-json")
_UNREADABLE = (OSError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class LandedMisfit:
    """What a run would not ingest of the landed files of a log. `whole`: it would ingest nothing of a file."""

    log: str
    message: str
    hint: str = ""
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.log}: {self.message} {self.hint}".rstrip()


def find_misfits(config: Config, *, local: bool = False) -> list[LandedMisfit]:
    """Reads the newest file of each layout of each log, without what its ledger has ingested.

    local: only folders of this machine. A store elsewhere is not asked, and its logs count as new.
    """
    logs = [log for log in config.logs.values() if log.landing and not (local and "://" in log.landing)]
    store = None
    if not (local and "://" in config.store.removeprefix("file://")):
        with suppress(TidefoldError):  # The check `store` reports it.
            store = open_store(config.store, config.path.parent)
    return [misfit for log in logs[:_MOST_LOGS] for misfit in _try_log(log, _find_state(store, log))]


def _find_state(store: Store | None, log: LogConfig) -> LogState:
    if store:
        with suppress(TidefoldError):  # The check `ingest` reports a ledger that cannot be read.
            return replace(Ledger(store, log.id).peek(log.shape), shape=log.shape)
    return LogState(log.id, log.shape)


def _try_log(log: LogConfig, state: LogState) -> Iterator[LandedMisfit]:
    assert log.feed is not None
    # What was loaded lies in the store, which may not be asked.
    feed = replace(log.feed, options={name: value for name, value in log.feed.options.items() if name != "loaded"})
    try:
        source = source_of(feed)
        listing = source.listing(state)
    except TidefoldError:
        return  # The check `landing` reports what cannot be read.
    # The check `landing` reports links.
    unread = [problem for problem in listing.problems if problem.code != "LANDED_LINK"]
    yield from (_of_problem(log.id, problem) for problem in unread[:1])
    taken = {entry.name: entry.length for entry in state.landed if entry.complete}
    waiting = [file for file in listing.files if file.size > 0 and taken.get(file.name) != file.size]
    files = [file for file in waiting if file.size <= _MOST_BYTES or _has_lines(feed, file)]
    newest = sorted(files, key=lambda one: one.stamp.changed)[-(1 if "://" in feed.path else _MOST_FILES) :]
    for file in {_layout_of(feed, file): file for file in newest}.values():
        if misfit := _try_file(log, source, file, state):
            yield misfit


def _has_lines(feed: Feed, file: LandedFile) -> bool:
    return feed.format in _LINES and not file.is_whole


def _layout_of(feed: Feed, file: LandedFile) -> tuple[str, object]:
    """Returns what tells kinds of files apart: the letters of the name, and the columns."""
    letters = re.sub(r"[\W\d_]+", "", file.name)
    try:
        if feed.format not in _LINES:
            with open_landed(file) as stream:
                return letters, tuple(pq.read_schema(stream).names)
        if file.packed:
            return letters, None
        with open_landed(file) as stream:
            line = stream.read(1 << 16).partition(b"\n")[0]
    except _UNREADABLE:
        return letters, None
    names = tuple(re.findall(rb'"(\w+)" *:', line))
    is_row = feed.options.get("header", True) is not True
    return letters, names or (line.count(feed.options["delimiter"].encode()) if is_row else line)


def _try_file(log: LogConfig, source: Source, file: LandedFile, state: LogState) -> LandedMisfit | None:
    try:
        endings = {one.name: source.ending(one, taken) for one, taken in newest_files([file], state)}
        plan = plan_files([file], endings, state)
        if plan.problems or not plan.take:
            return _of_problem(log.id, plan.problems[0]) if plan.problems else None
        [task] = plan.take
        if task.until > _MOST_BYTES:
            with open_landed(file) as stream:
                task = replace(task, until=stream.read(_MOST_BYTES).rfind(b"\n") + 1)
            if task.until <= task.begin:
                return None
        with FirstRefusal() as refusals:
            account = source.parse(task, log.shape, refusals).account
    except UnfitFileError as unfit:
        return _of_problem(log.id, unfit.problem)
    except (TidefoldError, OSError):
        return None
    if not (refused := sum(account.refused.values())):
        return None
    message = f"a run would refuse {refused:,} of {count_noun(account.records, 'record')} of `{file.name}`."
    if first := refusals.refused:
        message += f" The first is number {refusals.line}: [{first.reason}] {first.detail}"
    return LandedMisfit(
        log.id,
        message,
        "Correct the log's configuration, or the file. What was ingested before stays as it is.",
        whole=False,
    )


def _of_problem(log: str, problem: FileProblem) -> LandedMisfit:
    return LandedMisfit(log, f"[{problem.code}] {problem.message}", problem.hint)


def check_records(misfits: Iterable[LandedMisfit]) -> Iterator[DoctorFinding]:
    """Checks that the configuration fits what has landed."""
    misfit = None
    for misfit in misfits:
        level = FindingLevel.FAIL if misfit.whole else FindingLevel.WARN
        yield DoctorFinding("records", level, f"{misfit.log}: {misfit.message}", misfit.hint)
    if misfit is None:
        yield DoctorFinding("records", FindingLevel.OK, "The newest landed files of each log fit its configuration.")
