"""`verify --spark`: what Spark's Delta reader returns is what was judged, for all types; each kind of lie is found.

Row counts alone cannot fail, because Delta answers them from its log (decision 0007): here the files are read.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from support.pipelines import CONFIG, copy_pipeline, make_pipeline, publish, put
from support.s3_server import S3Bucket
from tidefold.changelog.schema import DELETE
from tidefold.delta.deletion_vectors import deletions, descriptor
from tidefold.domain.paths import LogPaths
from tidefold.domain.verify.proof_record import ReaderProof
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.verify.check_readers import check_readers
from tidefold.operations.verify.scope import find_proof
from tidefold.read.delta_reader import SparkDeltaReader
from tidefold.spark.request import Request
from tidefold.spark.result_file import read_outcomes
from tidefold.spark.steps import VerifyStep
from tidefold.spark.submit import submit_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "{id: int, text: string, flag: boolean, big: long, real: float, wide: double, day: date, at: timestamp, "
    "data: binary, small: 'decimal(9,2)', large: 'decimal(38,10)', tags: array<string>, reals: array<double>, "
    "sums: 'array<decimal(20,4)>', times: array<timestamp>, days: array<date>, flags: array<boolean>}"
)
TYPES = CONFIG.replace("columns: {id: int, text: string}", f"columns: {COLUMNS}", 1)
VECTORS = TYPES.replace("buckets: 4\n", "buckets: 1\n    deletion_vectors: true\n", 1).replace(
    "store: store\n", "store: store\nsnapshots: {kind: incremental}\n"
)
TABLE = LogPaths("accounts").table


def row(key: int) -> dict[str, Any]:
    """Values of every type; each kind of special one is in some row."""
    at = datetime(1960 + key % 100, 1, 2, 3, 4, 5, key, tzinfo=UTC)
    special = [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 0.1]
    return {
        "id": key,
        "text": ["", "a", "ü\0\U0001f600", f"row {key}"][key % 4],
        "flag": key % 2 == 0,
        "big": (-1) ** key * (2**63 - 1 - key),
        "real": [0.0, -0.0, math.nan, math.inf, 1.5][key % 5],
        "wide": special[key % 7],
        "day": date(1 + key * 97 % 9_000, 1, 1),
        "at": at,
        "data": bytes([0, key % 256]) * (key % 3),
        "small": Decimal(key - 50).scaleb(-2),
        "large": Decimal(-(10**27) * key).scaleb(-10),
        "tags": [["a", None, ""], [], [f"{key}"]][key % 3],
        "reals": [special[key % 7], None, -0.0],
        "sums": [Decimal(key).scaleb(-4), None],
        "times": [at, None],
        "days": [date(1900, 1, 1), None],
        "flags": [True, None, False],
    }


def nulls(key: int) -> dict[str, Any]:
    return dict.fromkeys(row(key)) | {"id": key}


def put_and_publish(pipeline: Pipeline, run: str, changes: list[dict[str, Any]]) -> None:
    put(pipeline, changes)
    publish(pipeline, run)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of a pipeline with values of every type, and of one where vectors delete rows of its one file."""
    plain, vectored = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("vectored")
    made = make_pipeline(plain, TYPES)
    put_and_publish(made, "run-1", [*(row(key) for key in range(60)), *(nulls(key) for key in range(60, 70))])
    made = make_pipeline(vectored, VECTORS)
    put_and_publish(made, "run-1", [row(key) for key in range(200)])
    put_and_publish(made, "run-2", [{"id": 3, "_op": DELETE}, {"id": 5, "_op": DELETE}, row(201)])
    return plain, vectored


@pytest.fixture
def pipeline(templates: tuple[Path, Path], tmp_path: Path) -> Pipeline:
    return copy_pipeline(templates[0], tmp_path)


@pytest.fixture
def vectored(templates: tuple[Path, Path], tmp_path: Path) -> Pipeline:
    return copy_pipeline(templates[1], tmp_path)


