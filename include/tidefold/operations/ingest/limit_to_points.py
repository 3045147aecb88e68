"""Limits the ingest of a set's logs to the newest point that is proved for all of them.

Everything that lands is looked at. Records after the point wait in the landing folder, so each log's ledger never
contains more than the point, and folds, restores and reads need no rules of their own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tidefold.config import SetConfig
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import LogPaths, SetPaths
from tidefold.domain.sets.point import FoundPoint, SetPoint, explain_missing_ends, find_point
from tidefold.domain.sets.progress import NEVER, LogProgress, SourceRecord, follow_records
from tidefold.domain.sets.set_state import move_point
from tidefold.errors import ConflictError, NotFoundError, RefusedError, TidefoldError, wrap_unexpected
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.stages import Planned, plan_log
from tidefold.operations.publish.publish_set import publish_decided
from tidefold.sources.debezium.transactions import LandedEnds, read_ends, read_records
from tidefold.sources.feed import Feed
from tidefold.sources.kafka.landed import LandedOffsets
from tidefold.sources.landing.folders import name_at

_TRIES = 5


def limit_to_points(pipeline: Pipeline, prepared: Sequence[Planned | Outcome]) -> list[Planned | Outcome]:
    """Returns the planned ingests; those of logs in a set are limited to the point of the set.

    If the point of a set cannot be found, its logs get an error; other logs continue.
    """
    plans = {one.log: one for one in prepared}
    for chosen in pipeline.config.sets.values():
        asked = [log for log in chosen.logs if log in plans]
        if asked:
            plans |= _limit_set(pipeline, chosen, {log: plans[log] for log in asked})
    return [plans[one.log] for one in prepared]


def _limit_set(
    pipeline: Pipeline, chosen: SetConfig, asked: Mapping[str, Planned | Outcome]
) -> Mapping[str, Planned | Outcome]:
    try:
        if any(isinstance(one, Outcome) for one in asked.values()):
            asked = _plan_again(pipeline, chosen, asked)
        failed = next((one for one in asked.values() if isinstance(one, Outcome)), None)
        if failed:
            raise RefusedError(
                "SET_HELD",
                f"Set `{chosen.name}` ingests nothing, because `{failed.log}` cannot be planned.",
                hint=f"Correct `{failed.log}` as its own error says, then run again.",
            )
        plans = {log: one for log, one in asked.items() if isinstance(one, Planned)}
        plans |= {log: plan_log(pipeline, log) for log in chosen.logs if log not in plans}
        limited = _find_limits(pipeline, chosen, plans)
    except Exception as error:
        failure = wrap_unexpected(error)
        failures = {log: one for log, one in asked.items() if isinstance(one, Outcome)}
        # A log that was stopped on purpose fails none of its set.
        skipped = all(not one.error for one in failures.values()) and next(iter(failures.values()), None)
        waits = {log: one.message for log, one in failures.items()} or {chosen.topic_name: failure.message}
        # People look for the reason with `status`, too. If the store cannot be written, the outcome has it.
        with suppress(TidefoldError):
            pipeline.set_ledger(chosen.name).commit(lambda state: move_point(state, state.point, waits, state.behind))
        rest = {log: replace(skipped, log=log) if skipped else Outcome.of_error(log, failure) for log in asked}
        return {**rest, **failures}
    return {log: limited[log] for log in asked}


def _plan_again(
    pipeline: Pipeline, chosen: SetConfig, asked: Mapping[str, Planned | Outcome]
) -> Mapping[str, Planned | Outcome]:
    """Finishes an open decision, which may be why a log cannot be planned: an import, for example. Then plans again."""
    ledger = pipeline.set_ledger(chosen.name)
    state = ledger.read()
    if state.decided is None:
        return asked
    publish_decided(pipeline, ledger, state)
    return {log: plan_log(pipeline, log) if isinstance(one, Outcome) else one for log, one in asked.items()}


def _find_limits(pipeline: Pipeline, chosen: SetConfig, plans: Mapping[str, Planned]) -> dict[str, Planned]:
    ledger = pipeline.set_ledger(chosen.name)
    for _ in range(_TRIES):
        state = ledger.read()
        if state.decided:
            state = publish_decided(pipeline, ledger, state)
            # An import that is finished now moves the positions of the logs.
            plans = {log: plan_log(pipeline, log) for log in plans}
        if undecided := find_undecided(plan.listed.begun for plan in plans.values()):
            return {log: _wait_for_person(chosen, plan, undecided) for log, plan in plans.items()}
        before = _leave_out_new(state.point, plans)
        landed = _read_topic(pipeline, chosen, plans, before)
        scans = {log: _scan_log(pipeline, chosen, before, landed, plan) for log, plan in plans.items()}
        landed = _require_beginning(landed, scans, before)
        point = find_point(landed.ends, {log: scan.progress for log, scan in scans.items()}, before, state.released)
        if point.disorder:
            raise RefusedError("SET_ORDER", f"The transactions of set `{chosen.name}` have no order: {point.disorder}.")
        point = _explain_topic(chosen, landed, scans, point)
        if ledger.try_commit(state, move_point(state, point.point, point.waits, point.behind, point.held)):
            return {log: _limit_log(chosen, plan, scans[log], point) for log, plan in plans.items()}
    raise ConflictError("SET_BUSY", f"Other processes changed set `{chosen.name}` {_TRIES} times.")


def _explain_topic(
    chosen: SetConfig, landed: LandedEnds, scans: Mapping[str, _LogScan], point: FoundPoint
) -> FoundPoint:
    """Returns the result with the reason why the transaction topic holds the set back, if it does."""
    why, count = explain_missing_ends(landed.ends, {log: scan.progress for log, scan in scans.items()}, point.point)
    if landed.gap:
        first, last = landed.gap
        why = f"the records at offsets {first} to {last} have not landed, and later ones have"
    if not why:
        return point
    topic = chosen.topic_name
    return replace(point, waits={**point.waits, topic: why}, behind={**point.behind, topic: count})


def _leave_out_new(point: SetPoint | None, plans: Mapping[str, Planned]) -> SetPoint | None:
    """Returns the point without the cuts of logs that have ingested nothing: they were dropped, and begin again."""
    if point is None:
        return None
    begun = {log for log, plan in plans.items() if plan.listed.begun.positions}
    cuts = tuple(one for one in point.cuts if one.offset == 0 or one.log in begun)
    return point if cuts == point.cuts else replace(point, cuts=cuts)


def _wait_for_person(chosen: SetConfig, plan: Planned, undecided: Mapping[str, Snapshot]) -> Planned:
    """Returns an ingest of nothing: with more changes, the staged snapshots would not be those of the point."""
    log, snapshot = next(iter(undecided.items()))
    why = f"snapshot {snapshot.id} of `{log}` failed its gate; confirm it with an override, or abort it"
    return replace(plan.with_bound({}), waits=f"set `{chosen.name}` waits: {why}")


def _read_topic(
    pipeline: Pipeline, chosen: SetConfig, plans: Mapping[str, Planned], before: SetPoint | None
) -> LandedEnds:
    """Returns the landed ENDs behind the point. Raises NotFoundError naming the key whose folder does not exist."""
    whole = LandedOffsets.read(pipeline.store, SetPaths(chosen.name)).whole_from if chosen.kafka else NEVER
    try:
        return read_ends(*_find_topic(chosen, plans), before, whole)
    except NotFoundError as error:
        if error.code != "LANDING_MISSING":
            raise
        raise NotFoundError(
            "SET_TRANSACTIONS_MISSING",
            f"`sets.{chosen.name}.transactions`: nothing lands in `{chosen.topic}`, because it does not exist.",
        ) from error


def _require_beginning(landed: LandedEnds, scans: Mapping[str, _LogScan], before: SetPoint | None) -> LandedEnds:
    """Returns the ENDs; of a topic that lacks earlier ones those that follow one that the first rows contain."""
    if not landed.begin:
        return landed
    snapshots = [scan.progress.snapshot for scan in scans.values()]
    reached = before.position if before else min((one.last for one in snapshots if one), default=-1)
    first = landed.ends[0].position if landed.ends else None
    is_known = before is not None or all(scan.progress.is_fresh for scan in scans.values())
    if is_known and first is not None and first <= reached:
        return replace(landed, ends=tuple(end for end in landed.ends if (end.position or 0) > reached))
    return replace(landed, ends=(), gap=(0, landed.begin - 1))


def _find_topic(chosen: SetConfig, plans: Mapping[str, Planned]) -> tuple[Feed, str]:
    """Returns the transaction topic's folder, in the format of the logs, and their connector."""
    plan = plans[chosen.logs[0]]
    assert plan.listed.feed is not None
    return replace(plan.listed.feed, path=chosen.topic), plan.listed.begun.shape.order


