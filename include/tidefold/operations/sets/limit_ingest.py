"""Limits the ingest of a set's logs to the newest point that is proved for all of them.

Everything that lands is looked at. Records after the point wait in the landing folder, so each log's ledger never
contains more than the point, and folds, restores and reads need no rules of their own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tidefold.config import SetConfig
from tidefold.domain.log_state import Snapshot
from tidefold.domain.sets.point import FoundPoint, SetPoint, explain_missing_ends, find_point
from tidefold.domain.sets.progress import LogProgress, SourceRecord, follow_records
from tidefold.domain.sets.set_state import move_point
from tidefold.errors import ConflictError, NotFoundError, RefusedError, TidefoldError, wrap_unexpected
from tidefold.operations.ingest.log_ingest import LogIngest, plan_log
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sets.publish import publish_decided
from tidefold.operations.sets.set_ledger import set_ledger
from tidefold.operations.sets.undecided import find_undecided
from tidefold.sources.api import Feed
from tidefold.sources.debezium.transactions import LandedEnds, read_ends, read_records
from tidefold.sources.landing.folders import name_at

_TRIES = 5


def limit_to_points(pipeline: Pipeline, prepared: Sequence[LogIngest | Outcome]) -> list[LogIngest | Outcome]:
    """Returns the planned ingests; those of logs in a set are limited to the point of the set.

    If the point of a set cannot be found, its logs get an error; other logs continue.
    """
    found = {one.log: one for one in prepared}
    for chosen in pipeline.config.sets.values():
        asked = [log for log in chosen.logs if log in found]
        if asked:
            found |= _limit_set(pipeline, chosen, {log: found[log] for log in asked})
    return [found[one.log] for one in prepared]


def _limit_set(
    pipeline: Pipeline, chosen: SetConfig, asked: Mapping[str, LogIngest | Outcome]
) -> Mapping[str, LogIngest | Outcome]:
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
        plans = {log: one for log, one in asked.items() if isinstance(one, LogIngest)}
        plans |= {log: plan_log(pipeline, log) for log in chosen.logs if log not in plans}
        limited = _find_limits(pipeline, chosen, plans)
    except Exception as error:
        found = wrap_unexpected(error)
        failures = {log: one for log, one in asked.items() if isinstance(one, Outcome)}
        topic = name_at(chosen.transactions)
        waits = {log: one.message for log, one in failures.items()} or {topic: found.message}
        # People look for the reason with `status`, too. If the store cannot be written, the outcome has it.
        with suppress(TidefoldError):
            set_ledger(pipeline, chosen.name).commit(lambda state: move_point(state, state.point, waits, state.behind))
        return {log: failures.get(log) or Outcome.of_error(log, found) for log in asked}
    return {log: limited[log] for log in asked}


def _plan_again(
    pipeline: Pipeline, chosen: SetConfig, asked: Mapping[str, LogIngest | Outcome]
) -> Mapping[str, LogIngest | Outcome]:
    """Finishes an open decision, which may be why a log cannot be planned: an import, for example. Then plans again."""
    ledger = set_ledger(pipeline, chosen.name)
    state = ledger.read()
    if state.decided is None:
        return asked
    publish_decided(pipeline, chosen, ledger, state)
    return {log: plan_log(pipeline, log) if isinstance(one, Outcome) else one for log, one in asked.items()}


def _find_limits(pipeline: Pipeline, chosen: SetConfig, plans: Mapping[str, LogIngest]) -> dict[str, LogIngest]:
    ledger = set_ledger(pipeline, chosen.name)
    for _ in range(_TRIES):
        state = ledger.read()
        if state.decided:
            state = publish_decided(pipeline, chosen, ledger, state)
            # An import that is finished now moves the positions of the logs.
            plans = {log: plan_log(pipeline, log) for log in plans}
        if undecided := find_undecided(plan.state for plan in plans.values()):
            return {log: _wait_for_person(chosen, plan, undecided) for log, plan in plans.items()}
        before = _leave_out_new(state.point, plans)
        landed = _read_topic(chosen, plans, before)
        scans = {log: _scan_log(pipeline, chosen, before, landed, plan) for log, plan in plans.items()}
        found = find_point(landed.ends, {log: scan.progress for log, scan in scans.items()}, before)
        if found.disorder:
            raise RefusedError(
                "SET_ORDER",
                f"The transactions of set `{chosen.name}` have no order: {found.disorder}.",
                hint="The connector reads another server, or the server started its log again. Let a new snapshot "
                "land in new folders, and name these in the set and its logs.",
            )
        found = _explain_topic(chosen, landed, scans, found)
        if ledger.try_commit(state, move_point(state, found.point, found.waits, found.behind)):
            return {log: _limit_log(chosen, plan, scans[log], found) for log, plan in plans.items()}
    raise ConflictError("SET_BUSY", f"Other processes changed set `{chosen.name}` {_TRIES} times.")


def _explain_topic(
    chosen: SetConfig, landed: LandedEnds, scans: Mapping[str, _LogScan], found: FoundPoint
) -> FoundPoint:
    """Returns the result with the reason why the transaction topic holds the set back, if it does."""
    why, count = explain_missing_ends(landed.ends, {log: scan.progress for log, scan in scans.items()}, found.point)
    if landed.gap:
        first, last = landed.gap
        why = f"the records at offsets {first} to {last} have not landed, and later ones have"
    if not why:
        return found
    topic = name_at(chosen.transactions)
    return replace(found, waits={**found.waits, topic: why}, behind={**found.behind, topic: count})


def _leave_out_new(point: SetPoint | None, plans: Mapping[str, LogIngest]) -> SetPoint | None:
    """Returns the point without the cuts of logs that have ingested nothing: they were dropped, and begin again."""
    if point is None:
        return None
    begun = {log for log, plan in plans.items() if plan.state.positions}
    cuts = tuple(one for one in point.cuts if one.offset == 0 or one.log in begun)
    return point if cuts == point.cuts else replace(point, cuts=cuts)


def _wait_for_person(chosen: SetConfig, plan: LogIngest, undecided: Mapping[str, Snapshot]) -> LogIngest:
    """Returns an ingest of nothing: with more changes, the staged snapshots would not be those of the point."""
    log, snapshot = next(iter(undecided.items()))
    why = f"snapshot {snapshot.id} of `{log}` failed its gate; confirm it with an override, or abort it"
    return replace(plan.with_bound({}), waits=f"set `{chosen.name}` waits: {why}")


def _read_topic(chosen: SetConfig, plans: Mapping[str, LogIngest], before: SetPoint | None) -> LandedEnds:
    """Returns the landed ENDs behind the point. Raises NotFoundError naming the key whose folder does not exist."""
    try:
        return read_ends(*_find_topic(chosen, plans), before)
    except NotFoundError as error:
        if error.code != "LANDING_MISSING":
            raise
        raise NotFoundError(
            "SET_TRANSACTIONS_MISSING",
            f"`sets.{chosen.name}.transactions`: nothing lands in `{chosen.transactions}`, because it does not exist.",
            hint="Let the connector's topic `PREFIX.transaction` land there; the connector writes it with "
            "`provide.transaction.metadata: true`. If the topic lands in another folder, correct the key.",
        ) from error


def _find_topic(chosen: SetConfig, plans: Mapping[str, LogIngest]) -> tuple[Feed, str]:
    """Returns the transaction topic's folder, in the format of the logs, and their connector."""
    plan = plans[chosen.logs[0]]
    assert plan.feed is not None
    return replace(plan.feed, path=chosen.transactions), plan.state.shape.order


