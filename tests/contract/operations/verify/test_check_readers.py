"""The comparison of readers with a reader that needs no JVM: what counts as a difference, and what does not.

Spark itself is in tests/spark/test_readers_check.py.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from support.commands import call
from support.pipelines import CONFIG, judge_all, make_pipeline, put
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import in_process
from tidefold.delta.deletion_vectors import deletions, descriptor
from tidefold.domain.alarms import AlarmKind, AlarmThresholds, LogAlarm
from tidefold.domain.log_state import Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.inspect.alarms import find_alarms
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import Fold
from tidefold.operations.restore.restore import Restore
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.check_delta_tables import find_log_differences
from tidefold.operations.verify.check_readers import check_readers, plan_scan
from tidefold.operations.verify.scope import add_readers
from tidefold.operations.verify.verify import verify
from tidefold.read.delta_reader import FileContent, TableContent, TableScan, parse_columns
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.steps import VerifyStep

TABLE = LogPaths("accounts").table
Row = dict[str, Any]


class PlainReader:
    """Reads with deltalake; `before` runs just before the first read."""

    def __init__(self, pipeline: Pipeline | None = None) -> None:
        self.publishes = pipeline
        self.scans: list[TableScan] = []

    def read(self, log: str, uri: str, scan: TableScan) -> TableContent:
        self.scans.append(scan)
        if self.publishes:
            pipeline, self.publishes = self.publishes, None
            publish(pipeline, "meanwhile", 3)
        table = DeltaTable(uri)
        protocol = table.protocol()
        files = {path.rpartition("/")[2]: Path(path.rpartition("file:")[2]) for path in table.file_uris()}
        return TableContent(
            parse_columns(table.schema().to_json()),
            (protocol.min_reader_version, protocol.min_writer_version),
            frozenset(("appendOnly", "invariants")),
            {name: self.read_file(path, scan) for name, path in files.items()},
            {Path(p).name: hashlib.sha256((Path(uri) / p).read_bytes()).hexdigest() for p in scan.hashed},
        )

    def read_file(self, path: Path, scan: TableScan) -> FileContent:
        rows = pq.read_table(path)
        return FileContent(
            rows.num_rows, values={name: len(rows) - rows.column(name).null_count for name in scan.columns}
        )

    def describe_newest(self, uri: str) -> str:
        table = DeltaTable(uri)
        return f"version {table.version()} {''.join(one['operation'] for one in table.history(1))}"


def publish(pipeline: Pipeline, run: str, key: int) -> None:
    put(pipeline, [{"id": key, "text": run}])
    materialize(pipeline, ["accounts"], Fold(run), in_process)
    judge_all(pipeline)
    confirm(pipeline, "accounts")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(50)])
    publish(made, "run-1", 1)
    publish(made, "run-2", 2)
    return made


def check(pipeline: Pipeline, reader: PlainReader | None = None) -> Outcome:
    [outcome] = check_readers(pipeline, ["accounts"], reader or PlainReader())
    return outcome


def test_a_healthy_table_passes_and_a_publication_meanwhile_is_no_difference(pipeline: Pipeline) -> None:
    found = check(pipeline)
    assert (found.status, found.snapshot, found.facts["readers"]["rows"]) == (Status.WHOLE, 2, 50)
    assert check(pipeline, PlainReader(pipeline)).snapshot == 3


def test_other_rows_and_other_columns_are_found_and_the_files_are_not_blamed(pipeline: Pipeline) -> None:
    DeltaTable(pipeline.store.uri(TABLE)).update(updates={"text": "'x'"}, predicate="id = 7")
    found = check(pipeline)
    assert (found.status, found.error_code) == (Status.DAMAGED, "READERS_DIFFER")
    assert "1 file not judged" in found.message
    joined = add_readers(verify(pipeline, "accounts"), found)
    assert (joined.status, joined.error_code) == (Status.DAMAGED, "DAMAGED")
    assert joined.facts["readers"]["differences"]
    DeltaTable(pipeline.store.uri(TABLE)).alter.add_columns([Field("extra", PrimitiveType("long"))])
    found = check(pipeline)
    assert "foreign: " in found.message
    # Nothing but RESTORE takes the column back.
    assert found.error
    assert "RESTORE to version 1" in found.error.hint
    assert "--reconcile" not in found.error.hint


def test_what_readers_get_decides_where_all_files_are_whole(pipeline: Pipeline) -> None:
    whole = verify(pipeline, "accounts")
    assert whole.status is Status.WHOLE
    healthy = check(pipeline)
    assert add_readers(whole, healthy).error is None
    DeltaTable(pipeline.store.uri(TABLE)).delete("id = 7")
    joined = add_readers(whole, check(pipeline))
    assert (joined.status, joined.error_code) == (Status.DAMAGED, "READERS_DIFFER")
    nothing = Outcome("accounts", Status.NOTHING, "")
    assert add_readers(whole, nothing) == whole


def test_without_spark_the_step_does_only_what_needs_none(pipeline: Pipeline) -> None:
    """Also where little is to be read: only Spark shows what readers on Spark get."""
    spark = pipeline.config.spark.model_copy(update={"above": 10**9})
    small = replace(pipeline, config=pipeline.config.model_copy(update={"spark": spark}))
    found = run_without_spark(small, VerifyStep(), ["accounts", "tellers"])
    assert found.spark == ("accounts",)
    assert [(o.log, o.status) for o in found.done] == [("tellers", Status.NOTHING)]
    [outcome] = check_readers(pipeline, ["accounts"], None)
    assert outcome.error_code == "SPARK_NEEDED"


def test_a_sample_reads_each_published_snapshot_once_and_its_difference_is_an_alarm(pipeline: Pipeline) -> None:
    """And again while it differs. A restore of the snapshot before ends the alarm."""
    reader = PlainReader()

    def sample() -> Outcome:
        [outcome] = check_readers(pipeline, ["accounts"], reader, sample=True)
        return outcome

    def alarms() -> list[LogAlarm]:
        [found] = status(pipeline, ["accounts"], proofs=True)
        return [one for one in find_alarms(found, AlarmThresholds(), now()) if one.kind is AlarmKind.DAMAGE]

    assert [sample().status, sample().status] == [Status.WHOLE, Status.NOTHING]
    assert alarms() == []
    publish(pipeline, "run-3", 3)
    written = [f for f in read_manifest(pipeline.store, "accounts", newest(pipeline)).shown if not f.carried]
    damage(pipeline.store.uri(f"{TABLE}/_data/{written[0].name}"))
    assert [sample().status, sample().status] == [Status.DAMAGED, Status.DAMAGED]
    [alarm] = alarms()
    assert "1 file with other bytes" in alarm.message
    assert "`tidefold restore accounts 2 --log-position replay`" in alarm.hint
    restore = Restore("back", RestorePoint(2, RestoreMode.REPLAY), by="me")
    materialize(pipeline, ["accounts"], restore, in_process)
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(run="back")).status is Status.PUBLISHED
    assert sample().status is Status.WHOLE
    assert alarms() == []
    assert all(scan.small and scan.columns and scan.hashed for scan in reader.scans)


def newest(pipeline: Pipeline) -> Snapshot:
    latest = pipeline.ledger("accounts").read().latest
    assert latest
    return latest


def damage(path: str) -> None:
    """Writes the same rows with other bytes, under a new inode: the copy in the snapshot's folder stays whole."""
    rows = pq.read_table(path)
    Path(path).unlink()
    pq.write_table(rows, path, compression="none")