def _limit_log(chosen: SetConfig, plan: Planned, scan: _LogScan, point: FoundPoint) -> Planned:
    cut = point.point.find_cut(plan.log) if point.point else None
    limited = plan.with_bound({} if cut is None else scan.count_before(cut.bound))
    if (cut.bound if cut else 0) < scan.progress.next_offset or point.point is None:
        waits = "; ".join(f"`{log}`: {why}" for log, why in point.waits.items())
        return replace(limited, waits=f"records wait for set `{chosen.name}`" + (f" ({waits})" if waits else ""))
    return limited


@dataclass(frozen=True, slots=True)
class _LogScan:
    """The new records of a log. offsets: those of each file, in order. taken: records taken of each file before."""

    progress: LogProgress
    offsets: dict[str, array[int]] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)

    def count_before(self, cut: int) -> dict[str, int | None]:
        """Returns for each file how many of its records come before an offset; None: all of them."""
        counts: dict[str, int | None] = {}
        for name, offsets in self.offsets.items():
            count, taken = bisect_left(offsets, cut), self.taken[name]
            # A file that is ingested to its end is not read again.
            counts[name] = None if count == len(offsets) and count + taken else taken + count
        return counts


def _scan_log(
    pipeline: Pipeline, chosen: SetConfig, point: SetPoint | None, landed: LandedEnds, plan: Planned
) -> _LogScan:
    feed, positions = plan.listed.feed, plan.listed.begun.positions
    offsets: dict[str, array[int]] = {task.file.name: array("q") for task in plan.plan.take}
    taken = {task.file.name: task.records for task in plan.plan.take}
    takes = {task.file.name: task.taken for task in plan.plan.take}
    taken_to, cut = positions[0].next_offset if positions else 0, point.cut(plan.log) if point else None

    def follow() -> Iterator[SourceRecord]:
        for name, record in read_records(feed, plan.plan.take, plan.listed.begun.shape.order) if feed else ():
            offsets[name].append(record.offset)
            # A file may bring records again. After an import, files from before it do: they are in the imported rows.
            if not any(first <= record.offset < end for first, end in takes[name]):
                yield record

    if len({(p.topic, p.partition) for p in positions} | {(f.topic, f.partition) for f in plan.listed.files}) > 1:
        raise RefusedError(
            "SET_PARTITIONS",
            f"`{plan.log}` of set `{chosen.name}` has several partitions, so no offset cuts it at one point.",
        )
    of_topic = pipeline.log(plan.log).topic is not None
    progress = follow_records(
        _find_table(pipeline, landed, plan),
        follow(),
        taken_to,
        # A log that went beyond the point, while it was in no set, joins it again.
        known=cut is not None and taken_to <= cut,
        may_be_empty=plan.log in chosen.may_be_empty,
        gaps=_find_gaps(plan),
        whole_from=LandedOffsets.read(pipeline.store, LogPaths(plan.log)).whole_from if of_topic else NEVER,
    )
    return _LogScan(progress, offsets, taken)


