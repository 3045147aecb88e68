"""The stages of an ingest of one log: listed, planned, parsed (see `parse`), accounted, committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import PurePosixPath

from tidefold.changelog.write_intents import IntentLog, Taking
from tidefold.config import LogConfig
from tidefold.domain.ingest.append import IngestedFile, expect_positions, require_open
from tidefold.domain.ingest.quarantine_retry import find_skipped_ranges, require_rows
from tidefold.domain.landing_problems import LandingProblems
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LogPaths
from tidefold.domain.uploads import NO_UPLOADS, UploadTotals
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline, find_horizon
from tidefold.operations.ground.read import ReadRequest, What, plan_from
from tidefold.operations.ground.schema_update import apply_configured_schema
from tidefold.operations.ingest.land_topic import NOTHING, Landed, has_more
from tidefold.operations.ingest.owner import accept_folder
from tidefold.operations.ingest.parse import TASK_BYTES, FileResult, LogFiles
from tidefold.read.plan import ReadPlan
from tidefold.sources.api import source_of, split_file
from tidefold.sources.feed import Feed
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.folders import explain_table, find_table_above, folder_at
from tidefold.sources.landing.listing import LandedFile, Listing, find_rewritten
from tidefold.sources.landing.plan import FilePlan, bins, limit_plan, newest_files, plan_files
from tidefold.sources.landing.problems import FileProblem


@dataclass(frozen=True, slots=True)
class Listed:
    """What has landed for a log.

    begun: the state of the log when the run began.
    problems: of files that cannot be planned.
    """

    log: str
    feed: Feed | None
    begun: LogState
    files: tuple[LandedFile, ...]
    endings: Mapping[str, Ending]
    problems: tuple[FileProblem, ...]

    @property
    def intent(self) -> IntentLog:
        return IntentLog(self.log, self.begun.shape, self.begun.fence)


@dataclass(frozen=True, slots=True)
class Planned:
    """What a run takes of a log.

    horizon: changes below this order are too late.
    stops: the codes of refused records that stop their partition.
    bound: for each file that is ingested, how many of its records at most (None: all); None: no file is limited.
    waits: why records wait that have landed; empty: none do.
    landed: what the run landed of its topics.
    """

    listed: Listed
    plan: FilePlan
    horizon: int | None = None
    stops: tuple[str, ...] = ()
    bound: Mapping[str, int | None] | None = None
    waits: str = ""
    landed: Landed = NOTHING

    @property
    def log(self) -> str:
        return self.listed.log

    @property
    def weight(self) -> int:
        """About how many bytes are to be parsed."""
        return sum(task.weight for task in self.plan.take)

    def after(self, landed: Landed) -> Planned:
        """Returns the plan of a run that landed this before."""
        listed = replace(self.listed, problems=(*self.listed.problems, *landed.problems))
        of = f", of {sum(one.end for one in landed.topic):,}" if landed.topic else ""
        left = [f"{landed.left:,} more offsets of the topic wait for the next run{of}"] if landed.left else []
        waits = "; ".join(filter(None, (self.waits, *landed.remarks, *left)))
        return replace(self, listed=listed, landed=landed, waits=waits)

    def with_bound(self, bound: Mapping[str, int | None]) -> Planned:
        """Returns the plan limited to the first records of each file; other files wait."""
        return replace(self, bound=bound, plan=limit_plan(self.plan, bound))


@dataclass(frozen=True, slots=True)
class ExtractTaken:
    """A full extract that a run ingested.

    name: its date, as written in the names of its files.
    unchanged: how many of its rows the log had already.
    missing: how many rows of the log were deleted, because the extract lacks their keys.
    kept: how many such rows were not deleted, because rows of the extract were refused.
    """

    name: str
    unchanged: int
    missing: int
    kept: int


@dataclass(frozen=True, slots=True)
class Accounted:
    """What a run brings to a log: files in order, with every record in one count. The ledger does not have it yet.

    planned: with what is left to parse.
    state: the log with `arrivals` appended.
    stopped: the partitions (or single files) that a problem stops.
    refused: the number of refused records by reason.
    results: of files that were parsed and are not ingested yet.
    no_copies: for each segment without a local copy, the cause.
    uploads: what the uploads cost so far.
    extract: the full extract that the run ingested; None: none.
    landing: the problems of the landing folder to record; None: nothing is recorded.
    completed: how many key changes got their missing values.
    whole: the files whose parts could not be joined: they are read as one.
    """

    planned: Planned
    state: LogState
    arrivals: tuple[IngestedFile, ...] = ()
    problems: tuple[FileProblem, ...] = ()
    stopped: frozenset[int | str] = frozenset()
    refused: Mapping[str, int] = field(default_factory=dict)
    results: Mapping[str, FileResult] = field(default_factory=dict)
    no_copies: tuple[str, ...] = ()
    uploads: UploadTotals = NO_UPLOADS
    extract: ExtractTaken | None = None
    landing: LandingProblems | None = None
    completed: int = 0
    whole: frozenset[str] = frozenset()

    @property
    def log(self) -> str:
        return self.planned.listed.log

    @property
    def listed(self) -> Listed:
        return self.planned.listed

    @property
    def all_problems(self) -> tuple[FileProblem, ...]:
        return (*self.problems, *self.planned.plan.problems)

    @property
    def taking(self) -> Taking:
        """The results to commit to the log."""
        begun, arrivals = self.listed.begun, self.arrivals
        rests_on = expect_positions(begun, arrivals)
        # Whether they rest on the rows of the log: see `plan_own_rows`.
        compared = self.extract or any(r.account and r.account.unresolved for r in self.results.values())
        left_out = find_skipped_ranges(begun) if compared else None
        of_log = self.log, begun.shape, begun.fence
        return Taking(*of_log, rests_on, arrivals, self.landing, self.uploads, left_out, begun.folders)


@dataclass(frozen=True, slots=True)
class Failed:
    """A log that does not change, because of an error. accounted: as far as the run came."""

    accounted: Accounted
    error: TidefoldError

    @property
    def log(self) -> str:
        return self.accounted.log


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a log in one round.

    is_known: whether it is certain that the log committed or refused the result.
    added: the columns that the records need, with their types; the log can be ingested further with them.
    """

    outcome: Outcome
    is_known: bool = True
    added: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return self.outcome.log