def elsewhere(folder: str) -> Callable[[Path, Row], None]:
    """The file of the same name in another folder, with other rows."""

    def plant(table: Path, add: Row) -> None:
        rows = pq.read_table(table / add["path"])
        path = table / folder / Path(add["path"]).name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.set_column(1, "text", pa.array(["x"] * len(rows))), path)
        add["path"] = f"file://{path.resolve()}" if folder.startswith("..") else f"{folder}/{path.name}"

    return plant


def stated(**changed: Any) -> Callable[[Path, Row], None]:
    def plant(table: Path, add: Row) -> None:
        stats = json.loads(add["stats"])
        add["stats"] = json.dumps(stats | {name: make(stats[name]) for name, make in changed.items()})

    return plant


PLACE, STATED = "1 file that the Delta log adds at another place", "1 file with other statistics in the Delta log"
PLANTED = {
    "another folder": (elsewhere("other"), PLACE),
    "an absolute path": (elsewhere("../../elsewhere"), PLACE),
    "numRecords": (stated(numRecords=lambda rows: rows + 7), STATED),
    "bounds": (stated(maxValues=lambda found: found | {"id": 1}), STATED),
    "nullCount": (stated(nullCount=lambda found: found | {"text": 3}), STATED),
    "size": (lambda table, add: add.update(size=add["size"] + 1), STATED),
}


