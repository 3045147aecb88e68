"""Switches a log to the table definition of its plan (decision 0085): what a claim must know, what the log takes over.

The plan is a log of the same name in another store. The switch itself is the transition that confirms its snapshot.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from tidefold.changelog import write_intents
from tidefold.changelog.write_intents import Intent, IntentLog
from tidefold.domain.external_snapshot import External, Reshape
from tidefold.domain.ingest.append import require_fence
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import transitions
from tidefold.domain.table.schema_evolution import schemas_of
from tidefold.errors import ConflictError, NotFoundError, RefusedError
from tidefold.ledger import Ledger
from tidefold.operations.ground import recovery
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.storage import Store, open_store


def find_reshape(pipeline: Pipeline, state: LogState, external: External) -> Reshape:
    """Returns the table definition that the snapshot of a plan brings. Raises RefusedError by name."""
    _, planned = _open_plan(external)
    feed = "readers of `change_feed`, who would get no change for another type of a column"
    transitions.require_unneeded(state, [feed] if pipeline.log(state.log).change_feed else [])
    require_caught_up(state, planned)
    snapshot = transitions.require_snapshot(planned, external.snapshot)
    before = schemas_of(state)
    highest = max(number for schema in before for number in schema.ids)
    schemas = tuple(
        replace(
            one,
            id=one.id + before[-1].id,
            ids=tuple(number + highest for number in one.ids),
            found=tuple(number + highest for number in one.found),
        )
        for one in schemas_of(planned)
    )
    return Reshape(state.shape, planned.shape, schemas, snapshot.horizon, snapshot.max_commit_time)


def _open_plan(external: External) -> tuple[Store, LogState]:
    """Opens the store of a plan, by the address of its snapshot, and reads the log."""
    root = external.address.removesuffix(f"/{LogPaths(external.log).snapshot(external.snapshot)}")
    store = open_store(root, Path("/"))
    if (planned := Ledger(store, external.log).find()) is None:
        raise NotFoundError("PLAN_MISSING", f"The plan of `{external.log}` is not at {root} any more.")
    return store, planned


def find_unread(state: LogState, planned: LogState) -> tuple[str, ...]:
    """Returns the landed files of a log that its plan has not read, or not with the bytes that the log has."""
    have = {entry.name: (entry.length, entry.checksum) for entry in planned.landed}
    taken = {entry.name: (entry.length, entry.checksum) for entry in state.landed if entry.length}
    return tuple(name for name, content in taken.items() if have.get(name) != content)


def require_caught_up(state: LogState, planned: LogState) -> None:
    """Raises RefusedError if the log has taken what its plan has not: the table would go back."""
    behind = find_unread(state, planned)
    if behind:
        raise RefusedError(
            "PLAN_BEHIND",
            f"Log `{state.log}` has what its plan has not: {', '.join(behind[:3])}{' ...' if behind[3:] else ''}.",
            hint=f"`tidefold plan {state.log}` reads what landed since. A file that is gone must land again.",
        )


@contextmanager
def bring_over(pipeline: Pipeline, snapshot: Snapshot) -> Iterator[Callable[[LogState], LogState]]:
    """Links segments and quarantine files of a plan, which lies in the same store. Yields the transition that confirms
    its snapshot.

    They are announced before: if this process dies, the next run deletes what no log needs.
    """
    assert snapshot.external is not None
    store, this = pipeline.store, uuid.uuid4().hex
    source, planned = _open_plan(snapshot.external)
    state = pipeline.ledger(planned.log).read()
    needed = {c.location.segment for c in planned.change_sets} | {e.quarantine for e in planned.landed if e.quarantine}
    # Under names of this call: what another one links and deletes is nothing to it.
    names = {path: f"{parent}/{this}-{name}" for path in needed for parent, _, name in [path.rpartition("/")]}
    files = tuple(sorted(names.values()))
    announced = IntentLog(state.log, state.shape, state.fence)
    write_intents.begin(store, Intent(this, 0, now(), (announced,), files))
    shadow = source.address.removeprefix(f"{store.address}/")
    for path, name in names.items():
        store.link(f"{shadow}/{path}", name)
    try:
        yield partial(_confirm, snapshot=snapshot.id, fence=state.fence, planned=_rename(planned, names))
    except (RefusedError, ConflictError):  # After any other error it is not certain whether the log has them.
        recovery.end_run(store, this, [state.log], files)
        raise
    recovery.end_run(store, this, [state.log], files)


def _rename(planned: LogState, names: Mapping[str, str]) -> LogState:
    moved = (replace(c, location=replace(c.location, segment=names[c.location.segment])) for c in planned.change_sets)
    landed = (replace(e, quarantine=names[e.quarantine] if e.quarantine else None) for e in planned.landed)
    return replace(planned, change_sets=tuple(moved), landed=tuple(landed))


def _confirm(state: LogState, snapshot: int, fence: int, planned: LogState) -> LogState:
    if (done := state.snapshot(snapshot)) is None or done.open:
        require_fence(state, fence)
    return transitions.confirm(state, snapshot, planned)
