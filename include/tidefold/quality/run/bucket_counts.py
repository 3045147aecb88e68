"""Counts of bad rows on Spark: each task counts in a few buckets.

A count over all rows is the sum of the counts of disjoint shares of them.
Equal keys lie in one bucket, so duplicates of a key do, too: each task proves that its rows belong to its buckets.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from tidefold.compute.runners import Runner, in_process
from tidefold.delta.published_table import active_files
from tidefold.domain.log_state import SnapshotKind, TableSpec
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import CorruptError, TidefoldError
from tidefold.quality.run import count_memory
from tidefold.quality.run.cost import Reuse
from tidefold.quality.run.count_memory import CountMemory, ShareAnswer, StoredCount, StoredCounts, Turn
from tidefold.quality.run.count_task import JUDGE_AGAIN, BucketCounts, is_countable_key
from tidefold.quality.run.counts import Count, CountRows
from tidefold.storage import Store
from tidefold.storage.delta_tables import convert_errors, open_table
from tidefold.typed_json import decode_json

# A task takes several shares up to so many rows.
_TASK_ROWS = 500_000


def check_files(store: Store, manifest: Manifest) -> None:
    """Raises CorruptError unless manifest, staged Delta table and disk agree on every file's name and size."""
    folder = manifest.data_folder
    wanted = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.files}
    if manifest.kind is SnapshotKind.FULL:
        shown = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.shown}
        _compare(manifest, "its Delta table", shown, _active_files(store, folder))
    stored = {e.path.removeprefix(f"{folder}/"): e.bytes for e in store.list(data_path(folder, "").rstrip("/"))}
    # No reader reads other files next to those of the table: they are harmless garbage of a killed attempt.
    _compare(manifest, "the store", wanted, {path: size for path, size in stored.items() if path in wanted})


def _active_files(store: Store, folder: str) -> dict[str, int]:
    try:
        with convert_errors(folder):
            return active_files(open_table(store, folder))
    except CorruptError as error:
        message = f"The staged table `{folder}` cannot be read: {error.message}."
        raise CorruptError("STAGED_TABLE_UNREADABLE", message, hint=JUDGE_AGAIN) from error


def _compare(manifest: Manifest, where: str, wanted: dict[str, int], present: dict[str, int]) -> None:
    differing = sorted(path for path in wanted.keys() | present.keys() if wanted.get(path) != present.get(path))
    if differing:
        raise CorruptError(
            "STAGED_FILES_DIFFER",
            f"The manifest of snapshot {manifest.snapshot} of `{manifest.log}` and {where} differ in {len(differing)} "
            f"files. The first is `{differing[0]}`.",
            hint=JUDGE_AGAIN,
        )


def can_count(count: Count, shape: TableSpec) -> bool:
    """Whether a count is the sum over buckets. Other counts than those of duplicates always are."""
    return not count.same or (is_countable_key(shape) and set(shape.spread_key) <= set(count.same))


def group_files(manifest: Manifest) -> tuple[tuple[DataFile, ...], ...]:
    """Returns the files in shares that have no key group in common, the largest first."""
    shares: list[list[DataFile]] = []
    last = -1
    for file in sorted(manifest.shown, key=lambda f: (f.key_groups.first, f.key_groups.last)):
        if not shares or file.key_groups.first > last:
            shares.append([])
        shares[-1].append(file)
        last = max(last, file.key_groups.last)
    return tuple(sorted(map(tuple, shares), key=lambda share: -sum(file.bytes for file in share)))


def bucket_counter(address: str, manifest: Manifest, runner: Runner, memory: CountMemory | None = None) -> CountRows:
    """Returns what answers queries over the shown rows of a snapshot. It raises TidefoldError.

    memory: what is taken over from the base, and left for the next snapshot.
    """

    def count(counts: Sequence[Count]) -> list[int]:
        of_rows, of_keys = (tuple(c for c in counts if bool(c.same) is keys) for keys in (False, True))
        key = count_memory.key_of(counts, manifest.shape)
        recalled = memory.recall(key) if memory and manifest.rows else None
        files = group_files(manifest)

        def run(recalled: count_memory.Recalled | None) -> tuple[tuple[count_memory.ShareCounts, ...], Reuse, Turn]:
            works, turn = count_memory.plan_counts(files, recalled, of_rows)
            work = BucketCounts(address, manifest.data_folder, manifest.shape, works, of_rows, of_keys)
            return _count_shares(work, runner), count_memory.measure_reuse(works, recalled), turn

        try:
            shares, reuse, turn = run(recalled)
        except count_memory.CountsDifferError as error:
            assert memory is not None
            shares, reuse, turn = run(None)
            reuse = replace(reuse, snapshot=memory.base, differs=str(error))
        if memory:
            memory.reuse = reuse
            asked = tuple(map(StoredCount.of, counts))
            memory.counts = StoredCounts(key, manifest.snapshot, turn, shares, asked)
        rows = count_memory.add_counts(counts for share in shares for _, counts in share.files)
        keys = count_memory.add_counts(share.duplicates for share in shares)
        answered = dict(zip([*of_rows, *of_keys], [*rows, *keys], strict=True))
        return [answered[one] for one in counts]

    return count


def find_wrong_count(address: str, manifest: Manifest, stored: StoredCounts, names: Container[str]) -> str:
    """Counts the shares again whose largest file is named, and returns which stored count is wrong; empty: none is.

    Raises TidefoldError.
    """
    counts = [one.count for one in stored.asked]
    if stored.key != count_memory.key_of(counts, manifest.shape):
        return ""  # Of another version: no gate takes them over.
    works = count_memory.plan_recount(group_files(manifest), stored, manifest, names)
    of_rows, of_keys = (tuple(c for c in counts if bool(c.same) is keys) for keys in (False, True))
    try:
        _count_shares(BucketCounts(address, manifest.data_folder, manifest.shape, works, of_rows, of_keys), in_process)
    except count_memory.CountsDifferError as error:
        return str(error)
    return ""


def _count_shares(work: BucketCounts, runner: Runner) -> tuple[count_memory.ShareCounts, ...]:
    tasks = _group_shares(work)
    answers: dict[int, ShareAnswer] = {}
    for numbers, answer in zip(tasks, runner(work, [" ".join(map(str, task)) for task in tasks]), strict=True):
        if isinstance(answer, TidefoldError):
            raise answer
        answers |= zip(numbers, decode_json(answer, tuple[ShareAnswer, ...]), strict=True)
    return tuple(count_memory.combine(one, answers.get(number)) for number, one in enumerate(work.shares))


def _group_shares(work: BucketCounts) -> list[list[int]]:
    """Returns the numbers of the shares of each task: few of little work, because its database takes 30 ms of CPU."""
    tasks: list[list[int]] = []
    read = 0
    types = {column.name: column.type for column in work.shape.columns}
    # Keys alone take a part of the time, which is smaller if they are whole numbers.
    part = 40 if {types[name] for name in work.shape.spread_key} <= {"int", "long"} else 10
    for number, share in enumerate(work.shares):
        rows = sum(one.file.rows // (1 if one.whole else part) for one in share.files)
        if share.is_idle:
            continue
        if not tasks or read + rows > _TASK_ROWS:
            tasks.append([])
            read = 0
        tasks[-1].append(number)
        read += rows
    return tasks
