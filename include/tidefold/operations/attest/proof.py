"""What is asked of a comparison with the source, what it found, and how that becomes a proof."""

from __future__ import annotations

import gzip
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum

from tidefold.domain.paths import LogPaths
from tidefold.domain.verify.proof_record import SourceProof
from tidefold.domain.wording import count_noun
from tidefold.errors import CorruptError, RefusedError, TidefoldError
from tidefold.operations.attest.faults import EXTRA, KeyFault
from tidefold.operations.ground.outcome import Details, ErrorInfo, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.verify.scope import find_proof, write_proof
from tidefold.sources.database.comparison import RowComparison

# Faults that a message has, and those that an outcome and suspects that a record keep.
_SHOWN, _KEPT = 3, 1_000
_SILENT = "the log had no news in a whole look: if the connector is stopped, this is what it has not sent"


@dataclass(frozen=True, slots=True)
class AttestRequest:
    """What is to be attested.

    connection: the name of one. table: `schema.table`; empty: as the topic of the log says.
    left_out: columns that are not compared. patience: seconds to wait for news of the log in each look.
    lag: seconds after which a change of the source is in the log for certain, if no later one of the table is.
    by: who asks. looks: how often what moves is looked at. clock, sleep: of this machine.
    tell: is told for what it waits.
    """

    connection: str
    table: str = ""
    left_out: tuple[str, ...] = ()
    patience: float = 60.0
    lag: float = 3600.0
    by: str = ""
    looks: int = 4
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    tell: Callable[[str], None] = lambda text: None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestDetails(Details):
    """What was proved, and the first faults. seconds: in transactions of the source. rows_sent: by it."""

    source: SourceProof
    faults: tuple[KeyFault, ...] = ()
    seconds: float = 0.0
    rows_sent: int = 0
    warning: str = ""


