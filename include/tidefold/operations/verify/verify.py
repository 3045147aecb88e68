"""Finds missing, cut or altered files of a log, in any copy, and repairs them from another copy on request. No JVM."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tidefold.delta.published_table import COMMIT
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.ingest.quarantine_retry import quarantine_files
from tidefold.domain.log_state import DeletionState, Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.verify.expected_files import (
    Copy,
    Damage,
    Expected,
    FileRole,
    StoredFile,
    StoredLocation,
    count_copies,
    damages,
    data_files,
    delta_logs,
    manifest_files,
    segment_files,
)
from tidefold.domain.verify.proof_record import ProofRecord, ScrubChoice, record_scrub, record_verify
from tidefold.errors import CorruptError, NotFoundError, TidefoldError
from tidefold.ledger import Ledger, read_manifest_at
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.verify.check_delta_tables import Stores, check_published_table, list_change_files, list_vectors
from tidefold.operations.verify.check_files import examine, repair_file, still_named
from tidefold.operations.verify.scope import (
    Checked,
    Scope,
    add_error,
    add_warning,
    find_set_damage,
    outcome_of,
    scope_of,
    write_proof,
)
from tidefold.sources.quarantine.writer import sha256_of

# Receives what is being read, how many bytes of it were read, and how many there are.
Telling = Callable[[str, int, int], None]
# Returns the files of one kind that the scope needs.
_Plan = Callable[[Scope], Iterable[StoredFile]]
_Examined = Mapping[StoredFile, tuple[Copy, ...]]


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What a verification does.

    snapshot: check only this one.
    deep: read all bytes; otherwise check only presence and length.
    repair: repair from an intact copy, if there is one.
    record: store that the log was proved, if every file was read.
    """

    snapshot: int | None = None
    deep: bool = True
    repair: bool = False
    record: bool = False


def verify(
    pipeline: Pipeline, log: str, request: VerifyRequest | None = None, tell: Telling = lambda what, done, total: None
) -> Outcome:
    """Checks every copy of every file that the log needs. The outcome is an error (exit code 5) if damage is left.

    Raises NotFoundError if the snapshot is not retained, CorruptError if the ledger cannot be read or is an older one,
    StorageError.
    """
    wanted = request or VerifyRequest()
    pipeline.before_read()
    # One that has read nothing yet: damage is looked for in all of its pages.
    state = Ledger(pipeline.store, log).find_current()
    if state is None:
        return Outcome(log, Status.NOTHING, "the store has no such log")
    verification = Verification(pipeline, wanted, tell, scope_of(pipeline, state, wanted.snapshot))
    outcome = add_error(verification.run(), find_set_damage(pipeline, log))
    every = wanted.deep and wanted.snapshot is None and state.deletion is DeletionState.NO
    if not (wanted.record and every):
        return outcome
    warning = write_proof(pipeline.store, log, verification.record)
    return add_warning(outcome, warning) if warning else outcome


