"""Reads a limited share of a log's files in each run, so that damage is found before a file is needed. No JVM.

A scrub verifies the next files of a round, and checks only presence and length of the others. Each run reads ledger,
manifests and Delta logs, because they name the files that must exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from msgspec import DecodeError

from tidefold.config.models.units import find_bytes
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.log_state import DeletionState
from tidefold.domain.paths import LogPaths, SetPaths
from tidefold.domain.verify.expected_files import Damage, FileRole
from tidefold.domain.verify.proof_record import ProofRecord, ScrubBudget, ScrubChoice, choose_files
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import CorruptError, InvalidInputError, NotFoundError, OutdatedLedgerError
from tidefold.ledger import Ledger, read_manifest
from tidefold.operations.ground.outcome import Details, ErrorInfo, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.verify import scope
from tidefold.operations.verify.scope import VerifyDetails
from tidefold.operations.verify.verify import Telling, Verification, VerifyRequest
from tidefold.quality.run.bucket_counts import find_wrong_count
from tidefold.quality.run.count_memory import COUNTS, decode_counts

_MEANS = {
    FileRole.DATA: "the rows of this file are lost for readers of snapshot {ids}, until it is mended",
    FileRole.MANIFEST: "the files of snapshot {ids} are not known without it, so the snapshot cannot be restored",
    FileRole.DELTA_LOG: "a reader of snapshot {ids} as a table of its own does not get its rows",
    FileRole.TABLE: "readers of the published table do not get the rows of snapshot {ids}",
    FileRole.CHANGE_DATA: "consumers of the change data feed do not get the changes of snapshot {ids}",
    FileRole.REFUSED: "`quarantine retry` cannot make rows of these records",
    FileRole.SEGMENT: "a fold or a replay of these changes cannot read them",
}
_LOCAL = "restores read the store instead of this local copy"
_SPARE = "no reader notices it yet, because another copy is good"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubDetails(VerifyDetails):
    """The details of a scrub.

    read_files, read_bytes: what this run read.
    files, bytes: what the log has.
    round_share: the share of the bytes that the round has read so far, 0 to 1.
    round_ended: whether every file was read since the round began.
    proved: when the newest round ended that read every file and left no damage; empty: never.
    alarms: damage that is left.
    """

    read_files: int
    read_bytes: int
    bytes: int
    round_share: float
    round_ended: bool
    proved: str
    repaired: int
    alarms: Sequence[Alarm]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAlarmDetails(Details):
    """The details of a scrub that could not read the ledger.

    alarms: the damage of the ledger.
    """

    alarms: Sequence[Alarm]


def parse_budget(text: str) -> ScrubBudget:
    """Parses a share such as `5%` or `0.05`, or a size such as `20GiB`. Raises InvalidInputError."""
    number, percent = (text.strip()[:-1], 100) if text.strip().endswith("%") else (text, 1)
    try:
        share = float(number) / percent
    except ValueError:
        share = math.nan
    if 0 < share <= 1:
        return ScrubBudget(share)
    if size := find_bytes(text.strip()):
        return ScrubBudget(bytes=size)
    hint = "Give a share above 0% up to 100%, such as `5%`, or a size such as `20GiB`."
    raise InvalidInputError("SCRUB_SHARE_INVALID", f"`{text}` is not a share of the files, nor a size.", hint=hint)


def scrub(
    pipeline: Pipeline,
    log: str,
    budget: ScrubBudget | None = None,
    *,
    repair: bool = True,
    tell: Telling = lambda what, done, total: None,
) -> Outcome:
    """Reads the next files of the log, repairs those with an intact copy, and records the progress of the round.

    While damage is left, its outcome is an error (exit code 5) with one alarm for each file. Raises StorageError.
    """
    try:
        pipeline.before_read()
        # One that has read nothing yet: damage is looked for in all of its pages.
        state = Ledger(pipeline.store, log).find_current()
    except CorruptError as error:
        if isinstance(error, OutdatedLedgerError) or error.code == "STORE_NEWER":
            raise
        alarm = alarm_of_ledger(log, error)
        message = f"ALARM, {alarm}"
        info = replace(ErrorInfo.of(error), message=message, hint=alarm.command)
        return Outcome(log, Status.DAMAGED, message, error=info, details=LedgerAlarmDetails(alarms=[alarm]))
    if state is None or state.deletion is not DeletionState.NO:
        return Outcome(log, Status.NOTHING, "the store has no such log")
    before, allowed = scope.find_proof(pipeline.store, log) or ProofRecord(), budget or ScrubBudget()

    def choose(sizes: Mapping[str, int]) -> ScrubChoice:
        return choose_files(sizes, before.position, allowed.of(sum(sizes.values())), before.damaged)

    request, files = VerifyRequest(repair=repair), scope.scope_of(pipeline, state, None)
    verification = Verification(pipeline, request, tell, files, choose)
    outcome = verification.run()
    after = verification.record(before)
    warning = scope.write_proof(pipeline.store, log, lambda newest: after)
    scrubbed = _add_set_alarm(pipeline, _describe(outcome, verification, after))
    for alarm in _find_wrong_counts(verification):
        scrubbed = _add_alarm(scrubbed, alarm, "COUNTS_WRONG")
    return scope.add_warning(scrubbed, warning) if warning else scrubbed


def _describe(verified: Outcome, verification: Verification, after: ProofRecord) -> Outcome:
    """Returns the outcome of a verification as the outcome of the scrub."""
    checked, choice = verified.details, verification.choice
    assert isinstance(checked, VerifyDetails)
    assert choice is not None
    alarms = find_alarms(checked.damage)
    report = ScrubDetails(
        snapshots=checked.snapshots,
        copies=checked.copies,
        single=checked.single,
        damage=checked.damage,
        warnings=checked.warnings,
        read_files=len(choice.names),
        read_bytes=sum(verification.sizes[name] for name in choice.names),
        files=after.files,
        bytes=after.bytes,
        round_share=round(after.read_bytes / after.bytes, 4) if after.position and after.bytes else 1.0,
        round_ended=not after.position,
        proved=after.proved,
        repaired=len(checked.damage) - len(alarms),
        alarms=alarms,
    )
    read = f"read {report.read_files:,} of {count_noun(report.files, 'file')} ({in_units(report.read_bytes)})"
    mended = f", repaired {report.repaired:,}" if report.repaired else ""
    ended = "the round ended" if report.round_ended else f"the round has read {report.round_share:.0%}"
    message = f"{read}{mended}; {ended}"
    if alarms:
        more = f" And {len(alarms) - 1:,} more." if alarms[1:] else ""
        message = f"ALARM, {alarms[0]}{more} ({message})"
    error = replace(verified.error, message=message) if verified.error else None
    return replace(verified, message=message, error=error, details=report)


def _add_set_alarm(pipeline: Pipeline, scrubbed: Outcome) -> Outcome:
    """Returns the outcome with one more alarm if the ledger of the log's set is damaged."""
    error, chosen = scope.find_set_damage(pipeline, scrubbed.log), pipeline.config.set_of(scrubbed.log)
    if error is None or chosen is None:
        return scrubbed
    means = "readers of the set may get tables that do not belong together"
    return _add_alarm(
        scrubbed, Alarm(SetPaths(chosen.name).ledger, f"ledger damaged, {error.code}", means, error.hint), error.code
    )


