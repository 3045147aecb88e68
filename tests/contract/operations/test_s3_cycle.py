"""The whole life of a log in an S3 bucket: ledger, folds, Delta commits, readers, clean-ups. I1, I4, I11, I23."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from support import restoring
from support.pipelines import CONFIG, judge_all, make_pipeline, put, snapshot_rows, table_rows, with_log_shape
from support.s3_server import S3Bucket
from tidefold.changelog.schema import DELETE
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Ownership
from tidefold.domain.log_state import Column
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.errors import StorageError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.schema_update import apply_configured_schema
from tidefold.operations.requests import Fold, Import
from tidefold.operations.retention.clean import drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import cloud_client

Rows = dict[int, str | None]
# One bucket changes and one is carried: each more costs requests.
FEW_BUCKETS = CONFIG.replace("buckets: 4", "buckets: 2")


@pytest.fixture
def pipeline(s3: S3Bucket, tmp_path: Path) -> Pipeline:
    config = FEW_BUCKETS.replace("store: store\n", f"store: {s3.address}\nretention: {{snapshots: 2}}\n")
    return make_pipeline(tmp_path, config)


def fold(pipeline: Pipeline, run: str) -> Outcome:
    [outcome] = materialize(pipeline, ["accounts"], Fold(run), in_process)
    return outcome


def cycle(pipeline: Pipeline, run: str) -> Outcome:
    staged = fold(pipeline, run)
    assert staged.status == "staged", staged
    judge_all(pipeline)
    return confirm(pipeline, "accounts", Confirmation(run=run))


def grow(pipeline: Pipeline, rounds: int) -> dict[int, Rows]:
    """Each round changes one row and deletes one; answers the rows of every snapshot."""
    model: Rows = {}
    history = {}
    for number in range(1, rounds + 1):
        changes = [{"id": i, "text": "0"} for i in range(30)] if number == 1 else []
        changes += [{"id": number, "text": f"{number}"}, {"id": 20 + number, "text": None, "_op": DELETE}]
        put(pipeline, changes)
        model |= {int(str(c["id"])): str(c["text"]) for c in changes}
        model.pop(20 + number)
        outcome = cycle(pipeline, f"run-{number}")
        assert (outcome.status, outcome.facts["table_version"]) == ("published", number - 1)
        history[number] = dict(model)
    return history


def test_a_log_lives_its_whole_life_in_s3(pipeline: Pipeline, s3: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step also asks for what it needs and for nothing else, however many files and versions there are."""
    history = grow(pipeline, 4)
    assert table_rows(pipeline) == history[4]
    assert {n: snapshot_rows(pipeline, n) for n in history} == history

    monkeypatch.setattr(cloud_client, "PAGE", 1)
    check_subsume(pipeline, s3)
    assert truncate(pipeline, "accounts").status == "truncated"
    assert table_rows(pipeline) == history[4]
    assert {n: snapshot_rows(pipeline, n) for n in (3, 4)} == {n: history[n] for n in (3, 4)}
    left = [entry.path for entry in pipeline.store.list("", unfinished=True)]
    assert not [path for path in left if path.startswith("snapshots/accounts/000000000") and path[27] in "12"]
    assert not [path for path in left if path.endswith(".part")]

    put(pipeline, [{"id": 1, "text": "never seen"}])
    assert fold(pipeline, "run-5").status == "staged"
    abort(pipeline, "accounts", reason="made to")
    assert table_rows(pipeline) == history[4]
    check_fold_and_confirm(pipeline, s3)
    assert table_rows(pipeline) == {**history[4], 1: "never seen"}

    assert drop(pipeline, "accounts", plan=False).status == "dropped"
    assert [e.path for e in pipeline.store.list("tables") + pipeline.store.list("snapshots")] == []


def check_subsume(pipeline: Pipeline, s3: S3Bucket) -> None:
    """Subsume looks at the files of the retired snapshots only."""
    before = {entry.path for entry in pipeline.store.list("")}
    s3.server.heal()
    outcome = subsume(pipeline, "accounts")
    pages = [address for method, address in s3.server.requests() if method == "GET" and "tables" in address]
    assert ["_data" in page for page in pages if "list-type" in page] == [True]
    assert outcome.facts["snapshots"] == [1, 2]
    gone = before - {entry.path for entry in pipeline.store.list("")}
    assert (outcome.status, outcome.facts["files"]) == ("subsumed", len({p for p in gone if "/ledger/" not in p}))
    assert set(outcome.facts["paths"]) == {p for p in gone if "/ledger/" not in p}


