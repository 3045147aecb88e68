"""`verify --spark`: what Spark's Delta reader returns is what was judged, for all types; each kind of lie is found.

Row counts cannot fail, because Delta answers them from its log (decision 0007): here every column is scanned.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from support.pipelines import CONFIG, make_pipeline, publish, put
from support.s3_server import S3Bucket
from tidefold.changelog.schema import DELETE
from tidefold.delta.deletion_vectors import deletions
from tidefold.domain.paths import LogPaths
from tidefold.ledger import read_manifest
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.verify.check_readers import check_readers
from tidefold.read.delta_reader import DeltaContent, SparkDeltaReader
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


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = make_pipeline(tmp_path, TYPES)
    put_and_publish(made, "run-1", [*(row(key) for key in range(60)), *(nulls(key) for key in range(60, 70))])
    return made


@pytest.fixture
def vectored(tmp_path: Path) -> Pipeline:
    """Rows of one file are deleted by vectors."""
    made = make_pipeline(tmp_path, VECTORS)
    put_and_publish(made, "run-1", [row(key) for key in range(200)])
    put_and_publish(made, "run-2", [{"id": 3, "_op": DELETE}, {"id": 5, "_op": DELETE}, row(201)])
    return made


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
    assert found["checksum"] == found["expected_checksum"]
    put_and_publish(pipeline, "run-2", [row(1) | {"text": "new"}, {"id": 2, "_op": DELETE}])
    assert check(pipeline, spark).status == "whole"


def test_a_healthy_table_with_deletion_vectors_passes(vectored: Pipeline, spark: SparkSession) -> None:
    state = vectored.ledger("accounts").read()
    assert any(f.deletions for f in read_manifest(vectored.store, "accounts", state.snapshots[-1]).files)
    outcome = check(vectored, spark)
    assert (outcome.status, outcome.facts["readers"]["rows"]) == ("whole", 199), outcome.message


def test_a_log_without_a_published_table_has_nothing_to_compare(pipeline: Pipeline, spark: SparkSession) -> None:
    [outcome] = check_readers(pipeline, ["tellers"], SparkDeltaReader(spark))
    assert outcome.status == "nothing"


def delete_rows(table: DeltaTable) -> None:
    table.delete("id = 7")


def update_rows(table: DeltaTable) -> None:
    table.update(updates={"text": "'foreign'"}, predicate="id = 7")


@pytest.mark.parametrize(
    ("foreign", "said"), [(delete_rows, "69 rows instead of 70"), (update_rows, "other values in text")]
)
def test_a_foreign_commit_that_changes_the_table_is_found(
    pipeline: Pipeline, spark: SparkSession, foreign: Callable[[DeltaTable], None], said: str
) -> None:
    foreign(DeltaTable(pipeline.store.uri(TABLE)))
    require_found(pipeline, spark, said, "--reconcile")


def test_a_foreign_commit_that_keeps_the_content_is_no_difference_for_readers(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    table = DeltaTable(pipeline.store.uri(TABLE))
    table.optimize.compact()
    assert table.version() == 1
    assert check(pipeline, spark).status == "whole"


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


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("text", lambda c: pc.replace_substring(c, "row", "roe")),
        ("wide", lambda c: pa.chunked_array([[0.0 if v == 0 else v for v in c.to_pylist()]])),
        ("tags", lambda c: pa.chunked_array([[v[::-1] if v else v for v in c.to_pylist()]], c.type)),
        ("large", lambda c: pa.chunked_array([[v and -v for v in c.to_pylist()]], c.type)),
    ],
)
def test_a_changed_data_file_is_found_and_the_column_named(
    pipeline: Pipeline, spark: SparkSession, name: str, make: Callable[[Any], Any]
) -> None:
    """The other copy, in the snapshot's own folder, is what the manifest's rows are read from."""
    for path in data_files(pipeline):
        rewrite(path, lambda table: with_column(table, name, make))
    found = require_found(pipeline, spark, f"other values in {name}")
    assert found["columns"] == (name,)
    assert found["rows"] == found["expected_rows"]


def test_rows_that_were_dropped_from_a_file_are_found(pipeline: Pipeline, spark: SparkSession) -> None:
    """Delta's log still says 70."""
    rewrite(data_files(pipeline)[0], lambda table: table.slice(1))
    assert spark.read.format("delta").load(pipeline.store.uri(TABLE)).count() == 70
    require_found(pipeline, spark, "69 rows instead of 70")


