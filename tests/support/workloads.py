"""Small fixed workloads over one log, the same on every machine. Tests count their calls and compare them with a
baseline.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from support.pipelines import judge_all
from tidefold.changelog.key_group_hash import key_groups_of
from tidefold.changelog.writer import Changelog
from tidefold.changelog.writer.settings import WriterSettings
from tidefold.compute.runners import Runner, in_process
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

LOG, ROWS = "accounts", 100_000
CONFIG = f"""
version: 1
store: store
retention: {{snapshots: 3}}
logs:
  {LOG}:
    key: [id]
    columns: {{id: long, text: string}}
    order: arrival
    key_groups: 128
    buckets: 16
    quality: {{suite: suite.yaml}}
"""
_SUITE = "checks: [{not_null: text}, {range: {column: id, min: 0}}]\n"


def opened(root: Path) -> Pipeline:
    return open_pipeline(root / "tidefold.yaml")


def configured(root: Path, config: str = CONFIG) -> None:
    root.mkdir()
    (root / "tidefold.yaml").write_text(config)
    (root / "suite.yaml").write_text(_SUITE)


def begun(root: Path) -> Path:
    """Makes a store with a published table of `ROWS` rows in 16 buckets."""
    configured(root)
    append(root, [range(ROWS)])
    cycle(root, "first", KindPolicy.FULL)
    return root


def copied(base: Path, root: Path) -> Path:
    shutil.copytree(base, root)
    return root


def append(root: Path, parts: Sequence[Sequence[int]]) -> None:
    """Appends new values for the rows of these ids. Each part becomes a change set in its own segment."""
    pipeline = opened(root)
    with Changelog(pipeline.store, WriterSettings(persist_delay=0)) as changelog:
        log = changelog.log(LOG, pipeline.log(LOG).shape)
        for number, ids in enumerate(parts):
            log.append(rows(ids, number))
            log.persist(0).result()


def rows(ids: Sequence[int], number: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [f"{number} and {i}" for i in ids]})


def uniform(count: int, segments: int, seed: int = 1) -> list[list[int]]:
    """Returns `count` ids from anywhere, in `segments` parts."""
    ids = random.Random(seed).sample(range(ROWS), count)
    return [ids[start::segments] for start in range(segments)]


def local(root: Path, count: int, groups: int) -> list[list[int]]:
    """Returns `count` ids, all of them in the first `groups` key groups."""
    ids = pa.table({"id": pa.array(range(ROWS), pa.int64())})
    found = key_groups_of(ids, opened(root).log(LOG).shape).to_pylist()
    return [[i for i, group in enumerate(found) if group < groups][:count]]


def fold(root: Path, run: str, kind: KindPolicy = KindPolicy.INCREMENTAL, runner: Runner = in_process) -> None:
    [outcome] = materialize(opened(root), [LOG], Fold(run, kind=kind), runner)
    assert not outcome.error_code, outcome.message


def cycle(root: Path, run: str, kind: KindPolicy = KindPolicy.INCREMENTAL) -> None:
    """Runs all steps from the waiting changes to the published table; the gate always passes."""
    fold(root, run, kind)
    judge_all(opened(root), LOG)
    confirm(opened(root), LOG)
