"""One log's part of an ingest run, from the listing of its folder to the results to commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow.compute as pc

from tidefold.changelog.schema import count_changes
from tidefold.changelog.segment import at_least, read_change_set
from tidefold.changelog.write_intents import IntentLog, Taking
from tidefold.domain.ingest.append import IngestedFile, expect_positions, require_open
from tidefold.domain.landing_problems import LandingProblems
from tidefold.domain.log_state import ChangeSet, LogState
from tidefold.domain.paths import LogPaths
from tidefold.domain.uploads import NO_UPLOADS, UploadTotals
from tidefold.errors import RefusedError, TidefoldError, from_wire
from tidefold.operations.ingest.schema_update import apply_configured_schema
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.claiming import find_horizon
from tidefold.sources.api import Feed, Listing
from tidefold.sources.ingest.merge_results import RemainingChanges, TaskResult, merge
from tidefold.sources.ingest.parse_task import LogFiles, LogResult
from tidefold.sources.ingest.plan import FilePlan, bins, limit_plan, newest_files, plan_files
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.listing import LandedFile, find_rewritten
from tidefold.sources.landing.problems import FileProblem
from tidefold.sources.registry import source_of
from tidefold.storage import Store

TASK_BYTES = 64 << 20


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
class LogIngest:
    """The state of the ingest of one log.

    begun: the state of the log when the run began.
    state: that state with `arrivals` appended, not yet committed.
    stopped: the partitions (or single files) that a problem stops.
    refused: the number of refused records by reason.
    found: results of earlier rounds for files that are not ingested yet.
    no_copies: for each segment without a local copy, the cause.
    horizon: changes below this order are too late.
    stops: the codes of refused records that stop their partition.
    completed: how many key changes got their missing values.
    landing: the problems of the landing folder to record; None: nothing is recorded.
    extract: the full extract that the run ingested; None: none.
    uploads: what the uploads of the run cost so far.
    bound: for each file that is ingested, how many of its records at most (None: all); None: no file is limited.
    waits: why records wait that have landed; empty: none do.
    """

    log: str
    feed: Feed | None
    begun: LogState
    files: tuple[LandedFile, ...]
    endings: dict[str, Ending]
    problems: tuple[FileProblem, ...]
    state: LogState
    plan: FilePlan
    arrivals: tuple[IngestedFile, ...] = ()
    stopped: frozenset[int | str] = frozenset()
    refused: tuple[tuple[str, int], ...] = ()
    found: Mapping[str, TaskResult] = field(default_factory=dict)
    error: TidefoldError | None = None
    no_copies: tuple[str, ...] = ()
    horizon: int | None = None
    stops: tuple[str, ...] = ()
    completed: int = 0
    landing: LandingProblems | None = None
    extract: ExtractTaken | None = None
    uploads: UploadTotals = NO_UPLOADS
    bound: Mapping[str, int | None] | None = None
    waits: str = ""

    @property
    def all_problems(self) -> tuple[FileProblem, ...]:
        return (*self.problems, *self.plan.problems)

    @property
    def weight(self) -> int:
        """About how many bytes are to be parsed."""
        return sum(task.weight for task in self.plan.take)

    def with_bound(self, bound: Mapping[str, int | None]) -> LogIngest:
        """Returns the ingest limited to the first records of each file; other files wait."""
        return replace(self, bound=bound, plan=limit_plan(self.plan, bound))

    def with_error(self, error: TidefoldError) -> LogIngest:
        """Returns the ingest with an error, so that its log does not change."""
        return replace(self, error=error, arrivals=())

    def with_run(self, run: str, instant: str) -> LogIngest:
        """Returns the ingest with the run and the time in its file records."""
        signed = (replace(a, landed=replace(a.landed, run=run, instant=instant)) for a in self.arrivals)
        return replace(self, arrivals=tuple(signed))

    @property
    def intent(self) -> IntentLog:
        return IntentLog(self.log, self.begun.shape, self.begun.fence)

    @property
    def taking(self) -> Taking:
        """The results to commit to the log."""
        rests_on = expect_positions(self.begun, self.arrivals)
        return Taking(self.log, self.begun.shape, self.begun.fence, rests_on, self.arrivals, self.landing, self.uploads)


def plan_log(pipeline: Pipeline, log: str) -> LogIngest:
    """Reads the landing folder and the ledger, and plans. Raises TidefoldError."""
    config = pipeline.log(log)
    ledger = pipeline.ledger(log)
    state = apply_configured_schema(pipeline, ledger.peek(config.shape))
    require_open(state)
    source = source_of(config.source.feed) if config.source else None
    listing = source.listing(state) if source else Listing(())
    newest = newest_files(listing.files, state)
    endings = {file.name: source.ending(file, taken) for file, taken in newest} if source else {}
    problems = (*listing.problems, *find_rewritten(listing.files, state))
    plan = plan_files(listing.files, endings, state)
    if plan.take:
        ledger.require_current(state)  # Before the run writes anything that the log would refuse.
    horizon = find_horizon(pipeline, state)
    feed = config.source.feed if config.source else None
    return LogIngest(
        log, feed, state, listing.files, endings, problems, state, plan, horizon=horizon, stops=config.stops
    )


def has_news(pipeline: Pipeline, state: LogState) -> bool:
    """Whether files landed that the log has not ingested, or that need attention. Writes nothing."""
    config = pipeline.log(state.log)
    if config.source is None:
        return False
    source = source_of(config.source.feed)
    listing = source.listing(state)
    if listing.problems or find_rewritten(listing.files, state):
        return True
    endings = {file.name: source.ending(file, taken) for file, taken in newest_files(listing.files, state)}
    plan = plan_files(listing.files, endings, state)
    return bool(plan.take or plan.problems)


def files_to_parse(intake: LogIngest, run: str) -> list[LogFiles]:
    """Returns the planned files that no earlier round of the run has read, in one part for each task."""
    if intake.error or intake.feed is None:
        return []
    quarantine = f"{LogPaths(intake.log).quarantine}/{run}"
    horizon, stops = intake.horizon, intake.stops
    new = [replace(t, horizon=horizon, stops=stops) for t in intake.plan.take if t.file.name not in intake.found]
    return [LogFiles(intake.log, intake.feed, intake.begun.shape, quarantine, files) for files in bins(new, TASK_BYTES)]


def with_results(intake: LogIngest, store: Store, results: Sequence[LogResult | TidefoldError]) -> LogIngest:
    """Returns the ingest after a round of tasks. Its plan has the files for the next round."""
    planned = {task.file.name: task for task in intake.plan.take}
    found = dict(intake.found)
    for result in results:
        if isinstance(result, TidefoldError):
            intake = replace(intake, error=result)
        elif result.error:
            intake = replace(intake, error=from_wire(result.error))
        else:
            found.update({f.name: TaskResult(planned[f.name], f, result.quarantine) for f in result.files})
            no_copies = (*intake.no_copies, *filter(None, [result.no_copy]))
            intake = replace(intake, no_copies=no_copies, uploads=intake.uploads + result.uploads)
    return intake if intake.error else _merge(intake, store, found)


def _count_above_floor(store: Store, change_set: ChangeSet) -> RemainingChanges:
    """Counts the changes of a change set above its floor."""
    whole = read_change_set(store, replace(change_set, floor=None))
    above = at_least(change_set.floor or ())
    kept, dropped = whole.filter(above), whole.filter(~above)
    # A record has one offset, even if it became several rows.
    return RemainingChanges(
        count_changes(kept), pc.count_distinct(kept.column("_offset")).as_py(), pc.max(dropped.column("_ts")).as_py()
    )


def _merge(intake: LogIngest, store: Store, found: dict[str, TaskResult]) -> LogIngest:
    merged = merge(intake.state, intake.plan.take, found, partial(_count_above_floor, store))
    beyond = _check_clears(intake, found, merged.arrivals)
    stopped = intake.stopped | merged.stopped
    rest = [file for file in intake.files if file.queue not in stopped]
    kept_problems = [p for p in intake.plan.problems if p.file not in {f.name for f in rest}]
    plan = plan_files(rest, intake.endings, merged.state)
    return replace(
        intake,
        state=merged.state,
        plan=plan if intake.bound is None else limit_plan(plan, intake.bound),
        arrivals=(*intake.arrivals, *merged.arrivals),
        problems=(*intake.problems, *kept_problems, *merged.problems),
        stopped=stopped,
        found={name: one for name, one in found.items() if name not in merged.again},
        refused=_add_refused(intake.refused, found, merged.arrivals),
        error=beyond,
    )


def _check_clears(
    intake: LogIngest, found: Mapping[str, TaskResult], arrivals: Sequence[IngestedFile]
) -> TidefoldError | None:
    """Returns an error if a file empties the table after later changes of another partition were ingested.

    Those changes may be folded already, and tidefold cannot tell which rows they made.
    """
    for arrival in arrivals:
        account, landed = found[arrival.landed.name].result.account, arrival.landed
        ahead = [
            p
            for p in intake.begun.positions
            if account and account.cleared and p.partition != landed.partition and p.high > account.cleared
        ]
        floor = (arrival.change_set and arrival.change_set.floor) or ()
        if ahead and account and account.cleared >= floor and arrival.change_set:
            return RefusedError(
                "TABLE_EVENT",
                f"Log `{intake.log}`: `{landed.name}` empties the table, by a truncate or a new snapshot. Later "
                f"changes of partition {ahead[0].partition} were ingested before. This run ingested nothing.",
                hint="If all landed files still exist, `tidefold drop LOG` and then `tidefold ingest LOG` ingest "
                "them in the right order. Use a topic with one partition to avoid this.",
            )
    return None


def _add_refused(
    refused: tuple[tuple[str, int], ...], found: dict[str, TaskResult], arrivals: tuple[IngestedFile, ...]
) -> tuple[tuple[str, int], ...]:
    reasons = dict(refused)
    for arrival in arrivals:
        account = found[arrival.landed.name].result.account
        for reason, number in (account.refused if account else {}).items():
            reasons[reason] = reasons.get(reason, 0) + number
    return tuple(sorted(reasons.items()))
