"""Finds runs of change sets that one change set with only the last value of each key may replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidefold.domain.commit_times import CommitTimeRange, merge_ranges
from tidefold.domain.log_state import ChangeSet, LogState, State
from tidefold.domain.retention.log_bounds import mark_garbage
from tidefold.domain.retention.log_retention import LogRetention
from tidefold.domain.table.table_spec import Engine
from tidefold.errors import ConflictError

# A longer run is compacted in parts of this size, since a part is held in memory.
_COMPACTED_BYTES = 128 << 20
# The engines for which a compaction leaves out changes. The others need each change: `partial` its place for each
# column, `aggregate` its value, `history` and `append` its row. Their change sets are merged and keep all changes.
REDUCING = (Engine.LAST, Engine.FIRST)


@dataclass(frozen=True, slots=True)
class CompactionTrigger:
    """When waiting change sets are compacted without a command. 0: never by this number.

    change_sets: how many change sets wait that no compaction wrote.
    bytes: how many bytes these have; only where a compaction leaves out changes.
    """

    change_sets: int
    bytes: int


def find_compactable_runs(state: LogState, log: LogRetention | None = None) -> tuple[tuple[ChangeSet, ...], ...]:
    """Returns runs of at least two waiting change sets of which only the last value of each key is needed.

    A run never crosses the end of a snapshot onto which the log may be replayed, the position of a consumer or, with
    `log`, an instant of a backfill. Returns none during an attempt, because it reads exactly what it planned.
    """
    if (state.open_attempt and state.open_attempt.state is State.ONGOING) or state.as_of_attempts:
        return ()
    ends = {s.to_sqn for s in state.snapshots if (s.open or s.state is State.COMPLETED) and s.as_of is None}
    ends |= {consumer.sqn for consumer in state.readers}
    runs: list[list[ChangeSet]] = [[]]
    size, times = 0, None  # Of the run so far, so that a long log is read once.
    for change_set in state.unfolded:
        size, times = size + change_set.location.length, _join_times(runs[-1], times, change_set)
        if size > _COMPACTED_BYTES or (log and runs[-1] and _crosses_step(times, log)):
            runs.append([])
            size, times = change_set.location.length, change_set.times
        runs[-1].append(change_set)
        if change_set.sqn in ends:
            runs.append([])
            size = 0
    inside = {e for e in ends for c in state.unfolded if c.begin <= e < c.sqn}
    return tuple(tuple(run) for run in runs if len(run) > 1 and not inside)


def find_due_runs(
    state: LogState, trigger: CompactionTrigger, log: LogRetention | None = None
) -> tuple[tuple[ChangeSet, ...], ...]:
    """Returns the runs to compact without a command, if so much waits that the trigger fires.

    None before the first snapshot, which folds everything once, and none with changes that backfills may need (`log`).
    A run that was compacted before is compacted again only together with newer change sets.
    """
    waiting = [c for c in state.unfolded if c.first is None and not _serves_backfills(c, log)]
    if state.latest is None or not _is_due(state, trigger, waiting):
        return ()
    parts = [part for run in find_compactable_runs(state, log) for part in _split_at_backfills(run, log)]
    runs = [part for part in parts if len(part) > 1 and any(c.first is None for c in part)]
    is_due = _is_due(state, trigger, [c for run in runs for c in run if c.first is None])
    return tuple(runs) if is_due else ()


def _is_due(state: LogState, trigger: CompactionTrigger, new: Sequence[ChangeSet]) -> bool:
    """Whether so many change sets that no compaction wrote are enough."""
    is_large = state.shape.merge.engine in REDUCING and sum(c.location.length for c in new) >= trigger.bytes > 0
    return is_large or len(new) >= trigger.change_sets > 0


def _serves_backfills(change_set: ChangeSet, log: LogRetention | None) -> bool:
    """Whether backfills may need each of its changes."""
    times = change_set.times
    return log is not None and (times is None or (times.last is not None and times.last >= log.since))


def _split_at_backfills(run: Sequence[ChangeSet], log: LogRetention | None) -> list[tuple[ChangeSet, ...]]:
    """Returns the parts of a run without the change sets that backfills may need."""
    parts: list[list[ChangeSet]] = [[]]
    for one in run:
        if _serves_backfills(one, log):
            parts.append([])
        else:
            parts[-1].append(one)
    return [tuple(part) for part in parts]


def _join_times(
    run: Sequence[ChangeSet], times: CommitTimeRange | None, change_set: ChangeSet
) -> CommitTimeRange | None:
    """Returns the commit times of a run with one more change set."""
    return merge_ranges((times, change_set.times)) if run else change_set.times


def _crosses_step(times: CommitTimeRange | None, log: LogRetention) -> bool:
    """Whether an instant of a backfill is between changes of these commit times."""
    if times is None:
        return True  # A change set of an older version has no commit times.
    if times.first is None or times.last is None or times.last < log.since:
        return False
    return times.first // log.step != times.last // log.step


def compact(state: LogState, compacted: ChangeSet, log: LogRetention | None = None) -> LogState:
    """Replaces the run `compacted.begin` to `compacted.sqn` by one change set (C12).

    Raises ConflictError if the run is not complete any more, or may no longer be compacted.
    """
    if compacted in state.change_sets:
        return state
    run = tuple(c for c in state.change_sets if compacted.begin <= c.begin and c.sqn <= compacted.sqn)
    found = next((r for r in find_compactable_runs(state, log) if set(run) <= set(r)), ())
    if not run or not found or (run[0].begin, run[-1].sqn) != (compacted.begin, compacted.sqn):
        raise ConflictError(
            "RUN_GONE",
            f"The change sets {compacted.begin} to {compacted.sqn} of `{state.log}` cannot be compacted any more.",
            hint="Nothing was changed. Call again.",
        )
    before = tuple(c for c in state.change_sets if c.sqn < compacted.begin)
    kept = (*before, compacted, *(c for c in state.change_sets if c.begin > compacted.sqn))
    return replace(state, change_sets=kept, garbage=mark_garbage(state, kept))
