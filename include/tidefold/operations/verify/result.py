"""The outcome of a verification: each damage with the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidefold.domain.log_state import LogState, State
from tidefold.domain.storage_tier import StorageTier
from tidefold.domain.verify.expected_files import Copy, Damage, DamageKind, FileRole, StoredFile
from tidefold.domain.wording import count_noun
from tidefold.errors import CorruptError
from tidefold.operations.outcome import Details, ErrorInfo, Outcome, Status, omit_if_none
from tidefold.operations.verify.scope import Scope


@dataclass(slots=True)
class Checked:
    """How much was checked: files, their copies, and the files that have only one intact copy."""

    files: int = 0
    copies: int = 0
    single: int = 0

    def count(self, found: Mapping[StoredFile, tuple[Copy, ...]]) -> None:
        self.files += len(found)
        self.copies += sum(copy.harm is not DamageKind.MISSING for copies in found.values() for copy in copies)
        self.single += sum(sum(copy.harm is None for copy in copies) == 1 for copies in found.values())


@dataclass(frozen=True, slots=True)
class ReaderComparison:
    """The comparison of what readers get with what was judged.

    rows, expected_rows: the rows that Spark read, and the recorded number.
    checksum, expected_checksum: of the content.
    schema: one line for each column that differs.
    columns: names of the columns whose values differ.
    """

    snapshot: int
    rows: int
    expected_rows: int
    checksum: str
    expected_checksum: str
    schema: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return not self.schema and self.checksum == self.expected_checksum


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
        snapshots=sorted(scope.asked),
        files=checked.files,
        copies=checked.copies,
        single=checked.single,
        damage=told,
        warnings=[scope.warning] if scope.warning else [],
    )
    warned = f"; {scope.warning}" if scope.warning else ""
    looked = f"{count_noun(checked.files, 'file')} in {checked.copies:,} copies"
    if left:
        mended = f", {len(told) - len(left):,} repaired" if repair else ""
        message = f"{count_noun(len(left), 'damaged copy', 'damaged copies')} of {looked}{mended}{warned}"
        return Outcome(
            log, Status.DAMAGED, message, error=ErrorInfo.of(CorruptError("DAMAGED", message)), details=details
        )
    if told:
        message = f"repaired {count_noun(len(told), 'damaged copy', 'damaged copies')} of {looked}{warned}"
        return Outcome(log, Status.REPAIRED, message, details=details)
    single = f", {checked.single:,} of them in one alone" if checked.single else ""
    return Outcome(log, Status.WHOLE, f"{looked}{single}, nothing is damaged{warned}", details=details)


def add_warning(outcome: Outcome, warning: str) -> Outcome:
    """Returns the outcome with one more warning."""
    details = outcome.details
    if isinstance(details, VerifyDetails):
        details = replace(details, warnings=[*details.warnings, warning])
    return replace(outcome, message=f"{outcome.message}; {warning}", details=details)


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
        return f"`tidefold verify {state.log} --repair` repairs it from another copy."
    if damage.part is FileRole.SEGMENT:
        return _segment_hint(state, damage)
    if damage.part is FileRole.CHANGE_DATA:
        return (
            "The table itself is whole. A consumer that has not read these changes reads all rows of the table and "
            "continues from that version; or restore the file from a backup."
        )
    if state.open_attempt and state.open_attempt.id in damage.snapshots:
        return f"`tidefold abort {state.log}`; the next run folds the same changes again."
    whole = [s for s in state.snapshots if s.in_main_lineage and s.state is State.COMPLETED and s.id not in lost]
    wanted = max(damage.snapshots)
    if not whole and damage.part is FileRole.DATA and not state.truncated_to:
        return (
            "No good copy is left, but the log still has every change: `tidefold restore "
            f"{state.log} {wanted} --log-position replay` makes the bucket again from it. "
            f"`tidefold drill {state.log} {wanted}` tries that first."
        )
    if not whole:
        return "No snapshot is complete without it: restore the file from a backup."
    newest = whole[-1]
    position = "replay" if newest.to_sqn >= state.truncated_to else "skip"
    return (
        f"No good copy is left. `tidefold drill {state.log} {wanted}` tries whether an older snapshot and the log make "
        "its rows again, as a restore of it would. "
        f"`tidefold restore {state.log} {newest.id} --log-position {position}` goes back to a whole one."
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
