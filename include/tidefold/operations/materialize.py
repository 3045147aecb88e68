"""Folds what arrived since the last snapshot into a new full one, and stages it for the quality gate (design 4).

A restore is the same work on an older snapshot: its files are taken over, and what its tail holds is folded in.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tidefold.fold.bucket import fold_bucket
from tidefold.fold.distribute import Answer, Runner
from tidefold.fold.plan import FoldResult, FoldTask, carried_files, plan_fold
from tidefold.fold.publish import create_snapshot_table, provide_new_files
from tidefold.ledger import read_manifest, write_manifest
from tidefold.lifecycle import claims, moves
from tidefold.lifecycle.errors import SupersededError, TidefoldError, unforeseen
from tidefold.lifecycle.intake import check_shape
from tidefold.lifecycle.manifest import Manifest
from tidefold.lifecycle.names import LogPaths, data_path
from tidefold.lifecycle.values import LogState, Snapshot, State
from tidefold.operations.asking import Asking
from tidefold.operations.confirm import roll_forward
from tidefold.operations.heartbeat import Heartbeat, heartbeat
from tidefold.operations.local_copies import with_copy
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sweep import sweep

_log = logging.getLogger(__name__)
_LINKERS = 8


@dataclass(frozen=True, slots=True)
class Attempt:
    """A claimed snapshot, the manifest that it begins with, and its tasks; `facts` tell of a restore."""

    log: str
    snapshot: Snapshot
    base: Manifest | None
    tasks: tuple[FoldTask, ...]
    facts: Mapping[str, Any]


def pending(pipeline: Pipeline, logs: Sequence[str], asking: Asking) -> list[str]:
    """The logs that `materialize` would fold; the others have nothing new or are refused. Asks the ledgers only."""
    return [log for log in logs if _would_fold(pipeline, log, asking)]


def _would_fold(pipeline: Pipeline, log: str, asking: Asking) -> bool:
    ledger = pipeline.ledger(log)
    if not ledger.exists():
        return False
    try:
        roll_forward(pipeline, log)
        state = ledger.read()
        check_shape(state, pipeline.log(log).shape)
        claimed = claims.claim(state, asking.of(log))
        attempt = claimed.attempt
        # The return of a whole snapshot folds nothing: its files are taken over.
        return claimed != state and attempt is not None and attempt.folds_to > attempt.from_sqn
    except TidefoldError:
        return False  # An error to report: that needs no Spark.


def materialize(pipeline: Pipeline, logs: Sequence[str], asking: Asking, run: Runner) -> list[Outcome]:
    """Makes a full snapshot of each log that has something new, all of them in one round of tasks.

    A log that cannot be folded gives an error outcome and is left as it was; the others go on.
    """
    # From the first claim until the last file is taken over: in an object store that is a copy of the whole table.
    with heartbeat(pipeline.ledger) as heart:
        begun = [_begin(pipeline, log, asking, heart) for log in logs]
        attempts = [a for a in begun if isinstance(a, Attempt)]
        tasks = sorted((t for a in attempts for t in a.tasks), key=lambda task: -task.weight)
        _log.info("folding %d buckets of %d logs", len(tasks), len(attempts))
        answers = run(fold_bucket, [msgspec.json.encode(task).decode() for task in tasks])
        folded = {a.log: [r for t, r in zip(tasks, answers, strict=True) if t.log == a.log] for a in attempts}
        return [b if isinstance(b, Outcome) else _finish(pipeline, b, folded[b.log]) for b in begun]


def _begin(pipeline: Pipeline, log: str, asking: Asking, heart: Heartbeat) -> Attempt | Outcome:
    try:
        claimed = _claim(pipeline, log, asking)
    except TidefoldError as error:
        return Outcome.of_error(log, error)
    if isinstance(claimed, Outcome):
        return claimed
    heart.add(log, claimed.id)
    try:
        return _planned(pipeline, log, claimed, asking.restore)
    except Exception as error:
        return _given_up(pipeline, log, claimed, error)


def _claim(pipeline: Pipeline, log: str, asking: Asking) -> Snapshot | Outcome:
    ledger = pipeline.ledger(log)
    shape = pipeline.log(log).shape
    if not ledger.exists():
        return Outcome(log, "nothing", "nothing was ingested yet")
    roll_forward(pipeline, log)
    check_shape(ledger.read(), shape)
    wanted = asking.of(log)
    state = ledger.commit(lambda current: claims.claim(current, wanted))
    mine = claims.of_run(state, wanted.run)
    if mine is None:
        return Outcome(log, "nothing", "nothing new to fold")
    if mine.state is not State.ONGOING:
        return Outcome(log, "already", f"snapshot {mine.id} of this run is {mine.state}", mine.id)
    return mine


def _planned(pipeline: Pipeline, log: str, snapshot: Snapshot, restore: claims.Restore | None) -> Attempt:
    ledger = pipeline.ledger(log)
    sweep(pipeline.store, ledger)
    state = ledger.read()
    below = state.snapshot(snapshot.source) if snapshot.source is not None else None
    base = read_manifest(pipeline.store, log, below) if below else None
    facts = _restoring(state, snapshot, restore) if restore else {}
    return Attempt(log, snapshot, base, plan_fold(pipeline.store.uri(""), state, snapshot, base), facts)


def _restoring(state: LogState, snapshot: Snapshot, restore: claims.Restore) -> dict[str, Any]:
    """What a restore does with the changes after it: their sqns, first and last, or None when there are none."""
    skipped = (snapshot.folds_to + 1, snapshot.to_sqn) if snapshot.folds_to < snapshot.to_sqn else None
    replayed = (snapshot.to_sqn + 1, state.last_sqn) if snapshot.to_sqn < state.last_sqn else None
    return {"restored": restore.snapshot, "mode": restore.mode, "skipped": skipped, "replayed": replayed}


def _finish(pipeline: Pipeline, attempt: Attempt, answers: Sequence[Answer]) -> Outcome:
    try:
        return _stage(pipeline, attempt, _results(answers))
    except Exception as error:
        return _given_up(pipeline, attempt.log, attempt.snapshot, error)


def _results(answers: Sequence[Answer]) -> list[FoldResult]:
    for answer in answers:
        if isinstance(answer, TidefoldError):
            raise answer
    return [msgspec.json.decode(answer, type=FoldResult) for answer in answers if isinstance(answer, str)]


def _given_up(pipeline: Pipeline, log: str, snapshot: Snapshot, error: Exception) -> Outcome:
    """Discards the attempt. If that fails too, the first error still is the reason; the next run cleans up."""
    found = unforeseen(error)
    if found is not error:
        _log.error("%s: %s", log, found, exc_info=error)
    ledger = pipeline.ledger(log)
    try:
        # A newer attempt may have removed this one's files: then being superseded is the cause, not the missing file.
        moves.held(ledger.read(), snapshot.id)
        ledger.commit(lambda state: moves.abort(state, snapshot.id, f"{found.code}: {found.message}"))
        sweep(pipeline.store, ledger)
    except SupersededError as superseded:
        found = superseded
        with suppress(TidefoldError):
            sweep(pipeline.store, ledger)
    except TidefoldError as second:
        _log.warning("%s: cleaning up after %s failed: %s", log, found.code, second)
    return Outcome.of_error(log, found, snapshot.id)


def _stage(pipeline: Pipeline, attempt: Attempt, results: Sequence[FoldResult]) -> Outcome:
    snapshot, store = attempt.snapshot, pipeline.store
    carried = tuple(replace(f, carried=True) for f in carried_files(attempt.base, results))
    written = tuple(r.file for r in results if r.file)
    _carry(pipeline, attempt, [f.name for f in carried])
    manifest = Manifest(
        log=attempt.log,
        snapshot=snapshot.id,
        epoch=snapshot.epoch,
        kind=snapshot.kind,
        base=snapshot.base,
        from_sqn=snapshot.from_sqn,
        to_sqn=snapshot.to_sqn,
        shape=pipeline.log(attempt.log).shape,
        files=tuple(sorted((*carried, *written), key=lambda f: f.name)),
    )
    create_snapshot_table(store, manifest)
    provide_new_files(store, manifest)
    digest = write_manifest(store, manifest)
    pipeline.ledger(attempt.log).commit(lambda state: moves.stage(state, manifest, digest))
    return with_copy(pipeline, manifest, digest, _staged(manifest, results, attempt.facts))


def _carry(pipeline: Pipeline, attempt: Attempt, names: Sequence[str]) -> None:
    """Takes unchanged files over as files (N1), several at a time."""
    if not names or attempt.base is None:
        return
    paths = LogPaths(attempt.log)
    source, target = paths.snapshot(attempt.base.snapshot), paths.snapshot(attempt.snapshot.id)
    with ThreadPoolExecutor(_LINKERS) as pool:
        list(pool.map(lambda n: pipeline.store.link(data_path(source, n), data_path(target, n)), names))


def _staged(manifest: Manifest, results: Sequence[FoldResult], restored: Mapping[str, Any]) -> Outcome:
    upserts, deletes = sum(r.upserts for r in results), sum(r.deletes for r in results)
    facts = {
        "rows": manifest.rows,
        "changes": sum(r.changes for r in results),
        "upserts": upserts,
        "deletes": deletes,
        "replaced": sum(r.replaced for r in results),
        "files": len(manifest.files),
        "files_carried": sum(f.carried for f in manifest.files),
        "bytes_full": manifest.bytes_full,
        "bytes_written": manifest.bytes_written,
        **restored,
    }
    changes = f"{facts['changes']:,} changes of {upserts + deletes:,} keys ({deletes:,} deleted)"
    carried = f"{facts['files_carried']} of {facts['files']} files taken over unchanged"
    message = f"snapshot {manifest.snapshot}: {manifest.rows:,} rows after {changes}; {carried}{_after(restored)}"
    return Outcome(manifest.log, "staged", message, manifest.snapshot, facts=facts)


def _after(restored: Mapping[str, Any]) -> str:
    if not restored:
        return ""
    said = f"; the rows of snapshot {restored['restored']}"
    if restored["skipped"]:
        said += f"; left out for good: {_span(*restored['skipped'])}"
    if restored["replayed"]:
        said += f"; folded again by the next run: {_span(*restored['replayed'])}"
    return said


def _span(first: int, last: int) -> str:
    return f"change set {first}" if first == last else f"change sets {first} to {last}"
