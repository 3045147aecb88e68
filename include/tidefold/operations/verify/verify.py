"""Finds missing, cut or altered files of a log, in any copy, and repairs them from another copy on request. No JVM."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidefold.domain.log_state import DeletionState, Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.storage_tier import StorageTier
from tidefold.domain.verify.expected_files import (
    Copy,
    Damage,
    FileRole,
    StoredFile,
    StoredLocation,
    count_copies,
    damages,
    data_files,
    manifest_files,
)
from tidefold.domain.verify.scrub_round import ProofRecord, record_verify
from tidefold.errors import CorruptError, NotFoundError, TidefoldError
from tidefold.ledger import Ledger, read_manifest_at
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.verify import check_delta_tables, check_segments
from tidefold.operations.verify.check_change_data import list_change_files
from tidefold.operations.verify.check_files import Stores, Tell, examine, is_read, still_named
from tidefold.operations.verify.proof_record import write_proof
from tidefold.operations.verify.repair import repair_file
from tidefold.operations.verify.result import Checked, add_warning, outcome_of
from tidefold.operations.verify.scope import Scope, scope_of

# Receives what is being read, how many bytes of it were read, and how many there are.
Telling = Callable[[str, int, int], None]
_Found = Mapping[StoredFile, tuple[Copy, ...]]
_Repair = Callable[[Stores, StoredFile, Sequence[Copy]], StoredLocation]
_Plan = Callable[[Scope], Iterable[StoredFile]]
# Returns the names of the files to read, of all files and of the bytes that reading each of them takes.
Choose = Callable[[Mapping[str, int]], Collection[str]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a verification does.

    snapshot: check only this one.
    deep: read all bytes; otherwise check only presence and length.
    repair: repair from an intact copy, if there is one.
    choose: read the bytes of only these files, and check only presence and length of the others.
    record: store that the log was proved, if every file was read.
    """

    snapshot: int | None = None
    deep: bool = True
    repair: bool = False
    choose: Choose | None = None
    record: bool = False


def verify(
    pipeline: Pipeline, log: str, asked: Asked | None = None, tell: Telling = lambda what, done, total: None
) -> Outcome:
    """Checks every copy of every file that the log needs. The outcome is an error (exit code 5) if damage is left.

    Raises NotFoundError if the snapshot is not retained, CorruptError if the ledger cannot be read or is an older one,
    StorageError.
    """
    wanted = asked or Asked()
    # One that has read nothing yet: damage is looked for in all of its pages.
    state = Ledger(pipeline.store, log).find_current()
    if state is None:
        return Outcome(log, Status.NOTHING, "the store has no such log")
    verification = Verification(pipeline, wanted, tell, scope_of(pipeline, state, wanted.snapshot))
    outcome = verification.run()
    every = wanted.deep and wanted.snapshot is None and state.deletion is DeletionState.NO
    if not (wanted.record and every):
        return outcome
    warning = write_proof(pipeline.store, log, verification.record_verify)
    return add_warning(outcome, warning) if warning else outcome


