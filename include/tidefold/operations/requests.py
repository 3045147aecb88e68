"""The kinds of requests for a snapshot, and which logs have work for one."""

from __future__ import annotations

from collections.abc import Sequence

from tidefold.domain.log_state import LogState
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.ground.outcome import map_logs
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.stages import has_news
from tidefold.operations.restore.restore import Restore as Restore
from tidefold.operations.savepoint.import_snapshot import Import as Import
from tidefold.operations.sets.restore import RestoreSet as RestoreSet
from tidefold.operations.snapshot.fold import Fold as Fold
from tidefold.operations.snapshot.fold import PointInTime as PointInTime

# Each kind of request claims a log and plans its attempt by itself; `materialize` runs any of them.
SnapshotRequest = Fold | Restore | RestoreSet | Import | PointInTime

# A run over at most so many logs shows each of them in each step.
FEW_LOGS = 100


def has_nothing_to_fold(pipeline: Pipeline, state: LogState | None, request: SnapshotRequest) -> bool:
    """Whether a run would make, judge, publish and abort nothing, unless files have landed. Reads nothing.

    state: of the log; None: it was not started.
    """
    if state is None:
        return True
    latest = state.latest
    settled = state.open_attempt is None and not state.unfolded and (latest is None or latest.published)
    renews = not isinstance(request, Fold) or request.kind is KindPolicy.FULL
    # Rows expire without any change.
    return settled and not renews and pipeline.log(state.log).ttl is None


def find_busy_logs(pipeline: Pipeline, logs: Sequence[str]) -> list[str]:
    """Returns the logs with landed files, changes to fold or an open snapshot, and those whose state is not as left.

    Listings of the ledger, of the landing folder and of the table's log, and one version, for each. Changes nothing.
    """
    request = Fold("")

    def is_busy(log: str) -> bool:
        try:
            state = pipeline.ledger(log).peek(pipeline.log(log).shape)
            is_idle = has_nothing_to_fold(pipeline, state, request) and not has_news(pipeline, state)
            return not is_idle or bool(state and pipeline.ledger(log).has_foreign_commits(state))
        except Exception:
            return True  # The steps report the error.

    busy = map_logs(is_busy, logs, pipeline.at_once)
    return [log for log, found in zip(logs, busy, strict=True) if found]
