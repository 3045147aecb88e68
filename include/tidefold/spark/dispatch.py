"""The steps that may need Spark, and which logs really do: the others are answered without starting a JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from tidefold.compute.runners import in_process, in_threads
from tidefold.errors import unforeseen
from tidefold.operations.ingest import ingest
from tidefold.operations.outcome import Outcome, Status, each_log
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.quality import audit, judge
from tidefold.operations.snapshot import materialize
from tidefold.operations.snapshot.request import Asking
from tidefold.operations.verify import check_readers
from tidefold.quality.run.duckdb_rows import open_duckdb
from tidefold.quality.run.engine import QualityEngine

_log = logging.getLogger(__name__)
# A savepoint of no more bytes is imported without Spark where the configuration does not say from where on Spark works.
_SMALL_IMPORT = 64 << 20
# Is told of a log how many buckets are done, and of how many.
Tell = Callable[[str, int, int], None]
# What an ingest would do for each log; empty for the other steps.
Plans = Mapping[str, ingest.Prepared]


@dataclass(frozen=True, slots=True)
class Step:
    """A step (`ingest`, `materialize`, `quality`, `audit`, `verify`) and what is asked of it."""

    name: str
    asking: Asking = field(default_factory=Asking)


@dataclass(frozen=True, slots=True)
class Sorted:
    """`spark`: logs that need Spark. `done`: what the step did to the others, errors among it."""

    spark: tuple[str, ...]
    done: tuple[Outcome, ...]


def without_spark(
    pipeline: Pipeline, step: Step, logs: Sequence[str], tell: Tell = lambda log, done, total: None
) -> Sorted:
    """Does the step for every log that needs no Spark for it: nothing new, already done, an error to report, the return
    of a whole snapshot, of which `tell` is told, or so little to read that Spark is not worth its start.
    """
    pending: list[str] = []
    plans = {one.log: one for one in ingest.prepare(pipeline, logs)} if step.name == "ingest" else {}

    def act(log: str) -> Outcome:
        if _pending(pipeline, step, log, plans):
            pending.append(log)
            return Outcome(log, Status.PENDING, "needs Spark")
        return _acts(pipeline, step, tell, plans)(log)

    answered = {outcome.log: outcome for outcome in each_log(logs, act)}
    answered |= {o.log: o for o in _here(pipeline, step, _small(pipeline, step, pending, plans), tell, plans)}
    spark = tuple(log for log in pending if answered[log].status is Status.PENDING)
    if spark:
        # The job would do it too, but nobody reads what it says while it runs.
        pipeline.before_write()
    return Sorted(spark, tuple(answered[log] for log in logs if log not in spark))


def _pending(pipeline: Pipeline, step: Step, log: str, plans: Plans) -> bool:
    if step.name == "ingest":
        return ingest.has_work(plans[log])
    if step.name == "materialize":
        return bool(materialize.pending(pipeline, [log], step.asking))
    if step.name == "audit":
        return bool(audit.pending(pipeline, [log], step.asking.run))
    if step.name == "verify":
        return check_readers.has_table(pipeline, log)
    return bool(judge.pending(pipeline, [log], step.asking.run))


def _acts(
    pipeline: Pipeline, step: Step, tell: Tell, plans: Plans, engine: QualityEngine | None = None
) -> Callable[[str], Outcome]:
    # Of a log that is not pending there are no tasks but those of a restore, which proves files and takes them over;
    # were one to appear in this very moment, it would be done here.
    if step.name == "ingest":
        return lambda log: ingest.execute(pipeline, [plans[log]], in_process)[0]
    if step.name == "materialize":
        return lambda log: materialize.materialize(pipeline, [log], step.asking, in_threads(partial(tell, log)))[0]
    if step.name == "audit":
        return lambda log: audit.audit(pipeline, [log], step.asking.run, engine)[0]
    if step.name == "verify":
        return lambda log: check_readers.check_readers(pipeline, [log], None)[0]
    return lambda log: judge.judge(pipeline, [log], step.asking.run, engine)[0]


def _small(pipeline: Pipeline, step: Step, pending: Sequence[str], plans: Plans) -> Mapping[str, int]:
    """The logs with the least to read, as many as together stay within the limit, and the bytes of each."""
    left = _limit(pipeline, step)
    weights: dict[str, int] = {}
    for log in pending if left else ():
        with suppress(Exception):  # What is wrong with it is for the job to find and to say.
            weights[log] = _weight(pipeline, step, log, plans)
    small = {}
    for log, weight in sorted(weights.items(), key=lambda one: one[1]):
        left -= weight
        if left >= 0:
            small[log] = weight
    return small


def _limit(pipeline: Pipeline, step: Step) -> int:
    if step.name == "verify":
        return 0  # Only Spark shows what readers on Spark get.
    return pipeline.config.spark.above_bytes or (_SMALL_IMPORT if step.asking.imported else 0)


def _weight(pipeline: Pipeline, step: Step, log: str, plans: Plans) -> int:
    if step.name == "ingest":
        plan = plans[log]
        return 0 if isinstance(plan, Outcome) else plan.weight
    if step.name == "materialize":
        return materialize.weight(pipeline, log, step.asking)
    if step.name == "audit":
        return audit.weight(pipeline, log, step.asking.run)
    return judge.weight(pipeline, log, step.asking.run)


def _here(pipeline: Pipeline, step: Step, small: Mapping[str, int], tell: Tell, plans: Plans) -> list[Outcome]:
    """Does the step for small logs in this process, with the verdicts and rows that Spark would give."""
    if not small:
        return []
    if step.name == "ingest":
        outcomes = _ingest_here(pipeline, [plans[log] for log in small])
    elif step.name == "materialize":
        outcomes = each_log(small, _acts(pipeline, step, tell, plans))
    else:
        with open_duckdb() as engine:
            outcomes = each_log(small, _acts(pipeline, step, tell, plans, engine))
    return [_told(outcome, small[outcome.log]) for outcome in outcomes]


def _ingest_here(pipeline: Pipeline, plans: Sequence[ingest.Prepared]) -> list[Outcome]:
    """All in one round, as on Spark: small logs share a segment."""
    try:
        return ingest.execute(pipeline, plans, in_process)
    except Exception as error:
        _log.error("%s: %s", ", ".join(plan.log for plan in plans), found := unforeseen(error), exc_info=error)
        return [Outcome.of_error(plan.log, found) for plan in plans]


def _told(outcome: Outcome, weight: int) -> Outcome:
    if outcome.error:
        return outcome
    message = f"{outcome.message}; without Spark, as there were {weight:,} bytes to read"
    return replace(outcome, message=message, details=replace(outcome.details, bytes_without_spark=weight))