def check_fold_and_confirm(pipeline: Pipeline, s3: S3Bucket) -> None:
    """A fold reads only what it changes: the server copies carried files. Publishing looks at new files only."""
    s3.server.heal()
    staged = fold(pipeline, "run-6")
    new = staged.facts["files"] - staged.facts["files_carried"]
    assert 0 < new < staged.facts["files"]
    read = {address.split("?")[0] for method, address in s3.server.requests() if method == "GET"}
    assert len({path for path in read if path.endswith(".parquet")}) == new
    judge_all(pipeline)
    s3.server.heal()
    assert confirm(pipeline, "accounts", Confirmation(run="run-6")).status == "published"
    asked = [(method, address) for method, address in s3.server.requests() if "_data" in address]
    looked = [address for method, address in asked if method == "HEAD" and address.endswith(".parquet?")]
    assert len(looked) == new
    assert [method for method, address in asked if address not in looked] == ["GET"]


def test_a_new_file_that_was_lost_is_put_back_before_it_is_published(pipeline: Pipeline) -> None:
    history = grow(pipeline, 1)
    put(pipeline, [{"id": 1, "text": "x"}])
    fold(pipeline, "next")
    judge_all(pipeline)
    store, table = pipeline.store, LogPaths("accounts").table
    shown = DeltaTable(store.uri(table), storage_options=store.options()).get_add_actions().column("path").to_pylist()
    new = [e.path for e in store.list(f"{table}/_data") if e.path.removeprefix(f"{table}/") not in shown]
    assert new
    store.delete(new)
    confirm(pipeline, "accounts", Confirmation(run="next"))
    assert table_rows(pipeline) == {**history[1], 1: "x"}


def test_commits_whose_answers_are_lost_are_published_once(pipeline: Pipeline, s3: S3Bucket) -> None:
    history = grow(pipeline, 1)
    put(pipeline, [{"id": 1, "text": "once"}])
    for kept in ("/ledger/", "/manifest", ".parquet", "tables/accounts/_delta_log"):
        s3.server.fail("PUT", kept, lost=True)
    outcome = cycle(pipeline, "run-2")
    assert (outcome.status, outcome.facts["table_version"]) == ("published", 1)
    assert table_rows(pipeline) == {**history[1], 1: "once"}
    assert confirm(pipeline, "accounts", Confirmation(run="run-2")).facts["table_version"] == 1


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_table_that_is_not_shown_is_an_error_and_published_later(
    pipeline: Pipeline, s3: S3Bucket, method: str
) -> None:
    history = grow(pipeline, 1)
    put(pipeline, [{"id": 1, "text": "later"}])
    assert fold(pipeline, "run-2").status == "staged"
    judge_all(pipeline)
    s3.server.fail(method, "tables/accounts/_delta_log", status=403, code="AccessDenied", times=99)
    with pytest.raises(StorageError) as failed:
        confirm(pipeline, "accounts", Confirmation(run="run-2"))
    assert "\x1b" not in failed.value.message
    s3.server.heal()
    assert table_rows(pipeline) == history[1]
    assert confirm(pipeline, "accounts", Confirmation(run="run-2")).status == "published"
    assert table_rows(pipeline) == {**history[1], 1: "later"}


def test_columns_and_files_change_in_one_commit(pipeline: Pipeline) -> None:
    """S5: the commit with a new schema is written under the same condition as all others; one more is not lost."""
    put(pipeline, [{"id": i, "text": "a"} for i in range(10)])
    cycle(pipeline, "run-1")
    columns = (Column("id", "long"), Column("label", "string", aliases=("text",)))
    renamed = with_log_shape(pipeline, columns=columns)
    apply_configured_schema(renamed, renamed.ledger("accounts").read())
    put(renamed, [{"id": 3, "label": "b"}])
    assert cycle(renamed, "run-2").facts["table_version"] == 1
    uri, options = pipeline.store.uri(LogPaths("accounts").table), pipeline.store.options()
    for rows in (DeltaTable(uri, storage_options=options).to_pyarrow_table().to_pylist(),
                 polars.read_delta(uri, storage_options=options).to_dicts()):  # fmt: skip
        assert {row["id"]: row["label"] for row in rows} == {i: "b" if i == 3 else "a" for i in range(10)}
    put(renamed, [{"id": 4, "label": "c"}])
    assert cycle(renamed, "run-3").facts["table_version"] == 2


