"""Finds which version of a set the staged snapshots have again: an earlier one, or one of a savepoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.sets.set_state import Member, SetState, SetVersion
from tidefold.errors import GateFailedError, RefusedError, TidefoldError


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """A version of the set whose rows were staged again.

    staged: the snapshots, by log. is_import: it comes from a savepoint.
    """

    version: SetVersion
    staged: Mapping[str, Snapshot]
    is_import: bool = False

    def find_candidate(self, log: str, state: LogState | None, of_set: SetState) -> Snapshot | TidefoldError | None:
        """Returns the snapshot of a log with the rows of the version; None: it has no rows there.

        An error: why the log cannot be published at the point of the version.
        """
        member, staged = self.version.member(log), self.staged.get(log)
        if member is None:
            return None
        if staged:
            return explain_staged(log, staged, of_set) or staged
        if state and not self.is_import and has_rows_of(state, member.snapshot):
            return state.latest
        hint = "Repeat the command with the same run id, or abort the other logs."
        return RefusedError("SET_HELD", f"it has no staged snapshot with the rows of `{log}` at that point", hint=hint)


def find_staged(logs: Mapping[str, LogState | None], run_id: str | None) -> dict[str, Snapshot]:
    """Returns the staged snapshot of each log that has one. run_id: only those of this run."""
    attempts = {log: state.open_attempt for log, state in logs.items() if state and state.open_attempt}
    return {
        log: one
        for log, one in attempts.items()
        if one and one.state is State.STAGED and (run_id is None or one.run == run_id)
    }


def find_restored_version(
    of_set: SetState, logs: Mapping[str, LogState | None], run_id: str | None
) -> StagedVersion | None:
    """Returns the earlier version whose rows a restore has staged; None: no restored snapshot is staged.

    Raises RefusedError if the restored snapshots belong to no version.
    """
    staged = {log: one for log, one in find_staged(logs, run_id).items() if one.restored_from is not None}
    if not staged:
        return None
    rows = {log: one.restored_from for log, one in staged.items()}
    possible = [
        version
        for version in reversed(of_set.versions)
        if rows.items() <= {one.log: one.snapshot for one in version.members}.items()
    ]
    for version in possible:
        others = (one for one in version.members if one.log not in rows)
        if all((state := logs.get(one.log)) and has_rows_of(state, one.snapshot) for one in others):
            return StagedVersion(version, staged)
    if possible:
        return StagedVersion(possible[0], staged)  # It is held, and the logs that lack its rows are named.
    named = ", ".join(f"`{log}`" for log in sorted(rows))
    raise RefusedError(
        "SET_HELD",
        f"The restored snapshots of {named} are not of one version of set `{of_set.name}`.",
        hint=f"`tidefold restore --set {of_set.name} --version N` restores all its tables.",
    )


def has_rows_of(state: LogState, snapshot: int) -> bool:
    """Whether the newest snapshot of a log is published and is this one, or has its rows again."""
    latest, wanted = state.latest, state.snapshot(snapshot)
    if latest is None or not latest.published or wanted is None:
        return False
    return latest.id == snapshot or (latest.restored_from == snapshot and latest.to_sqn == wanted.to_sqn)


def explain_staged(log: str, staged: Snapshot, of_set: SetState) -> TidefoldError | None:
    """Returns why a staged snapshot cannot be published; None: it can."""
    if Member(log, staged.id) in of_set.given_up:
        return RefusedError("SET_HELD", f"snapshot {staged.id} is being aborted", hint=f"`tidefold status {log}`")
    if staged.verdict is None or not staged.verdict.allows:
        if staged.verdict is None:
            return GateFailedError("SET_HELD", f"snapshot {staged.id} has no verdict", hint=f"`tidefold quality {log}`")
        why = f"snapshot {staged.id} failed its gate"
        return GateFailedError("SET_HELD", why, hint=f"`tidefold report {log}` shows why.")
    return None
