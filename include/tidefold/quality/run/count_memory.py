"""What a gate takes over from the counts of its base, and what it counts: decision 0065. Pure, except for the file.

A count of single rows belongs to a file, duplicates of a key to the files that share its key groups.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from tidefold.storage import Store
from tidefold.typed_json import decode_json

_log = logging.getLogger(__name__)
# One bucket in so many is counted again in each gate, as a scrub reads a twentieth of the bytes. Each has its turn.
_TURNS = 20
_FORMAT = 3
_LIBRARIES = ("duckdb", "great_expectations", "pyarrow", "sqlalchemy")
# The counts of a query, in order. None: there was no row to sum.
CountRow = tuple[int | None, ...]
# The counts of some queries.
Counts = tuple[CountRow, ...]
# What Great Expectations writes for the catalogue, with one mark for each name. Only these counts are subtracted.
_NAME = re.compile(r'"(?:[^"]|"")*"')
_SUM = re.compile(r'sum\(CASE WHEN \(((?:(?! THEN )[^\'])*)\) THEN \$(\d+) ELSE \$(\d+) END\) AS "')
_WORDS = frozenset(("AND", "NOT", "IS", "NULL", "IN", "regexp_matches"))
_ROWS = r'\(SELECT \* FROM tidefold_rows WHERE true\) AS "'
_FILLED = r'(?:" IS NOT NULL|NOT \(" IS NULL(?: AND " IS NULL)*\))'
_KEPT = rf'(?:{_ROWS}|\(SELECT \* FROM {_ROWS} WHERE {_FILLED}\) AS ")'
_ADDS = re.compile(rf'SELECT (?:count\(\*\) AS "|S(?:, S)*) FROM {_KEPT}')
_DUPLICATES = re.compile(
    r'SELECT "\." FROM \(SELECT sum\("\) AS " FROM \(SELECT CASE WHEN \((?:" IS NOT NULL AND )?"\." >= \$\d+\) '
    r'THEN CAST\(\$\d+ AS NUMERIC\) ELSE CAST\(\$\d+ AS NUMERIC\) END AS " '
    r'FROM \(SELECT (?:", )+count\(\*\) OVER \(PARTITION BY "(?:, ")*\) AS " '
    rf'FROM {_KEPT}\) AS "\) AS "\) AS "'
)


@dataclass(frozen=True, slots=True)
class Query:
    """A query that returns one row of counts.

    values: of its parameters.
    """

    sql: str
    values: tuple[Any, ...]


def adds_up(query: Query) -> bool:
    """Whether its counts are sums over single rows, so that counts of rows that left can be subtracted."""
    form = _form_of(query)
    words = {word for condition, *_ in _SUM.findall(form) for word in re.findall(r"[A-Za-z_]\w*", condition)}
    return words <= _WORDS and _ADDS.fullmatch(_SUM.sub("S", form)) is not None


def _form_of(query: Query) -> str:
    return " ".join(_NAME.sub('"', query.sql).split())


def counts_duplicates(query: Query) -> bool:
    """Whether it counts rows that share values with other rows."""
    return _DUPLICATES.fullmatch(_form_of(query)) is not None


def imply_counts(query: Query, before: CountRow, rows: int, gone: int) -> tuple[CountRow, set[str]]:
    """Returns the counts of rows that left, and the columns that the missing ones need.

    If none of the former rows counts, no row that left does. If all do, all that left do.

    before: the counts of all former rows. rows, gone: how many they were, and how many left.
    """
    head = _form_of(query).partition(" FROM ")[0]
    names = [name[1:-1].replace('""', '"') for name in _NAME.findall(query.sql)]
    # What stands where the rows are filtered.
    asked = names[head.count('"') :]
    sums = [*_SUM.finditer(head)]
    if not sums:
        return ((gone,), set()) if before == (rows,) else ((None,), set(asked))
    implied: list[int | None] = []
    for count, one in zip(before, sums, strict=True):
        condition, *added = one.groups()
        implied.append(None if count or any(query.values[int(place) - 1] < 0 for place in added) else 0)
        asked += names[head.count('"', 0, one.start()) :][: condition.count('"')] if implied[-1] is None else []
    return tuple(implied), set(asked) if None in implied else set()


def key_of(queries: Sequence[Query], shape: TableSpec) -> str:
    """Returns the digest of all that counts depend on, besides the files."""
    made = [_FORMAT, __version__, *map(version, _LIBRARIES), shape, [(q.sql, q.values) for q in queries]]
    return hashlib.sha256(repr(made).encode()).hexdigest()


class ShareCounts(msgspec.Struct, frozen=True, array_like=True):
    """The counts of files that have key groups in common: of each by its identity, and of duplicates in all."""

    files: tuple[tuple[str, Counts], ...]
    duplicates: Counts


class StoredCounts(msgspec.Struct, frozen=True):
    """The counts of a snapshot.

    key: see `key_of`.
    turn: how many judgements in a row took counts over; it says which buckets have their turn.
    """

    key: str
    snapshot: int
    turn: int
    shares: tuple[ShareCounts, ...]


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
    implied: the counts of the rows `gone`, as far as `before` tells them. asked: the columns that the others need.
    """

    file: DataFile
    whole: bool = True
    before: Counts | None = None
    gone: Places = field(default_factory=lambda: np.empty(0, np.uint64))
    share: int | None = None
    implied: Counts = ()
    asked: frozenset[str] = frozenset()


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
        return not self.reads_keys and not any(one.asked for one in self.files)

    @property
    def reads_keys(self) -> bool:
        """Whether the keys of all files are read. Without new rows, files without duplicates have none."""
        return self.again or bool(self.fresh) or self.clean is None