def check(pipeline: Pipeline, spark: SparkSession) -> Outcome:
    [outcome] = check_readers(pipeline, ["accounts"], SparkDeltaReader(spark))
    return outcome


def require_found(pipeline: Pipeline, spark: SparkSession, *said: str) -> dict[str, Any]:
    outcome = check(pipeline, spark)
    assert (outcome.status, outcome.error_code) == ("damaged", "READERS_DIFFER"), outcome.message
    assert outcome.error
    assert outcome.error.exit_code == 5
    for text in said:
        assert text in outcome.message
    return dict(outcome.facts["readers"])


def test_a_healthy_table_of_every_type_passes(pipeline: Pipeline, spark: SparkSession) -> None:
    outcome = check(pipeline, spark)
    assert (outcome.status, outcome.error) == ("whole", None), outcome.message
    found = outcome.facts["readers"]
    assert (found["rows"], found["expected_rows"], found["snapshot"]) == (70, 70, 1)
    assert found["files"] == found["hashed"] > 0
    proof = find_proof(pipeline.store, "accounts")
    assert proof
    assert proof.readers == ReaderProof(1, proof.readers.instant, 70, found["files"], found["files"])
    put_and_publish(pipeline, "run-2", [row(1) | {"text": "new"}, {"id": 2, "_op": DELETE}])
    assert check(pipeline, spark).status == "whole"


def test_a_healthy_table_with_deletion_vectors_passes(vectored: Pipeline, spark: SparkSession) -> None:
    state = vectored.ledger("accounts").read()
    assert any(f.deletions for f in read_manifest(vectored.store, "accounts", state.snapshots[-1]).files)
    outcome = check(vectored, spark)
    assert (outcome.status, outcome.facts["readers"]["rows"]) == ("whole", 199), outcome.message


def test_foreign_commits_are_found_because_their_files_were_not_judged(pipeline: Pipeline, spark: SparkSession) -> None:
    table = DeltaTable(pipeline.store.uri(TABLE))
    table.update(updates={"text": "'foreign'"}, predicate="id = 7")
    require_found(pipeline, spark, "1 file not judged", "1 file not read", "version 1 UPDATE", "--reconcile")
    table.delete("id = 7")
    require_found(pipeline, spark, "69 rows instead of 70", "version 2 DELETE", "--reconcile")
    table.alter.add_columns([Field("extra", PrimitiveType("string"))])
    require_found(pipeline, spark, "foreign: ", "extra")


def data_files(pipeline: Pipeline) -> list[Path]:
    return sorted(Path(pipeline.store.uri(f"{TABLE}/_data")).glob("*.parquet"))


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Another file under the name that readers open; its names elsewhere keep the right one."""
    changed = change(pq.ParquetFile(path).read())
    path.unlink()
    pq.write_table(changed, path)


def with_column(table: pa.Table, name: str, make: Callable[[Any], Any]) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), make(table.column(name)))


CHANGED: dict[str, Callable[[Any], Any]] = {
    "bytes": lambda c: pc.replace_substring(c, "row", "roe"),
    "values in text": lambda c: pa.chunked_array([[None] * len(c)], c.type),
}


@pytest.mark.rotates(2)
@pytest.mark.parametrize("what", CHANGED)
def test_changed_values_in_data_files_are_found(pipeline: Pipeline, spark: SparkSession, what: str) -> None:
    """The other copy, in the snapshot's own folder, is whole."""
    rewrite(data_files(pipeline)[0], partial(with_column, name="text", make=CHANGED[what]))
    found = require_found(pipeline, spark, f"other {what}", "1 file with other bytes")
    assert found["rows"] == found["expected_rows"]


def test_rows_that_were_dropped_from_a_file_are_found(pipeline: Pipeline, spark: SparkSession) -> None:
    """Delta's log still says 70."""
    rewrite(data_files(pipeline)[0], lambda table: table.slice(1))
    assert spark.read.format("delta").load(pipeline.store.uri(TABLE)).count() == 70
    require_found(pipeline, spark, "69 rows instead of 70")


