"""Rebuilds a lost ledger or a deleted table of a log, from manifests and table commits. Starts no JVM."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidefold.delta.published_table import is_table
from tidefold.domain import ledger_evidence
from tidefold.domain.ledger_evidence import Proof, Rebuilt, require_known
from tidefold.domain.log_state import LogState, Snapshot, State, TableSpec
from tidefold.domain.paths import CHANGELOG, LogPaths
from tidefold.domain.sets.set_state import record_new_table
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.verify.expected_files import Damage, DamageKind
from tidefold.domain.wording import count_noun
from tidefold.errors import CorruptError
from tidefold.ledger import decode_manifest, digest_of, evidence
from tidefold.operations.ground.outcome import Details, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.sweep import find_with_files
from tidefold.operations.publish.publish_log import note_completion, read_manifest_or_copy, roll_forward
from tidefold.operations.publish.publish_set import finish_set
from tidefold.operations.verify.check_delta_tables import check_published_table
from tidefold.operations.verify.scope import scope_of
from tidefold.operations.verify.verify import Verification, VerifyRequest
from tidefold.storage import Store


def rebuild(pipeline: Pipeline, log: str, plan: bool = True) -> Outcome:
    """Rebuilds the part of the ledger that the store proves. With `plan` it writes nothing.

    Raises CorruptError if a manifest or the newest ledger version cannot be read.
    """
    ledger, shape = pipeline.ledger(log), pipeline.log(log).shape
    if ledger.is_current():
        return Outcome(log, Status.NOTHING, "the ledger knows everything that the store shows")
    proofs, marked = find_proofs(pipeline.store, log, shape), evidence.read_mark(pipeline.store, log)
    segments = frozenset(entry.path for entry in pipeline.store.list(CHANGELOG))
    made: list[Rebuilt] = []

    def make(base: LogState) -> LogState:
        unproved = find_unproved(pipeline.store, base, proofs)
        made.append(ledger_evidence.rebuild(base, proofs, uuid.uuid4().hex[:8], segments, unproved, marked))
        _require_proved(pipeline.store, made[-1].state)
        return made[-1].state

    if plan:
        make(ledger.peek(shape))
    else:
        ledger.replace(shape, make)
    manifests = {proof.manifest.snapshot: proof.manifest for proof in proofs}
    return _outcome(made[-1], check_published_table(pipeline.store, made[-1].state, manifests), plan)


def find_unproved(store: Store, base: LogState, proofs: Sequence[Proof]) -> frozenset[int]:
    """Returns the snapshots without a manifest whose files are in the store: completed ones, and those unknown here."""
    proved = {proof.manifest.snapshot for proof in proofs}
    lost = [s for s in base.snapshots if s.id not in proved and s.state is State.COMPLETED]
    named = {file.name for proof in proofs for file in proof.manifest.files}
    unknown = evidence.find_folders(store, base.log) - proved - {s.id for s in base.snapshots}
    return unknown | find_with_files(store, base.log, lost, named)


def _require_proved(store: Store, state: LogState) -> None:
    """Raises CorruptError if the table shows a snapshot whose manifest is missing."""
    try:
        # The rebuild itself gives up the content of lost versions.
        require_known(state, replace(evidence.find_evidence(store, state), high_water_marks=()))
    except CorruptError as error:
        raise CorruptError(
            "MANIFEST_LOST",
            f"The ledger of `{state.log}` cannot be rebuilt. {error.message}",
            hint=f"Add the missing manifests to `logs/{state.log}/snapshots` from any newer copy. If no copy has them, "
            "put the whole store back as it was at one moment; landed files since then are ingested again. Without a "
            f"backup, move `logs/{state.log}`, `tables/{state.log}` and `snapshots/{state.log}` out of the store: the "
            "log starts again from its landed files.",
        ) from error


def find_proofs(store: Store, log: str, shape: TableSpec) -> tuple[Proof, ...]:
    """Returns what manifests and the published table prove about a log's snapshots."""
    traces = evidence.find_evidence(store, LogState(log, shape))
    stored = [_read(store, LogPaths(log).manifest(snapshot)) for snapshot in sorted(traces.manifests)]
    _require_table(log, [manifest for manifest, _ in stored], traces.table_version)
    shown = _find_versions(store, log, [digest for _, digest in stored], traces.table_version)
    newest = max((m.snapshot for m, digest in stored if digest in shown), default=0)
    # If the first commits of the table were deleted, the version that showed an older snapshot is unknown.
    is_whole = 0 in shown.values() or not shown
    return tuple(
        Proof(m, digest, shown.get(digest), m.snapshot in traces.completed or (not is_whole and m.snapshot < newest))
        for m, digest in stored
    )


def _require_table(log: str, manifests: Sequence[Manifest], version: int | None) -> None:
    """Raises CorruptError if the table is missing, although a snapshot was built on one that the table showed."""
    bases = [m.base for m in manifests if m.base is not None]
    if version is None and bases:
        raise CorruptError(
            "TABLE_MISSING",
            f"The Delta log of the table of `{log}` is missing, but snapshot {max(bases)} was published.",
            hint=f"Restore `tables/{log}/_delta_log` from a backup, then call again.",
        )


def _read(store: Store, path: str) -> tuple[Manifest, str]:
    data = store.read(path)
    return decode_manifest(path, data), digest_of(data)


