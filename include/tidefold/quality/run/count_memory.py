"""What a gate takes over from the counts of its base, and what it counts: decision 0065. Pure, except for the file.

A count of single rows belongs to a file, duplicates of a key to the files that share its key groups.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from importlib.metadata import version
from typing import Any

import msgspec
import numpy as np

from tidefold import __version__
from tidefold.delta.deletion_vectors import Places, places
from tidefold.domain.log_state import TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import AlreadyExistsError, CorruptError, TidefoldError
from tidefold.quality.run.cost import Reuse
from tidefold.quality.run.counts import ALL, Count
from tidefold.storage import Store
from tidefold.typed_json import decode_json

_log = logging.getLogger(__name__)
# Rows that a gate counts again: a part of all, as a scrub reads a twentieth of the bytes; of a large table not more
# than these or than those that changed, so that the cost follows the change.
_TURNS, _LEAST_ROWS = 20, 200_000
_FORMAT = 5
# How the name of a file with counts begins.
COUNTS = "counts-"
_LIBRARIES = ("duckdb", "pyarrow")
# How a value of a condition comes back from its text.
_PARSE: dict[str, Callable[[str], Any]] = {
    "int": int, "float": float, "str": str, "bool": "True".__eq__, "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}  # fmt: skip
# The numbers of some counts, in order.
Counts = tuple[int, ...]


def imply_count(count: Count, before: int, rows: int, gone: int) -> int | None:
    """Returns how many of the rows that left count: none if none of the former did, all if all did; None: unknown.

    A count of all rows is never taken for none: so a stored one that is wrong is noticed.
    """
    return gone if before == rows else None if before or count == ALL else 0


def key_of(counts: Sequence[Count], shape: TableSpec) -> str:
    """Returns the digest of all that counts depend on, besides the files."""
    made = [_FORMAT, __version__, *map(version, _LIBRARIES), shape, [(c.where, c.values, c.same) for c in counts]]
    return hashlib.sha256(repr(made).encode()).hexdigest()


class StoredCount(msgspec.Struct, frozen=True, array_like=True):
    """A `Count` as stored: its values as texts, each after its kind."""

    where: str
    values: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    same: tuple[str, ...]

    @classmethod
    def of(cls, count: Count) -> StoredCount:
        values = tuple(zip(count.kinds, map(str, count.values), strict=True))
        return cls(count.where, values, tuple(sorted(count.columns)), count.same)

    @property
    def count(self) -> Count:
        values = tuple(_PARSE[kind](text) for kind, text in self.values)
        return Count(self.where, values, frozenset(self.columns), self.same)


class ShareCounts(msgspec.Struct, frozen=True, array_like=True):
    """The counts of files that have key groups in common: of each by its identity, and of duplicates in all."""

    files: tuple[tuple[str, Counts], ...]
    duplicates: Counts


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """Where on the ring of buckets the recount goes on.

    group: of the key groups from here on the first files are next.
    rows: how many rows judgements were allowed to count again, and did not: whole buckets only.
    """

    group: int = 0
    rows: int = 0


class StoredCounts(msgspec.Struct, frozen=True):
    """The counts of a snapshot.

    key: see `key_of`.
    turn: of the next judgement.
    asked: what was counted.
    """

    key: str
    snapshot: int
    turn: Turn
    shares: tuple[ShareCounts, ...]
    asked: tuple[StoredCount, ...] = ()


# The counts of a snapshot with its manifest.
Recalled = tuple[StoredCounts, Manifest]


def encode_counts(stored: StoredCounts) -> bytes:
    """Returns the counts as stored, after their checksum."""
    data = msgspec.json.encode(stored)
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def decode_counts(data: bytes) -> StoredCounts:
    """Raises CorruptError if they are not as they were stored."""
    digest, _, counts = data.partition(b"\n")
    if digest != hashlib.sha256(counts).hexdigest().encode():
        raise CorruptError("CHECKSUM", "The stored counts were altered.")
    return decode_json(counts, StoredCounts)


def identify(file: DataFile) -> str:
    """Returns what the rows of a file follow from. Empty: its bytes have no checksum."""
    vector = hashlib.sha256(file.deletions.vector.encode()).hexdigest() if file.deletions else ""
    return f"{_name_bytes(file)}:{vector}" if file.sha256 else ""


def _name_bytes(file: DataFile) -> str:
    return f"{file.sha256}:{file.key_groups.first}-{file.key_groups.last}"


@dataclass(frozen=True, slots=True)
class FileWork:
    """What is to be read of a file.

    whole: all rows; else the columns of the key if its share needs them.
    before: its counts when the rows `gone` were still there.
    share: the number of its share in the stored counts.
    implied: the counts of the rows `gone`, as far as `before` tells them.
    """

    file: DataFile
    whole: bool = True
    before: Counts | None = None
    gone: Places = field(default_factory=lambda: np.empty(0, np.uint64))
    share: int | None = None
    implied: tuple[int | None, ...] = ()

    @property
    def unknown(self) -> tuple[int, ...]:
        """The numbers of the counts for which the rows `gone` are read."""
        return tuple(number for number, count in enumerate(self.implied) if count is None)


@dataclass(frozen=True, slots=True)
class ShareWork:
    """What is to be read of files that have key groups in common.

    clean: the counts of no duplicate, if all kept files come from one share without any: then any has a new row.
    again: it is this share's turn to be counted though its counts are there.
    """

    files: tuple[FileWork, ...]
    clean: Counts | None = None
    again: bool = False

    @property
    def fresh(self) -> tuple[int, ...]:
        """The numbers of the files without former counts."""
        return tuple(number for number, one in enumerate(self.files) if one.before is None)

    @property
    def is_idle(self) -> bool:
        return not self.reads_keys and not any(one.unknown for one in self.files)

    @property
    def is_plain(self) -> bool:
        """Whether only its new files are read in full, and no key is there twice unless a new row has it."""
        return bool(self.fresh) and self.clean is not None and not (self.again or any(o.unknown for o in self.files))

    @property
    def reads_keys(self) -> bool:
        """Whether the keys of all files are read. Without new rows, files without duplicates have none."""
        return self.again or bool(self.fresh) or self.clean is None


def plan_recount(
    shares: Sequence[Sequence[DataFile]], stored: StoredCounts, manifest: Manifest, names: Container[str]
) -> tuple[ShareWork, ...]:
    """Returns what is to be read to prove the stored counts of a snapshot for shares whose largest file is named."""
    chosen = [files for files in shares if max(files, key=lambda file: file.bytes).name in names]
    works, _ = plan_counts(chosen, (stored, manifest), [one.count for one in stored.asked if not one.same])
    return tuple(map(_read_whole, works))


def plan_counts(
    shares: Sequence[Sequence[DataFile]], recalled: Recalled | None, counts: Sequence[Count]
) -> tuple[tuple[ShareWork, ...], Turn]:
    """Returns what is to be read of each share, and the turn of the next judgement. `recalled`: of the same counts."""
    if recalled is None:
        return tuple(ShareWork(tuple(map(FileWork, files))) for files in shares), Turn()
    stored, base = recalled
    counted = {id_: (n, counts) for n, share in enumerate(stored.shares) for id_, counts in share.files if id_}
    former = {_name_bytes(f): (f, *counted[identify(f)]) for f in base.shown if identify(f) in counted}

    def plan(files: Sequence[DataFile]) -> ShareWork:
        # Equal bytes twice: each of their keys is there twice.
        if len({_name_bytes(file) for file in files}) < len(files) or not all(file.sha256 for file in files):
            return ShareWork(tuple(map(FileWork, files)))
        works = [_plan_file(file, former.get(_name_bytes(file)), counts) for file in files]
        origins = {one.share for one in works if one.share is not None}
        clean = [counts for counts in (stored.shares[n].duplicates for n in origins) if not any(counts)]
        return ShareWork(tuple(works), clean[0] if len(origins) == len(clean) == 1 else None)

    works = tuple(map(plan, shares))
    turns, turn = _find_turns(shares, stored.turn, _allow_rows(works))
    return tuple(_read_whole(work) if number in turns else work for number, work in enumerate(works)), turn


def _read_whole(work: ShareWork) -> ShareWork:
    """Returns the work of a share that has its turn: nothing else if no count of it is taken over."""
    if all(one.before is None for one in work.files):
        return work
    return replace(work, files=tuple(replace(one, whole=True) for one in work.files), again=True)


def _plan_file(file: DataFile, former: tuple[DataFile, int, Counts] | None, counts: Sequence[Count]) -> FileWork:
    if former is None:
        return FileWork(file)
    old, share, counted = former
    before, now = places(old.deletions), places(file.deletions)
    # Rows that came back would have to be added.
    if len(np.setdiff1d(before, now, assume_unique=True)):
        return FileWork(file)
    gone = np.setdiff1d(now, before, assume_unique=True)
    pairs = zip(counts, counted, strict=True)
    implied = tuple(imply_count(count, before, old.rows, len(gone)) if len(gone) else 0 for count, before in pairs)
    return FileWork(file, False, counted, gone, share, implied)


def _allow_rows(works: Iterable[ShareWork]) -> int:
    """Returns how many rows one judgement may count again."""
    files = [one for work in works for one in work.files]
    changed = sum(one.file.rows if one.before is None else len(one.gone) for one in files)
    return min(-(-sum(one.file.rows for one in files) // _TURNS), max(_LEAST_ROWS, changed))


def _find_turns(shares: Sequence[Sequence[DataFile]], turn: Turn, allowed: int) -> tuple[set[int], Turn]:
    """Returns the numbers of the shares that are counted again, and the next turn: each share as soon as its rows are
    allowed, in the order of key groups.
    """
    firsts = [min(file.key_groups.first for file in files) for files in shares]
    order = sorted(range(len(shares)), key=lambda number: (firsts[number] < turn.group, firsts[number]))
    turns, rows = set[int](), turn.rows + allowed
    for number in order:
        if (size := sum(file.rows for file in shares[number])) > rows:
            return turns, Turn(firsts[number], rows)
        turns.add(number)
        rows -= size
    return turns, Turn(turn.group)


class ShareAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What a task counted in a share. None: it was not read.

    whole, gone: of each file, of all rows, and of those that left what is not implied.
    duplicates: among all rows. joined: among rows whose key a new row has.
    """

    whole: tuple[Counts | None, ...]
    gone: tuple[Counts | None, ...]
    duplicates: Counts | None = None
    joined: Counts | None = None


