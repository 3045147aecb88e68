"""Counts that are taken over are those of all rows: random lives of a table against a naive count. Promise I8."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidefold.changelog.duckdb_connections import connect
from tidefold.changelog.key_group_hash import key_groups_of, quote_name
from tidefold.changelog.schema import table_schema
from tidefold.compute.runners import in_process
from tidefold.delta.deletion_vectors import deletions
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import Column, SnapshotKind, TableSpec
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import SourceProgress
from tidefold.errors import TidefoldError
from tidefold.quality.run import count_memory
from tidefold.quality.run.bucket_counts import bucket_counter
from tidefold.quality.run.cost import Reuse
from tidefold.quality.run.count_memory import Counts, Turn, decode_counts, encode_counts
from tidefold.quality.run.count_task import _ShareCounter
from tidefold.quality.run.counts import Count
from tidefold.quality.run.expectations import evaluate
from tidefold.quality.run.spark_rows import SparkRows
from tidefold.quality.suite.check import Check
from tidefold.storage import Store, open_store

SHAPES = (
    TableSpec(("id",), (Column("id", "long"), Column("a", "int"), Column('b "', "string")), "arrival", 16, 4),
    TableSpec(
        ("id",),
        (Column("id", "long"), Column("a", "int"), Column('b "', "string"), Column("later", "int")),
        "arrival",
        16,
        4,
    ),
)
VALUES = "expect_column_values_to_"
CONSIDERED = {"row_condition": 'col("a") > 1', "condition_parser": "great_expectations"}
SUITES = tuple(
    (
        Check("key", f"{VALUES}be_unique", {"column": "id"}),
        Check("key and more", "expect_compound_columns_to_be_unique", {"column_list": ["a", "id"]}),
        *(Check(f"{name} is there", f"{VALUES}not_be_null", {"column": name}) for name in ("id", "a", 'b "')),
        Check("range", f"{VALUES}be_between", {"column": "a", "min_value": 1, "max_value": most}),
        Check("set", f"{VALUES}be_in_set", {"column": 'b "', "value_set": ["x", "y"]}),
        Check("pattern", f"{VALUES}match_regex", {"column": 'b "', "regex": "^x"}),
        Check("rows", "expect_table_row_count_to_be_between", {"min_value": 1}),
        Check("others", f"{VALUES}not_be_in_set", {"column": 'b "', "value_set": ["z"]}),
        Check("lengths", "expect_column_value_lengths_to_be_between", {"column": 'b "', "max_value": 1}),
        Check("some is there", f"{VALUES}not_be_null", {"column": 'b "', **CONSIDERED}),
        Check("some key", f"{VALUES}be_unique", {"column": "id", **CONSIDERED}),
    )
    for most in (5, 7)
)
# Of a column that older files do not have.
LATER = (
    Check("later is there", f"{VALUES}not_be_null", {"column": "later"}),
    Check("later range", f"{VALUES}be_between", {"column": "later", "min_value": 1}),
)
LIVES = int(os.environ.get("TIDEFOLD_LIVES", "12"))
# A new file whose rows were all marked: no key is new.
FAILED = (3219,)
Row = tuple[int | None, int | None, str | None, int | None]


def unused() -> NoReturn:
    raise AssertionError("Spark read the rows")


@cache
def counts_of(suite: int, shape: TableSpec) -> tuple[Count, ...]:
    """Returns what Great Expectations asks for a suite."""
    asked: list[Count] = []

    def note(counts: Sequence[Count]) -> NoReturn:
        asked.extend(counts)
        raise ValueError("not counted")

    with pytest.raises(TidefoldError):
        evaluate(SparkRows(unused, shape, note), (*SUITES[suite], *(LATER if shape is SHAPES[1] else ())))
    assert sum(bool(one.same) for one in asked) == 3
    return tuple(asked)


@cache
def groups() -> dict[int | None, int]:
    """Returns the key group of each key that a life has."""
    keys = [*range(60), None]
    numbers = key_groups_of(pa.table({"id": pa.array(keys, pa.int64())}), SHAPES[0])
    return dict(zip(keys, numbers.to_pylist(), strict=True))


@dataclass(frozen=True)
class Written:
    """A data file and all rows in it, deleted ones included."""

    file: DataFile
    rows: tuple[Row, ...]
    gone: frozenset[int] = frozenset()

    @property
    def live(self) -> list[Row]:
        return [row for place, row in enumerate(self.rows) if place not in self.gone]

    def without(self, places: set[int]) -> Written:
        gone = self.gone | places
        vector = deletions(np.array(sorted(gone), np.uint64))
        return replace(self, gone=gone, file=replace(self.file, rows=len(self.rows) - len(gone), deletions=vector))


Files = tuple[Written, ...]


@dataclass
class Life:
    """A table whose snapshots are judged one after the other.

    base: the newest one that was completed.
    healthy: only a column that was added has bad values, so that all other counts of rows that left are implied.
    """

    store: Store
    chance: random.Random
    healthy: bool = False
    files: Files = ()
    shape: TableSpec = SHAPES[0]
    suite: int = 0
    number: int = 0
    base: Manifest | None = None
    past: list[Files] = field(default_factory=list)
    written: int = 0

    def row(self, key: int | None) -> Row:
        later = self.chance.choice((None, 0, 5)) if self.shape is SHAPES[1] else None
        if self.healthy:
            return key or 0, self.chance.choice((1, 5)), "x", later
        return key, self.chance.choice((None, 0, 1, 5, 6, 9)), self.chance.choice((None, "x", "y", "xy", "z")), later

    def write(self, rows: Sequence[Row], span: KeyGroups) -> Written:
        """Writes rows in row groups of four, with the columns that the table has now."""
        self.written += 1
        name = str(DataFileName(span, self.number + 1, 1, f"{self.written:032x}", "0" * 16))
        rows = [row if self.shape is SHAPES[1] else (*row[:3], None) for row in rows]
        path = data_path(LogPaths("t").table, name)
        with self.store.create(path) as stream:
            pq.write_table(self.table(rows), stream, row_group_size=4)
        data = self.store.read(path)
        return Written(DataFile(name, len(data), len(rows), sha256(data).hexdigest(), span, "{}"), tuple(rows))

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Returns rows with the columns that the table has now."""
        schema = pa.schema([f.with_nullable(True) for f in table_schema(self.shape)])
        columns = [*zip(*rows, strict=True)][: len(schema)] if rows else [()] * len(schema)
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)

    def span_of(self, buckets: int) -> list[KeyGroups]:
        size = 16 // buckets
        return [KeyGroups(first, first + size - 1) for first in range(0, 16, size)]

    def fill(self, rows: Sequence[Row], buckets: int) -> Files:
        spans = self.span_of(buckets)
        parts = ([r for r in rows if span.first <= groups()[r[0]] <= span.last] for span in spans)
        return tuple(self.write(part, span) for part, span in zip(parts, spans, strict=True) if part)

    def judge(self, memory: count_memory.CountMemory) -> tuple[Manifest, Counts]:
        self.number += 1
        files = tuple(w.file for w in self.files)
        manifest = Manifest(
            "t", self.number, 1, SnapshotKind.INCREMENTAL, None, 0, 1, self.shape, files, SourceProgress()
        )
        queries = counts_of(self.suite, self.shape)
        return manifest, tuple(bucket_counter(self.store.address, manifest, in_process, memory)(queries))

    def memory(self) -> count_memory.CountMemory:
        base = self.base
        number = base.snapshot if base else None
        read = (lambda: base) if base else None
        return count_memory.CountMemory(self.store, "t", self.number + 1, number, read)  # type: ignore[arg-type]

    def naive(self, connection: duckdb.DuckDBPyConnection) -> Counts:
        """Counts over all rows in one table."""
        connection.register("arriving", self.table([row for one in self.files for row in one.live]))
        connection.execute("CREATE OR REPLACE TABLE tidefold_rows AS SELECT * FROM arriving")
        asked = counts_of(self.suite, self.shape)
        counts = []
        for one in asked:
            # Written apart from the product's way.
            times = f"count(*) OVER (PARTITION BY {', '.join(map(quote_name, one.same))})" if one.same else "2"
            kept = f"SELECT {times} AS times FROM tidefold_rows WHERE {one.where}"
            sql = f"SELECT count(*) FROM ({kept}) WHERE times > 1"
            counts += connection.execute(sql, list(one.values)).fetchall()[0]
        return tuple(counts)


