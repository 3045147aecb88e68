"""Real captures of transactions that were open while a snapshot was made, through the command line (decision 0068)."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from support.commands import call
from tidefold.operations.sets.read import find_tables
from tidefold.wiring import open_pipeline

DATA = Path(__file__).parents[3] / "data" / "open_transactions"
TRUTH: dict[str, dict[str, dict[str, str]]] = json.loads((DATA / "truth.json").read_text())
WIDE = (
    "id: long, name: string, pad: string, amount: {type: 'decimal(12,2)', encoding: base64(2)}, anynum: {type: string, "
    "encoding: decimal}, f8: double, f4: float, ok: boolean, d: date, ts: timestamp, tstz: {type: timestamp, encoding: "
    "iso}, t: long, b: binary, j: string, jb: string, tags: array<string>, nums: array<int>, u: string, m: string, "
    "big: string"
)
LOG = """
  {log}:
    source: {{format: debezium-json, connector: {connector}, path: landing/{topic}}}
    key: [id]
    columns: {{{columns}}}
    key_groups: 8
    buckets: 1
    quality: {{max_row_drop: 1}}
"""


def topics_of(name: str) -> dict[str, list[dict[str, Any]]]:
    topics = defaultdict(list)
    for line in gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).splitlines():
        one = json.loads(line)
        topics[one["topic"]].append(one)
    return topics


def configure(root: Path, name: str, topics: dict[str, list[dict[str, Any]]], more: str = "") -> None:
    columns = WIDE if name == "postgresql_overlap" else "id: long, v: string"
    logs = "".join(
        LOG.format(log=topic.rpartition(".")[2], connector=name.split("_")[0], topic=topic, columns=columns)
        for topic in topics
        if not topic.endswith("transaction")
    )
    (root / "tidefold.yaml").write_text(f"version: 1\nstore: store\nlogs:{logs}{more}")
    for topic in topics:
        (root / "landing" / topic).mkdir(parents=True)


def land(root: Path, topic: str, records: list[dict[str, Any]]) -> None:
    path = root / "landing" / topic / f"{topic}+0+{records[0]['offset']:010d}.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records))


def place(source: dict[str, Any]) -> tuple[Any, ...]:
    return source.get("sequence"), source.get("file"), source.get("pos")


def rows_of(address: str, value: str = "v") -> dict[str, str]:
    rows = DeltaTable(address).to_pyarrow_table(columns=["id", value]).to_pylist()
    return {str(row["id"]): row[value] for row in rows}


@pytest.mark.rotates(6)
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("name", [name for name in TRUTH if name != "mariadb_xa"])
def test_the_table_has_the_rows_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cut: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    topics, rnd = topics_of(name), Random(name)
    configure(tmp_path, name, topics)
    for topic, records in topics.items():
        at = 0
        while at < len(records):
            end = min(len(records), at + rnd.randint(1, 12)) if cut else len(records)
            land(tmp_path, topic, records[at:end])
            at = end
            if cut and rnd.random() < 0.15:
                call("step", "ingest")
    call("run")
    for log, rows in TRUTH[name].items():
        assert rows_of(f"store/tables/{log}", "name" if name == "postgresql_overlap" else "v") == rows


def test_what_an_xa_transaction_prepared_before_the_snapshot_is_not_sent() -> None:
    """The connector's part: MariaDB writes such changes into the binlog when they are prepared."""
    [topic] = [records for name, records in topics_of("mariadb_xa").items() if name.endswith(".acct")]
    assert TRUTH["mariadb_xa"]["acct"]["3"] == "C3"
    assert "C3" not in json.dumps(topic)


@pytest.mark.parametrize("name", ["postgresql_initial", "postgresql_again", "mariadb_initial"])
def test_a_set_waits_for_the_end_of_the_open_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All records of the tables land, and nothing of the transaction topic behind its first records."""
    monkeypatch.chdir(tmp_path)
    topics = topics_of(name)
    ends = next(topic for topic in topics if topic.endswith("transaction"))
    logs = [topic for topic in topics if topic != ends and not topic.endswith(".sig")]
    chosen = f"sets:\n  bank:\n    logs: [acct, other]\n    transactions: landing/{ends}\n"
    configure(tmp_path, name, {topic: topics[topic] for topic in [*logs, ends]}, chosen)
    for topic in logs:
        land(tmp_path, topic, topics[topic])
    land(tmp_path, ends, topics[ends][:1])
    call("run", code=None)
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    tables = find_tables(pipeline, "bank")
    first = {}
    for topic in logs:
        begun = topics[topic][0]["value"]["source"]
        same = [
            one
            for one in topics[topic]
            if (source := (one["value"] or {}).get("source")) and place(source) == place(begun)
        ]
        first[topic.rpartition(".")[2]] = {str(one["key"]["id"]): one["value"]["after"]["v"] for one in same}
    assert {log: rows_of(table.address) for log, table in tables.items()} == first