class News(Enum):
    """What came of waiting for news of the log: what was waited for, no news at all, or others only."""

    CAME = "came"
    SILENT = "silent"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A key that differed at rest: the hashes of both sides (None: no row), and since when (seconds since 1970)."""

    theirs: int | None
    ours: int | None
    since: float

    def stays(self, now: Suspect) -> bool:
        """Whether neither row has changed."""
        return (self.theirs, self.ours) == (now.theirs, now.ours)


@dataclass(slots=True)
class Course:
    """What the looks have found so far.

    suspects: keys that differed at rest in an earlier look, also of the comparison before.
    equal: keys that were equal at rest. sums: number of rows and checksum of each group of the published rows.
    open: keys that differed in the last look; None: there was none. faults: those that did so at rest twice.
    is_silent: the log had no news in the last look, so time decided.
    """

    suspects: dict[str, Suspect]
    looks: int = 0
    equal: int = 0
    sums: dict[int, tuple[int, str]] = field(default_factory=dict)
    open: set[str] | None = None
    faults: set[str] = field(default_factory=set)
    snapshots: list[int] = field(default_factory=list)
    apart: dict[str, int] = field(default_factory=dict)
    rows_sent: int = 0
    seconds: float = 0.0
    is_silent: bool = False

    @property
    def undecided(self) -> set[str]:
        return (self.open or set()) - self.faults

    def add_look(
        self, rows: int, differ: Mapping[str, Suspect], changed: Collection[str], news: News, lag: float
    ) -> None:
        """Takes what a look found.

        rows: that the source sent. changed: which of the keys that differ the log changes after what was compared.
        """
        at_source = sum(one.theirs is not None for one in differ.values())
        # The first look has counted all rows before.
        self.equal += rows - at_source if self.open is not None else -at_source
        rested = {key: one for key, one in differ.items() if key not in changed}
        twice = {key for key, one in rested.items() if key in self.suspects and self.suspects[key].stays(one)}
        first = {key: self.suspects[key].since if key in twice else one.since for key, one in rested.items()}
        if news is News.SILENT:  # A change may be on its way as long as that.
            twice = {key for key in twice if rested[key].since - first[key] >= lag}
        self.faults = self.faults.intersection(differ) | (twice if news is not News.LATE else set())
        self.suspects = {key: replace(one, since=first[key]) for key, one in rested.items() if key not in self.faults}
        self.open, self.is_silent = {*differ}, news is News.SILENT
        self.looks, self.rows_sent = self.looks + 1, self.rows_sent + rows


def find_waiting(pipeline: Pipeline, log: str, table: str) -> dict[str, Suspect]:
    """Returns the keys that differed at rest in the last comparison with this table, which could not tell."""
    proof = find_proof(pipeline.store, log)
    source = proof.source if proof and proof.source and proof.source.table == table else None
    return {key: Suspect(theirs, ours, since) for key, theirs, ours, since in (source.waiting if source else ())}


def conclude(
    pipeline: Pipeline,
    log: str,
    request: AttestRequest,
    comparison: RowComparison,
    course: Course,
    faults: Sequence[KeyFault],
) -> Outcome:
    """Records the proof, and returns it as an outcome."""
    excuse = [fault.excuse for fault in faults if fault.excuse]
    compared = {one.name for one in comparison.columns}
    others = [one.name for one in comparison.table.columns if one.name not in compared]
    groups = "".join(f"{group},{rows},{checksum}\n" for group, (rows, checksum) in sorted(course.sums.items()))
    proof = SourceProof(
        instant=now(),
        by=request.by,
        connection=request.connection,
        table=comparison.table.full_name,
        snapshots=(course.snapshots[0], course.snapshots[-1]),
        looks=course.looks,
        equal=course.equal,
        moving=len(course.undecided - course.suspects.keys()),
        differ=len(course.faults) - len(excuse),
        apart=dict(Counter(course.apart) + Counter(excuse)),
        left_out=request.left_out,
        not_there=tuple(name for name in others if name not in request.left_out),
        waiting=tuple((key, one.theirs, one.ours, one.since) for key, one in sorted(course.suspects.items())[:_KEPT]),
        groups=comparison.groups,
        checksum=hashlib.sha256(groups.encode()).hexdigest(),
    )
    error = _find_error(pipeline, log, request.lag, proof, course, [fault for fault in faults if not fault.excuse])
    if error:
        proof = replace(proof, error=error.message, hint=error.hint)
    _write_groups(pipeline, log, proof, groups)
    add = lambda before: replace(before, number=before.number + 1, source=proof)  # noqa: E731
    warnings = [write_proof(pipeline.store, log, add), _SILENT if course.is_silent and proof.differ else ""]
    details = AttestDetails(
        source=proof,
        faults=tuple(sorted(faults, key=lambda fault: bool(fault.excuse))[:_KEPT]),
        seconds=round(course.seconds, 3),
        rows_sent=course.rows_sent,
        warning="; ".join(filter(None, warnings)),
    )
    if error:
        status = Status.DAMAGED if isinstance(error, CorruptError) else Status.ERROR
        return Outcome(log, status, str(error), proof.snapshots[-1], ErrorInfo.of(error), details)
    return Outcome(log, Status.WHOLE, describe_proof(proof), proof.snapshots[-1], details=details)


def describe_proof(proof: SourceProof) -> str:
    """What was proved, and what was counted apart or not compared."""
    apart = [f"counted apart: {', '.join(f'{count:,} {kind}' for kind, count in sorted(proof.apart.items()))}"]
    columns = [f"not compared: {', '.join([*proof.left_out, *proof.not_there])}"]
    more = (apart if proof.apart else []) + (columns if proof.left_out or proof.not_there else [])
    return "; ".join([proof.sentence, *more])


def _find_error(
    pipeline: Pipeline, log: str, lag: float, proof: SourceProof, course: Course, faults: Sequence[KeyFault]
) -> TidefoldError | None:
    name = proof.connection
    if proof.differ:
        shown = "; ".join(map(str, faults[:_SHOWN]))
        hint = None
        is_loadable = pipeline.log(log).can_load and not pipeline.config.set_of(log)
        if is_loadable and any(fault.kind == EXTRA for fault in faults):
            # An incremental snapshot reads rows that are there, and deletes none.
            load = f"`tidefold source load {log} --connection {name}` replaces all rows"
            hint = f"`tidefold explain {log} KEY` shows what made a row. Stop the connector and drop its slot; {load}."
        return CorruptError("SOURCE_DIFFERS", f"{describe_proof(proof)}. The first: {shown}.", hint=hint)
    if course.suspects:
        first = min(one.since for one in course.suspects.values())
        since, until = (datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") for at in (first, first + lag))
        message = (
            f"{describe_proof(proof)}; {count_noun(len(course.suspects), 'key differs', 'keys differ')} since {since}, "
            "and no later change has come that shows whether theirs are still on their way."
        )
        hint = f"`tidefold run {log}`, then `tidefold source attest {log} --connection {name}`. "
        hint += f"If no later change of the table comes, it decides after {until} (`--lag`)."
        return RefusedError("ATTEST_UNDECIDED", message, hint=hint)
    return None


def _write_groups(pipeline: Pipeline, log: str, proof: SourceProof, groups: str) -> None:
    """Stores number of rows and checksum of each group beside the record, and deletes those of older proofs."""
    folder, name = LogPaths(log).proofs, f"source-{proof.checksum[:16]}.csv.gz"
    older = [one.path for one in pipeline.store.list(folder) if one.path.rpartition("/")[2].startswith("source-")]
    pipeline.store.delete([path for path in older if not path.endswith(name)])
    if f"{folder}/{name}" not in older:
        pipeline.store.put_if_absent(f"{folder}/{name}", gzip.compress(groups.encode(), mtime=0))