class CountsDifferError(Exception):
    """Counts that were taken over are not those of the rows."""


def combine(work: ShareWork, answer: ShareAnswer | None) -> ShareCounts:
    """Returns the counts of a share. Raises CountsDifferError.

    answer: None: nothing of it was read.
    """
    nothing = (None,) * len(work.files)
    answer = answer or ShareAnswer(nothing, nothing)
    files = tuple(
        (identify(one.file), _combine_file(one, whole, gone))
        for one, whole, gone in zip(work.files, answer.whole, answer.gone, strict=True)
    )
    views = [one for one in (answer.duplicates, answer.joined) if one is not None]
    if any(one != views[0] for one in views):
        raise CountsDifferError(f"duplicates in the files of `{work.files[0].file.name}`")
    return ShareCounts(files, views[0] if views else work.clean or ())


def _combine_file(work: FileWork, whole: Counts | None, gone: Counts | None) -> Counts:
    if work.before is None:
        assert whole is not None
        return whole
    counted = iter(gone or ())
    left = tuple(
        before - (next(counted) if implied is None else implied)
        for before, implied in zip(work.before, work.implied, strict=True)
    )
    if any(count < 0 for count in left) or (whole is not None and whole != left):
        raise CountsDifferError(f"rows of `{work.file.name}`")
    return left


