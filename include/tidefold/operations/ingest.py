"""Takes what has landed into the logs: plan, parse in parallel, append (design 4)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from tidefold.fold.distribute import Runner
from tidefold.lifecycle.errors import ConflictError, InvalidInputError, RefusedError, StorageError, TidefoldError
from tidefold.lifecycle.intake import Arrival, append, check_shape
from tidefold.lifecycle.values import Landed, LogState, Position
from tidefold.operations.intake import Intake, begin_intake, parse_tasks, with_answers
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline, now
from tidefold.sources.parse import parse

_log = logging.getLogger(__name__)
# Refused records that say something of the table as a whole, and what to do about each.
_OF_THE_WHOLE_TABLE = {
    "OP_UNSUPPORTED": "Truncate events are not supported yet. Drop the log and begin it from a new Debezium snapshot.",
    "SNAPSHOT_RESTART": "`tidefold drop` the log, and ingest it anew from where its newest Debezium snapshot begins.",
}
_COUNTS = ("records", "changes", "tombstones", "repeated", "quarantined", "ignored")


def pending(pipeline: Pipeline, logs: Sequence[str]) -> list[str]:
    """The logs with files to parse; for the others `ingest` has nothing to distribute, only problems to report."""
    return [log for log in logs if _has_work(_begun(pipeline, log))]


def _has_work(intake: Intake | Outcome) -> bool:
    return isinstance(intake, Intake) and bool(intake.plan.take)


def ingest(pipeline: Pipeline, logs: Sequence[str], run: Runner) -> list[Outcome]:
    """Takes all new files of the logs, the files of all logs in one round of tasks.

    A log that fails gives an error outcome and is left as it was; the others go on. Nothing new: nothing is written.
    """
    intakes = [_begun(pipeline, log) for log in logs]
    while any(isinstance(intake, Intake) and intake.plan.take and not intake.error for intake in intakes):
        # One round, unless files overlap or a second snapshot begins: only the first file's result then stands.
        intakes = _round(pipeline, intakes, run)
    return [_finish(pipeline, intake) if isinstance(intake, Intake) else intake for intake in intakes]


def _begun(pipeline: Pipeline, log: str) -> Intake | Outcome:
    try:
        return begin_intake(pipeline, log)
    except TidefoldError as error:
        return Outcome.of_error(log, error)


def _round(pipeline: Pipeline, intakes: Sequence[Intake | Outcome], run: Runner) -> list[Intake | Outcome]:
    day = now()[:10]
    open_intakes = [i for i in intakes if isinstance(i, Intake)]
    tasks = sorted((t for i in open_intakes for t in parse_tasks(pipeline, i, day)), key=lambda task: -task.weight)
    _log.info("parsing %d files in %d tasks", sum(len(t.files) for t in tasks), len(tasks))
    answers = run(parse, [msgspec.json.encode(task).decode() for task in tasks])
    results: list[Intake | Outcome] = []
    for intake in intakes:
        mine = [a for t, a in zip(tasks, answers, strict=True) if t.log == intake.log]
        results.append(_answered(pipeline, intake, mine) if isinstance(intake, Intake) and mine else intake)
    return results


def _answered(pipeline: Pipeline, intake: Intake, answers: Sequence[Any]) -> Intake:
    try:
        return with_answers(intake, pipeline.store, answers)
    except TidefoldError as error:
        return replace(intake, error=error)


def _finish(pipeline: Pipeline, intake: Intake) -> Outcome:
    try:
        return _committed(pipeline, intake)
    except TidefoldError as error:
        return _failed(intake, error)


def _committed(pipeline: Pipeline, intake: Intake) -> Outcome:
    """Nothing is committed unless this returns; what no ledger can ever name is removed."""
    bad = _bad_records(pipeline, intake)
    if intake.error or bad:
        dropped = replace(intake, arrivals=())
        _drop(pipeline, dropped.unused)
        return _failed(intake, intake.error or bad)
    blocking = next((p for p in intake.all_problems if p.blocking), None)
    if not intake.arrivals:
        _drop(pipeline, intake.unused)
        return _failed(intake, blocking.error) if blocking else _nothing(intake)
    _commit(pipeline, intake)
    _drop(pipeline, intake.unused)
    return _taken(intake)


def _commit(pipeline: Pipeline, intake: Intake) -> None:
    ledger = pipeline.ledger(intake.log)
    try:
        ledger.begin(intake.begun.shape)
        ledger.commit(partial(_append, intake.begun, intake.arrivals))
    except (RefusedError, ConflictError):
        # Only now is it certain that nothing was committed; of any other error the outcome is unknown.
        _withdraw(pipeline, intake)
        raise


def _withdraw(pipeline: Pipeline, intake: Intake) -> None:
    """Removes what this run wrote. What the ledger names all the same stays: an answer may have been lost before."""
    try:
        state = pipeline.ledger(intake.log).read()
    except TidefoldError as error:
        _log.warning("left behind: %s", error)
        return
    named = {c.segment for c in state.change_sets} | {entry.quarantine for entry in state.landed} | set(state.garbage)
    _drop(pipeline, [path for path in intake.written if path not in named])


def _append(begun: LogState, arrivals: Sequence[Arrival], state: LogState) -> LogState:
    """The move. What was parsed rests on where its partitions stood: refused when they stand elsewhere now."""
    check_shape(state, begun.shape)
    for topic, partition in dict.fromkeys((a.landed.topic, a.landed.partition) for a in arrivals):
        if _stand(state, topic, partition) != _stand(begun, topic, partition):
            raise ConflictError(
                "OFFSETS_TAKEN",
                f"Another run took records of {topic} partition {partition} meanwhile.",
                hint="Nothing was appended; run ingest again, it continues where the log stands.",
            )
    return append(state, arrivals)


def _stand(state: LogState, topic: str, partition: int) -> list[Position | Landed]:
    """What is known of a partition. Its files count too: one without new offsets leaves the position where it was."""
    known: tuple[Position | Landed, ...] = (*state.positions, *state.landed)
    return [one for one in known if (one.topic, one.partition) == (topic, partition)]


def _bad_records(pipeline: Pipeline, intake: Intake) -> TidefoldError | None:
    reasons = dict(intake.refused)
    unsupported = [reason for reason in _OF_THE_WHOLE_TABLE if reason in reasons]
    if unsupported:
        # To leave such an event out would make every later row doubtful, whatever is done with single records.
        return RefusedError(
            "TABLE_EVENT",
            f"Log `{intake.log}`: {_first_refused(pipeline, intake, unsupported)}. Nothing was taken.",
            hint=_OF_THE_WHOLE_TABLE[unsupported[0]],
        )
    if not reasons or pipeline.log(intake.log).on_bad_record != "fail":
        return None
    return InvalidInputError(
        "BAD_RECORDS",
        f"Log `{intake.log}` must have no refused record, and there are: {_counted(intake)}; "
        f"{_first_refused(pipeline, intake, list(reasons))}. Nothing was taken.",
        hint="Land a corrected file, or set `on_bad_record: quarantine`.",
    )


def _counted(intake: Intake) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in intake.refused)


def _first_refused(pipeline: Pipeline, intake: Intake, reasons: Sequence[str]) -> str:
    files = [a.landed.name for a in intake.arrivals]
    stored = dict.fromkeys(a.landed.quarantine for a in intake.arrivals if a.landed.quarantine)
    entries = [e for path in stored for e in map(msgspec.json.decode, pipeline.store.read(path).splitlines())]
    entry = min(
        (e for e in entries if e["reason"] in reasons and e["file"] in files),
        key=lambda e: (files.index(e["file"]), e["line"]),
    )
    name = entry["file"]
    return f"the first is line {entry['line']} of `{name}` ({entry['reason']}: {entry['detail'].rstrip('.')})"


def _drop(pipeline: Pipeline, paths: Sequence[str]) -> None:
    try:
        pipeline.store.delete(paths)
    except StorageError as error:
        _log.warning("left behind: %s", error)


def _taken(intake: Intake) -> Outcome:
    facts = _facts(intake)
    files = len(intake.arrivals)
    parts = [f"{facts[name]:,} {name}" for name in _COUNTS[1:5]]
    parts += [f"{facts['ignored']:,} ignored"] if facts["ignored"] else []
    message = f"took {files:,} {'file' if files == 1 else 'files'}: {', '.join(parts)}"
    return Outcome(intake.log, "taken", "; ".join([message, *_remarks(intake)]), facts=facts)


def _nothing(intake: Intake) -> Outcome:
    return Outcome(intake.log, "nothing", "; ".join(["nothing new", *_remarks(intake)]), facts=_facts(intake))


def _failed(intake: Intake, error: TidefoldError | None) -> Outcome:
    assert error is not None
    outcome = Outcome.of_error(intake.log, error)
    problems = {"problems": _facts(intake)["problems"], "refused": dict(intake.refused)}
    return replace(outcome, facts={**outcome.facts, **problems})


def _remarks(intake: Intake) -> list[str]:
    left = len(intake.plan.left)
    remarks = [f"{left:,} {'file' if left == 1 else 'files'} still being written"] if left else []
    if intake.refused:
        where = ", ".join(sorted({a.landed.quarantine for a in intake.arrivals if a.landed.quarantine}))
        remarks.append(f"refused: {_counted(intake)}, see {where} in the store")
    return remarks + [str(problem) for problem in intake.all_problems]


def _facts(intake: Intake) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for arrival in intake.arrivals:
        counts.update({name: getattr(arrival.landed, name) for name in _COUNTS})
    return {
        "files": len(intake.arrivals),
        **{name: counts[name] for name in _COUNTS},
        "refused": dict(intake.refused),
        "quarantine": sorted({a.landed.quarantine for a in intake.arrivals if a.landed.quarantine}),
        "still_writing": list(intake.plan.left),
        "problems": [
            {"file": p.file, "code": p.code, "message": p.message, "hint": p.hint} for p in intake.all_problems
        ],
    }
