"""What goes on in the world: each process is a generator that gives up control between its calls, as the program's
operations may be stopped or overtaken there. The moves and the plans are the program's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec
import pyarrow as pa

from model.oracle import Changes
from model.world import INSTANT, SHAPE, Pick, Process, World
from support.segments import write_segment
from tidefold.changelog import write_intents
from tidefold.changelog.schema import UPSERT
from tidefold.changelog.segment import WrittenChangeSet
from tidefold.changelog.write_intents import Intent, IntentLog, Taking
from tidefold.delta.publish import provide_new_files
from tidefold.domain.commit_times import CommitTimeRange, merge_ranges
from tidefold.domain.ingest.append import IngestedFile, append, expect_positions, require_fence
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet, LandedFileRecord, LogState, Position, Snapshot, SnapshotKind, State
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.retention import log_bounds
from tidefold.domain.snapshot import claim, point_in_time, transitions
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import NO_PROGRESS, StreamPosition
from tidefold.errors import ConflictError, CorruptError, NotFoundError, RefusedError
from tidefold.fold.inputs import SourcePlaces
from tidefold.fold.plan import FoldTask
from tidefold.fold.plan_fold import plan_fold
from tidefold.ledger import Ledger, read_manifest, write_manifest
from tidefold.operations.ground import recovery
from tidefold.operations.ground.sweep import plan_forgotten, plan_sweep
from tidefold.operations.retention.subsume import find_files_to_delete
from tidefold.operations.retention.truncate import SegmentUse, plan_release

_TABLE = pa.table({"_kg": pa.array([0], pa.int32()), "_op": pa.array([UPSERT], pa.int8())})
Plan = dict[str, list[Changes]]


def ingest(world: World, plan: Plan, partition: int) -> Process:
    """Announces a segment for some logs, writes it, says what it brings, tells every log, ends."""
    run = f"run{world.number()}"
    segment = f"changelog/day/{run}.seg"
    begun = {log: Ledger(world.store, log).peek(SHAPE) for log in plan}
    logs = tuple(IntentLog(log, SHAPE, state.fence) for log, state in begun.items())
    write_intents.begin(world.store, Intent(run, 0, INSTANT, logs, (segment,)))
    yield
    written = iter(_write(world, segment, plan))
    arrivals = {log: _arrivals(state, plan[log], partition, written, segment) for log, state in begun.items()}
    for log, brought in arrivals.items():
        if places := tuple((segment, a.change_set.location.ordinal) for a in brought if a.change_set):
            world.takings[log].append(places)
    yield
    takings = [
        Taking(log, SHAPE, state.fence, expect_positions(state, arrivals[log]), arrivals[log])
        for log, state in begun.items()
    ]
    write_intents.bring(world.store, run, takings)
    for taking in takings:
        yield
        _tell(world, taking)
    yield
    recovery.end_run(world.store, run, plan, (segment,))


def persist(world: World, plan: Plan, name: int) -> Process:
    """A log writer: its segment is durable at once, and its change sets are appended one by one, much later. `name` is
    the partition that it counts for itself; another writer may have taken the same.
    """
    run = f"run{world.number()}"
    segment = f"changelog/day/{run}.seg"
    begun = {log: Ledger(world.store, log).peek(SHAPE) for log in plan}
    logs = tuple(IntentLog(log, SHAPE, state.fence) for log, state in begun.items())
    write_intents.begin(world.store, Intent(run, 0, INSTANT, logs, (segment,)))
    yield
    written = iter(_write(world, segment, plan))
    arrivals = [(log, a) for log, s in begun.items() for a in _arrivals(s, plan[log], name, written, segment)]
    confirmed = False
    for log, arrival in arrivals:
        yield
        confirmed = _append(world, log, arrival, begun[log].fence) or confirmed
    yield
    if not confirmed:
        world.store.delete([segment])
    write_intents.end(world.store, run)


def _append(world: World, log: str, arrival: IngestedFile, fence: int) -> bool:
    Ledger(world.store, log).begin(SHAPE)
    try:
        world.commit(log, lambda state: append(state, [arrival], fence))
    except (RefusedError, ConflictError) as error:
        world.effects[f"refused: {error.code}"] += 1
        return False
    world.effects["a writer appended"] += 1
    return True


def _write(world: World, segment: str, plan: Plan) -> list[WrittenChangeSet]:
    parts = [(log, changes) for log in sorted(plan) for changes in plan[log] if changes]
    if not parts:
        return []
    if len(plan) > 1:
        world.effects["two logs shared a segment"] += 1
    for ordinal, (log, changes) in enumerate(parts):
        world.written[segment, ordinal] = (log, changes)
    return write_segment(world.store, segment, [(log, _TABLE) for log, _ in parts])


def _arrivals(
    state: LogState, files: Sequence[Changes], partition: int, written: Sequence[WrittenChangeSet], segment: str
) -> tuple[IngestedFile, ...]:
    first = next((p.next_offset for p in state.positions if p.partition == partition), 0)
    arrivals = []
    for offset, changes in enumerate(files, first):
        name = f"{state.log}+{partition}+{offset:010d}.jsonl"
        count = len(changes)
        landed = LandedFileRecord(
            0, name, 100, segment, state.log, partition, offset, offset + 1, count, count, 0, 0, 0, 0, None
        )
        change_set = _change_set(segment, next(written)) if changes else None
        arrivals.append(
            IngestedFile(landed, change_set, Position(state.log, partition, offset + 1, StreamPosition((0, offset))))
        )
    return tuple(arrivals)


def _change_set(segment: str, one: WrittenChangeSet) -> ChangeSet:
    """Committed at one instant, which tells nothing of when it comes."""
    at = committed_at(segment, one.location.ordinal)
    return replace(one.change_set((0,)), times=CommitTimeRange(at, at))


def committed_at(segment: str, ordinal: int) -> int:
    """An instant from 1 to 9, always the same."""
    return 1 + int(hashlib.sha256(f"{segment}#{ordinal}".encode()).hexdigest()[:8], 16) % 9


def _tell(world: World, taking: Taking) -> None:
    before = world.read(taking.log)
    try:
        recovery.commit_ingest(Ledger(world.store, taking.log), taking)
    except (RefusedError, ConflictError) as error:
        world.effects[f"refused: {error.code}"] += 1
        return
    finally:
        world.observe(taking.log)
    told = world.read(taking.log)
    recovery.commit_ingest(Ledger(world.store, taking.log), taking)
    assert world.read(taking.log) == told, "told twice"
    if told == before and any(a.change_set for a in taking.arrivals):
        world.effects["a log was told for the writer before"] += 1


def end_announced(world: World, pick: Pick) -> Process:
    """Rolls forward what a run announced, or gives it up, while the run may still live."""
    found = list(write_intents.read_announced(world.store))
    if found:
        run = pick(found)
        world.effects["a run was rolled forward" if run.takings is not None else "a run was given up"] += 1
        recovery.recover_run(world.store, run)
    yield


def materialize(world: World, log: str, asked: claim.Claim, at: int | None = None) -> Process:
    """Claims, plans, writes, stages; with `at` a snapshot as of an instant."""
    if world.read(log) is None:
        return
    world.asked[log].append(asked)
    asked = replace(asked, token=f"{world.number():08x}")
    move = partial(claim.claim, request=asked) if at is None else partial(point_in_time.claim, request=asked, at=at)
    state = world.commit(log, move, repeat=False)
    mine = claim.find_by_run(state, asked.run)
    if mine is None or mine.state is not State.ONGOING:
        return
    yield
    try:
        tasks, base = _planned(world, log, mine)
        yield
        file = _fold(world, log, mine, tasks, base)
    except (NotFoundError, CorruptError, RefusedError):
        world.require_superseded(log, mine.id)
        return
    yield
    files = (file,) if file else ()
    what = (log, mine.id, mine.epoch, SnapshotKind.FULL, mine.base, mine.from_sqn, mine.to_sqn, SHAPE, files)
    manifest = Manifest(*what, NO_PROGRESS, token=mine.token)
    try:
        if at is None:
            provide_new_files(world.store, manifest)
    except CorruptError:
        world.require_superseded(log, mine.id)
        return
    digest = write_manifest(world.store, manifest)
    yield
    world.commit(log, partial(transitions.stage, manifest=manifest, digest=digest))


def _planned(world: World, log: str, mine: Snapshot) -> tuple[tuple[FoldTask, ...], Manifest | None]:
    state = world.read(log)
    assert state
    source = state.snapshot(mine.parent) if mine.parent is not None else None
    base = read_manifest(world.store, log, source) if source else None
    return plan_fold(state, mine, base, state.shape, SourcePlaces("")), base


def _fold(world: World, log: str, mine: Snapshot, tasks: Sequence[FoldTask], base: Manifest | None) -> DataFile | None:
    """The one file of the snapshot: taken over when nothing is to be folded."""
    folder = LogPaths(log).snapshot(mine.id)
    changes = [world.content(c) for task in tasks for c in task.change_sets(task.recipes[0])]
    if not changes and base:
        for file in base.files:
            world.store.link(data_path(LogPaths(log).snapshot(base.snapshot), file.name), data_path(folder, file.name))
        return replace(base.files[0], carried=True) if base.files else None
    rows: dict[int, str | None] = dict(world.rows(log, base))
    for one in changes:
        rows.update(one)
    kept = {key: value for key, value in rows.items() if value is not None}
    if not kept:
        return None
    data = msgspec.json.encode(kept)
    span = KeyGroups(0, 0)
    name = str(DataFileName(span, mine.id, mine.epoch, f"{world.number():032x}", mine.token))
    world.store.put_if_absent(data_path(folder, name), data)
    return DataFile(name, len(data), len(kept), "00", span, "{}")


def publish(world: World, log: str) -> Process:
    """Shows the newest completed snapshot to readers, then records it."""
    state = world.read(log)
    latest = state.latest if state else None
    if latest is None or latest.published:
        return
    manifest = read_manifest(world.store, log, latest)
    yield
    paths, table = LogPaths(log), world.tables[log]
    entry = (latest.id, latest.manifest or "")
    if entry not in table:
        for file in manifest.files:
            source = data_path(paths.snapshot(latest.id), file.name)
            world.store.link(source, data_path(paths.table, file.name))
        shown = [s.id for s in (world.read(log) or state).snapshots if s.published]
        assert [number for number, _ in table] == shown, "the table shows more than the ledger knows"
        table.append(entry)
    else:
        world.effects["found published by another"] += 1
    yield
    world.commit(log, partial(transitions.record_publication, snapshot_id=latest.id, table_version=table.index(entry)))


def take_tail(world: World, log: str, run: str) -> Process:
    if world.read(log) is not None:
        asked = claim.Claim(run, "tail", SnapshotKind.TAIL, INSTANT)
        world.commit(log, partial(claim.tail, request=asked))
    yield


def subsume(world: World, log: str) -> Process:
    if world.keep is None or world.read(log) is None:
        return
    state = world.commit(log, partial(log_bounds.subsume, keep=world.keep))
    retired = log_bounds.deletable(state, world.grace, INSTANT)
    yield
    going = [entry.path for entry in find_files_to_delete(world.store, state, retired)]
    yield
    world.store.delete(going)
    yield
    world.commit(log, partial(log_bounds.mark_deleted, snapshots=[s.id for s in retired]))


def truncate(world: World, log: str) -> Process:
    if world.read(log) is None:
        return
    state = world.commit(log, partial(log_bounds.truncate, keep=world.keep))
    yield
    released = plan_release(SegmentUse(world.store), state)
    yield
    world.store.delete([entry.path for entry in released.unneeded])
    if released.unneeded:
        world.effects["segments were deleted"] += 1
    if set(released.settled) - {entry.path for entry in released.unneeded}:
        world.effects["a shared segment was left to the other log"] += 1
    yield
    world.commit(log, partial(log_bounds.forget_garbage, paths=released.settled))


def sweep(world: World, log: str) -> Process:
    state = world.read(log)
    if state is None:
        return
    going = [*plan_sweep(world.store, state), *plan_forgotten(world.store, state)]
    yield
    world.store.delete(going)


def squash(world: World, log: str, pick: Pick) -> Process:
    state = world.read(log)
    runs = log_bounds.find_compactable_runs(state) if state else ()
    if state is None or not runs:
        return
    chosen, run = pick(runs), f"run{world.number()}"
    path = f"changelog/day/{run}.seg"
    write_intents.begin(world.store, Intent(run, 0, INSTANT, (IntentLog(log, SHAPE, state.fence),), (path,)))
    yield
    try:
        merged: dict[int, str | None] = {}
        for change_set in chosen:
            merged.update(world.content(change_set))
    except NotFoundError:
        now = world.read(log)
        assert now
        assert not set(chosen) <= set(now.change_sets), "what is to be squashed was removed"
        return
    [part] = write_segment(world.store, path, [(log, _TABLE)])
    world.written[path, 0] = (log, merged)
    times = merge_ranges(one.times for one in chosen)
    squashed = replace(_change_set(path, part), sqn=chosen[-1].sqn, high=chosen[-1].high, first=chosen[0].begin)
    squashed = replace(squashed, times=times)
    yield
    try:
        world.commit(log, partial(_replaced, fence=state.fence, squashed=squashed))
    except (RefusedError, ConflictError):
        recovery.end_run(world.store, run, [log], (path,))
        raise
    yield
    recovery.end_run(world.store, run, [log], (path,))


def _replaced(state: LogState, fence: int, squashed: ChangeSet) -> LogState:
    require_fence(state, fence)
    return log_bounds.compact(state, squashed)