def _limit_log(chosen: SetConfig, plan: LogIngest, scan: _LogScan, found: FoundPoint) -> LogIngest:
    cut = found.point.find_cut(plan.log) if found.point else None
    limited = plan.with_bound({} if cut is None else scan.count_before(cut.bound))
    if (cut.bound if cut else 0) < scan.progress.next_offset or found.point is None:
        waits = "; ".join(f"`{log}`: {why}" for log, why in found.waits.items())
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
        found: dict[str, int | None] = {}
        for name, offsets in self.offsets.items():
            count, taken = bisect_left(offsets, cut), self.taken[name]
            # A file that is ingested to its end is not read again.
            found[name] = None if count == len(offsets) and count + taken else taken + count
        return found


def _scan_log(
    pipeline: Pipeline, chosen: SetConfig, point: SetPoint | None, landed: LandedEnds, plan: LogIngest
) -> _LogScan:
    positions = plan.state.positions
    offsets: dict[str, array[int]] = {task.file.name: array("q") for task in plan.plan.take}
    taken = {task.file.name: task.records for task in plan.plan.take}
    known = {task.file.name: task.taken for task in plan.plan.take}
    taken_to, cut = positions[0].next_offset if positions else 0, point.cut(plan.log) if point else None

    def follow() -> Iterator[SourceRecord]:
        for name, record in read_records(plan.feed, plan.plan.take, plan.state.shape.order) if plan.feed else ():
            offsets[name].append(record.offset)
            # A file may bring records again. After an import, files from before it do: they are in the imported rows.
            if not any(first <= record.offset < end for first, end in known[name]):
                yield record

    if len({(p.topic, p.partition) for p in positions} | {(f.topic, f.partition) for f in plan.files}) > 1:
        raise RefusedError(
            "SET_PARTITIONS",
            f"`{plan.log}` of set `{chosen.name}` has several partitions, so no offset cuts it at one point.",
            hint="Give the topic one partition, as Debezium does by default, and let it land in a new folder.",
        )
    progress = follow_records(
        _find_table(pipeline, landed, plan),
        follow(),
        taken_to,
        # A log that went beyond the point, while it was in no set, joins it again.
        known=cut is not None and taken_to <= cut,
        may_be_empty=plan.log in chosen.may_be_empty,
        is_unbroken=_has_no_gap(plan),
    )
    return _LogScan(progress, offsets, taken)


def _has_no_gap(plan: LogIngest) -> bool:
    """Whether the log has ingested all offsets from its first one on."""
    ranges = sorted((one.first_offset, one.next_offset) for one in plan.state.landed)
    reached = ranges[0][0] if ranges else 0
    for first, end in ranges:
        if first > reached:
            return False
        reached = max(reached, end)
    return True


def _find_table(pipeline: Pipeline, landed: LandedEnds, plan: LogIngest) -> str:
    """Returns the name of the log's table as the transaction topic has it: its topic without the prefix."""
    topics = [p.topic for p in plan.state.positions] + [f.topic for f in plan.files]
    source = pipeline.log(plan.log).source
    topic = topics[0] if topics else name_at(source.address) if source else ""
    if not landed.prefix:
        return topic
    if not topic.startswith(f"{landed.prefix}."):
        raise RefusedError(
            "SET_TOPIC",
            f"`{plan.log}` has the topic `{topic}`, which does not begin with `{landed.prefix}.` as the transaction "
            "topic does.",
            hint="All logs of a set and its transaction topic come from one connector. A log of which nothing has "
            "landed needs a folder with the name of its topic.",
        )
    return topic.removeprefix(f"{landed.prefix}.")
