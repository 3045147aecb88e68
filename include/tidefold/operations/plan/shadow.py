"""Fills a shadow store: ingests what a log has, as the edited configuration says, numbers it as the log does, folds it.

A shadow store is a whole store with this one log. No reader of the table sees it, and the log does not change.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tidefold.compute.runners import in_process
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.errors import RefusedError, TidefoldError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.plan_records import make_busy_error
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.quality import judge
from tidefold.operations.savepoint.import_snapshot import Import
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.fold import Fold
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.run.engine import QualityEngine


@dataclass(frozen=True, slots=True)
class Shadow:
    """The log in a shadow store, folded and judged.

    pipeline: of the shadow store.
    snapshot: with the rows under the edited configuration.
    ingested, judged: the outcomes of the steps.
    """

    pipeline: Pipeline
    state: LogState
    snapshot: Snapshot
    ingested: Outcome
    judged: Outcome

    @property
    def passed(self) -> bool:
        """Whether the gate passed it."""
        return self.judged.status is Status.PASSED


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one pipeline, in this process or on Spark. Each returns the outcome of a log; the last two get the
    run.
    """

    ingest: Callable[[str], Outcome]
    materialize: Callable[[str, Fold | Import], Outcome]
    judge: Callable[[str, str], Outcome]


def steps_in_process(pipeline: Pipeline, engine: QualityEngine) -> Steps:
    """Returns steps that start no Spark. A suite that only Spark can compute is not judged."""

    def judge_here(log: str, run: str) -> Outcome:
        case = judge.prepare(pipeline, log, run)
        if not isinstance(case, Outcome) and judge.weigh(pipeline, case) is None:
            return Outcome(log, Status.SKIPPED, "not judged: only Spark can compute a check of the suite")
        return case if isinstance(case, Outcome) else judge.judge_case(pipeline, case, engine)

    return Steps(
        lambda log: ingest(pipeline, [log], in_process)[0],
        lambda log, request: materialize(pipeline, [log], request, in_process)[0],
        judge_here,
    )


def fill(beside: Pipeline, log: str, steps: Steps) -> Shadow:
    """Makes a snapshot of the log in its shadow store, or continues what an earlier call has ingested.

    steps: of the shadow store.

    Raises TidefoldError if there is no snapshot. What a gate refuses has one.
    """
    ledger = beside.ledger(log)
    abort(beside, log, "the log is planned again")
    ingested = steps.ingest(log)
    if beside.plan_of and ledger.exists():
        ledger.commit(partial(renumber, like=beside.plan_of.state))
    run = f"plan-{secrets.token_hex(4)}"
    wanted = Fold(run, kind=KindPolicy.FULL, partly=bool(beside.plan_of and beside.plan_of.state.latest))
    folded = steps.materialize(log, wanted)
    for failed in (folded, ingested):
        if folded.status is not Status.STAGED and failed.error:
            # What is refused here is in no quarantine of the pipeline.
            own = "Nothing of the pipeline changed. Correct the configuration, then call again."
            hint = own if failed.error.code.startswith("LANDED_") else failed.error.hint
            error = TidefoldError(failed.error.code, failed.error.message, hint=hint)
            error.exit_code, error.transient = failed.error.exit_code, failed.error.transient
            raise error
    if folded.status is not Status.STAGED:
        raise RefusedError("PLAN_EMPTY", f"No landed file of `{log}` has a change under this configuration.")
    judged = steps.judge(log, run)
    if judged.status is Status.PASSED:
        confirm(beside, log, Confirmation(run=run))
    planned = ledger.read()
    kept = (State.COMPLETED, State.STAGED)
    made = next((s for s in reversed(planned.snapshots) if s.run == run and s.state in kept), None)
    if made is None:
        raise make_busy_error(log)
    return Shadow(beside, planned, made, ingested, judged)


def renumber(planned: LogState, like: LogState) -> LogState:
    """Returns the log with the numbers that its landed files have in another one: they decide at equal order.

    Segments do not contain the numbers.
    """
    if like.names is None or like.names.has_offsets:
        return planned
    former, firsts = {entry.name: entry for entry in like.landed}, dict[str, int]()
    for entry in like.landed:
        firsts.setdefault(entry.run, entry.number)
    names = {sqn: entry.name for entry in planned.landed for sqn in entry.sqns}
    change_sets = tuple(
        replace(c, file=its.number, batch=None if c.batch is None else firsts[its.run])
        if c.file is not None and (its := former[names[c.sqn]])
        else c
        for c in planned.change_sets
    )
    # Which files came together decides in the next plan, too.
    taken = ((entry, former[entry.name]) for entry in planned.landed)
    landed = tuple(replace(e, number=its.number, run=its.run, instant=its.instant) for e, its in taken)
    return replace(planned, landed=landed, change_sets=change_sets, last_file=max(planned.last_file, like.last_file))
