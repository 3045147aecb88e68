"""The Spark data source `tidefold`: the same rows as the command line reads, and as a naive fold. C10; I5, I6, I23."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local_airflow.settings import PROJECT
from support.pipelines import CONFIG, contents, judge_all, make_pipeline, put
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import SnapshotKind
from tidefold.domain.snapshot import claim
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, plan_read, read_rows
from tidefold.operations.requests import Fold
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.read.plan import ReadPlan
from tidefold.spark.data_source import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEEPING = CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\n")
_PATIENCE_SECONDS = 180
Rows = list[dict[str, Any]]
Load = Callable[..., "DataFrame"]


@dataclass
class Bank:
    """A pipeline and what its rows must be, kept by a dict that knows nothing of folding."""

    pipeline: Pipeline
    chance: random.Random = field(default_factory=lambda: random.Random(11))
    rows: dict[int, str | None] = field(default_factory=dict)

    def take(self, number: int = 30, keys: int = 60) -> None:
        changes: Rows = []
        for i in range(number):
            key = self.chance.randrange(keys)
            gone = self.chance.random() < 0.25
            text = None if gone or self.chance.random() < 0.1 else f"{len(self.rows)} {i}"
            changes.append({"id": key, "text": text, **({"_op": DELETE} if gone else {})})
            self.rows.pop(key, None)
            if not gone:
                self.rows[key] = text
        put(self.pipeline, changes)

    def publish(self, run: str) -> None:
        assert materialize(self.pipeline, ["accounts"], Fold(run), in_process)[0].status == "staged"
        judge_all(self.pipeline)
        confirm(self.pipeline, "accounts")

    def tail(self, run: str) -> None:
        asked = claim.Claim(run, run, SnapshotKind.TAIL, "2026-01-01T00:00:00+00:00")
        self.pipeline.ledger("accounts").commit(lambda state: claim.tail(state, asked))


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    made = Bank(make_pipeline(tmp_path, KEEPING))
    for number in (1, 2):
        made.take()
        made.publish(f"run-{number}")
    return made


@pytest.fixture
def load(spark: SparkSession, tmp_path: Path) -> Load:
    return loader(spark, tmp_path / "tidefold.yaml")


def loader(spark: SparkSession, config: Path) -> Load:
    def made(**options: Any) -> DataFrame:
        reader = spark.read.format("tidefold").option("config", str(config))
        return reader.options(**{"log": "accounts", **options}).load()

    return made


def collected(frame: DataFrame) -> Rows:
    return sorted((row.asDict() for row in frame.collect()), key=str)


def as_pairs(frame: DataFrame) -> dict[int, str | None]:
    rows = frame.collect()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["text"] for row in rows}


def without_spark(pipeline: Pipeline, **how: Any) -> Rows:
    _, batches = read_rows(pipeline, "accounts", ReadRequest(**how))
    return sorted((row for batch in batches for row in batch.to_pylist()), key=str)


def test_table_live_log_and_snapshots_equal_the_naive_fold_and_the_command_line(bank: Bank, load: Load) -> None:
    published = dict(bank.rows)
    bank.take()
    bank.tail("tail")
    at_tail = dict(bank.rows)
    bank.take()
    before = contents(Path(bank.pipeline.store.uri("")))
    assert as_pairs(load()) == as_pairs(load(what="table")) == as_pairs(load(snapshot=2)) == published
    assert as_pairs(load(what="live")) == bank.rows
    assert as_pairs(load(snapshot=3)) == at_tail
    for how in ({}, {"what": "live"}, {"what": "log"}, {"what": "log", "since": 2}, {"snapshot": 1}, {"snapshot": 3}):
        mine = {**how, **({"what": What(str(how["what"]))} if "what" in how else {})}
        rows = collected(load(**how))
        assert rows == without_spark(bank.pipeline, **mine), how
        assert len(rows) > 0
    assert contents(Path(bank.pipeline.store.uri(""))) == before


def test_the_log_folded_by_hand_gives_the_live_rows(bank: Bank, load: Load) -> None:
    bank.take()
    found: dict[int, str | None] = {}
    changes = load(what="log")
    for row in changes.orderBy("_sqn", "_partition", "_offset").collect():
        found.pop(row["id"], None)
        if row["_op"] != DELETE:
            found[row["id"]] = row["text"]
    assert found == bank.rows
    assert {row["_sqn"] for row in load(what="log", since=1).collect()} == {2, 3}


def test_every_type_keeps_its_values_and_only_keys_are_required(spark: SparkSession, tmp_path: Path) -> None:
    """I28: types and nullability are the log's; a given schema that differs is refused."""
    columns = "{id: int, b: boolean, l: long, f: float, d: double, text: string, day: date, at: timestamp}"
    pipeline = make_pipeline(tmp_path, CONFIG.replace("{id: int, text: string}", columns, 1))
    whole = {"b": True, "l": 2**62, "f": 0.5, "d": -1e300, "text": "ü" * 40, "day": 19_000, "at": 1_700_000_000_123_456}
    put(pipeline, [{"id": 1, **whole}, {"id": 2, **dict.fromkeys(whole)}])
    load = loader(spark, tmp_path / "tidefold.yaml")
    live = load(what="live")
    assert live.schema.simpleString() == (
        "struct<id:int,b:boolean,l:bigint,f:float,d:double,text:string,day:date,at:timestamp>"
    )
    assert [f.name for f in live.schema if not f.nullable] == ["id"]
    changes = load(what="log")
    assert changes.schema.simpleString().startswith(
        "struct<_sqn:bigint,_op:tinyint,_kg:int,_o0:bigint,_o1:bigint,_partition:int,_offset:bigint,_ts:bigint,"
        "_absent:array<string>,id:int,"
    )
    assert [f.name for f in changes.schema if not f.nullable] == ["_sqn"]
    texts = [f"{name} {row}" for name in live.columns for row in live.selectExpr(f"cast({name} as string)").collect()]
    arrow = without_spark(pipeline, what=What.LIVE)
    assert sum("None" in text for text in texts) == sum(v is None for row in arrow for v in row.values()) == 7
    assert live.where("at = timestamp'2023-11-14 22:13:20.123456' and day = date'2022-01-08' and l > 0").count() == 1
    assert changes.count() == live.count() == 2
    with pytest.raises(Exception, match=r"\[READ_SCHEMA\]"):
        spark.read.format("tidefold").schema("id int").options(
            config=str(tmp_path / "tidefold.yaml"), log="accounts", what="live"
        ).load().count()