def last_commit(pipeline: Pipeline) -> Path:
    return sorted(Path(pipeline.store.uri(f"{TABLE}/_delta_log")).glob("0*.json"))[-1]


@pytest.mark.parametrize("places", [[0, 1], [], [0]])
def test_a_wrong_deletion_vector_is_found(vectored: Pipeline, spark: SparkSession, places: list[int]) -> None:
    """Another set of rows of the same size, none at all, and one less."""
    commit = last_commit(vectored)
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if vector := action.get("add", {}).get("deletionVector"):
            if made := deletions(np.array(places, np.uint64)):
                vector |= {"pathOrInlineDv": made.vector, "sizeInBytes": made.bytes, "cardinality": made.rows}
            else:
                del action["add"]["deletionVector"]
    before = commit.read_text()
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert commit.read_text() != before
    # Spark verifies none of it; a checksum file of the version would be of the foreign commit too.
    require_found(vectored, spark, "id" if places == [0, 1] else "rows instead of 199")


def test_a_schema_change_is_found(pipeline: Pipeline, spark: SparkSession) -> None:
    DeltaTable(pipeline.store.uri(TABLE)).alter.add_columns([Field("extra", PrimitiveType("string"))])
    found = require_found(pipeline, spark, "foreign: ", "extra")
    assert found["rows"] == 70


def test_a_table_that_spark_cannot_read_is_an_error_of_its_own(pipeline: Pipeline, spark: SparkSession) -> None:
    data_files(pipeline)[0].unlink()
    outcome = check(pipeline, spark)
    assert (outcome.status, outcome.error_code) == ("error", "READERS_FAIL")
    assert outcome.error
    assert outcome.error.exit_code == 5


def test_a_publication_meanwhile_is_no_difference(pipeline: Pipeline, spark: SparkSession) -> None:
    class LateReader:
        """Publishes the next snapshot just before the first read."""

        def __init__(self) -> None:
            self.reads = 0

        def read(self, uri: str) -> DeltaContent:
            self.reads += 1
            if self.reads == 1:
                put_and_publish(pipeline, "run-2", [row(1) | {"text": "new"}])
            return SparkDeltaReader(spark).read(uri)

    reader = LateReader()
    [outcome] = check_readers(pipeline, ["accounts"], reader)
    assert (outcome.status, outcome.snapshot, reader.reads) == ("whole", 2, 2)


def test_the_job_leaves_one_outcome_a_log(pipeline: Pipeline) -> None:
    """As `tidefold verify --spark` starts it."""
    result = pipeline.config.path.parent / "var" / "result.json"
    request = Request(str(pipeline.config.path), ("accounts",), VerifyStep(), str(result))
    command = submit_command(pipeline.config, request)
    done = subprocess.run(command.argv, env={**os.environ, **command.env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    [outcome] = read_outcomes(result)
    assert outcome.facts["readers"]["rows"] == 70


def test_a_table_in_s3_is_read_with_spark_s_own_client(s3: S3Bucket, tmp_path: Path) -> None:
    """As `tidefold verify --spark` starts it. Then a foreign commit changes what readers get."""
    pipeline = make_pipeline(tmp_path, TYPES.replace("store: store", f"store: {s3.address}"))
    put_and_publish(pipeline, "run-1", [row(key) for key in range(70)])
    assert run_job(pipeline)["readers"]["rows"] == 70
    table = DeltaTable(pipeline.store.uri(TABLE), storage_options=pipeline.store.options())
    table.delete("id < 10")
    found = run_job(pipeline)["readers"]
    assert (found["rows"], found["expected_rows"]) == (60, 70)


def run_job(pipeline: Pipeline) -> Any:
    """The facts of the outcome of a job."""
    result = pipeline.config.path.parent / "var" / "result.json"
    result.unlink(missing_ok=True)
    request = Request(str(pipeline.config.path), ("accounts",), VerifyStep(), str(result))
    command = submit_command(pipeline.config, request)
    environment = {**os.environ, **command.env}
    done = subprocess.run(command.argv, env=environment, capture_output=True, text=True, check=False)
    outcomes = read_outcomes(result)
    assert outcomes, done.stderr[-3000:]
    assert "readers" in outcomes[0].facts, f"{outcomes[0].message}; {done.stderr[-3000:]}"
    return outcomes[0].facts
