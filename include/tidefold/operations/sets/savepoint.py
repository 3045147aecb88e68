"""Saves a version of a set outside of the store, and imports it into a set that has not begun.

The savepoint is a folder with a savepoint of each table, and a description of the set, which is written last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tidefold.config import SetConfig
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.domain.ingest.append import never_took
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.sets.progress import Cut
from tidefold.domain.sets.set_state import SetState, SetVersion
from tidefold.errors import AlreadyExistsError, CorruptError, NotFoundError, RefusedError
from tidefold.ledger import read_described, read_description, write_description
from tidefold.operations.outcome import Outcome, for_each_log
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.restore.target_location import open_place
from tidefold.operations.savepoint.external import open_address
from tidefold.operations.savepoint.import_snapshot import Import
from tidefold.operations.savepoint.take import Notify, SavepointRequest, take_savepoint
from tidefold.operations.sets.read import StagedVersion, find_set, find_staged
from tidefold.operations.sets.restore import find_earlier_version
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.attempt import Attempt, Claimant, describe_unclaimed
from tidefold.storage import Store

DESCRIPTION = "set.json"


@dataclass(frozen=True, slots=True)
class SetSavepoint:
    """The description of a set's savepoint.

    name: the name of the set. logs: all its logs, also those without rows.
    set_version: the saved version; its point cuts each log where the saved rows end.
    descriptions: the sha256 of the description of each table's savepoint.
    """

    name: str
    logs: tuple[str, ...]
    set_version: SetVersion
    descriptions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SetSavepointRequest:
    """The request for a savepoint of a set.

    version: its number; None: the version that readers use.
    layout, overwrite: as for the savepoint of one log.
    """

    address: str
    version: int | None = None
    layout: Layout = Layout.NATIVE
    overwrite: bool = False


def save_set(pipeline: Pipeline, name: str, wanted: SetSavepointRequest, note: Notify) -> list[Outcome]:
    """Writes a savepoint of each table of a version, then the description of the set. A repeated call continues.

    Without the description there is no savepoint of the set. Raises TidefoldError.
    """
    chosen = find_set(pipeline, name)
    version = _require_whole_point(chosen, find_earlier_version(pipeline, name, wanted.version))
    store = open_place(pipeline, wanted.address)
    there = find_set_savepoint(store)
    saved = there.set_version if there else version
    if there and (there.name, saved.number, saved.instant) != (name, version.number, version.instant):
        raise RefusedError(
            "SAVEPOINT_EXISTS",
            f"{store.address} already contains a savepoint: version {saved.number} of set `{there.name}`.",
        )

    def save(log: str) -> Outcome:
        member = version.member(log)
        request = SavepointRequest(
            f"{store.address}/{log}", member.snapshot if member else None, wanted.layout, wanted.overwrite
        )
        return take_savepoint(pipeline, log, request, note)

    outcomes = for_each_log([one.log for one in version.members], save)
    if not there and not any(outcome.error for outcome in outcomes):
        _write_description(store, chosen, version)
    return outcomes


def _require_whole_point(chosen: SetConfig, version: SetVersion) -> SetVersion:
    """Returns the version. Raises RefusedError if a part of a late file waits: its point is not whole."""
    late = next((one.log for one in version.point.cuts if one.late is not None), None)
    if late:
        raise RefusedError(
            "SET_POINT_UNKNOWN",
            f"Version {version.number} of set `{chosen.name}` cannot be saved: a file of `{late}` landed late, and a "
            "part of it waits.",
        )
    return version


def _write_description(store: Store, chosen: SetConfig, version: SetVersion) -> None:
    saved = {one.log: read_description(open_address(f"{store.address}/{one.log}")) for one in version.members}
    ends = {log: max((p.next_offset for p in one.progress.positions), default=0) for log, (one, _) in saved.items()}
    cuts = tuple(Cut(one.log, ends.get(one.log, 0)) for one in version.point.cuts)
    exact = replace(version, point=replace(version.point, cuts=cuts))
    document = SetSavepoint(chosen.name, chosen.logs, exact, {log: digest for log, (_, digest) in saved.items()})
    try:
        write_description(store, document, DESCRIPTION)
    except AlreadyExistsError:
        if find_set_savepoint(store) != document:
            raise


def find_set_savepoint(store: Store) -> SetSavepoint | None:
    """Returns the savepoint of a set at a place; None: there is none. Raises CorruptError."""
    try:
        return read_described(store, DESCRIPTION, SetSavepoint)[0]
    except NotFoundError:
        return None


def require_set_savepoint(address: str) -> SetSavepoint:
    """Returns the savepoint of a set. Raises NotFoundError, CorruptError."""
    store = open_address(address)
    found = find_set_savepoint(store)
    if found is None:
        raise NotFoundError(
            "SAVEPOINT_UNKNOWN",
            f"There is no savepoint of a set at {store.address}.",
            hint=f"It needs a `{DESCRIPTION}`. `tidefold import LOG ADDRESS` imports the savepoint of one log.",
        )
    return found


class ImportSet(msgspec.Struct, frozen=True, tag="import-set"):
    """The request to import the savepoint of a set into a set that has not begun.

    `set`: the name of the configured set.
    `address`: the whole address of the savepoint.
    `ownership`: who owns the originals afterwards.
    """

    run: str
    set: str
    address: str
    ownership: Ownership = Ownership.NO_CLAIM

    def prepare_claim(self, pipeline: Pipeline, log: str) -> Claimant:
        """Checks the original before anything changes. Raises TidefoldError."""
        if require_set_savepoint(self.address).set_version.member(log) is None:
            return lambda state: state
        return self._import(log).prepare_in_set(pipeline, log)

    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome:
        return describe_unclaimed(state, self.run, "the savepoint has no rows of it")

    def plan(self, pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Attempt:
        """Plans the tasks. Raises CorruptError if the original has changed since the claim."""
        return self._import(state.log).plan(pipeline, state, snapshot)

    def _import(self, log: str) -> Import:
        return Import(self.run, f"{self.address}/{log}", self.ownership)


def import_set(
    pipeline: Pipeline, request: ImportSet, run_step: Callable[[Sequence[str]], list[Outcome]]
) -> list[Outcome]:
    """Stages the rows of all logs of a set, or of none. `confirm` publishes them together at the saved point.

    run_step: runs the materialize step for these logs. Raises TidefoldError before anything changes.
    """
    chosen = find_set(pipeline, request.set)
    saved = require_set_savepoint(request.address)
    if {*saved.logs} != {*chosen.logs}:
        raise RefusedError(
            "SET_DIFFERS",
            f"The savepoint has the logs {', '.join(sorted(saved.logs))}; set `{chosen.name}` has "
            f"{', '.join(sorted(chosen.logs))}.",
        )
    logs = {log: pipeline.ledger(log).find() for log in chosen.logs}
    _require_new(pipeline.set_ledger(chosen.name).read(), logs)
    outcomes = run_step([one.log for one in saved.set_version.members])
    if any(outcome.error for outcome in outcomes):
        reason = f"run {request.run} did not import the whole set"
        for_each_log(chosen.logs, lambda log: abort(pipeline, log, reason, run_id=request.run))
    return outcomes


def find_imported_version(
    of_set: SetState, logs: Mapping[str, LogState | None], run_id: str | None
) -> StagedVersion | None:
    """Returns the version of the savepoint whose rows an import has staged; None: no imported snapshot is staged.

    Raises RefusedError if the set has begun meanwhile, CorruptError if the savepoint is another one.
    """
    staged = {log: one for log, one in find_staged(logs, run_id).items() if one.external}
    if not staged:
        return None
    addresses = {one.external.address.rpartition("/")[0] for one in staged.values() if one.external}
    _require_new(of_set, logs)
    saved = require_set_savepoint(min(addresses))
    described = {log: one.external.description for log, one in staged.items() if one.external}
    if len(addresses) > 1 or not described.items() <= saved.descriptions.items():
        raise CorruptError(
            "ORIGINAL_CHANGED",
            f"The imported snapshots of set `{of_set.name}` are not of one savepoint.",
            hint=f"`tidefold abort {min(staged)}`, and for the other logs; then import again.",
        )
    return StagedVersion(saved.set_version, staged, is_import=True)


def _require_new(of_set: SetState, logs: Mapping[str, LogState | None]) -> None:
    """Raises RefusedError if the set, or one of its logs, has begun: it would have changes of two histories."""
    begun = next((log for log, state in logs.items() if state and not never_took(state)), None)
    if of_set.point is None and of_set.published is None and begun is None:
        return
    what = f"log `{begun}` of set `{of_set.name}`" if begun else f"set `{of_set.name}`"
    raise RefusedError(
        "SET_BEGUN",
        f"The savepoint cannot be imported: {what} has begun.",
        hint=f"Import into a new store. `tidefold restore --set {of_set.name} --version NUMBER --log-position stay` "
        "brings back an earlier version.",
    )
