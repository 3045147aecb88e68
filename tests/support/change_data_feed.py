"""Pipelines with a change data feed, and the naive difference of two versions that a feed must equal."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from support.pipelines import CONFIG, judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import SnapshotRequest
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize

Row = dict[str, Any]
LOG = "accounts"
FEED = CONFIG.replace("    buckets: 4\n", "    buckets: 4\n    change_feed: true\n", 1)
VECTORS = FEED.replace("    buckets: 4\n", "    buckets: 1\n    deletion_vectors: true\n", 1)
KEYLESS = FEED.replace("    key: [id]\n", "    merge: append\n", 1).replace(
    "{format: debezium-json, connector: postgresql, path: landing/accounts}", "{format: json, path: landing/accounts}"
)


def open_table(pipeline: Pipeline, version: int | None = None) -> DeltaTable:
    return DeltaTable(pipeline.store.uri(LogPaths(LOG).table), version=version)


def rows_at(pipeline: Pipeline, version: int) -> list[dict[str, Any]]:
    """The rows of a version, as readers see them."""
    query = QueryBuilder().register("t", open_table(pipeline, version)).execute("SELECT * FROM t")
    return list(pa.table(query.read_all()).to_pylist())


def text_of(row: dict[str, Any]) -> str:
    return json.dumps(row, default=repr, sort_keys=True)


def find_differences(
    before: list[dict[str, Any]], after: list[dict[str, Any]], names: list[str], key: str | None
) -> Counter[str]:
    """The difference of two versions, with the columns of the later one."""
    old = [{name: row.get(name) for name in names} for row in before]
    if key is None:
        olds, news = Counter(map(text_of, old)), Counter(map(text_of, after))
        return Counter(
            {with_type(text, "delete"): n for text, n in (olds - news).items()}
            | {with_type(text, "insert"): n for text, n in (news - olds).items()}
        )
    found: Counter[str] = Counter()
    one, other = {row[key]: row for row in old}, {row[key]: row for row in after}
    for value in {*one, *other}:
        was, now = one.get(value), other.get(value)
        if was == now:
            continue
        if was is not None:
            found[with_type(text_of(was), "update_preimage" if now else "delete")] += 1
        if now is not None:
            found[with_type(text_of(now), "update_postimage" if was else "insert")] += 1
    return found


def with_type(text: str, change: str) -> str:
    return text_of({**json.loads(text), "_change_type": change})


def publish(pipeline: Pipeline, request: SnapshotRequest) -> int:
    [outcome] = materialize(pipeline, [LOG], request, in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline)
    assert confirm(pipeline, LOG).status == "published"
    return open_table(pipeline).version()
