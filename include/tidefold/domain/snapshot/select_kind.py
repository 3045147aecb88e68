"""Selects the kind of the next snapshot, by the cost of each. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.domain.log_state import LogState, SnapshotKind, State
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.domain.wording import in_units

NAMED_KIND = "the configuration or the call names this kind"
# `auto` accepts this many times the bytes of an incremental snapshot for a full one, which needs no other snapshot.
_WORTH = 2
# Deletion vectors mark at most this share of the rows of a file.
MARKED_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class KindDecision:
    """The selected kind and the reason, as the end of a sentence."""

    kind: SnapshotKind
    because: str


def select_kind(
    state: LogState, rule: KindPolicy, buckets: int, *, links: bool, full_every: int, marks: bool
) -> KindDecision:
    """Selects the kind of the next snapshot. An incremental one is built on the newest completed one only (N3).

    buckets: how many the next snapshot has, if it is full.
    links: whether the store can link a file instead of copying its bytes.
    full_every: with `auto`, the number of snapshots from one full snapshot to the next.
    marks: the table has deletion vectors.
    """
    if rule is not KindPolicy.AUTO:
        return KindDecision(SnapshotKind(rule), NAMED_KIND)
    latest, before = state.latest, state.shape.buckets
    if latest is None:
        return KindDecision(SnapshotKind.FULL, "there is no snapshot yet whose files could be shared")
    made = [s for s in state.snapshots if s.in_main_lineage and s.state not in (State.ABORTED, State.ONGOING)]
    fulls = [number for number, s in enumerate(made) if s.kind is SnapshotKind.FULL]
    since = len(made) - 1 - fulls[-1] if fulls else len(made)
    changes = sum(change_set.rows for change_set in state.unfolded)
    # Keys are spread evenly, so of B buckets n changes leave (1 - 1/B)^n untouched.
    written = int(latest.bytes_full * (1 - (1 - 1 / before) ** changes))
    new, copied = in_units(written), in_units(latest.bytes_full - written)
    kind = SnapshotKind.FULL
    if buckets != before:
        because = f"the number of buckets changes from {before} to {buckets}"
    elif since >= full_every:
        because = f"{since} incremental snapshots were made since the last full one"
    elif marks and changes <= latest.rows * MARKED_SHARE:
        kind = SnapshotKind.INCREMENTAL
        because = f"deletion vectors can mark the rows of {changes:,} changes; a full snapshot rewrites all files"
    elif links:
        because = "the store links unchanged files, so a full snapshot copies no bytes"
    elif latest.bytes_full <= _WORTH * written:
        because = f"the changes rewrite about {new} of {in_units(latest.bytes_full)} in any case"
    else:
        kind, because = (
            SnapshotKind.INCREMENTAL,
            f"a full snapshot would copy about {copied} unchanged beside {new} new",
        )
    return KindDecision(kind, because)
