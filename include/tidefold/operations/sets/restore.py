"""Restores an earlier version of a set: the rows of all its tables at one point become the next version."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tidefold.compute.runners import Runner
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.sets.set_state import Member, SetVersion
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.publish.publish_set import give_up_staged
from tidefold.operations.restore.export import restore_to
from tidefold.operations.restore.restore import Restore, explain
from tidefold.operations.sets.read import find_set, has_rows_of
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.attempt import Attempt, Claimant, bring_up_to_date, describe_unclaimed


class RestoreSet(msgspec.Struct, frozen=True, tag="restore-set"):
    """Asks for the rows of an earlier version of a set.

    `set`: the name of the set.
    `version`: the number of the version.
    `takeover`: supersede attempts of other runs.
    `mode`: what happens to the later changes: STAY or REPLAY.
    `by`: who asks.
    """

    run: str
    set: str
    version: int
    takeover: bool = False
    mode: RestoreMode = RestoreMode.REPLAY
    by: str = ""

    def __post_init__(self) -> None:
        if self.mode not in (RestoreMode.STAY, RestoreMode.REPLAY):
            raise InvalidInputError(
                "SET_REPLAYS",
                f"The restore of set `{self.set}` needs `--log-position stay` or `replay`: if changes are left out, "
                "later versions are no point of the source's log.",
                hint=f"`tidefold move export --set {self.set} --to FOLDER` writes the tables elsewhere.",
            )

    def prepare_claim(self, pipeline: Pipeline, log: str) -> Claimant:
        """Raises TidefoldError."""
        member = self._find_member(pipeline, log)
        if member is None:
            return _leave
        bring_up_to_date(pipeline, log, self.run)
        state = pipeline.ledger(log).read()
        rival = state.open_attempt
        if self.takeover and rival and rival.run != self.run:
            give_up_staged(pipeline, log, rival)
        if has_rows_of(state, member.snapshot):
            return _leave
        return self.restore_member(member.snapshot).claimant(pipeline)

    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome:
        absent = self._find_member(pipeline, state.log) is None
        return describe_unclaimed(state, self.run, self.describe_absent() if absent else self.describe_present())

    def plan(self, pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Attempt:
        """Reads manifests only. Raises TidefoldError."""
        member = self._find_member(pipeline, state.log)
        assert member is not None
        return self.restore_member(member.snapshot).plan(pipeline, state, snapshot)

    def describe_absent(self) -> str:
        return f"it has no rows in version {self.version} of set `{self.set}`"

    def describe_present(self) -> str:
        return f"it has the rows of version {self.version} of set `{self.set}`"

    def restore_member(self, snapshot: int) -> Restore:
        """Returns the request for one log."""
        return Restore(self.run, RestorePoint(snapshot, self.mode), self.takeover, by=self.by)

    def _find_member(self, pipeline: Pipeline, log: str) -> Member | None:
        return find_earlier_version(pipeline, self.set, self.version).member(log)


def _leave(state: LogState) -> LogState:
    return state


def find_earlier_version(pipeline: Pipeline, name: str, number: int | None = None) -> SetVersion:
    """Returns a version of a set; by default the one that readers use. Raises NotFoundError."""
    versions = pipeline.set_ledger(find_set(pipeline, name).name).read().versions
    matching = [one for one in versions if number is None or one.number == number]
    if not matching:
        numbers = ", ".join(str(one.number) for one in versions)
        which = f"version {number}" if number else "published version"
        raise NotFoundError(
            "SET_VERSION_UNKNOWN",
            f"Set `{name}` has no {which}.",
            hint=f"Known versions: {numbers}." if numbers else "`tidefold run` makes one.",
        )
    return matching[-1]


def restore_set(
    pipeline: Pipeline, request: RestoreSet, run_step: Callable[[Sequence[str]], list[Outcome]]
) -> list[Outcome]:
    """Stages the rows of an earlier version for all logs of a set, or for none. `confirm` publishes them together.

    run_step: runs the materialize step for these logs.
    Raises TidefoldError before anything changes if a log cannot be restored.
    """
    chosen = find_set(pipeline, request.set)
    for log in chosen.logs:
        _require_restorable(pipeline, request, log)
    outcomes = run_step(chosen.logs)
    if any(outcome.error for outcome in outcomes):
        reason = f"run {request.run} did not restore the whole set"
        for_each_log(chosen.logs, lambda log: abort(pipeline, log, reason, run_id=request.run))
    return outcomes


def explain_set(pipeline: Pipeline, request: RestoreSet) -> list[Outcome]:
    """Returns what `restore_set` would do with each log, or its error. Changes nothing."""
    version = find_earlier_version(pipeline, request.set, request.version)

    def act(log: str) -> Outcome:
        member = version.member(log)
        if member is None:
            return Outcome(log, Status.NOTHING, request.describe_absent())
        if has_rows_of(pipeline.ledger(log).read(), member.snapshot):
            return Outcome(log, Status.NOTHING, request.describe_present())
        return explain(pipeline, log, request.restore_member(member.snapshot))

    return for_each_log(find_set(pipeline, request.set).logs, act)


def _require_restorable(pipeline: Pipeline, request: RestoreSet, log: str) -> None:
    """Raises RefusedError or NotFoundError with the name of the log if its rows cannot be restored."""
    state = pipeline.ledger(log).find()
    if state is None:
        return
    try:
        request.prepare_claim(pipeline, log)(pipeline.ledger(log).read())
    except (RefusedError, NotFoundError) as error:
        hint = error.hint
        if error.code in ("LOG_CUT", "WRONG_STATE", "SNAPSHOT_UNKNOWN"):
            hint = f"`tidefold set show {request.set}` lists the versions."
        if error.code == "LOG_CUT":
            hint = f"`tidefold move export --set {request.set} --version {request.version} --to FOLDER` writes them."
        message = f"Version {request.version} of set `{request.set}` cannot be restored: {error.message}"
        raise type(error)(error.code, message, hint=hint) from error


def export_set(pipeline: Pipeline, version: SetVersion, address: str, run: Callable[[str], Runner]) -> list[Outcome]:
    """Writes the tables of a version as separate Delta tables, each below the address. Changes no ledger.

    run: returns the runner of the tasks of a log.
    """
    folder = address.rstrip("/")
    tables = version.snapshots
    return for_each_log(
        list(tables), lambda log: restore_to(pipeline, log, tables[log], f"{folder}/{log}", run=run(log))
    )