@pytest.mark.rotates(2)
@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_filters_give_the_right_rows_in_whatever_order_one_frame_is_used(
    spark: SparkSession, bank: Bank, load: Load, pushdown: str
) -> None:
    """Spark 4.2.0 keeps partitions that a filter left for later uses of the same frame; this source lets none go."""
    bank.take()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = load(what="live")
        one, two, *_ = sorted(bank.rows)
        assert as_pairs(frame.where(f"id = {one}")) == {one: bank.rows[one]}
        assert as_pairs(frame) == bank.rows
        both = frame.where(f"id = {one}").union(frame.where(f"id = {two}"))
        assert as_pairs(both) == {one: bank.rows[one], two: bank.rows[two]}
        texts = {k: v for k, v in bank.rows.items() if v is not None and v > "3"}
        assert as_pairs(frame.where("text > '3' and id in (select id from range(100))")) == texts
        assert as_pairs(frame.where("text is null")) == {k: v for k, v in bank.rows.items() if v is None}
        assert frame.select("text").distinct().count() == len(set(bank.rows.values()))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def read_plan(pipeline: Pipeline, key: int) -> ReadPlan:
    return plan_read(pipeline, "accounts", ReadRequest(key=f'{{"id": {key}}}'))


def test_one_key_reads_one_bucket(bank: Bank, load: Load, tmp_path: Path) -> None:
    """L8: measured by taking the files of the other buckets away: 1 of 4 is opened, 4 of 4 without the key."""
    key = min(bank.rows)
    frame, whole = load(key=f'{{"id": {key}}}'), load()
    assert (frame.rdd.getNumPartitions(), whole.rdd.getNumPartitions()) == (1, 4)
    data = sorted((tmp_path / "store" / "snapshots" / "accounts" / "0000000002" / "_data").iterdir())
    [needed] = read_plan(bank.pipeline, key).tasks[0].files
    for file in data:
        if file.name != needed.name:
            file.unlink()
    assert len(data) == 4
    assert as_pairs(frame) == {key: bank.rows[key]}
    with pytest.raises(Exception, match=r"\[FILE_MISSING\]"):
        whole.collect()
    history = load(what="log", key=f'{{"id": {key}}}').collect()
    assert len(history) > 0
    assert {row["id"] for row in history} == {key}


def test_a_frame_stays_as_it_was_loaded(bank: Bank, load: Load) -> None:
    """I6: what is ingested, published or made later is in the next load, not in this one."""
    published, live, log = load(), load(what="live"), load(what="log")
    before, rows = log.count(), dict(bank.rows)
    bank.take()
    assert (as_pairs(live), log.count()) == (rows, before)
    bank.publish("run-3")
    assert as_pairs(published) == as_pairs(live) == rows
    assert as_pairs(load()) == as_pairs(load(what="live")) == bank.rows
    assert load(what="log").count() == before + 30


