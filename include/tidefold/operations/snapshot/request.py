"""What a run asks of the logs: the same value for the command line, the Spark jobs and Airflow."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tidefold.domain.commit_times import told
from tidefold.domain.external_snapshot import External, Ownership
from tidefold.domain.log_state import Expire, LogState, Snapshot, SnapshotKind, State
from tidefold.domain.snapshot import claim
from tidefold.domain.snapshot.kind_selection import Choice, Rule, Terms, choose
from tidefold.errors import InvalidInputError
from tidefold.fold.plan import has_expired
from tidefold.ledger import read_manifest
from tidefold.operations.pipeline import Pipeline, now


@dataclass(frozen=True, slots=True)
class Import:
    """A snapshot outside of the store, by its whole address, and whose it is afterwards."""

    address: str
    ownership: Ownership


@dataclass(frozen=True, slots=True)
class Asking:
    """A fold of what is new, with `restore` the return of a snapshot, with `imported` one that lies outside of the
    store, with `as_of` a fold of what was committed before an instant (microseconds since 1970 UTC). `run` is the id of
    the run, if it has one.

    `kind`: of the snapshot, if not as configured. `takeover` supersedes an attempt of another run; `stalled` names, by
    log, attempts that were seen without progress.
    """

    run: str | None = None
    takeover: bool = False
    stalled: Mapping[str, Snapshot] = field(default_factory=dict)
    restore: claim.Restore | None = None
    kind: Rule | None = None
    imported: Import | None = None
    as_of: int | None = None


def as_of_claim(pipeline: Pipeline, state: LogState, asking: Asking) -> claim.Claim:
    """The claim on a snapshot of the rows as of an instant: too old is what was so then."""
    assert asking.as_of is not None
    ttl, run = pipeline.log(state.log).ttl, _run_of(asking)
    request = request_of({"as_of": asking.as_of})
    expire = ttl.expire(told(asking.as_of)) if ttl else None
    return claim.Claim(run, request, SnapshotKind.FULL, now(), asking.takeover, expire=expire, token=_new_token())


def _new_token() -> str:
    return uuid.uuid4().hex[:8]


def _run_of(asking: Asking) -> str:
    if asking.run is None:
        raise InvalidInputError("RUN_MISSING", "A materialization needs a run id.", hint="Give it one.")
    return asking.run


def claim_of(pipeline: Pipeline, state: LogState, asking: Asking, external: External | None = None) -> claim.Claim:
    """The claim on a log in this state; `external`: what was found where `asking` imports from. Raises
    InvalidInputError without a run id.
    """
    config, instant = pipeline.log(state.log), now()
    rule = asking.kind or pipeline.config.snapshots.kind
    terms = Terms(rule, _links(pipeline), pipeline.config.snapshots.full_every, config.shape.buckets)
    chosen = _choose_import(external) if external else choose(state, terms)
    wanted: dict[str, Any] = {
        "kind": asking.kind or SnapshotKind.FULL,
        **({"asked": True} if asking.kind else {}),
        **({"restore": asking.restore} if asking.restore else {}),
        **({"import": external} if external else {}),
    }
    expire = config.ttl.expire(instant) if config.ttl else None
    return claim.Claim(
        *(_run_of(asking), request_of(wanted), chosen.kind, instant, asking.takeover, asking.stalled.get(state.log)),
        restore=asking.restore,
        because=chosen.because,
        expire=expire if chosen.kind is SnapshotKind.FULL or asking.restore else None,
        renew=asking.kind is Rule.FULL and _would_differ(pipeline, state, expire),
        external=external,
        lateness=config.lateness,
        token=_new_token(),
    )


def horizon_of(pipeline: Pipeline, state: LogState) -> int | None:
    """Below which order changes are put aside: what was deleted then is forgotten. None: all are taken."""
    if pipeline.log(state.log).late != "quarantine":
        return None
    announced = (s.horizon for s in state.snapshots if s.state is not State.ABORTED)
    return max((one for one in announced if one is not None), default=None)


def _choose_import(external: External) -> Choice:
    if external.ownership is Ownership.NO_CLAIM:
        return Choice(SnapshotKind.FULL, "the original stays the user's, and may go")
    return Choice(SnapshotKind.INCREMENTAL, "the original's files are taken over where that is possible")


def _links(pipeline: Pipeline) -> bool:
    return pipeline.store.links and not pipeline.config.snapshots.copies


def _would_differ(pipeline: Pipeline, state: LogState, expire: Expire | None) -> bool:
    """Whether a full snapshot that somebody asks for says more than the newest one, though nothing was taken in."""
    latest = state.latest
    if latest is None:
        return False
    rescaled = state.shape.buckets != pipeline.log(state.log).shape.buckets
    if latest.kind is not SnapshotKind.FULL or rescaled or latest.schema != state.schema:
        return True
    return expire is not None and any(
        has_expired(file, expire) for file in read_manifest(pipeline.store, state.log, latest).files
    )


def request_of(wanted: Mapping[str, Any]) -> str:
    """The sha256 of what is asked for, by which a run that asks for something else is known."""
    return hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()
