"""The scope of a verification (snapshots, copies, change sets, set, earlier proofs), and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.log_state import ChangeSet, DeletionState, LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.sets.set_state import find_wrong_member
from tidefold.domain.snapshot.transitions import require_readable
from tidefold.domain.verify.expected_files import Copy, Damage, DamageKind, FileRole, StoredFile, list_kept
from tidefold.domain.verify.proof_record import ProofRecord
from tidefold.domain.wording import count_noun
from tidefold.errors import AlreadyExistsError, CorruptError, TidefoldError
from tidefold.ledger import Ledger, SetLedger
from tidefold.operations.ground.numbered_record import find_record, write_record
from tidefold.operations.ground.outcome import Details, ErrorInfo, Outcome, Status, omit_if_none
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.storage import Store
from tidefold.storage.local_copies.copies import copies


@dataclass(frozen=True, slots=True)
class Scope:
    """What a verification checks.

    kept: all snapshots whose files must exist.
    requested: ids of the requested snapshots.
    local: the snapshots with a copy on this machine.
    warning: why local copies, or some of their roots, cannot be checked.
    blind: no local copy can be checked.
    """

    state: LogState
    kept: tuple[Snapshot, ...]
    requested: frozenset[int]
    local: frozenset[int]
    change_sets: tuple[ChangeSet, ...]
    warning: str = ""
    blind: bool = False


def scope_of(pipeline: Pipeline, state: LogState, snapshot: int | None) -> Scope:
    """Returns the scope of the whole log, or of one snapshot. Raises NotFoundError if that one is not retained."""
    if state.deletion is not DeletionState.NO:
        return Scope(state, (), frozenset(), frozenset(), ())
    kept = list_kept(state)
    requested, change_sets = frozenset(s.id for s in kept), state.change_sets
    if snapshot is not None:
        requested, change_sets = _of_one(state, snapshot)
    local, warning, blind = _local(pipeline, state.log, kept)
    return Scope(state, kept, requested, local, change_sets, warning, blind)


def _of_one(state: LogState, snapshot: int) -> tuple[frozenset[int], tuple[ChangeSet, ...]]:
    chosen = require_readable(state, snapshot)
    if chosen.kind is not SnapshotKind.TAIL or chosen.base is None:
        return frozenset({chosen.id}), ()
    return frozenset({chosen.base}), state.change_sets_in(chosen.from_sqn, chosen.to_sqn)


def _local(pipeline: Pipeline, log: str, kept: Iterable[Snapshot]) -> tuple[frozenset[int], str, bool]:
    if pipeline.local is None:
        return frozenset(), "", True
    ids = {s.id for s in kept}
    try:
        # Without a manifest there is no copy, because it is written last and deleted first.
        names = {n for n, files in copies(pipeline.local).items() if any(f.path == n.manifest for f in files)}
    except TidefoldError as error:
        return frozenset(), f"local copies cannot be looked at: {error.code}: {error.message}", True
    left_out = [
        f"local copies in `{root}` cannot be looked at: {why}" for root, why in pipeline.local.unreadable.items()
    ]
    here = frozenset(n.snapshot for n in names if n.log == log and not n.ongoing and n.snapshot in ids)
    return here, "; ".join(left_out), False


def find_set_damage(pipeline: Pipeline, log: str) -> CorruptError | None:
    """Returns what is wrong with the ledger of a log's set; None: nothing is, or the log is in no set."""
    chosen = pipeline.config.set_of(log)
    if chosen is None:
        return None
    # One that has read nothing yet: damage is looked for in all of its pages.
    ledger = SetLedger(pipeline.store, chosen.name, chosen.logs)
    try:
        state = ledger.read()
        while published := state.published:
            logs = {one.log: Ledger(pipeline.store, one.log).find() for one in published.members}
            wrong = find_wrong_member(published, logs)
            if wrong is None:
                return None
            newest = ledger.read()
            if newest.version == state.version:
                message = f"Readers of set `{chosen.name}` get other rows than were judged: {wrong}."
                return CorruptError("SET_MEMBER_LOST", message, hint=f"`tidefold move rebuild --set {chosen.name}`.")
            state = newest
    except CorruptError as error:
        return error
    return None


