"""The steps that may need Spark. Each plans once and executes that plan here, or a file of `jobs/` does it on Spark."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from tidefold.compute.runners import in_process, in_threads
from tidefold.errors import wrap_unexpected
from tidefold.installation import job_folder
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest import ingest
from tidefold.operations.ingest.land_topic import NOTHING, Landed
from tidefold.operations.ingest.stages import Planned
from tidefold.operations.plan.shadow import Steps
from tidefold.operations.quality import judge
from tidefold.operations.quality.judge import Case
from tidefold.operations.requests import Import, SnapshotRequest
from tidefold.operations.snapshot.materialize import SnapshotPlan, materialize, prepare
from tidefold.operations.verify import check_readers
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_engines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P")
_log = logging.getLogger(__name__)
# Savepoints of at most so many bytes are imported without Spark though `spark.above` is 0B.
_SMALL_IMPORT = 64 << 20
# How many snapshots this process judges at the same time if it waits for a network.
_ENGINES = 4
# Called with a log, how many of its buckets are done, and of how many.
Tell = Callable[[str, int, int], None]
# The function `run` of a job: does the step in a session, for a pipeline and some logs.
Job = Callable[["SparkSession", Pipeline, Any, Sequence[str]], list[Outcome]]


@dataclass(frozen=True, slots=True)
class PreparedLog(Generic[P]):
    """What a step has to do for one log.

    `weight`: how many bytes it reads; 0: nothing that is worth the start of Spark; None: only Spark can do it.
    """

    log: str
    plan: P
    weight: int | None


class PipelineStep(Protocol[P]):
    """One step for some logs.

    `name`: `ingest`, `materialize`, `quality`, `audit` or `verify`.
    `run`: id of the run, if it has one.
    `limit`: up to how many bytes are read without Spark though `spark.above` is 0B.
    """

    @property
    def name(self) -> str: ...
    @property
    def run(self) -> str | None: ...
    @property
    def limit(self) -> int: ...

    def prepare(self, pipeline: Pipeline, logs: Sequence[str]) -> list[PreparedLog[P] | Outcome]:
        """Plans each log; an outcome for a log without work or with an error. Runs no task."""

    def execute(self, pipeline: Pipeline, prepared: Sequence[PreparedLog[P]], tell: Tell) -> list[Outcome]:
        """Executes the plans in this process."""


class IngestStep(msgspec.Struct, frozen=True, tag="ingest"):
    """Parses landed files into change sets. landed: what the run landed of the topics of the logs before."""

    landed: Mapping[str, Landed] = {}
    name: ClassVar[str] = "ingest"
    run: ClassVar[str | None] = None
    limit: ClassVar[int] = 0

    def prepare(self, pipeline: Pipeline, logs: Sequence[str]) -> list[PreparedLog[Planned] | Outcome]:
        # A log without new files is prepared too: it may have problems to report.
        return [
            one if isinstance(one, Outcome) else PreparedLog(one.log, one, one.weight if ingest.has_work(one) else 0)
            for one in ingest.land_and_prepare(pipeline, logs)
        ]

    def after(self, prepared: Sequence[PreparedLog[Planned]]) -> IngestStep:
        """Returns the step for a job, which lands nothing."""
        return IngestStep({one.log: one.plan.landed for one in prepared if one.plan.landed != NOTHING})

    def execute(self, pipeline: Pipeline, prepared: Sequence[PreparedLog[Planned]], tell: Tell) -> list[Outcome]:
        """All logs in one round, as on Spark: small logs share a segment."""
        try:
            return ingest.execute(pipeline, [one.plan for one in prepared], in_process)
        except Exception as error:
            _log.error(
                "%s: %s", ", ".join(one.log for one in prepared), failure := wrap_unexpected(error), exc_info=error
            )
            return [Outcome.of_error(one.log, failure) for one in prepared]


class MaterializeStep(msgspec.Struct, frozen=True, tag="materialize"):
    """Makes a snapshot of each log."""

    request: SnapshotRequest
    name: ClassVar[str] = "materialize"

    @property
    def run(self) -> str:
        return self.request.run

    @property
    def limit(self) -> int:
        return _SMALL_IMPORT if isinstance(self.request, Import) else 0

    def prepare(self, pipeline: Pipeline, logs: Sequence[str]) -> list[PreparedLog[SnapshotPlan] | Outcome]:
        def plan(log: str) -> PreparedLog[SnapshotPlan] | Outcome:
            planned = prepare(pipeline, log, self.request)
            if isinstance(planned, Outcome):
                return planned
            # Files that are only linked need no Spark, however large they are.
            return PreparedLog(log, planned, planned.attempt.weight if planned.attempt.writes_rows else 0)

        return _prepare_each(pipeline, logs, plan)

    def execute(self, pipeline: Pipeline, prepared: Sequence[PreparedLog[SnapshotPlan]], tell: Tell) -> list[Outcome]:
        plans = {one.log: one.plan for one in prepared}

        def act(log: str) -> Outcome:
            return materialize(pipeline, [log], self.request, in_threads(partial(tell, log)), plans)[0]

        return for_each_log(plans, act)


class QualityStep(msgspec.Struct, frozen=True, tag="quality"):
    """Judges staged snapshots: those of `run`, or any. With `recount` it reads all rows."""

    run: str | None = None
    recount: bool = False
    name: ClassVar[str] = "quality"
    limit: ClassVar[int] = 0
    find_case = staticmethod(judge.prepare)

    def prepare(self, pipeline: Pipeline, logs: Sequence[str]) -> list[PreparedLog[Case] | Outcome]:
        def plan(log: str) -> PreparedLog[Case] | Outcome:
            case = self.find_case(pipeline, log, self.run)
            if isinstance(case, Outcome):
                return case
            case = replace(case, recount=self.recount)
            return PreparedLog(log, case, 0 if judge.is_judged(pipeline, case) else judge.weigh(pipeline, case))

        return _prepare_each(pipeline, logs, plan)

    def execute(self, pipeline: Pipeline, prepared: Sequence[PreparedLog[Case]], tell: Tell) -> list[Outcome]:
        cases = {one.log: one.plan for one in prepared}
        if not any(one.weight for one in prepared):
            return for_each_log(cases, lambda log: judge.judge_case(pipeline, cases[log], None))
        return _with_engines(pipeline, cases, lambda log, engine: judge.judge_case(pipeline, cases[log], engine))


class AuditStep(QualityStep, frozen=True, tag="audit"):
    """Judges the newest completed snapshots again; the same `run` gives the same result."""

    name: ClassVar[str] = "audit"
    find_case = staticmethod(judge.prepare_audit)


class VerifyStep(msgspec.Struct, frozen=True, tag="verify"):
    """Compares the published tables, as Spark's Delta reader returns them, with what was judged.

    sample: only snapshots that were not read back, and of a large table a share of the files.
    """

    sample: bool = False
    name: ClassVar[str] = "verify"
    run: ClassVar[str | None] = None
    limit: ClassVar[int] = 0

    def prepare(self, pipeline: Pipeline, logs: Sequence[str]) -> list[PreparedLog[None] | Outcome]:
        # Only Spark shows what readers on Spark get.
        return _prepare_each(
            pipeline,
            logs,
            lambda log: PreparedLog(log, None, None if check_readers.is_due(pipeline, log, self.sample) else 0),
        )

    def execute(self, pipeline: Pipeline, prepared: Sequence[PreparedLog[None]], tell: Tell) -> list[Outcome]:
        return check_readers.check_readers(pipeline, [one.log for one in prepared], None, sample=self.sample)


# What a Spark job can be asked to do.
AnyStep = IngestStep | MaterializeStep | QualityStep | AuditStep | VerifyStep


def plan_steps(run_step: Callable[[AnyStep, Sequence[str]], list[Outcome]]) -> Steps:
    """Returns the steps of a plan, run by a function that runs any step where the size of its log asks for it."""
    return Steps(
        lambda log: run_step(IngestStep(), [log])[0],
        lambda log, request: run_step(MaterializeStep(request), [log])[0],
        lambda log, run: run_step(QualityStep(run), [log])[0],
    )


def job_path(step: str) -> Path:
    """The file of a step's PySpark job."""
    return job_folder() / f"{step}.py"


def load_job(step: str) -> Job:
    """Returns the function of a step's PySpark job."""
    job: Job = runpy.run_path(str(job_path(step)), run_name=f"jobs.{step}")["run"]
    return job


def _prepare_each(pipeline: Pipeline, logs: Sequence[str], plan: Callable[[str], Any]) -> list[Any]:
    """An error of one log is its outcome; the others are planned all the same."""
    plans: dict[str, Any] = {}

    def act(log: str) -> Outcome:
        plans[log] = plan(log)
        return plans[log] if isinstance(plans[log], Outcome) else Outcome(log, Status.PENDING, "planned")

    outcomes = for_each_log(logs, act, pipeline.at_once)
    return [plans.get(outcome.log, outcome) for outcome in outcomes]


def _with_engines(
    pipeline: Pipeline, logs: Collection[str], act: Callable[[str, DuckDBEngine], Outcome]
) -> list[Outcome]:
    """Judges logs in this process, several at the same time if each waits for a network."""
    count = min(_ENGINES, pipeline.at_once, len(logs))
    with open_engines(count) as lend:

        def judge_log(log: str) -> Outcome:
            with lend() as engine:
                return act(log, engine)

        return for_each_log(logs, judge_log, count)
