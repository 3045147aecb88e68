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
            traced = _trace(pipeline, state, check.first_bad) if most else replace(check.first_bad, error=why)
            check, most = replace(check, first_bad=traced), max(most - 1, 0)
        checks.append(check)
    return ChecksOverTime(state.log, tuple(one.snapshot for one in kept), len(judged) - len(kept), tuple(checks))


def _trace(pipeline: Pipeline, state: LogState, bad: FirstBad) -> FirstBad:
    if bad.key is None:
        why = "no key of a bad row was stored" if state.shape.key else "the table has no key to find its change by"
        return replace(bad, error=why)
    try:
        origin = _find_origin(pipeline, state, bad.snapshot, _parse_key(bad.key, state.shape))
    except (TidefoldError, ValueError) as error:
        return replace(bad, error=str(error))
    if origin is None or origin.landed is None:
        return replace(bad, error="the log does not have the change any more")
    return replace(bad, landed=origin.landed, record=origin.record or None)


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
