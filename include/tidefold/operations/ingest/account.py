"""Accounts for what was parsed, in offset order: every record of every file in one count.

Tasks parse files in parallel, and each knows only what the log had before. The account puts the files in order: changes
below the highest order of an earlier file were sent again, and get a floor. If a file must be read again with that
knowledge, it waits for another round; the results of the files behind it are kept until it is their turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations

import pyarrow.compute as pc

from tidefold.changelog.schema import count_changes
from tidefold.changelog.segment import at_least, read_change_set
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.log_state import LandedFileRecord, LogState, Position, TableSpec
from tidefold.domain.source_progress import LOADED, is_no_commit, list_streamed, name_partition, stream_at
from tidefold.domain.table.table_spec import ARRIVAL, COLUMNS, POSITION, POSTGRESQL, VERSION
from tidefold.errors import RefusedError, TidefoldError, from_wire
from tidefold.operations.ground.copied_files import find_used_up, may_come_again, read_name
from tidefold.operations.ingest.file_parts import join_parts
from tidefold.operations.ingest.parse import FileResult, Parsed
from tidefold.operations.ingest.stages import Accounted, Failed, Planned
from tidefold.sources.landing.plan import FileTask, limit_plan, plan_files
from tidefold.sources.landing.problems import FileProblem, report_late_dump
from tidefold.sources.records.accounting import COUNTING, Account
from tidefold.sources.records.stream_order import OrderPoint
from tidefold.storage import Store


def account_files(store: Store, parsed: Parsed, before: Accounted) -> Accounted | Failed:
    """Appends the files, each partition up to its first problem or to the first file that needs another round.

    The plan of the result has the files for the next round.
    """
    if parsed.error:
        return Failed(before, from_wire(parsed.error))
    planned, state, tasks = before.planned, before.state, before.planned.plan.take
    joined, apart = join_parts(store, parsed.files)
    results = _without_copies(planned, state, {**before.results, **joined})
    arrivals, problems, refused = list[IngestedFile](), list[FileProblem](), Counter(before.refused)
    waiting, again = set[int | str](), set[str]()
    for task in tasks:
        file = task.file
        if file.queue in waiting or (LOADED in waiting and all(one.code != "DUMP_LATE" for one in problems)):
            continue
        if file.name in apart:
            break  # Those behind it are numbered after it.
        result = results[file.name]
        outcome = _account_file(state, task, result, store)
        if isinstance(outcome, IngestedFile):
            arrivals.append(outcome)
            refused.update(result.account.refused if result.account else {})
            state = append(state, [outcome])
            problems += [result.problem] if result.problem else []
        elif outcome:
            problems.append(outcome)
        else:
            again.add(file.name)
        if result.problem or not isinstance(outcome, IngestedFile):
            waiting.add(file.queue)
    stopped = before.stopped | {t.file.queue for t in tasks if any(p.file == t.file.name for p in problems)}
    rest = [file for file in planned.listed.files if file.queue not in stopped]
    names = {file.name for file in rest}
    plan = plan_files(rest, planned.listed.endings, state)
    accounted = replace(
        before,
        planned=replace(planned, plan=plan if planned.bound is None else limit_plan(plan, planned.bound)),
        state=state,
        arrivals=(*before.arrivals, *arrivals),
        problems=(*before.problems, *(p for p in planned.plan.problems if p.file not in names), *problems),
        stopped=stopped,
        refused=dict(sorted(refused.items())),
        results={name: one for name, one in results.items() if name not in again},
        no_copies=(*before.no_copies, *parsed.no_copies),
        uploads=before.uploads + parsed.uploads,
        whole=before.whole | apart,
    )
    error = _check_clears(before.listed.begun, results, arrivals) or _check_early(state)
    return Failed(accounted, error) if error else accounted


def _account_file(
    state: LogState, task: FileTask, result: FileResult, store: Store
) -> IngestedFile | FileProblem | None:
    """Returns what the log gets of a file, or why nothing; None: the file must be read again."""
    position, account = _position(state, task), result.account
    if _is_early_stop(result, position):
        return None
    if account is None:
        return result.problem
    is_load = task.file.partition == LOADED
    if _is_late_dump(state, account) or (is_load and is_late_load(state, account.stream.max_order)):
        return report_late_dump(task.file.name, state.log)
    if needs_another_look(result, account, position, state.shape):
        return None
    return _arrival(task, result, account, position, store)


def _check_clears(
    begun: LogState, results: Mapping[str, FileResult], arrivals: Sequence[IngestedFile]
) -> TidefoldError | None:
    """Returns an error if a file empties the table after later changes of another partition were ingested.

    Those changes may be folded already, and tidefold cannot tell which rows they made.
    """
    for arrival in arrivals:
        account, landed, change_set = results[arrival.landed.name].account, arrival.landed, arrival.change_set
        if not (account and account.cleared and change_set and account.cleared >= (change_set.floor or ())):
            continue
        ahead = [p for p in begun.positions if p.partition != landed.partition and p.stream.max_order > account.cleared]
        if ahead:
            return RefusedError(
                "TABLE_EVENT",
                f"Log `{begun.log}`: `{landed.name}` empties the table, by a truncate or a new snapshot. Later "
                f"changes of partition {name_partition(ahead[0].partition)} were ingested before. This run ingested "
                "nothing.",
                hint="If all landed files still exist, `tidefold retain drop LOG` and then `tidefold step ingest LOG` "
                "ingest them in the right order. Use a topic with one partition to avoid this.",
            )
    return None


def _check_early(state: LogState) -> TidefoldError | None:
    """Returns an error if no record shows whether events came before a snapshot that replaced the rows."""
    for one, other in permutations(state.positions, 2):
        base, event, *more = stream_at(state.positions, one.partition).early or (0, 0)
        if event and base < other.stream.replaced < (max(more, default=0) or 2**63):
            mine, theirs = name_partition(one.partition), name_partition(other.partition)
            return RefusedError(
                "TABLE_EVENT",
                f"Log `{state.log}`: partition {mine} has no row of the new snapshot in {theirs}, "
                "but changes of a transaction that may have been open meanwhile. This run ingested nothing.",
                hint="Let Debezium write into a new topic with one partition, and start the log again from there.",
            )
    return None


def _without_copies(planned: Planned, state: LogState, results: Mapping[str, FileResult]) -> dict[str, FileResult]:
    """Returns the results. If all bytes of a file without offsets were ingested before, its records are repeated.

    A file with refused records may land again after the configuration was corrected, unless its other records would
    count twice. If the time in a name orders the rows, the same bytes at another time are something new. In other
    folders they are, too, if columns are read from the names of folders.
    """
    new = [t for t in planned.plan.take if t.file.is_numbered and not t.begin and t.file.name in results]
    read = partial(read_name, planned.listed.feed, new[0].file.names if new else None)
    taken = {(e.checksum, e.length, read(e.name)) for e in find_used_up(state)} if new else set()
    left = dict(results)
    for task in new:
        result = results[task.file.name]
        account, content = result.account, (result.checksum, task.until, read(task.file.name))
        if account and content in taken:
            account = Account(records=account.records, repeated=account.records, stream=account.stream)
            left[task.file.name] = replace(result, account=account, written=None, quarantine=None, more=())
        elif account and not may_come_again(state, sum(account.refused.values()), account.changes):
            taken.add(content)
    return left


def _is_late_dump(state: LogState, account: Account) -> bool:
    """Whether the changes of a file are older than every change of a source, and a snapshot may have newer rows.

    A snapshot has no positions of its rows: a later change of a key replaces its row, whatever its position.
    """
    snapshot = state.latest or state.open_attempt
    highest = account.stream.max_order
    by_source = state.shape.order not in (ARRIVAL, POSITION, VERSION, COLUMNS)
    load = account.changes > 0 and account.snapshot is None and bool(highest) and not any(highest)
    return snapshot is not None and by_source and load


def is_late_load(state: LogState, order: OrderPoint) -> bool:
    """Whether the log has changes that rows at this place of the source must come before.

    They were ingested without knowing of the rows. Those at place 0 may still come before the first snapshot.
    """
    if not any(order):
        return bool(state.latest or state.open_attempt)
    return any(one.stream.max_order > order for one in list_streamed(state.positions))


def _is_early_stop(result: FileResult, position: Position) -> bool:
    """Whether the record that stopped the log may have been sent before, which its reader could not know."""
    return result.problem is not None and result.problem.stops and result.stream.max_order != position.stream.max_order


def needs_another_look(result: FileResult, account: Account, position: Position, shape: TableSpec) -> bool:
    """Whether an earlier file of the same run changes how this one must be read."""
    moved = result.next_offset < position.next_offset
    if moved and account.lowest is not None and account.lowest < position.next_offset:
        return True  # Offsets overlap.
    if not {*position.stream.columns}.isdisjoint(account.lacked):
        return True  # An earlier file has brought a column that records of this one lack: it was dropped.
    # Rows of an initial snapshot after other records: is it the same snapshot?
    high, read_with = position.stream.max_order, result.stream.max_order
    if high and high != read_with and account.snapshot is not None and account.snapshot != high:
        return True
    # Its reader must know the highest order to decide whether a refused record was sent before.
    lowest = min((one for one in (account.low, account.refused_low) if one is not None), default=None)
    if account.refused_low is not None and high != read_with and (lowest or ()) < high:
        return True
    # What came before records that know of no commit decides their order.
    if shape.order == POSTGRESQL and high != read_with:
        early, low = position.stream.early, lowest or ()
        # Without rows of a snapshot before them, their order is that of the events.
        bases = {() if one[2:3] == (0,) else one[:1] for one in (early, result.stream.early)}
        is_moved = account.is_early and (low < high or len(bases) > 1)
        if is_moved or (low[:1] != high[:1] and low and is_no_commit(low[0], early, high)):
            return True
    # Which of equal records came again depends on how many there were. Those that did have no part in `lowest`.
    uncertain = shape.merge.engine in COUNTING and result.stream.counted != position.stream.counted
    return uncertain and (lowest is None or lowest <= high or account.resent > 0)


def _position(state: LogState, task: FileTask) -> Position:
    file = task.file
    positions = (p for p in state.positions if (p.topic, p.partition) == (file.topic, file.partition))
    stored = next(positions, Position(file.topic, file.partition, 0))
    return replace(stored, stream=stream_at(state.positions, file.partition))


def _arrival(
    task: FileTask, result: FileResult, account: Account, before: Position, store: Store
) -> IngestedFile | None:
    """None if records that look re-sent may be new: then the reader must know what came before."""
    former, stream = before.stream, account.stream.after(before.stream)
    floor = former.max_order if account.low is not None and account.low < former.max_order else None
    change_set = result.written.change_set(stream.max_order, floor) if result.written else None
    changes = account.changes if change_set else 0
    if change_set and floor is not None:
        whole, above = read_change_set(store, replace(change_set, floor=None)), at_least(floor)
        kept, dropped = whole.filter(above), pc.max(whole.filter(~above).column("_ts")).as_py()
        # A record has one offset, even if it became several rows.
        changes = pc.count_distinct(kept.column("_offset")).as_py()
        rows = count_changes(kept)
        change_set = replace(change_set, rows=rows) if rows else None
        if former.max_commit_time is not None and dropped is not None and dropped > former.max_commit_time:
            return None
    # A file without new offsets takes an empty interval at the partition's position.
    stand = before.next_offset or task.file.start
    first = stand if account.first is None else account.first
    end = first if account.last is None else account.last + 1
    landed = replace(_build_record(task, result, account, changes), first_offset=first, next_offset=end)
    more = tuple(one.change_set(stream.max_order) for one in result.more)
    return IngestedFile(landed, change_set, replace(before, next_offset=end, stream=stream), task.file.names, more)


def _build_record(task: FileTask, result: FileResult, account: Account, changes: int) -> LandedFileRecord:
    """The record of a file; its offsets and its number are not yet known."""
    quarantined = sum(account.refused.values())
    return LandedFileRecord(
        number=0,
        name=task.file.name,
        length=task.until,
        checksum=result.checksum,
        topic=task.file.topic,
        partition=task.file.partition,
        records=account.records,
        changes=changes,
        tombstones=account.tombstones,
        repeated=account.repeated,
        resent=account.resent + account.changes - changes,
        unproved=account.unproved,
        forgotten=account.forgotten,
        quarantined=quarantined,
        ignored=account.ignored,
        quarantine=result.quarantine if quarantined else None,
        changed=task.file.stamp.changed,
        etag=task.file.stamp.etag,
        complete=result.problem is None and task.most is None,
        truncates=account.truncates if changes else 0,
        key_changes=account.awaiting,
    )