def test_the_same_changes_give_the_same_content_in_s3_and_on_disk(
    pipeline: Pipeline, tmp_path: Path, s3: S3Bucket
) -> None:
    """Each also imports the savepoint of the other."""
    disk = make_pipeline(tmp_path / "disk", FEW_BUCKETS)
    for one in (pipeline, disk):
        grow(one, 2)
    assert read_rows(pipeline) == read_rows(disk)
    for number, (giver, taker) in enumerate(((pipeline, disk), (disk, pipeline))):
        put(giver, [{"id": 5, "text": f"changed {number}"}])
        cycle(giver, f"more-{number}")
        address = f"s3://{s3.name}/savepoint-{number}"
        assert take_savepoint(giver, "accounts", SavepointRequest(address)).status == "saved"
        [staged] = materialize(taker, ["accounts"], Import(f"in-{number}", address, Ownership.NO_CLAIM), in_process)
        assert staged.status == "staged", staged
        judge_all(taker)
        assert confirm(taker, "accounts").status == "published"
        assert read_rows(taker) == read_rows(giver)


def read_rows(pipeline: Pipeline) -> list[tuple[int, str]]:
    table = DeltaTable(pipeline.store.uri(LogPaths("accounts").table), storage_options=pipeline.store.options())
    return sorted((row["id"], row["text"]) for row in table.to_pyarrow_table().to_pylist())


def test_a_run_names_its_requests_and_bytes(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "a"}])
    command = ["run", "accounts", "--config", str(pipeline.config.path)]
    done = CliRunner().invoke(app, command)
    assert re.search(r"\n[\d,]+ requests to object stores, [\d,]+ bytes sent, [\d,]+ bytes received\n", done.stdout), (
        done.output
    )
    found = json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)["object_stores"]
    assert found["requests"] > 0
    assert found["bytes_received"] > 0


def test_where_links_are_copies_an_incremental_snapshot_copies_nothing(s3: S3Bucket, tmp_path: Path) -> None:
    """N2, N5: after a full one every file lies in the table's folder already; none is copied, or sent twice."""
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", f"store: {s3.address}\n"))
    restoring.cycle(pipeline, "run-1", restoring.FIRST)
    restoring.take(pipeline, {1: "b"})
    s3.server.heal()
    outcome = restoring.fold(pipeline, "run-2", KindPolicy.INCREMENTAL)
    assert outcome.facts["files_carried"] == 3
    requests = [method for method, address in s3.server.requests() if ".parquet" in address and "/tables/" in address]
    assert requests.count("PUT") == 1
    assert requests.count("POST") == 0
    restoring.publish(pipeline)
    assert table_rows(pipeline) == {**restoring.FIRST, 1: "b"}


def test_a_table_file_that_was_altered_is_not_shared(s3: S3Bucket, tmp_path: Path) -> None:
    """I14, N3: the same where links are copies: a file that is not proved is refused."""
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", f"store: {s3.address}\n"))
    restoring.cycle(pipeline, "run-1", restoring.FIRST)
    restoring.take(pipeline, {1: "b"})
    state = pipeline.ledger("accounts").read()
    for file in read_manifest(pipeline.store, "accounts", state.snapshots[0]).files:
        key = f"a/store/{data_path(LogPaths('accounts').table, file.name)}"
        s3.client.put_object(Bucket=s3.name, Key=key, Body=b"x" * file.bytes)
    assert restoring.fold(pipeline, "run-2", KindPolicy.INCREMENTAL).error_code == "NAME_TAKEN"
    assert restoring.fold(pipeline, "run-3", KindPolicy.FULL).status == "staged"
