"""Compares the checks of a log over its judged snapshots, and finds the landed file that brought the first bad row."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from tidefold.domain.explain.key_history import ChangeOutcome
from tidefold.domain.log_state import LogState, State
from tidefold.domain.snapshot.transitions import require_snapshot
from tidefold.domain.table.table_spec import TableSpec
from tidefold.errors import TidefoldError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.explain_key import Origin, explain_key
from tidefold.quality.report.check_history import CheckHistory, FirstBad, compare_checks
from tidefold.quality.report.verdict_store import find_judgement

# Each one is a file to read.
COMPARED = 50
_SENT_AGAIN = (ChangeOutcome.AGAIN, ChangeOutcome.REPEATED)


@dataclass(frozen=True, slots=True)
class ChecksOverTime:
    """The checks of a log by snapshots, oldest first. older: how many judged snapshots are not compared."""

    log: str
    snapshots: tuple[int, ...]
    older: int
    checks: tuple[CheckHistory, ...]


def compare_over_time(pipeline: Pipeline, state: LogState, until: int | None = None, most: int = 100) -> ChecksOverTime:
    """Compares the newest judged snapshots, up to one of them. Raises CorruptError.

    most: for how many checks a landed file is looked for, because that reads data files.
    """
    judged = [s for s in state.snapshots if s.verdict and (until is None or s.id <= until)]
    # `clean` deletes old verdicts of snapshots that ended.
    kept = [one for s in judged[-COMPARED:] if (one := find_judgement(pipeline.store, state.log, s))]
    checks = []
    for check in compare_checks(kept):
        if check.first_bad:
            why = f"`tidefold snapshot report {state.log} --over-time` looks for it"
            traced = _trace(pipeline, state, check, check.first_bad) if most else replace(check.first_bad, error=why)
            check, most = replace(check, first_bad=traced, bad_keys=(), last_good=None), max(most - 1, 0)
        checks.append(check)
    return ChecksOverTime(state.log, tuple(one.snapshot for one in kept), len(judged) - len(kept), tuple(checks))


def _trace(pipeline: Pipeline, state: LogState, check: CheckHistory, bad: FirstBad) -> FirstBad:
    """Returns the row with the file that brought it. Of rows that are bad together, it is the one that changed last."""
    if bad.key is None:
        why = "no key of a bad row was stored" if state.shape.key else "the table has no key to find its change by"
        return replace(bad, error=why)
    origins: list[tuple[str, Origin]] = []
    why = "the log does not have the change any more"
    for key in check.bad_keys if "unique" in check.type else (bad.key,):
        try:
            origin = _find_origin(pipeline, state, bad.snapshot, _parse_key(key, state.shape))
        except (TidefoldError, ValueError) as error:
            why = str(error)
            continue
        origins += [(key, origin)] if origin and origin.landed else []
    if not origins:
        return replace(bad, error=why)
    key, origin = max(origins, key=lambda one: (one[1].sqn, one[1].partition, one[1].offset))
    if check.last_good is not None and origin.sqn <= require_snapshot(state, check.last_good).folds_to:
        # Nothing that landed for this row made it bad.
        why = f"the row did not change since snapshot {check.last_good}, which was good; what it is compared with did"
        return replace(bad, key=key, error=why)
    return replace(bad, key=key, landed=origin.landed, record=origin.record or None)


def _find_origin(pipeline: Pipeline, state: LogState, snapshot: int, key: str) -> Origin | None:
    judged = require_snapshot(state, snapshot)
    if judged.state in (State.COMPLETED, State.STAGED):
        return explain_key(pipeline, state.log, key, snapshot).made_by
    # The files of an aborted snapshot are gone, its changes are not.
    changes = explain_key(pipeline, state.log, key, live=True).changes
    made = (c for c in changes if c.sqn <= judged.folds_to and c.op in ("upsert", "merge"))
    return max((c for c in made if c.fate not in _SENT_AGAIN), key=lambda c: (c.order, c.sqn, c.offset), default=None)


def _parse_key(text: str, shape: TableSpec) -> str:
    """Returns a key of a sample, such as `aid=7`, as a JSON object. Raises ValueError, also for one that was cut."""
    matched = re.fullmatch(", ".join(f"{re.escape(name)}=(.*)" for name in shape.key), text, re.DOTALL)
    if matched is None:
        raise ValueError(f"the key `{text}` cannot be read back")
    texts = {column.name for column in shape.columns if column.type.startswith(("string", "decimal"))}
    pairs = zip(shape.key, matched.groups(), strict=True)
    return json.dumps({name: value if name in texts else json.loads(value) for name, value in pairs})