@dataclass(slots=True)
class Verification:
    """One check of the files of a log.

    damage: what was found, repaired or not.
    sizes: the data files and segments, with the bytes to read for all copies of each.
    """

    pipeline: Pipeline
    asked: Asked
    tell: Telling
    scope: Scope
    stores: Stores = field(init=False)
    damage: list[Damage] = field(default_factory=list)
    checked: Checked = field(default_factory=Checked)
    sizes: Mapping[str, int] = field(default_factory=dict)
    _read: bool | Container[StoredFile] = False

    def __post_init__(self) -> None:
        local = None if self.scope.blind else self.pipeline.local
        self.stores = {StorageTier.STORE: self.pipeline.store, **({StorageTier.LOCAL: local} if local else {})}

    @property
    def log(self) -> str:
        return self.scope.state.log

    def run(self) -> Outcome:
        manifests = self._check_manifests()
        self._choose(manifests)
        self._check_data_files(manifests)
        self._check_own_logs(manifests)
        self._check_published_table(manifests)
        self._check_change_data()
        self._check_segments()
        return outcome_of(self.scope, self.damage, self.checked, self.asked.repair)

    def find_damaged(self) -> set[str]:
        """Returns the names of the files with damage that is not repaired."""
        return {damage.name for damage in self.damage if not damage.repaired}

    def record_verify(self, before: ProofRecord) -> ProofRecord:
        """Returns the record of a run that has read every file."""
        return record_verify(before, self.sizes, self.find_damaged(), now())

    def _choose(self, manifests: Mapping[int, Manifest]) -> None:
        scope = self.scope
        data = data_files(self.log, scope.kept, manifests, scope.local, scope.asked)
        segments = check_segments.segment_files(scope.change_sets)
        links = self.pipeline.store.links
        bytes_of = {file: (file.bytes or 0) * count_copies(file, links) for file in data}
        bytes_of |= {file: sum(c.location.length for c in inside) for file, inside in segments.items()}
        self.sizes = {file.name: size for file, size in bytes_of.items()}
        self._read = self.asked.deep
        if self.asked.choose:
            names = self.asked.choose(self.sizes)
            self._read = {file for file in bytes_of if file.name in names}

    def _check_manifests(self) -> dict[int, Manifest]:
        """Checks the manifests of all retained snapshots, and returns those with at least one intact copy."""

        def plan(scope: Scope) -> Iterable[StoredFile]:
            return manifest_files(self.log, scope.kept, scope.local, scope.asked).values()

        found = examine(self.stores, plan(self.scope), tell=self._reporter("manifests"))
        self._record_damage(found, plan, repair_file)
        files = manifest_files(self.log, self.scope.kept, self.scope.local, self.scope.asked)
        manifests = {}
        for snapshot in self.scope.kept:
            good = next((c.place for c in found[files[snapshot.id]] if c.harm is None), None)
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

    def _check_data_files(self, manifests: Mapping[int, Manifest]) -> None:
        def plan(scope: Scope) -> Iterable[StoredFile]:
            return data_files(self.log, scope.kept, manifests, scope.local, scope.asked)

        found = examine(self.stores, plan(self.scope), deep=self._read, tell=self._reporter("data files"))
        self.checked.count(found)
        self._record_damage(found, plan, repair_file)

    def _check_change_data(self) -> None:
        """Checks what the commits of the published table name. Without a checksum only presence and length."""
        files = self._plan_change_data(self.scope)
        deep = frozenset(file for file in files if file.sha256 and is_read(file, self._read))
        found = examine(self.stores, files, deep=deep, tell=self._reporter("change data files"))
        self.checked.count(found)
        bad = {file: copies for file, copies in found.items() if any(copy.damaged for copy in copies)}
        # The only copy: nothing repairs it.
        still = self._find_named(self._plan_change_data) if bad else set()
        self.damage += [one for file, copies in bad.items() for one in damages(file, still_named(copies, still))]

    def _plan_change_data(self, scope: Scope) -> tuple[StoredFile, ...]:
        entry = self.pipeline.config.logs.get(self.log)
        if not entry or not entry.change_feed:
            return ()
        return list_change_files(self.pipeline.store, self.log, scope.kept, scope.asked)

    def _check_segments(self) -> None:
        segments = check_segments.segment_files(self.scope.change_sets)
        tell = self._reporter("segments")
        found = check_segments.examine_segments(self.stores, segments, deep=self._read, tell=tell)
        self.checked.count(found)

        def plan(scope: Scope) -> Iterable[StoredFile]:
            return check_segments.segment_files(scope.change_sets)

        self._record_damage(found, plan, check_segments.repair_segment)

    def _record_damage(self, found: _Found, plan: _Plan, repair: _Repair) -> None:
        """Records damage, unless the file was deleted on purpose since the check began. Repairs it if requested."""
        bad = {file: copies for file, copies in found.items() if any(copy.damaged for copy in copies)}
        named = self._find_named(plan) if bad else set()
        for file, copies in bad.items():
            left = still_named(copies, named)
            told = damages(file, left)
            if told and self.asked.repair:
                told = self._try_repair(file, left, told, plan, repair)
            self.damage += told

    def _find_named(self, plan: _Plan) -> set[StoredLocation]:
        return {name.place for file in plan(self._scope_now()) for name in file.names}

    def _scope_now(self) -> Scope:
        state = self.pipeline.ledger(self.log).find()
        try:
            if state:
                return scope_of(self.pipeline, state, self.asked.snapshot)
        except NotFoundError:
            pass  # The snapshot was retired meanwhile, so its files are not needed.
        return replace(self.scope, kept=(), asked=frozenset(), local=frozenset(), change_sets=())

    def _try_repair(
        self, file: StoredFile, copies: Sequence[Copy], told: Sequence[Damage], plan: _Plan, repair: _Repair
    ) -> list[Damage]:
        source, error = None, None
        try:
            source = repair(self.stores, file, copies)
        except TidefoldError as found:
            error = found
        named = self._find_named(plan)
        self._forget([p for damage in told for p in damage.places if p not in named], file.part)
        rest = replace(file, names=tuple(name for name in file.names if name.place in named))
        again = {place for damage in self._check_again(rest) for place in damage.places}
        return [_describe_repair(damage, again, source, error) for damage in told if set(damage.places) & named]

    def _check_again(self, file: StoredFile) -> list[Damage]:
        if file.part is not FileRole.SEGMENT:
            return damages(file, examine(self.stores, [file])[file])
        inside = check_segments.segment_files(self._scope_now().change_sets)
        same = {f: c for f, c in inside.items() if f.names == file.names}
        found = check_segments.examine_segments(self.stores, same, deep=True, tell=lambda done, total: None)
        return [damage for f, copies in found.items() for damage in damages(f, copies)]

    def _forget(self, places: Iterable[StoredLocation], part: FileRole) -> None:
        """Deletes the repaired files of a snapshot that was retired meanwhile: its clean-up may already be over."""
        for place in places:
            beside = part is FileRole.DATA and place.path.startswith(f"{LogPaths(self.log).table}/")
            history = part is FileRole.MANIFEST and place.where is StorageTier.STORE
            # `clean` finds segments, and other files next to the table's, by itself.
            if not (beside or history or part is FileRole.SEGMENT):
                self.stores[place.where].delete([place.path])

    def _check_own_logs(self, manifests: Mapping[int, Manifest]) -> None:
        for snapshot in sorted(self.scope.asked & set(manifests)):
            found = check_delta_tables.own_logs(self.stores, manifests[snapshot], snapshot in self.scope.local)
            now = self._scope_now() if found else self.scope
            for damage in found:
                if snapshot in (now.local if damage.places[0].where is StorageTier.LOCAL else now.asked):
                    self.damage.append(self._repair_log(manifests[snapshot], damage))

    def _repair_log(self, manifest: Manifest, damage: Damage) -> Damage:
        if not self.asked.repair:
            return damage
        source, error = None, None
        try:
            source = check_delta_tables.repair_own_log(self.stores, manifest, damage)
        except TidefoldError as found:
            error = found
        left = check_delta_tables.own_logs(self.stores, manifest, damage.places[0].where is StorageTier.LOCAL)
        return _describe_repair(damage, {place for one in left for place in one.places}, source, error)

    def _check_published_table(self, manifests: Mapping[int, Manifest]) -> None:
        """Checks again if the ledger has changed meanwhile: the table may already show the next snapshot."""
        state = self.scope.state
        while found := check_delta_tables.check_published_table(self.pipeline.store, state, manifests):
            newest = self.pipeline.ledger(self.log).find()
            if newest is None or newest.version == state.version:
                self.damage += [found] if newest and set(found.snapshots) <= self.scope.asked else []
                return
            state = newest

    def _reporter(self, what: str) -> Tell:
        return lambda done, total: self.tell(what, done, total)


def _describe_repair(
    damage: Damage, again: set[StoredLocation], source: StoredLocation | None, error: TidefoldError | None
) -> Damage:
    """Returns the damage with its repair. It counts as repaired only if a second check finds the file intact."""
    if not set(damage.places) & again:
        return replace(damage, repaired=str(source or "another copy"))
    if error is None:
        return replace(damage, why="it is still damaged after the repair: the disk may be failing")
    return replace(damage, why=error.message, hint=error.hint)