def last_commit(pipeline: Pipeline) -> Path:
    return sorted(Path(pipeline.store.uri(f"{TABLE}/_delta_log")).glob("0*.json"))[-1]


@pytest.mark.rotates(6)
@pytest.mark.parametrize("places", [[0, 1], [], [0]])
def test_a_wrong_deletion_vector_is_found(vectored: Pipeline, spark: SparkSession, places: list[int]) -> None:
    """Another set of rows of the same size, none at all, and one less."""
    commit = last_commit(vectored)
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if action.get("add", {}).get("deletionVector"):
            if made := deletions(np.array(places, np.uint64)):
                action["add"]["deletionVector"] = descriptor(made, is_file=False)
            else:
                del action["add"]["deletionVector"]
    before = commit.read_text()
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert commit.read_text() != before
    # Spark verifies none of it; a checksum file of the version would be of the foreign commit too.
    require_found(vectored, spark, "1 file with other rows", *([] if places == [0, 1] else ["rows instead of 199"]))


def test_a_vector_with_the_same_sums_is_found(tmp_path: Path, spark: SparkSession) -> None:
    """Rows 1, 2 and 6 have the number, the sum and the sum of squares of rows 0, 4 and 5."""
    pipeline = make_pipeline(tmp_path, VECTORS)
    put_and_publish(pipeline, "run-1", [row(key) for key in range(200)])
    put_and_publish(pipeline, "run-2", [{"id": key, "_op": DELETE} for key in (0, 4, 5)])
    assert check(pipeline, spark).status == "whole"
    commit, other = last_commit(pipeline), deletions(np.array([1, 2, 6], np.uint64))
    assert other
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    [add] = [action["add"] for action in actions if "add" in action]
    assert add["deletionVector"]["cardinality"] == other.rows
    assert add["deletionVector"]["sizeInBytes"] == other.bytes
    add["deletionVector"] = descriptor(other, is_file=False)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    require_found(pipeline, spark, "1 file with another deletion vector")


def test_a_table_that_spark_cannot_read_is_an_error_of_its_own(pipeline: Pipeline, spark: SparkSession) -> None:
    data_files(pipeline)[0].unlink()
    outcome = check(pipeline, spark)
    assert (outcome.status, outcome.error_code) == ("error", "READERS_FAIL")
    assert outcome.error
    assert outcome.error.exit_code == 5


@pytest.mark.rotates(4)
def test_a_job_reads_tables_in_s3_with_spark_s_own_client_and_leaves_one_outcome_a_log(
    s3: S3Bucket, tmp_path: Path
) -> None:
    """As `tidefold check verify --spark` starts it. A foreign commit changed what readers get of one table."""
    pipeline = make_pipeline(tmp_path, TYPES.replace("store: store", f"store: {s3.address}"))
    put_and_publish(pipeline, "run-1", [row(key) for key in range(70)])
    put(pipeline, [{"id": key, "text": "a"} for key in range(10)], "tellers")
    publish(pipeline, "run-1", "tellers")
    options = pipeline.store.options()
    DeltaTable(pipeline.store.uri(LogPaths("tellers").table), storage_options=options).delete("id < 3")
    result = tmp_path / "var" / "result.json"
    request = Request(str(pipeline.config.path), ("accounts", "tellers"), VerifyStep(), str(result))
    command = submit_command(pipeline.config, request)
    done = subprocess.run(command.argv, env={**os.environ, **command.env}, capture_output=True, text=True, check=False)
    outcomes = read_outcomes(result)
    assert [(one.log, one.status, one.error_code) for one in outcomes] == [
        ("accounts", "whole", None), ("tellers", "damaged", "READERS_DIFFER"),
    ], done.stderr[-3000:]  # fmt: skip
    read = [(one.facts["readers"]["rows"], one.facts["readers"]["expected_rows"]) for one in outcomes]
    assert read == [(70, 70), (7, 10)]
    # The code of the first error is that of the process.
    assert done.returncode == 5