def plan_counts(
    shares: Sequence[Sequence[DataFile]], recalled: Recalled | None, queries: Sequence[Query]
) -> tuple[ShareWork, ...]:
    """Returns what is to be read of each share. `recalled`: of the same queries."""
    if recalled is None:
        return tuple(ShareWork(tuple(map(FileWork, files))) for files in shares)
    stored, base = recalled
    counted = {id_: (n, counts) for n, share in enumerate(stored.shares) for id_, counts in share.files if id_}
    former = {_name_bytes(f): (f, *counted[identify(f)]) for f in base.shown if identify(f) in counted}
    turns = _find_turns(shares, stored.turn + 1)

    def plan(number: int, files: Sequence[DataFile]) -> ShareWork:
        # Equal bytes twice: each of their keys is there twice.
        if len({_name_bytes(file) for file in files}) < len(files) or not all(file.sha256 for file in files):
            return ShareWork(tuple(map(FileWork, files)))
        works = [_plan_file(file, former.get(_name_bytes(file)), queries) for file in files]
        origins = {one.share for one in works if one.share is not None}
        clean = [counts for counts in (stored.shares[n].duplicates for n in origins) if not any(map(any, counts))]
        again = bool(origins) and number in turns
        asked = tuple(replace(one, whole=one.whole or again) for one in works)
        return ShareWork(asked, clean[0] if len(origins) == len(clean) == 1 else None, again)

    return tuple(plan(number, files) for number, files in enumerate(shares))


def _plan_file(file: DataFile, former: tuple[DataFile, int, Counts] | None, queries: Sequence[Query]) -> FileWork:
    if former is None:
        return FileWork(file)
    old, share, counts = former
    before, now = places(old.deletions), places(file.deletions)
    # Rows that came back would have to be added.
    if len(np.setdiff1d(before, now, assume_unique=True)):
        return FileWork(file)
    gone = np.setdiff1d(now, before, assume_unique=True)
    told = [imply_counts(q, row, old.rows, len(gone)) for q, row in zip(queries, counts, strict=True)]
    asked = frozenset(name for _, columns in told for name in columns) if len(gone) else frozenset()
    return FileWork(file, False, counts, gone, share, tuple(implied for implied, _ in told), asked)


def _find_turns(shares: Sequence[Sequence[DataFile]], turn: int) -> set[int]:
    """Returns the numbers of the shares that are counted again: one in so many, by their order of key groups."""
    order = sorted(range(len(shares)), key=lambda number: min(file.key_groups.first for file in shares[number]))
    return {number for place, number in enumerate(order) if (place + turn) % _TURNS == 0}


class ShareAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What a task counted in a share. None: it was not read.

    whole, gone: of each file, of all rows and of those that left. In `gone` only what is not implied counts.
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
    if any(_fill_zeros(one) != _fill_zeros(views[0]) for one in views):
        raise CountsDifferError(f"duplicates in the files of `{work.files[0].file.name}`")
    return ShareCounts(files, views[0] if views else work.clean or ())


def _combine_file(work: FileWork, whole: Counts | None, gone: Counts | None) -> Counts:
    if work.before is None:
        assert whole is not None
        return whole
    left = _subtract(work.before, work.implied, gone or work.implied)
    if any(count < 0 for row in left for count in row) or (whole is not None and _fill_zeros(whole) != left):
        raise CountsDifferError(f"rows of `{work.file.name}`")
    return whole or left


def _fill_zeros(counts: Counts) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(count or 0 for count in row) for row in counts)


def _subtract(before: Counts, implied: Counts, counted: Counts) -> tuple[tuple[int, ...], ...]:
    """Subtracts what is implied, and else what was counted."""
    columns = (zip(*rows, strict=True) for rows in zip(before, implied, counted, strict=True))
    return tuple(tuple((b or 0) - ((c or 0) if i is None else i) for b, i, c in row) for row in columns)


def add_counts(counts: Iterable[Counts]) -> Counts:
    """Returns the sums."""
    return tuple(tuple(map(_add, zip(*rows, strict=True))) for rows in zip(*counts, strict=True))


def _add(counts: Sequence[int | None]) -> int | None:
    counted = [count for count in counts if count is not None]
    return sum(counted) if counted else None


def measure_reuse(works: Sequence[ShareWork], recalled: Recalled | None) -> Reuse:
    """Returns what was read and taken over, in rows."""
    files = [one for work in works for one in work.files]
    keys = sum(one.file.rows for work in works if work.reads_keys for one in work.files)
    rows, whole = sum(one.file.rows for one in files), sum(one.file.rows for one in files if one.whole)
    gone = sum(len(one.gone) for one in files if one.asked)
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
        return f"{LogPaths(self.log).quality(snapshot)}/counts-{key[:16]}"