# What happens to the files between two judgements.
def marks_rows(life: Life) -> None:
    """A fold with vectors: some rows leave the large file, and a small file has what came instead."""
    if not life.files:
        return
    chosen = life.chance.choice(life.files)
    left = [place for place in range(len(chosen.rows)) if place not in chosen.gone]
    gone = set(life.chance.sample(left, min(len(left), life.chance.choice((1, 2, 5)))))
    marked = chosen.without(gone)
    keys = [chosen.rows[place][0] for place in gone]
    if life.chance.random() < 0.2:  # A fold that is wrong: the key is still there.
        keys += [row[0] for row in marked.live[:2]]
    rows = [life.row(key) for key in keys if life.chance.random() < 0.7]
    new = (life.write(rows, chosen.file.key_groups),) if rows else ()
    life.files = (*(f for f in life.files if f is not chosen), marked, *new)


def compacts(life: Life) -> None:
    """All files of a bucket become one."""
    if not life.files:
        return
    span = life.chance.choice(life.files).file.key_groups
    here = [f for f in life.files if f.file.key_groups == span]
    rows = [row for one in here for row in one.live]
    life.files = (*(f for f in life.files if f not in here), *((life.write(rows, span),) if rows else ()))


def inserts(life: Life) -> None:
    rows = [life.row(life.chance.choice((*range(60), None))) for _ in range(life.chance.choice((1, 6)))]
    life.files = (*life.files, *life.fill(rows, life.chance.choice((4, 4, 4, 2))))


