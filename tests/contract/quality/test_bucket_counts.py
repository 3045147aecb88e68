"""Counts of buckets give the verdicts of all rows: promise I8. Here the tasks run in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from support.hostile_rows import NAMES, SHAPE, all_checks, random_rows
from tidefold.changelog.key_group_hash import key_groups_of
from tidefold.compute.runners import in_process
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import SnapshotKind
from tidefold.domain.paths import DataFileName, data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import NO_PROGRESS
from tidefold.errors import TidefoldError
from tidefold.quality.report.result import CheckResult
from tidefold.quality.run.bucket_counts import bucket_counter, can_count, group_files
from tidefold.quality.run.counts import Count, CountRows
from tidefold.quality.run.duckdb_rows import open_duckdb
from tidefold.quality.run.expectations import evaluate
from tidefold.quality.run.metrics import find_count
from tidefold.quality.run.spark_rows import SparkRows
from tidefold.quality.suite.check import Check
from tidefold.storage import Store, open_store

BUCKETS = 4
UNIQUE = "expect_column_values_to_be_unique"
PAIR = "expect_compound_columns_to_be_unique"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"), tmp_path)


def write(store: Store, rows: pa.Table, files: int = 2) -> Manifest:
    """Writes some files a bucket: rows of one key lie in one bucket, but not in one file."""
    written = []
    groups = key_groups_of(rows, SHAPE)
    for bucket in range(BUCKETS):
        span = KeyGroups(bucket * 4, bucket * 4 + 3)
        here = rows.filter(pc.and_(pc.greater_equal(groups, span.first), pc.less_equal(groups, span.last)))
        for number in range(files):
            part = here.filter(pa.array([place % files == number for place in range(len(here))], pa.bool_()))
            name = str(DataFileName(span, 1, 1, f"{bucket * files + number:032x}", ""))
            with store.create(data_path("snapshots/accounts/0000000001", name)) as stream:
                pq.write_table(part, stream)
            written.append(DataFile(name, bucket + 1, len(part), "", span, "{}"))
    return Manifest("accounts", 1, 1, SnapshotKind.FULL, None, 0, 1, SHAPE, tuple(written), NO_PROGRESS)


def duplicated(rows: pa.Table) -> pa.Table:
    """Returns the rows, and those with ids 0 to 11 again."""
    return pa.concat_tables([rows, rows.slice(0, 12)])


def verdicts(checks: Sequence[Check], results: Sequence[CheckResult]) -> list[tuple[str, bool, int | None, str]]:
    return [(c.name, r.passed, r.unexpected, r.detail) for c, r in zip(checks, results, strict=True)]


def is_counted(check: Check) -> bool:
    count = find_count(check, SHAPE.types)
    return count is not None and can_count(count, SHAPE)


def by_bucket(counter: CountRows) -> SparkRows:
    def fail() -> NoReturn:
        raise AssertionError("Spark read the rows")

    return SparkRows(fail, SHAPE, counter)


@pytest.mark.parametrize("seed", range(2))
def test_counts_of_buckets_judge_as_all_rows_do(store: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidefold.quality.run.expectations._SAMPLED", 0)  # Samples are Spark's.
    rows = duplicated(random_rows(seed))
    manifest = write(store, rows)
    checks = [c for c in all_checks(seed) if is_counted(c)]
    checks += [
        Check("key", UNIQUE, {"column": "id"}),
        Check("most keys", UNIQUE, {"column": "id", "mostly": 0.5}),
        Check("key and more", PAIR, {"column_list": [NAMES["string"], "id"]}),
    ]
    assert len(checks) > 40
    with open_duckdb() as engine:
        whole = evaluate(engine.load("hostile", rows.to_reader()), checks)
    parts = evaluate(by_bucket(bucket_counter(store.address, manifest, in_process)), checks)
    assert verdicts(checks, parts) == verdicts(checks, whole)
    assert {r.passed for r in parts} == {True, False}


def test_all_counts_travel_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidefold.quality.run.expectations._SAMPLED", 0)
    manifest = write(store, random_rows(1))
    count = bucket_counter(store.address, manifest, in_process)
    asked: list[int] = []

    def counted(counts: Sequence[Count]) -> Sequence[int]:
        asked.append(len(counts))
        return count(counts)

    checks = [c for c in all_checks(1) if is_counted(c) and c.type != PAIR]
    assert evaluate(by_bucket(counted), [*checks, Check("key", UNIQUE, {"column": "id"})])
    assert len(asked) == 1


def test_duplicates_of_other_columns_are_not_counted_by_bucket() -> None:
    assert not is_counted(Check("", UNIQUE, {"column": NAMES["string"]}))
    assert not is_counted(Check("", PAIR, {"column_list": list(NAMES.values())}))


def test_a_damaged_file_is_an_error_and_never_a_pass(store: Store) -> None:
    manifest = write(store, random_rows(1))
    path = Path(store.uri(data_path(manifest.data_folder, manifest.files[0].name)))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(TidefoldError) as raised:
        evaluate(
            by_bucket(bucket_counter(store.address, manifest, in_process)), [Check("key", UNIQUE, {"column": "id"})]
        )
    assert raised.value.code == "CHECK_NOT_COMPUTED"


def test_a_count_that_a_task_cannot_do_is_an_error_that_names_the_check(store: Store) -> None:
    """And not one of all checks of the log."""
    manifest = write(store, random_rows(1))
    bad = Check("", "expect_column_values_to_be_in_set", {"column": NAMES["decimal(38,38)"], "value_set": [5]})
    with pytest.raises(TidefoldError, match=r"be_in_set.*could not be computed.*value_set") as raised:
        evaluate(
            by_bucket(bucket_counter(store.address, manifest, in_process)), [Check("", UNIQUE, {"column": "id"}), bad]
        )
    assert raised.value.code == "CHECK_NOT_COMPUTED"


def test_rows_in_files_of_other_key_groups_are_an_error(store: Store) -> None:
    """Duplicates of such rows would lie in two buckets."""
    manifest = write(store, random_rows(1))
    first, *others = manifest.files
    misplaced = replace(manifest, files=(replace(first, key_groups=KeyGroups(4, 7)), *others))
    with pytest.raises(TidefoldError) as raised:
        evaluate(
            by_bucket(bucket_counter(store.address, misplaced, in_process)), [Check("key", UNIQUE, {"column": "id"})]
        )
    assert raised.value.code == "STAGED_ROWS_MISPLACED"


def test_files_with_a_key_group_in_common_lie_in_one_share(store: Store) -> None:
    spans = [(0, 3), (2, 5), (6, 7), (8, 15), (8, 9), (15, 15)]
    files = tuple(DataFile(str(n), n + 1, 1, "", KeyGroups(*span), "{}") for n, span in enumerate(spans))
    manifest = Manifest("accounts", 1, 1, SnapshotKind.FULL, None, 0, 1, SHAPE, files, NO_PROGRESS)
    assert [{f.name for f in share} for share in group_files(manifest)] == [{"3", "4", "5"}, {"0", "1"}, {"2"}]