@pytest.mark.parametrize("what", PLANTED)
@pytest.mark.parametrize("is_foreign", [False, True], ids=["in our commit", "by a foreign commit"])
def test_an_add_that_was_changed_is_found(pipeline: Pipeline, what: str, is_foreign: bool) -> None:
    """Readers take paths and statistics from the log: whole files under `_data` prove nothing about them."""
    table = Path(pipeline.store.uri(TABLE))
    last = max((table / "_delta_log").glob("0*.json"))
    plant, said = PLANTED[what]
    actions = [json.loads(line) for line in last.read_text().splitlines()]
    add = next(action["add"] for action in actions if "add" in action)
    name = add["path"]
    plant(table, add)
    if is_foreign:
        remove = {"path": name, "dataChange": True, "deletionTimestamp": 0}
        actions = [{"remove": remove}] if name != add["path"] else []
        last = last.with_name(f"{int(last.stem) + 1:020d}.json")
        actions.append({"add": add})
    last.unlink(missing_ok=True)
    last.write_text("".join(json.dumps(action) + "\n" for action in actions))
    found = check(pipeline)
    assert (found.status, found.error_code) == (Status.DAMAGED, "READERS_DIFFER")
    assert said in found.message


def test_a_vector_with_the_same_sums_is_found(tmp_path: Path) -> None:
    """Rows 1, 2 and 6 have the number, the sum and the sum of squares of rows 0, 4 and 5."""
    config = CONFIG.replace("buckets: 4\n", "buckets: 1\n    deletion_vectors: true\n", 1)
    pipeline = make_pipeline(tmp_path, f"{config}snapshots: {{kind: incremental}}\n")
    put(pipeline, [{"id": i, "text": "a"} for i in range(200)])
    publish(pipeline, "run-1", 1)
    put(pipeline, [{"id": i, "_op": DELETE} for i in (0, 4, 5)])
    publish(pipeline, "run-2", 7)
    manifest = read_manifest(pipeline.store, "accounts", newest(pipeline))
    assert not [*find_log_differences(pipeline.store, manifest)]
    commit = max((Path(pipeline.store.uri(TABLE)) / "_delta_log").glob("0*.json"))
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    [add] = [one["add"] for one in actions if "deletionVector" in one.get("add", {})]
    other = deletions(np.array([1, 2, 6, 7], np.uint64))
    assert other
    assert (add["deletionVector"]["cardinality"], add["deletionVector"]["sizeInBytes"]) == (other.rows, other.bytes)
    add["deletionVector"] = descriptor(other, is_file=False)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    [said] = find_log_differences(pipeline.store, manifest)
    assert said.startswith("1 file with another deletion vector")


def test_of_a_large_table_a_sample_reads_the_newest_files(pipeline: Pipeline) -> None:
    manifest = read_manifest(pipeline.store, "accounts", newest(pipeline))
    files = [replace(file, bytes=40 << 20) for file in manifest.files]
    huge = replace(files[0], bytes=1 << 30, carried=False)
    scan = plan_scan(replace(manifest, files=(huge, *files)), sample=True)
    assert (scan.small, scan.columns, len(scan.hashed)) == (False, (), 1)
    assert scan.hashed[0] == f"_data/{next(file.name for file in files if not file.carried)}"
    whole = plan_scan(replace(manifest, files=(huge, *files)), sample=False)
    assert (len(whole.hashed), whole.columns) == (len(files), ("id", "text"))


def test_the_first_command_that_the_error_names_mends_what_another_program_wrote(pipeline: Pipeline) -> None:
    """The restore that it named before ended with FOREIGN_COMMIT."""
    DeltaTable(pipeline.store.uri(TABLE)).update(updates={"text": "'x'"}, predicate="id = 7")
    error = check(pipeline).error
    assert error
    command = re.findall(r"`tidefold ([^`]+)`", error.hint)[0]
    call(*command.split(), "--config", str(pipeline.config.path))
    assert check(pipeline).status is Status.WHOLE
    assert verify(pipeline, "accounts").status is Status.WHOLE
