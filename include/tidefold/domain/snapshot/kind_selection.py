"""Selects the kind of the next snapshot by the cost of each kind. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidefold.domain.log_state import LogState, SnapshotKind, State
from tidefold.domain.wording import in_units


class KindPolicy(StrEnum):
    """How the kind is selected: always the same kind, or by cost."""

    FULL = "full"
    INCREMENTAL = "incremental"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class KindDecision:
    """The selected kind and the reason, as the end of a sentence."""

    kind: SnapshotKind
    because: str


@dataclass(frozen=True, slots=True)
class KindInputs:
    """The inputs of the selection besides the log.

    links: whether the store can link a file instead of copying its bytes.
    full_every: with `auto`, the number of snapshots from one full snapshot to the next.
    """

    rule: KindPolicy = KindPolicy.FULL
    links: bool = True
    full_every: int = 10
    buckets: int | None = None


# `auto` accepts this many times the bytes of an incremental snapshot for a full one, which needs no other snapshot.
_WORTH = 2


def select_kind(state: LogState, terms: KindInputs) -> KindDecision:
    """Selects the kind of the next snapshot. An incremental one is built on the newest completed one only (N3)."""
    if terms.rule is not KindPolicy.AUTO:
        return KindDecision(SnapshotKind(terms.rule), "it was asked for")
    latest = state.latest
    if latest is None:
        return KindDecision(SnapshotKind.FULL, "there is no snapshot yet whose files could be shared")
    if terms.buckets not in (None, state.shape.buckets):
        return KindDecision(
            SnapshotKind.FULL, f"the number of buckets changes from {state.shape.buckets} to {terms.buckets}"
        )
    made = [s for s in state.snapshots if s.in_main_lineage and s.state not in (State.ABORTED, State.ONGOING)]
    fulls = [number for number, s in enumerate(made) if s.kind is SnapshotKind.FULL]
    since = len(made) - 1 - fulls[-1] if fulls else len(made)
    if since >= terms.full_every:
        return KindDecision(SnapshotKind.FULL, f"{since} incremental snapshots were made since the last full one")
    if terms.links:
        return KindDecision(SnapshotKind.FULL, "the store links unchanged files, so a full snapshot copies no bytes")
    written = estimate_touched_bytes(state)
    if latest.bytes_full <= _WORTH * written:
        return KindDecision(
            SnapshotKind.FULL,
            f"the changes rewrite about {in_units(written)} of {in_units(latest.bytes_full)} in any case",
        )
    copied = latest.bytes_full - written
    return KindDecision(
        SnapshotKind.INCREMENTAL,
        f"a full snapshot would copy about {in_units(copied)} unchanged beside {in_units(written)} new",
    )


def estimate_touched_bytes(state: LogState) -> int:
    """Estimates how many bytes of the newest snapshot are in buckets that the waiting changes touch.

    Keys are spread evenly, so of B buckets n changes leave (1 - 1/B)^n untouched.
    """
    latest, buckets = state.latest, state.shape.buckets
    if latest is None:
        return 0
    changes = sum(change_set.rows for change_set in state.unfolded)
    return int(latest.bytes_full * (1 - (1 - 1 / buckets) ** changes))