# Only scrubs, `status` and the page read it. If it is lost or damaged, the next scrub starts a new round.
def find_proof(store: Store, log: str) -> ProofRecord | None:
    """Returns the newest record; None: the log was never proved. Raises StorageError."""
    return find_record(store, LogPaths(log).proofs, ProofRecord)


def write_proof(store: Store, log: str, record: Callable[[ProofRecord], ProofRecord]) -> str:
    """Writes a record made by `record` from the newest one, and deletes older ones. Returns a warning, or nothing.

    If two processes write at once, the first record stays, and a later scrub reads the other's files again.
    """
    try:
        write_record(store, LogPaths(log).proofs, record(find_proof(store, log) or ProofRecord()))
    except AlreadyExistsError:
        return "another process recorded its proof at the same time"
    except TidefoldError as error:
        return f"the record of this proof could not be written: {error.code}: {error.message}"
    return ""


@dataclass(slots=True)
class Checked:
    """How much was checked: files, their copies, and the files that have only one intact copy."""

    files: int = 0
    copies: int = 0
    single: int = 0

    def count(self, examined: Mapping[StoredFile, tuple[Copy, ...]]) -> None:
        self.files += len(examined)
        self.copies += sum(copy.harm is not DamageKind.MISSING for copies in examined.values() for copy in copies)
        self.single += sum(sum(copy.harm is None for copy in copies) == 1 for copies in examined.values())


@dataclass(frozen=True, slots=True)
class ReaderComparison:
    """The comparison of what readers get with what was judged.

    rows, expected_rows: the rows that Spark returned, and the recorded number.
    files, hashed: how many files they are in, and of how many Spark hashed the bytes.
    differences: what is different, for people.
    """

    snapshot: int
    rows: int
    expected_rows: int
    files: int
    hashed: int
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadersDetails(Details):
    """What readers on Spark get, and what was judged."""

    readers: ReaderComparison


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyDetails(Details):
    """The details of a verification.

    snapshots: ids of the checked snapshots.
    files, copies: how much was checked.
    single: files with only one intact copy.
    damage: each with the next step, or the copy that repaired it.
    readers: what readers on Spark get, if that was compared.
    """

    snapshots: Sequence[int]
    files: int
    copies: int
    single: int
    damage: Sequence[Damage]
    warnings: Sequence[str]
    readers: ReaderComparison | None = omit_if_none()

    def to_dict(self) -> dict[str, Any]:
        # Zero-argument super() does not know the class that slots=True makes.
        return {**Details.to_dict(self), "damage": [one.to_dict() for one in self.damage]}


def outcome_of(scope: Scope, damage: Sequence[Damage], checked: Checked, repair: bool) -> Outcome:
    """Builds the outcome. Remaining damage is an error with the exit code of CorruptError."""
    log = scope.state.log
    told = _with_hints(scope, damage)
    left = [one for one in told if not one.repaired]
    details = VerifyDetails(
        snapshots=sorted(scope.requested),
        files=checked.files,
        copies=checked.copies,
        single=checked.single,
        damage=told,
        warnings=[scope.warning] if scope.warning else [],
    )
    warned = f"; {scope.warning}" if scope.warning else ""
    looked = f"{count_noun(checked.files, 'file')} ({count_noun(checked.copies, 'copy', 'copies')})"
    if left:
        mended = f", {len(told) - len(left):,} repaired" if repair else ""
        message = f"{count_noun(len(left), 'damaged copy', 'damaged copies')} of {looked}{mended}{warned}"
        return Outcome(
            log, Status.DAMAGED, message, error=ErrorInfo.of(CorruptError("DAMAGED", message)), details=details
        )
    if told:
        message = f"repaired {count_noun(len(told), 'damaged copy', 'damaged copies')} of {looked}{warned}"
        return Outcome(log, Status.REPAIRED, message, details=details)
    single = f"; {count_noun(checked.single, 'file has', 'files have')} only one copy" if checked.single else ""
    return Outcome(log, Status.WHOLE, f"nothing is damaged in {looked}{single}{warned}", details=details)


def add_warning(outcome: Outcome, warning: str) -> Outcome:
    """Returns the outcome with one more warning."""
    details = outcome.details
    if isinstance(details, VerifyDetails):
        details = replace(details, warnings=[*details.warnings, warning])
    return replace(outcome, message=f"{outcome.message}; {warning}", details=details)