def add_counts(counts: Iterable[Counts]) -> Counts:
    """Returns the sums."""
    return tuple(map(sum, zip(*counts, strict=True)))


def measure_reuse(works: Sequence[ShareWork], recalled: Recalled | None) -> Reuse:
    """Returns what was read and taken over, in rows."""
    files = [one for work in works for one in work.files]
    keys = sum(one.file.rows for work in works if work.reads_keys for one in work.files)
    rows, whole = sum(one.file.rows for one in files), sum(one.file.rows for one in files if one.whole)
    gone = sum(len(one.gone) for one in files if one.unknown)
    return Reuse(whole + gone, rows - whole, keys, rows - keys, recalled[0].snapshot if recalled else None)


@dataclass(slots=True)
class CountMemory:
    """The stored counts around one judgement.

    read_base: returns the manifest of the base; None: everything is read.
    counts, reuse: what the judgement made.
    """

    store: Store
    log: str
    snapshot: int
    base: int | None = None
    read_base: Callable[[], Manifest] | None = None
    counts: StoredCounts | None = None
    reuse: Reuse | None = None

    def recall(self, key: str) -> Recalled | None:
        """Returns the counts of the base and its manifest. Without a usable file everything is read."""
        if self.base is None or self.read_base is None:
            return None
        try:
            stored = decode_counts(self.store.read(self._path(self.base, key)))
            return (stored, self.read_base()) if stored.key == key else None
        except (TidefoldError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.info("counts of snapshot %d of %s are not taken over: %s", self.base, self.log, error)
            return None

    def keep(self) -> None:
        """Stores the counts of this judgement for the next one, and drops those of the base that are wrong.

        Not before the verdict is stored: else a retry would not find what is wrong.
        """
        if self.counts is None:
            return
        with suppress(AlreadyExistsError):
            self.store.put_if_absent(self._path(self.snapshot, self.counts.key), encode_counts(self.counts))
        if self.base is not None and self.reuse and self.reuse.differs:
            self.store.delete([self._path(self.base, self.counts.key)])

    def _path(self, snapshot: int, key: str) -> str:
        return f"{LogPaths(self.log).quality(snapshot)}/{COUNTS}{key[:16]}"