def plan_own_rows(pipeline: Pipeline, accounted: Accounted) -> ReadPlan:
    """Plans a read of the rows before this run. Raises RefusedError while an open attempt replaces them."""
    begun = accounted.listed.begun
    require_rows(begun, find_skipped_ranges(begun))
    return plan_from(pipeline, begun, ReadRequest(What.LIVE))


def plan_log(pipeline: Pipeline, log: str) -> Planned:
    """Reads the landing folder and the ledger, and plans. Raises TidefoldError."""
    config = pipeline.log(log)
    ledger = pipeline.ledger(log)
    state = apply_configured_schema(pipeline, ledger.peek(config.shape))
    require_open(state)
    planned = _plan_landed(pipeline, state)
    listed, plan = planned.listed, planned.plan
    if plan.take:
        _require_feed(config, state, listed.files)
        ledger.require_current(state)  # Before the run writes anything that the log would refuse.
    is_needed = bool(plan.take or plan.problems or listed.problems)
    listed = replace(listed, begun=accept_folder(pipeline, state, listed.files, is_needed=is_needed))
    return replace(planned, listed=listed, horizon=find_horizon(pipeline, state), stops=config.stops)


def _plan_landed(pipeline: Pipeline, state: LogState) -> Planned:
    feed = pipeline.log_of(state).feed
    source = source_of(feed) if feed else None
    listing = source.listing(state) if source else Listing(())
    if pipeline.again is not None:
        listing = _list_again(listing, pipeline.again, state)
    newest = newest_files(listing.files, state)
    endings = {file.name: source.ending(file, taken) for file, taken in newest} if source else {}
    problems = (*listing.problems, *find_rewritten(listing.files, state))
    listed = Listed(state.log, feed, state, listing.files, endings, problems)
    return Planned(listed, plan_files(listing.files, endings, state))


def _list_again(listing: Listing, again: Mapping[str, int], state: LogState) -> Listing:
    """Returns these files of the listing that the log has not read yet, each as long as it was when it was taken."""
    read = {entry.name: entry.length for entry in state.landed}
    files = (f for f in listing.files if f.name in again and read.get(f.name) != again[f.name])
    as_taken = (replace(f, stamp=replace(f.stamp, size=min(f.size, again[f.name]))) for f in files)
    return replace(listing, files=tuple(as_taken), problems=tuple(p for p in listing.problems if p.file in again))


def _require_feed(config: LogConfig, state: LogState, files: Sequence[LandedFile]) -> None:
    """Raises InvalidInputError if landed files are those of a table. A log that goes on searches no folders below."""
    folder = config.landing or ""
    kinds = {} if state.landed or not folder else folder_at(folder).find_tables()
    of_files = (kind for one, kind in kinds.items() if any(PurePosixPath(f.name).is_relative_to(one) for f in files))
    kind = (folder and "://" not in folder and find_table_above(folder)) or next(of_files, "")
    if kind:
        message = (
            f"The landing folder of `{state.log}`, `{folder}`, has the files of a table. The run ingested nothing."
        )
        raise InvalidInputError("LANDED_TABLE", message, hint=f"{explain_table(kind).capitalize()}.")


def has_news(pipeline: Pipeline, state: LogState) -> bool:
    """Whether the log has not ingested all that landed or is in its topic, or needs attention. Writes nothing."""
    if has_more(pipeline, state.log):
        return True
    planned = _plan_landed(pipeline, state)
    return bool(planned.listed.problems or planned.plan.take or planned.plan.problems)


def files_to_parse(accounted: Accounted, run: str, size: int = TASK_BYTES, *, splits: bool = False) -> list[LogFiles]:
    """Returns the planned files that no earlier round of the run has read, in one part for each task of about `size`
    bytes. splits: whether large files are read in parts, too.
    """
    planned, listed = accounted.planned, accounted.listed
    if listed.feed is None:
        return []
    quarantine = f"{LogPaths(listed.log).quarantine}/{run}"
    tasks = [
        replace(task, horizon=planned.horizon, stops=planned.stops)
        for task in planned.plan.take
        if task.file.name not in accounted.results
    ]
    if splits:
        source, shape = source_of(listed.feed), listed.begun.shape
        whole = accounted.whole
        split = (split_file(source, t, shape, size) if t.file.name not in whole else [t] for t in tasks)
        tasks = list(chain.from_iterable(split))
    return [LogFiles(listed.log, listed.feed, listed.begun.shape, quarantine, files) for files in bins(tasks, size)]