def add_error(outcome: Outcome, error: TidefoldError | None) -> Outcome:
    """Returns the outcome with one more error, if there is one. The first error determines the exit code."""
    if error is None:
        return outcome
    message = f"{outcome.message}; {error.message}"
    first = replace(outcome.error or ErrorInfo.of(error), message=message)
    return replace(outcome, status=Status.DAMAGED, message=message, error=first)


def add_readers(outcome: Outcome, readers: Outcome) -> Outcome:
    """Adds the comparison of readers to the outcome. The first error determines the exit code."""
    if readers.status is Status.NOTHING:
        return outcome
    status = outcome.status if outcome.error or not readers.error else readers.status
    message = f"{outcome.message}; {readers.message}"
    details = outcome.details
    if isinstance(details, VerifyDetails) and isinstance(readers.details, ReadersDetails):
        details = replace(details, readers=readers.details.readers)
    return replace(outcome, status=status, message=message, error=outcome.error or readers.error, details=details)


def _with_hints(scope: Scope, damage: Iterable[Damage]) -> list[Damage]:
    listed = list(damage)
    lost = {i for one in listed if _is_lost(one) for i in one.snapshots}
    return [one if one.repaired or one.hint else replace(one, hint=_hint(scope.state, one, lost)) for one in listed]


def _is_lost(damage: Damage) -> bool:
    return not damage.repaired and damage.part in (FileRole.DATA, FileRole.MANIFEST) and not damage.good


def _hint(state: LogState, damage: Damage, lost: set[int]) -> str:
    """Returns the next step for damage that was not repaired."""
    if damage.good:
        return f"`tidefold check verify {state.log} --repair` repairs it from another copy."
    if damage.part is FileRole.SEGMENT:
        return _segment_hint(state, damage)
    if damage.part is FileRole.REFUSED:
        return (
            "No table needs it. Restore the file from a backup; or land the records again, corrected, and "
            f"`tidefold quarantine settle {state.log} --reason REASON`."
        )
    if damage.part is FileRole.CHANGE_DATA:
        return (
            "The table itself is whole. A consumer that has not read these changes reads all rows of the table and "
            "continues from that version; or restore the file from a backup."
        )
    if state.open_attempt and state.open_attempt.id in damage.snapshots:
        return f"`tidefold step abort {state.log}`; the next run folds the same changes again."
    whole = [s for s in state.snapshots if s.in_main_lineage and s.state is State.COMPLETED and s.id not in lost]
    wanted = max(damage.snapshots)
    if not whole and damage.part is FileRole.DATA and not state.truncated_to:
        return (
            "No good copy is left, but the log still has every change: `tidefold restore "
            f"{state.log} {wanted} --log-position replay` makes the bucket again from it. "
            f"`tidefold check drill {state.log} {wanted}` tries that first."
        )
    if not whole:
        return "No snapshot is complete without it: restore the file from a backup."
    newest = whole[-1]
    if newest.published and newest == state.latest and wanted < newest.id:
        later = sum(one.id > wanted for one in whole)
        return (
            f"No good copy is left. Readers see snapshot {newest.id}, which is whole. With `retention: {{snapshots: "
            f"{later}}}`, `tidefold retain subsume {state.log}` retires the older ones that are not."
        )
    position = "replay" if newest.to_sqn >= state.truncated_to else "skip"
    return (
        f"No good copy is left. `tidefold check drill {state.log} {wanted}` tries whether an older snapshot and the "
        f"log make its rows again, as a restore of it would. `tidefold restore {state.log} {newest.id} --log-position "
        f"{position}` goes back to a whole one."
    )


def _segment_hint(state: LogState, damage: Damage) -> str:
    paths = {place.path for place in damage.places if place.where is StorageTier.STORE}
    last = max((c.sqn for c in state.change_sets if c.location.segment in paths), default=0)
    if state.latest and last <= state.latest.to_sqn:
        return (
            f"Snapshot {state.latest.id} holds its changes already; only a replay onto older ones needs it. Bring it "
            "back from a backup, or let retention cut the log."
        )
    return "Its changes are in no snapshot yet: restore the file from a backup."
