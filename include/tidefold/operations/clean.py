"""Removes what died runs left behind in a store: files that no log needs, of ingests and of attempts. Starts no JVM."""

from __future__ import annotations

from collections.abc import Sequence

from tidefold.operations import settle
from tidefold.operations.outcome import Outcome, each_log
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.sweep import plan_sweep, sweep


def clean(pipeline: Pipeline, logs: Sequence[str], plan: bool = False) -> list[Outcome]:
    """Ends what runs announced and did not bring to an end, then removes the files of aborted attempts of each log.

    An ingest that is only slow loses nothing but its work: it is refused, and the next one begins anew.
    """
    runs = settle.abandoned(pipeline.store, now())
    if not plan:
        for run in runs:
            settle.settle(pipeline.store, run)
    return each_log(logs, lambda log: _clean_log(pipeline, log, plan))


def _clean_log(pipeline: Pipeline, log: str, plan: bool) -> Outcome:
    ledger = pipeline.ledger(log)
    state = ledger.find()
    if state is None:
        return Outcome(log, "nothing", "the store has no such log")
    going = plan_sweep(pipeline.store, state)
    removed = 0 if plan else sweep(pipeline.store, ledger)
    facts = {"files": len(going), "paths": list(going)}
    if not going:
        return Outcome(log, "nothing", "nothing was left behind", facts=facts)
    message = f"would remove {len(going):,} files" if plan else f"removed {removed:,} files"
    return Outcome(log, "planned" if plan else "cleaned", f"{message} of aborted attempts", facts=facts)
