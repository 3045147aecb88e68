"""Makes tail-only snapshots: the newest materialized snapshot and the change sets after it (C10)."""

from __future__ import annotations

from tidefold.domain.log_state import SnapshotKind
from tidefold.domain.snapshot import claim
from tidefold.domain.wording import count_noun
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.snapshot.claiming import hash_request
from tidefold.operations.snapshot.compact_log import compact_if_due
from tidefold.operations.snapshot.confirm import roll_forward
from tidefold.operations.snapshot.details import TailDetails


def take_tail(pipeline: Pipeline, log: str, run_id: str) -> Outcome:
    """Makes a tail-only snapshot: complete at once, never published, with the verdict of its base.

    Before that, it compacts a log of which too much waits: nothing is compacted across the end of a tail. Raises
    RefusedError if nothing was materialized yet. A repeated call of a run returns the same snapshot.
    """
    ledger = pipeline.ledger(log)
    before = ledger.find()
    if before is None:
        return Outcome(log, Status.NOTHING, "nothing was ingested yet")
    roll_forward(pipeline, log)
    if claim.of_run(before, run_id) is None:
        compact_if_due(pipeline, before)
    asked = claim.Claim(run_id, hash_request({"kind": SnapshotKind.TAIL}), SnapshotKind.TAIL, now())
    state = ledger.commit(lambda current: claim.tail(current, asked))
    snapshot = claim.of_run(state, run_id)
    if snapshot is None:
        return Outcome(log, Status.NOTHING, "nothing new since the newest snapshot")
    if before.snapshot(snapshot.id):
        return Outcome(log, Status.ALREADY, f"snapshot {snapshot.id} of this run is {snapshot.state}", snapshot.id)
    change_sets = state.change_sets_in(snapshot.from_sqn, snapshot.to_sqn)
    rows = sum(c.rows for c in change_sets)
    details = TailDetails(base=snapshot.base, change_sets=len(change_sets), changes=rows)
    message = f"snapshot {snapshot.id} is snapshot {snapshot.base} and {count_noun(rows, 'change')} after it"
    return Outcome(log, Status.COMPLETED, message, snapshot.id, details=details)
