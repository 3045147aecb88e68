"""The steps that may need Spark, and which logs really do: the others are answered without starting a JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidefold.fold.distribute import in_process, in_threads
from tidefold.operations import audit, ingest, judge, materialize
from tidefold.operations.asking import Asking
from tidefold.operations.outcome import Outcome, each_log
from tidefold.operations.pipeline import Pipeline

# Is told of a log how many buckets are done, and of how many.
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Step:
    """A step (`ingest`, `materialize`, `quality`, `audit`) and what is asked of it."""

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
    """Does the step for every log that needs no Spark for it: nothing new, already done, an error to report, or the
    return of a whole snapshot, of which `tell` is told.
    """
    pending: list[str] = []

    def act(log: str) -> Outcome:
        if _pending(pipeline, step, log):
            pending.append(log)
            return Outcome(log, "pending", "needs Spark")
        return _acts(pipeline, step, tell)(log)

    outcomes = each_log(logs, act)
    return Sorted(tuple(pending), tuple(o for o in outcomes if o.log not in pending))


def _pending(pipeline: Pipeline, step: Step, log: str) -> bool:
    if step.name == "ingest":
        return bool(ingest.pending(pipeline, [log]))
    if step.name == "materialize":
        return bool(materialize.pending(pipeline, [log], step.asking))
    if step.name == "audit":
        return bool(audit.pending(pipeline, [log], step.asking.run))
    return bool(judge.pending(pipeline, [log], step.asking.run))


def _acts(pipeline: Pipeline, step: Step, tell: Tell) -> Callable[[str], Outcome]:
    # Nothing is pending, so there are no tasks but those of a restore, which proves files and takes them over; were one
    # to appear in this very moment, it would be done here.
    if step.name == "ingest":
        return lambda log: ingest.ingest(pipeline, [log], in_process)[0]
    if step.name == "materialize":
        return lambda log: materialize.materialize(pipeline, [log], step.asking, in_threads(partial(tell, log)))[0]
    if step.name == "audit":
        return lambda log: audit.audit(pipeline, [log], step.asking.run, None)[0]
    return lambda log: judge.judge(pipeline, [log], step.asking.run, None)[0]