def _find_versions(store: Store, log: str, digests: Sequence[str], newest: int | None) -> dict[str, int]:
    """Returns the table version that showed each manifest first."""
    table, versions = LogPaths(log).table, dict[str, int]()
    for entry in store.list(f"{table}/_delta_log"):
        name = entry.path.rsplit("/", 1)[1]
        if name.endswith(".json") and (number := name.removesuffix(".json")).isdecimal():
            digest = str(evidence.read_commit_facts(store, table, int(number)).get(evidence.MANIFEST_FACT, ""))
            versions.setdefault(digest, int(number))
    shown = None if newest is None else evidence.find_shown(store, log, -1, newest)
    for digest in digests:
        if shown and newest is not None and digest not in versions and digest.startswith(shown.manifest):
            versions[digest] = newest
    return versions


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildDetails(Details):
    """The rebuilt ledger, or the plan for it.

    `published`: id of the newest snapshot that the table showed.
    `is_shown`: whether the head of the table still shows it; false after a foreign commit such as RESTORE.
    `aborted`: ids of snapshots that the table never showed.
    `goes_on_after`: the change set after which the log continues.
    `unknown`: what is lost.
    """

    snapshots: Sequence[int]
    published: int | None
    is_shown: bool
    aborted: Sequence[int]
    goes_on_after: int
    unknown: Sequence[str]
    stopped: str | None


def _outcome(made: Rebuilt, damage: Damage | None, plan: bool) -> Outcome:
    state = made.state
    kept = [s.id for s in state.snapshots if s.state is State.COMPLETED]
    shown = max((s.id for s in state.snapshots if s.table_version is not None), default=None)
    details = RebuildDetails(
        snapshots=kept,
        published=shown,
        is_shown=damage is None,
        aborted=[s.id for s in state.snapshots if s.abort_reason == ledger_evidence.UNDECIDED],
        goes_on_after=state.last_sqn,
        unknown=list(made.unknown),
        stopped=state.stopped.why if state.stopped else None,
    )
    verb = "would rebuild" if plan else "rebuilt"
    message = f"{verb} the ledger with {count_noun(len(kept), 'snapshot')}; "
    message += _describe_damage(shown, damage) if damage else f"the table shows snapshot {shown}"
    message += f"; the log continues after change set {state.last_sqn}"
    if state.stopped:
        message += f"; it is stopped: {state.stopped.why}"
    return Outcome(state.log, Status.PLANNED if plan else Status.REBUILT, message, shown, details=details)


def _describe_damage(shown: int | None, damage: Damage) -> str:
    if damage.harm is not DamageKind.FOREIGN:
        return f"the newest commit of tidefold shows snapshot {shown}, but the table is {damage.harm}"
    return (
        f"the table does not show snapshot {shown} any more, as another program committed other files. Readers see "
        f"those. {damage.hint.rstrip('.')}"
    )


def rebuild_table(pipeline: Pipeline, log: str, plan: bool = True, staged: int | None = None) -> Outcome:
    """Publishes the newest completed snapshot as version 0 of a new table. With `plan` it writes nothing.

    Raises CorruptError (TABLE_FILES_LOST) if no copy of some of its files is left.

    staged: completes this judged snapshot first, which has the rows of the newest one.
    """
    ledger, path = pipeline.ledger(log), LogPaths(log).table
    state = ledger.read()
    ledger.require_current(state)
    if is_table(pipeline.store, path):
        return Outcome(log, Status.NOTHING, f"the table is not missing; `tidefold check verify {log}` checks it")
    if staged is not None:
        state = ledger.commit(lambda newest: transitions.confirm(newest, staged))
    latest = state.latest
    if latest is None:
        return Outcome(log, Status.NOTHING, "no snapshot is completed yet")
    lost = _provide_files(pipeline, state, latest, plan)
    message = f"snapshot {latest.id} with {count_noun(latest.rows, 'row')} as version 0 of a new table"
    message += "; older versions are lost"
    if plan:
        again = (
            f"; {lost} of its files have no copy, so an older snapshot and the log make its rows again" if lost else ""
        )
        return Outcome(log, Status.PLANNED, f"would publish {message}{again}", latest.id)
    if lost:
        raise CorruptError(
            "TABLE_FILES_LOST",
            f"{lost} files of snapshot {latest.id} of `{log}` have no copy left.",
            hint=f"`tidefold restore {log} {latest.id} --log-position replay --dry-run` lists what is missing.",
        )
    for one in state.snapshots:
        if one.state is State.COMPLETED and one.in_main_lineage:
            # No table shows it any more, if the ledger is lost later.
            note_completion(pipeline, log, one.id)
    ledger.commit(transitions.forget_table)
    roll_forward(pipeline, log)
    if chosen := pipeline.config.set_of(log):
        pipeline.set_ledger(chosen.name).commit(lambda newest: record_new_table(newest, log, latest.id))
        finish_set(pipeline, log)
    return Outcome(log, Status.REBUILT, f"published {message}", latest.id)


def _provide_files(pipeline: Pipeline, state: LogState, latest: Snapshot, plan: bool) -> int:
    """Writes the files that only the table had from other copies, and returns how many of the snapshot have none."""
    asked = VerifyRequest(deep=False, repair=not plan)
    verification = Verification(pipeline, asked, lambda what, done, total: None, scope_of(pipeline, state, None))
    manifests = {one.id: read_manifest_or_copy(pipeline, state.log, one) for one in verification.scope.kept}
    verification.check_data_files(manifests)
    lost = {one.name for one in verification.damage if not (one.good if plan else one.repaired)}
    return len(lost & {file.name for file in manifests[latest.id].files})