def imports(life: Life) -> None:
    rows = [row for one in life.files for row in one.live] or [life.row(key) for key in range(40)]
    life.files = life.fill(rows, life.chance.choice((4, 2)))


def restores(life: Life) -> None:
    if life.past:
        life.files = life.chance.choice(life.past)


def copies(life: Life) -> None:
    """The same bytes under another name: each of its keys is there twice."""
    if life.files:
        chosen = life.chance.choice(life.files)
        copied = life.write(chosen.rows, chosen.file.key_groups)
        life.files = (*life.files, replace(copied, file=replace(copied.file, sha256=chosen.file.sha256)))


def drops_files(life: Life) -> None:
    life.files = tuple(f for f in life.files if life.chance.random() < 0.7)


def changes_suite(life: Life) -> None:
    life.suite = 1 - life.suite


def changes_schema(life: Life) -> None:
    life.shape = SHAPES[1 - SHAPES.index(life.shape)]


def loses_counts(life: Life) -> None:
    for entry in [*life.store.list("logs")]:
        damaged = life.chance.random() < 0.5
        life.store.delete([entry.path])
        if damaged:
            life.store.put_if_absent(entry.path, life.chance.choice((b"", b"\xff{", b'{"key": 1}')))


STEPS: dict[Callable[[Life], None], int] = {
    marks_rows: 12, compacts: 3, inserts: 4, imports: 1, restores: 2, copies: 1, drops_files: 1, changes_suite: 1,
    changes_schema: 1, loses_counts: 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect() as opened:
        yield opened


def live(root: Path, seed: int, connection: duckdb.DuckDBPyConnection) -> list[Reuse]:
    """Lives one life by chance, and compares each judgement."""
    life = Life(open_store(str(root / str(seed)), root), random.Random(seed), healthy=seed % 3 == 1)
    steps = {**STEPS, changes_schema: 8} if life.healthy else STEPS
    imports(life)
    reused: list[Reuse] = []
    for _ in range(life.chance.randint(3, 6)):
        memory = life.memory()
        manifest, counts = life.judge(memory)
        assert counts == life.naive(connection) if life.files else counts == (), (seed, life.number)
        assert memory.reuse is not None, seed
        assert memory.reuse.differs == "", (seed, life.number)
        memory.keep()
        reused.append(memory.reuse)
        if life.chance.random() < 0.8:  # Else it is aborted.
            life.base = manifest
            life.past.append(life.files)
        for step in life.chance.choices([*steps], [*steps.values()], k=life.chance.randint(1, 2)):
            step(life)
        if not life.files:
            imports(life)
    return reused


def test_random_lives(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    first = int(os.environ.get("TIDEFOLD_FIRST_LIFE", "0"))
    seeds = dict.fromkeys([*FAILED, *range(first, first + LIVES)])
    reused = [one for seed in seeds for one in live(tmp_path, seed, connection)]
    # Otherwise nothing was tested.
    assert sum(one.taken > 0 for one in reused) > len(reused) / 4
    assert any(one.taken_keys for one in reused)
    assert any(0 < one.read < one.taken for one in reused)


def begin(root: Path, keys: int = 40, value: int = 1, mixed: bool = False) -> Life:
    """Returns a table in four buckets whose first snapshot was judged, before the turn of any bucket."""
    life = Life(open_store(str(root / "store"), root), random.Random(7))
    life.files = life.fill([(key, 9 if mixed and key % 2 else value, "x", None) for key in range(keys)], 4)
    memory = life.memory()
    life.base = life.judge(memory)[0]
    memory.keep()
    return life


@pytest.fixture
def no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_memory, "_find_turns", lambda *_: (set(), Turn()))


@pytest.fixture
def all_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_memory, "_find_turns", lambda shares, *_: ({*range(len(shares))}, Turn()))