def _find_wrong_counts(verification: Verification) -> Iterator[Alarm]:
    """Counts the rows of the buckets whose largest file this run has read, and deletes what a gate stored wrongly.

    A gate counts them again, too, but in a large table only after hundreds of runs.
    """
    store, latest, choice = verification.pipeline.store, verification.scope.state.latest, verification.choice
    if latest is None or choice is None or any(not one.repaired for one in verification.damage):
        return
    for entry in store.list(LogPaths(verification.log).quality(latest.id)):
        if not entry.path.rpartition("/")[2].startswith(COUNTS):
            continue
        # The snapshot may have been retired meanwhile. Counts that cannot be read are taken over by no gate.
        with suppress(NotFoundError, CorruptError, DecodeError):
            stored = decode_counts(store.read(entry.path))
            manifest = read_manifest(store, verification.log, latest)
            if wrong := find_wrong_count(store.address, manifest, stored, choice.names):
                store.delete([entry.path])
                means = f"gates took over a wrong count for {wrong}; it was deleted, so the next gate reads all rows"
                yield Alarm(entry.path, "counts wrong", means, f"`tidefold step quality {verification.log} --again`")


def _add_alarm(scrubbed: Outcome, alarm: Alarm, code: str) -> Outcome:
    alarmed = scope.add_error(scrubbed, CorruptError(code, f"ALARM, {alarm}", hint=alarm.command))
    assert isinstance(alarmed.details, ScrubDetails)
    return replace(alarmed, details=replace(alarmed.details, alarms=[*alarmed.details.alarms, alarm]))


@dataclass(frozen=True, slots=True)
class Alarm:
    """Damage that a person must repair.

    file: its path (`local:` is in front of the paths of local copies).
    harm: what is wrong with it.
    means: what does not work because of it.
    command: the next step.
    """

    file: str
    harm: str
    means: str
    command: str

    def __str__(self) -> str:
        return f"{self.harm}: {self.file}. It means: {self.means}. Next: {self.command}"


def find_alarms(damage: Iterable[Damage]) -> list[Alarm]:
    """Returns one alarm for each damage that is left."""
    return [
        Alarm(str(one.places[0]), f"{one.part} {one.harm}", _explain(one), one.hint)
        for one in damage
        if not one.repaired
    ]


def _explain(damage: Damage) -> str:
    if all(place.where is StorageTier.LOCAL for place in damage.places):
        return _LOCAL
    means = _MEANS[damage.part].format(ids=", ".join(map(str, damage.snapshots)) or "?")
    # Readers open the damaged name itself. Only readers of segments and manifests fall back to another copy.
    return f"{means}; {_SPARE}" if damage.good and damage.part in (FileRole.SEGMENT, FileRole.MANIFEST) else means


def alarm_of_ledger(log: str, error: CorruptError) -> Alarm:
    """Returns the alarm for a ledger version or page that cannot be read."""
    return Alarm(
        LogPaths(log).ledger,
        f"ledger damaged, {error.code}",
        f"{error.message} No command can work on `{log}`, and readers still see the published table",
        f"put the file back from a backup; without one, move `{LogPaths(log).ledger}` away, then "
        f"`tidefold move rebuild {log}` makes the ledger again",
    )
