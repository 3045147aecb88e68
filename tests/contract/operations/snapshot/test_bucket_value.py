"""Rows and what is kept beside them are one value: any life of a log keeps both in step (decision 0070).

A life plays changes, deletes, clears, expiry, restores, other numbers of buckets, compaction, deletion vectors,
savepoints of both layouts with imports, and rebuilds. The naive program knows nothing but the list of changes.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.effort import choose
from support.naive import rows_of
from support.pipelines import CONFIG, judge_all, make_pipeline, put
from support.savepoints import bring_in, save
from tidefold.changelog.schema import CLEAR, DELETE, UPSERT
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Layout
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.domain.table.table_spec import Engine
from tidefold.fold.merge import merge as merge_module
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.restore.rebuild import rebuild
from tidefold.operations.snapshot.compact_log import compact_log
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify

LOG = "accounts"
OLD, YOUNG = datetime(2000, 1, 1, tzinfo=UTC), datetime.now(UTC) + timedelta(days=1_000)
ORDERED = "order: [seq]\n    "
# Merge, order, operations, and whether changes leave columns out.
CASES: dict[str, tuple[str, str, tuple[int, ...], bool]] = {
    "partial": ("partial", ORDERED, (UPSERT, UPSERT, UPSERT, DELETE), True),
    "groups": ("{engine: partial, deletes: ignore, groups: [{columns: [a], order: [seq]}]}", "", (UPSERT,), True),
    "last": ("last", ORDERED, (UPSERT, UPSERT, DELETE), False),
    "first": ("{engine: first, deletes: ignore}", ORDERED, (UPSERT,), False),
    "unsent": ("last", "", (UPSERT, UPSERT, UPSERT, DELETE), True),
    "history": ("history", ORDERED, (UPSERT, UPSERT, DELETE), False),
}


def configured(case: str, buckets: int, *, vectors: bool) -> str:
    merge, order, _, _ = CASES[case]
    columns = "columns: {id: int, seq: long, a: long, b: string, at: timestamp}"
    text = CONFIG.replace("columns: {id: int, text: string}", columns, 1).replace("buckets: 4", f"buckets: {buckets}")
    if order:
        text = text.replace(
            "format: debezium-json, connector: postgresql", "format: json, record: value, names: any", 1
        )
    keys = f"{order}merge: {merge}\n    deletion_vectors: {str(vectors).lower()}\n    "
    keys += "" if case in ("history", "unsent") else "ttl: {column: at, days: 30}\n    "
    return text.replace("    key_groups: 16", f"    {keys}key_groups: 16", 1)


@dataclass
class Life:
    """A log, and the changes that count for it. `kept`: those of each snapshot."""

    case: str
    folder: Path
    seed: random.Random
    number: int = 0
    buckets: int = 2
    changes: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    kept: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.open(self.folder)

    def open(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        vectors = self.seed.random() < 0.5
        self.pipeline: Pipeline = make_pipeline(folder, configured(self.case, self.buckets, vectors=vectors))

    def change(self) -> None:
        _, _, ops, absent = CASES[self.case]
        clears = self.case in ("groups", "unsent") and self.seed.random() < 0.2
        made = [self._make(self.seed.choice(ops), absent=absent) for _ in range(self.seed.randrange(1, 6))]
        if clears:
            nothing = dict.fromkeys(("id", "seq", "a", "b", "at", "_absent"))
            made.insert(self.seed.randrange(len(made) + 1), {**nothing, "_op": CLEAR})
        state = self.pipeline.ledger(LOG).begin(self.pipeline.log(LOG).shape)
        first = state.positions[0].next_offset if state.positions else 0
        shape = self.pipeline.log(LOG).shape
        for at, one in enumerate(made):
            order = {"_o0": one["seq"]} if not shape.source_ordered else {"_o0": 1, "_o1": first + at}
            one |= {"_partition": 0, "_offset": first + at, "_ts": 1_000 * (first + at), **order}
        # A clear is in the change set once for each key group.
        put(self.pipeline, [{**row, "_kg": kg} for row in made for kg in range(16 if row["_op"] == CLEAR else 1)])
        self.waiting += made

    def _make(self, op: int, *, absent: bool) -> dict[str, Any]:
        seed, gone = self.seed, op == DELETE
        row = {"id": seed.randrange(8), "_op": op, "seq": seed.randrange(30)}
        values = {"a": seed.randrange(9), "b": seed.choice(["x", "y", None]), "at": seed.choice([OLD, YOUNG, YOUNG])}
        # Of a row that is left out no value is kept, so only changes of one fold can complete each other.
        may_lack = () if gone or not absent else ("a",) if self.case == "unsent" else ("a", "b")
        lacks = [name for name in may_lack if seed.random() < 0.4]
        values |= dict.fromkeys(lacks) if not gone else dict.fromkeys(values)
        if gone and self.case == "unsent":
            row["seq"] = None
        return {**row, **values, "_absent": lacks or None}

    def fold(self, kind: KindPolicy | None = None) -> None:
        self.number += 1
        [outcome] = materialize(self.pipeline, [LOG], Fold(f"run-{self.number}", kind=kind), in_process)
        if outcome.status == "nothing":
            return
        assert outcome.status == "staged", outcome
        self.changes, self.waiting = self.changes + self.waiting, []
        self._complete(drops=outcome.facts["kind"] == "full")

    def _complete(self, *, drops: bool) -> None:
        judge_all(self.pipeline)
        assert confirm(self.pipeline, LOG).snapshot
        if drops:
            self._forget_expired()
        latest = self.pipeline.ledger(LOG).read().latest
        assert latest
        self.kept[latest.id] = list(self.changes)
        self.check()

    def _forget_expired(self) -> None:
        """A row that expired is forgotten; a delete of a partial row is not."""
        shape = self.pipeline.log(LOG).shape
        if self.pipeline.log(LOG).ttl is None:
            return
        old = {row["id"] for row in rows_of(shape, self.changes) if row["at"] == OLD}
        stays = (CLEAR, DELETE) if shape.merge.engine is Engine.PARTIAL else (CLEAR,)
        self.changes = [one for one in self.changes if one["id"] not in old or one["_op"] in stays]

    def restore(self) -> None:
        state = self.pipeline.ledger(LOG).read()
        if state.latest is None or self.waiting:
            return
        chosen = self.seed.choice([one for one in state.snapshots if one.id in self.kept and one.state == "COMPLETED"])
        self.number += 1
        point = RestorePoint(chosen.id, RestoreMode.SKIP)
        [outcome] = materialize(self.pipeline, [LOG], Restore(f"run-{self.number}", point), in_process)
        assert outcome.status == "staged", outcome
        self.changes = list(self.kept[chosen.id])
        self._complete(drops=outcome.facts["kind"] == "full")

    def rescale(self) -> None:
        self.buckets = self.seed.choice([1, 2, 4])
        self.open(self.folder)
        self.fold(KindPolicy.FULL)

    def compact(self) -> None:
        compact_log(self.pipeline, LOG)

    def move(self) -> None:
        """Into another store, by a savepoint of either layout."""
        if self.waiting or self.pipeline.ledger(LOG).read().latest is None:
            return
        self.number += 1
        at, layout = self.folder.with_name(f"save-{self.number}"), self.seed.choice(list(Layout))
        assert save(self.pipeline, at, layout).status == "saved"
        self._forget_expired()
        self.kept = {}
        self.open(self.folder.with_name(f"store-{self.number}"))
        bring_in(self.pipeline, at)
        self.kept[1] = list(self.changes)
        self.check()

    def rebuild(self) -> None:
        """After its ledger was lost."""
        if self.waiting or self.pipeline.ledger(LOG).read().latest is None:
            return
        shutil.rmtree(self.folder / "store" / LogPaths(LOG).ledger)
        self.open(self.folder)
        assert rebuild(self.pipeline, LOG, plan=False).status == "rebuilt"
        self.kept = {max(self.kept): list(self.changes)}
        self.check()

    def check(self) -> None:
        shape = self.pipeline.log(LOG).shape
        expected, missing = rows_of(shape, self.changes), set()
        if self.case == "unsent":
            missing = left_out(self.changes)
            expected = [row for row in expected if row["id"] not in missing]
        names = [column.name for column in shape.columns]
        _, batches = read_rows(self.pipeline, LOG, ReadRequest(What.TABLE))
        rows = [{name: row[name] for name in names} for batch in batches for row in batch.to_pylist()]
        plain = [{name: row[name] for name in names} for row in expected]
        assert sorted(rows, key=str) == sorted(plain, key=str)
        latest = self.pipeline.ledger(LOG).read().latest
        assert latest
        assert latest.unresolved == len(missing)


def left_out(changes: list[dict[str, Any]]) -> set[int]:
    """The keys whose newest row has a value that was never sent."""
    known: dict[int, bool] = {}
    for one in changes:
        if one["_op"] == CLEAR:
            known = {}
        elif one["_op"] == DELETE:
            known.pop(one["id"], None)
        else:
            known[one["id"]] = known.get(one["id"], False) or not one["_absent"]
    return {key for key, is_whole in known.items() if not is_whole}


STEPS = ("change", "change", "fold", "fold", "full", "restore", "rescale", "compact", "move", "rebuild")


@pytest.mark.rotates(4)
@pytest.mark.parametrize("number", range(choose(2, 20)))
@pytest.mark.parametrize("case", CASES)
def test_a_life_keeps_rows_and_what_is_beside_them_in_step(
    case: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_module, "MARKED_SHARE", 10.0)  # So that rows are marked wherever they can be.
    life = Life(case, tmp_path / "store-0", random.Random(f"{case} {number}"))
    life.change()
    life.fold()
    for _ in range(14):
        step = life.seed.choice(STEPS)
        if step == "full":
            life.fold(KindPolicy.FULL)
        else:
            getattr(life, step)()
    life.change()
    life.fold()
    assert verify(life.pipeline, LOG).status == "whole"