@dataclass(slots=True)
class Verification:
    """One check of the files of a log: what is expected, what is damaged, what is repaired.

    choose: by their sizes, the files whose bytes are read; of the others only presence and length are checked.
    damage: what is damaged, repaired or not.
    sizes: the data files and segments, with the bytes to read for all copies of each.
    """

    pipeline: Pipeline
    request: VerifyRequest
    tell: Telling
    scope: Scope
    choose: Callable[[Mapping[str, int]], ScrubChoice] | None = None
    stores: Stores = field(init=False)
    damage: list[Damage] = field(default_factory=list)
    checked: Checked = field(default_factory=Checked)
    sizes: Mapping[str, int] = field(default_factory=dict)
    choice: ScrubChoice | None = None
    _read: bool | Container[StoredFile] = field(init=False)

    def __post_init__(self) -> None:
        local = None if self.scope.blind else self.pipeline.local
        self.stores = {StorageTier.STORE: self.pipeline.store, **({StorageTier.LOCAL: local} if local else {})}
        self._read = self.request.deep

    @property
    def log(self) -> str:
        return self.scope.state.log

    def run(self) -> Outcome:
        manifests = self._read_manifests()
        self._choose(manifests)
        self.check_data_files(manifests)
        self._check("delta logs", lambda scope: self._plan_delta_logs(scope, manifests))
        self._check(
            "deletion vectors",
            lambda scope: list_vectors(scope.kept, manifests, scope.requested),
            deep=self.request.deep,
        )
        # Without its vectors nobody can read the table.
        if not any(one.part is FileRole.VECTOR and not one.repaired for one in self.damage):
            self._check_published_table(manifests)
        self.checked.count(self._check("change data files", self._plan_change_data))
        self.checked.count(self._check("segments", lambda scope: segment_files(scope.change_sets)))
        if self.request.snapshot is None:
            self._check("refused records", self._plan_refused, deep=self.request.deep)
        return outcome_of(self.scope, self.damage, self.checked, self.request.repair)

    def check_data_files(self, manifests: Mapping[int, Manifest]) -> None:
        def plan(scope: Scope) -> Iterable[StoredFile]:
            return data_files(self.log, scope.kept, manifests, scope.local, scope.requested)

        self.checked.count(self._check("data files", plan))

    def record(self, before: ProofRecord) -> ProofRecord:
        """Returns the record of this run after `before`."""
        left = {damage.name for damage in self.damage if not damage.repaired}
        if self.choice:
            return record_scrub(before, self.choice, self.sizes, left, now())
        return record_verify(before, self.sizes, left, now())

    def _choose(self, manifests: Mapping[int, Manifest]) -> None:
        scope, links = self.scope, self.pipeline.store.links
        data = data_files(self.log, scope.kept, manifests, scope.local, scope.requested)
        files = [*data, *segment_files(scope.change_sets)]
        self.sizes = {file.name: file.read_bytes * count_copies(file, links) for file in files}
        if self.choose:
            self.choice = self.choose(self.sizes)
            self._read = {file for file in files if file.name in self.choice.names}

    def _read_manifests(self) -> dict[int, Manifest]:
        """Checks the manifests of all retained snapshots, and returns those with at least one intact copy."""
        examined = self._check("manifests", self._plan_manifests, deep=True)
        files = manifest_files(self.log, self.scope.kept, self.scope.local, self.scope.requested)
        manifests = {}
        for snapshot in self.scope.kept:
            good = next((c.place for c in examined[files[snapshot.id]] if c.harm is None), None)
            manifest = self._read_manifest(good, snapshot) if good else None
            if manifest:
                manifests[snapshot.id] = manifest
        return manifests

    def _read_manifest(self, place: StoredLocation, snapshot: Snapshot) -> Manifest | None:
        """Returns None if the snapshot was deleted on purpose since the check began."""
        try:
            return read_manifest_at(self.stores[place.where], place.path, snapshot)
        except CorruptError:
            if snapshot.id in {kept.id for kept in self._scope_now().kept}:
                raise
            return None

    def _plan_manifests(self, scope: Scope) -> Iterable[StoredFile]:
        return manifest_files(self.log, scope.kept, scope.local, scope.requested).values()

    def _plan_delta_logs(self, scope: Scope, manifests: Mapping[int, Manifest]) -> Iterable[StoredFile]:
        chosen = sorted(scope.requested & set(manifests))
        return [file for i in chosen for file in delta_logs(manifests[i], i in scope.local, COMMIT)]

    def _plan_change_data(self, scope: Scope) -> Iterable[StoredFile]:
        """What the commits of the published table name."""
        entry = self.pipeline.config.logs.get(self.log)
        if not entry or not entry.change_feed:
            return ()
        return list_change_files(self.pipeline.store, self.log, scope.kept, scope.requested)

    def _plan_refused(self, scope: Scope) -> Iterable[StoredFile]:
        """The quarantine files, whose names prove their bytes: `quarantine retry` makes rows of them."""
        names = (Expected(StoredLocation(path), ()) for path in quarantine_files(scope.state))
        return [StoredFile(FileRole.REFUSED, sha256_of(name.place.path), None, (name,)) for name in names]

    def _check(self, what: str, plan: _Plan, deep: bool = False) -> _Examined:
        """Checks the files of one kind, and records their damage unless they were deleted on purpose meanwhile."""
        examined = examine(self.stores, plan(self.scope), deep=deep or self._read, tell=partial(self.tell, what))
        bad = {file: copies for file, copies in examined.items() if any(copy.damaged for copy in copies)}
        named = self._find_named(plan) if bad else {}
        for file, copies in bad.items():
            left = still_named(copies, named)
            damage = damages(file, left)
            self.damage += self._try_repair(file, left, damage, plan) if damage and self.request.repair else damage
        return examined

    def _find_named(self, plan: _Plan) -> dict[StoredLocation, StoredFile]:
        """Returns the names that the log needs now, each with its file."""
        return {name.place: file for file in plan(self._scope_now()) for name in file.names}

    def _scope_now(self) -> Scope:
        state = self.pipeline.ledger(self.log).find()
        try:
            if state:
                return scope_of(self.pipeline, state, self.request.snapshot)
        except NotFoundError:
            pass  # The snapshot was retired meanwhile, so its files are not needed.
        return replace(self.scope, kept=(), requested=frozenset(), local=frozenset(), change_sets=())

    def _try_repair(
        self, file: StoredFile, copies: Sequence[Copy], damage: Sequence[Damage], plan: _Plan
    ) -> list[Damage]:
        source, failure = None, None
        try:
            source = repair_file(self.stores, file, copies)
        except TidefoldError as error:
            failure = error
        named = self._find_named(plan)
        self._forget([place for one in damage for place in one.places if place not in named], file.part)
        needed = {place for one in damage for place in one.places if place in named}
        files = list(dict.fromkeys(named[place] for place in sorted(needed)))
        examined = examine(self.stores, files)
        again = {place for one, every in examined.items() for left in damages(one, every) for place in left.places}
        return [_describe_repair(one, again, source, failure) for one in damage if set(one.places) & needed]

    def _forget(self, places: Iterable[StoredLocation], part: FileRole) -> None:
        """Deletes the repaired files of a snapshot that was retired meanwhile: its clean-up may already be over."""
        for place in places:
            beside = place.path.startswith(f"{LogPaths(self.log).table}/")
            history = part is FileRole.MANIFEST and place.where is StorageTier.STORE
            # `clean` finds segments, and other files next to the table's, by itself.
            if not (beside or history or part is FileRole.SEGMENT):
                self.stores[place.where].delete([place.path])

    def _check_published_table(self, manifests: Mapping[int, Manifest]) -> None:
        """Checks again if the ledger has changed meanwhile: the table may already show the next snapshot."""
        state = self.scope.state
        while damage := check_published_table(self.pipeline.store, state, manifests):
            newest = self.pipeline.ledger(self.log).find()
            if newest is None or newest.version == state.version:
                if newest and set(damage.snapshots) <= self.scope.requested:
                    # What readers see now matters more than each file behind it.
                    self.damage.insert(0, damage)
                return
            state = newest


def _describe_repair(
    damage: Damage, again: set[StoredLocation], source: StoredLocation | None, error: TidefoldError | None
) -> Damage:
    """Returns the damage with its repair. It counts as repaired only if a second check finds the file intact."""
    if not set(damage.places) & again:
        return replace(damage, repaired=str(source or "another copy"))
    if error is None:
        return replace(damage, why="it is still damaged after the repair: the disk may be failing")
    return replace(damage, why=error.message, hint=error.hint)