def _find_gaps(plan: Planned) -> list[tuple[int, int]]:
    """Returns the ranges of offsets after its first one that the log has not ingested."""
    ranges = sorted((one.first_offset, one.next_offset) for one in plan.listed.begun.landed)
    reached, gaps = ranges[0][0] if ranges else 0, []
    for first, end in ranges:
        if first > reached:
            gaps.append((reached, first))
        reached = max(reached, end)
    return gaps


def _find_table(pipeline: Pipeline, landed: LandedEnds, plan: Planned) -> str:
    """Returns the name of the log's table as the transaction topic has it: its topic without the prefix."""
    topics = [p.topic for p in plan.listed.begun.positions] + [f.topic for f in plan.listed.files]
    config = pipeline.log(plan.log)
    topic = topics[0] if topics else config.topic.topic if config.topic else name_at(config.address)
    if not landed.prefix:
        return topic
    if not topic.startswith(f"{landed.prefix}."):
        raise RefusedError(
            "SET_TOPIC",
            f"`{plan.log}` has the topic `{topic}`, which does not begin with `{landed.prefix}.` as the transaction "
            "topic does.",
        )
    return topic.removeprefix(f"{landed.prefix}.")


def find_undecided(states: Iterable[LogState | None]) -> dict[str, Snapshot]:
    """Returns the staged snapshots that their gates refused, by log: each may still be let through, or aborted."""
    attempts = {state.log: state.open_attempt for state in states if state and state.open_attempt}
    return {
        log: one
        for log, one in attempts.items()
        if one and one.state is State.STAGED and one.verdict and not one.verdict.allows
    }