def destroy(life: Life, *names: str) -> None:
    """Fills files with zeros, so that no row of them can be read."""
    for name in names:
        path = Path(life.store.uri(data_path(LogPaths("t").table, name)))
        path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.usefixtures("no_turns")
def test_new_files_of_a_task_are_counted_in_one_table(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with and without rows, keys that are null or new; with a key that is there twice each share is counted."""
    joint, found = _ShareCounter.count_jointly, []
    monkeypatch.setattr(_ShareCounter, "count_jointly", lambda *given: found.append(joint(*given)) or found[-1])
    life = begin(tmp_path)
    for keys in ([*range(40, 52), None], [3, *range(52, 60)]):
        new = life.fill([(key, 1 + 9 * ((key or 0) % 2), "x", None) for key in keys], 4)
        life.files = (*life.files, *new[:-1], new[-1].without({*range(len(new[-1].rows))}))
        memory = life.memory()
        manifest, counts = life.judge(memory)
        assert counts == life.naive(connection)
        assert len(new) > 2
        assert len(found[-1]) == (0 if 3 in keys else len(new))
        memory.keep()
        life.base = manifest


@pytest.mark.usefixtures("no_turns")
def test_what_did_not_change_is_not_read(tmp_path: Path) -> None:
    life = begin(tmp_path)
    destroy(life, *(one.file.name for one in life.files))
    memory = life.memory()
    life.judge(memory)
    assert memory.reuse == Reuse(0, 40, 0, 40, snapshot=1)


@pytest.mark.usefixtures("no_turns")
def test_rows_that_left_need_their_row_groups_only(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    life = begin(tmp_path, mixed=True)
    chosen = max(life.files, key=lambda one: len(one.rows))
    # Of some rows the range fails, of none another check. So one column of the first row group is needed.
    path = Path(life.store.uri(data_path(LogPaths("t").table, chosen.file.name)))
    parquet = pq.ParquetFile(path).metadata
    for lost in (parquet.row_group(1).column(1), parquet.row_group(0).column(0), parquet.row_group(0).column(2)):
        start, size = lost.dictionary_page_offset or lost.data_page_offset, lost.total_compressed_size
        data = bytearray(path.read_bytes())
        data[start : start + size] = bytes(size)
        path.write_bytes(data)
    life.files = (*(one for one in life.files if one is not chosen), chosen.without({0, 2}))
    memory = life.memory()
    _, counts = life.judge(memory)
    assert counts == life.naive(connection)
    assert memory.reuse == Reuse(2, 38, 0, 38, snapshot=1)


@pytest.mark.usefixtures("no_turns")
def test_rows_that_left_a_file_without_bad_rows_are_not_read(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    life = begin(tmp_path)
    life.files = tuple(one.without({0, 2}) for one in life.files)
    destroy(life, *(one.file.name for one in life.files))
    memory = life.memory()
    _, counts = life.judge(memory)
    assert counts == life.naive(connection)
    assert memory.reuse == Reuse(0, 32, 0, 32, snapshot=1)


@pytest.mark.usefixtures("no_turns")
def test_rows_that_left_a_file_without_the_column_of_a_check(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    life = begin(tmp_path)
    life.shape = SHAPES[1]
    memory = life.memory()
    life.base = life.judge(memory)[0]
    memory.keep()
    life.files = tuple(one.without({0, 2}) for one in life.files)
    memory = life.memory()
    _, counts = life.judge(memory)
    assert counts == life.naive(connection)
    assert memory.reuse == Reuse(0, 32, 0, 32, snapshot=2)  # All fail: all that left did.


def test_a_wrong_count_is_found_in_twenty_judgements_whatever_the_ids_of_the_snapshots(tmp_path: Path) -> None:
    life = begin(tmp_path)
    plant(life, lambda counts: tuple(count + 1 for count in counts))
    found = []
    for _ in range(20):
        memory = life.memory()
        life.base = life.judge(memory)[0]
        memory.keep()
        assert memory.reuse is not None
        found += [memory.reuse.differs] if memory.reuse.differs else []
        life.number += 1  # Such as a tail, or an attempt that was aborted.
    assert [text[:10] for text in found] == ["rows of `k"]


@pytest.mark.usefixtures("no_turns")
def test_a_key_that_comes_again_is_a_duplicate(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    life = begin(tmp_path)
    chosen = life.files[0]
    life.files = (*life.files, life.write([(chosen.rows[0][0], 1, "x", None)], chosen.file.key_groups))
    _, counts = life.judge(life.memory())
    assert counts == life.naive(connection)
    assert 2 in counts


def plant(life: Life, alter: Callable[[Counts], Counts]) -> None:
    """Changes the stored counts of the first file."""
    [entry] = life.store.list("logs")
    stored = decode_counts(life.store.read(entry.path))
    first, *others = stored.shares
    (name, counts), *files = first.files
    import msgspec

    wrong = msgspec.structs.replace(first, files=((name, alter(counts)), *files))
    life.store.delete([entry.path])
    life.store.put_if_absent(entry.path, encode_counts(msgspec.structs.replace(stored, shares=(wrong, *others))))


@pytest.mark.usefixtures("all_turns")
def test_a_wrong_count_is_found_in_its_turn_and_all_is_counted_anew(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    life = begin(tmp_path)
    plant(life, lambda counts: tuple(count + 1 for count in counts))
    memory = life.memory()
    _, counts = life.judge(memory)
    assert counts == life.naive(connection)
    assert memory.reuse is not None
    assert memory.reuse.differs.startswith("rows of `k")
    assert (memory.reuse.read, memory.reuse.taken) == (40, 0)
    # They are there until the verdict is: a second try must find the same.
    before = [entry.path for entry in life.store.list("logs")]
    memory.keep()
    assert [entry.path for entry in life.store.list("logs")] != before
    assert life.judge(life.memory())[1] == counts


@pytest.mark.usefixtures("no_turns")
def test_more_bad_rows_left_than_there_were(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    life = begin(tmp_path)
    plant(life, lambda counts: tuple(0 for _ in counts))
    life.files = tuple(one.without({0}) for one in life.files)
    memory = life.memory()
    assert life.judge(memory)[1] == life.naive(connection)
    assert memory.reuse is not None
    assert memory.reuse.differs