def test_what_was_removed_under_a_frame_says_to_load_again(bank: Bank, load: Load) -> None:
    old, log = load(snapshot=1), load(what="log")
    for run in ("run-3", "run-4"):
        bank.take()
        bank.publish(run)
    subsume(bank.pipeline, "accounts")
    truncate(bank.pipeline, "accounts")
    for frame in (old, log):
        with pytest.raises(Exception, match=r"\[READ_OUTDATED\].*Read again"):
            frame.collect()
    with pytest.raises(Exception, match=r"\[LOG_CUT\].*begins at change set 4"):
        load(what="log", since=1)
    assert {row["_sqn"] for row in load(what="log").collect()} == {4}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"config": "/none/tidefold.yaml"}, "CONFIG_NOT_FOUND.*There is no configuration file"),
    ({"log": "acounts"}, "LOG_NOT_CONFIGURED.*Configured logs: accounts, tellers"),
    ({"log": "tellers"}, "LOG_UNKNOWN.*The store has no log"),
    ({"log": ""}, "READ_OPTIONS.*The option `log` is missing"),
    ({"snapshto": 1}, "READ_OPTIONS.*no option `snapshto`. Known are: config, log"),
    ({"what": "tabel"}, "READ_OPTIONS.*`what` cannot be `tabel`. Allowed: table, live, log"),
    ({"snapshot": "two"}, "READ_OPTIONS.*`snapshot` cannot be `two`"),
    ({"snapshot": 9}, "SNAPSHOT_UNKNOWN"),
    ({"what": "live", "snapshot": 1}, "READ_OPTIONS.*`snapshot` works with `table`"),
    ({"since": 1}, "READ_OPTIONS.*`since` works with `log`"),
    ({"what": "log", "since": -1}, "READ_OPTIONS.*`since` cannot be `-1`"),
    ({"what": "log", "since": 9}, "SINCE_AHEAD.*ends at change set 2"),
    ({"key": "5"}, "READ_KEY.*Name every key column"),
]


def test_what_is_wrong_is_said_by_load_with_code_and_next_step(bank: Bank, load: Load) -> None:
    answers = [refusal_of(load, options) for options, _ in WRONG]
    missed = [
        (options, said, answer)
        for (options, said), answer in zip(WRONG, answers, strict=True)
        if not re.search(said, answer)
    ]
    assert missed == []


def refusal_of(load: Load, options: dict[str, Any]) -> str:
    try:
        load(**options)
    except Exception as error:
        return str(error)
    return "accepted"


def test_damage_in_a_task_reaches_the_reader_with_its_code(bank: Bank, load: Load, tmp_path: Path) -> None:
    """I23."""
    frame = load()
    [file, *_] = (tmp_path / "store" / "snapshots" / "accounts" / "0000000002" / "_data").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(Exception, match=r"\[DATA_FILE_CORRUPT\].*verify --repair"):
        frame.collect()


def test_an_empty_log_is_no_rows_and_a_table_that_is_not_there_an_error(
    spark: SparkSession, load: Load, tmp_path: Path
) -> None:
    pipeline = make_pipeline(tmp_path)
    pipeline.ledger("accounts").begin(pipeline.log("accounts").shape)
    assert load(what="live").collect() == load(what="log").collect() == []
    with pytest.raises(Exception, match=r"\[NOTHING_PUBLISHED\].*tidefold run accounts"):
        load()


def test_explain_names_the_source_and_register_is_harmless_where_it_was_found(
    spark: SparkSession, bank: Bank, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    load().explain()
    assert "BatchScan tidefold[id" in capsys.readouterr().out
    register(spark)
    assert as_pairs(load()) == bank.rows


_SCRIPT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
frame = spark.read.format("tidefold").option("config", "tidefold.yaml").option("log", "accounts").load()
print("ROWS", frame.count(), frame.rdd.getNumPartitions())
spark.stop()
"""


def test_a_plain_pyspark_session_finds_the_format(bank: Bank, tmp_path: Path) -> None:
    """Nothing of tidefold but its folder on PYTHONPATH: no jars, no settings, no registration."""
    (tmp_path / "plain.py").write_text(_SCRIPT)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "TIDEFOLD"))}
    env |= {"PYTHONPATH": str(PROJECT / "include"), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # Half of a short job's CPU time is the second compiler's.
    env["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1"
    argv = [sys.executable, str(tmp_path / "plain.py")]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=_PATIENCE_SECONDS)
    assert f"ROWS {len(bank.rows)} 4" in done.stdout, done.stderr
