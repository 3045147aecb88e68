"""Golden stores: what a test reads of one, what it must find, and the steps that continue its life."""

from __future__ import annotations

import dataclasses
import json
import os
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import polars
from deltalake import DeltaTable

from support.landing import record
from support.pipelines import judge_all
from tidefold.changelog import write_intents
from tidefold.changelog.write_intents import Intent, Taking
from tidefold.changelog.writer import Changelog
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import LogState, SnapshotKind, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import RestorePoint
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.ledger import Ledger, read_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

_FOLDER = Path(os.environ.get("TIDEFOLD_GOLDEN", Path(__file__).parents[1] / "data/golden"))
ARCHIVES, SET_ARCHIVES, KIND_ARCHIVES, SERVER_ARCHIVES = (
    sorted(_FOLDER.glob(f"*-{what}.tar.gz")) for what in ("life", "set", "[kf]*s", "servers")
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Golden:
    root: Path
    pipeline: Pipeline
    truth: dict[str, Any]

    @property
    def logs(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.truth["logs"]
        return found


def unpacked(archive: Path, folder: Path) -> Golden:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    truth = json.loads((folder / "truth.json").read_text())
    return Golden(folder, open_pipeline(folder / "tidefold.yaml"), truth)


def listed(rows: Iterable[Row]) -> list[Row]:
    """Returns rows as the truth has them: sorted by their JSON, with dates and instants as text."""
    plain = [{n: v.isoformat() if isinstance(v, date) else v for n, v in row.items()} for row in rows]
    return sorted(plain, key=lambda row: json.dumps(row, sort_keys=True))


def rows_of(golden: Golden, log: str, wanted: ReadRequest) -> list[Row]:
    _, batches = read_rows(golden.pipeline, log, wanted)
    return [row for batch in batches for row in batch.to_pylist()]


def read(golden: Golden, log: str, wanted: ReadRequest | None = None) -> list[Row]:
    return listed(rows_of(golden, log, wanted or ReadRequest()))


def table(path: Path | str) -> list[Row]:
    """Returns the rows of a Delta table, read by two readers that know nothing of tidefold."""
    rows = listed(DeltaTable(str(path)).to_pyarrow_table().to_pylist())
    assert listed(polars.read_delta(str(path)).to_dicts()) == rows
    return rows


def state_of(golden: Golden, log: str) -> LogState:
    return golden.pipeline.ledger(log).read()


def check_kept_rows(golden: Golden, rows: dict[str, dict[int, list[Row]]]) -> None:
    """Checks that every retained snapshot has these rows, for tidefold and for plain readers."""
    for log, of_log in rows.items():
        for snapshot in state_of(golden, log).snapshots:
            if snapshot.state not in (State.COMPLETED, State.STAGED):
                continue
            assert read(golden, log, ReadRequest(snapshot=snapshot.id)) == of_log[snapshot.id], (log, snapshot.id)
            if snapshot.kind is SnapshotKind.FULL:
                path = golden.pipeline.store.uri(LogPaths(log).snapshot(snapshot.id))
                assert table(path) == of_log[snapshot.id], (log, snapshot.id)


def kept_rows(truth: dict[str, Any]) -> dict[int, list[Row]]:
    return {int(snapshot): rows for snapshot, rows in truth["snapshots"].items()}


def check_table(golden: Golden, log: str, rows: list[Row]) -> None:
    assert read(golden, log) == rows, log
    assert table(golden.pipeline.store.uri(LogPaths(log).table)) == rows, log


def check_old_versions(golden: Golden) -> None:
    for log, truth in golden.logs.items():
        ledger = Ledger(golden.pipeline.store, log)
        oldest = truth["oldest"]
        for _ in range(2):
            state = ledger.read_version(oldest["version"])
            counts = (state.last_sqn, len(state.snapshots), len(state.landed))
            assert counts == (oldest["last_sqn"], oldest["snapshots"], oldest["landed"])
        for version in range(oldest["version"], truth["numbers"]["version"] + 1):
            assert ledger.read_version(version).version == version


def changed(rows: Sequence[Row], key: Sequence[str], text: str) -> tuple[list[tuple[str, Row]], list[Row]]:
    """Returns changes of a log (one row with a new text, one delete), and the rows after them."""
    first, second = sorted(rows, key=lambda row: [str(row[name]) for name in key])[:2]
    changes = [("u", {**first, "text": text}), ("d", second)]
    return changes, [*(row for row in rows if row not in (first, second)), changes[0][1]]


def land(golden: Golden, log: str, changes: Iterable[tuple[str, Row]]) -> None:
    """Lands one more file after the others, also after one that a killed run has not committed yet."""
    folder = golden.root / "landing" / log
    last = max(folder.iterdir()).read_text().splitlines()[-1]
    first = json.loads(last)["offset"] + 1
    key = golden.pipeline.log(log).shape.key
    lines = []
    for offset, (op, row) in enumerate(changes, first):
        own = {"key": {name: row[name] for name in key}, "topic": log}
        own |= {"before": row, "after": None} if op == "d" else {"after": row}
        lines.append(json.dumps(record(offset, op=op, **own)))
    (folder / f"{log}+0+{first:010d}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def one_more(golden: Golden, text: str) -> dict[str, list[Row]]:
    """Changes each log, by a landed file or from a program. Returns the rows of each log afterwards."""
    after = {}
    for log in golden.logs:
        rows = rows_of(golden, log, ReadRequest(What.LIVE))
        changes, after[log] = changed(rows, golden.pipeline.log(log).shape.key, text)
        if golden.pipeline.log(log).source:
            land(golden, log, changes)
            assert ingest(golden.pipeline, [log], in_process)[0].status == "taken"
        else:
            with Changelog(golden.pipeline.store) as changelog:
                changelog.log(log).append([{**row, **({"_op": "delete"} if op == "d" else {})} for op, row in changes])
        assert read(golden, log, ReadRequest(What.LIVE)) == listed(after[log])
    return {log: listed(rows) for log, rows in after.items()}


def fold(golden: Golden, log: str, run: str, restore: RestorePoint | None = None) -> int:
    [staged] = materialize(golden.pipeline, [log], Restore(run, restore) if restore else Fold(run), in_process)
    assert staged.status == "staged", staged
    assert staged.snapshot
    judge_all(golden.pipeline, log)
    assert confirm(golden.pipeline, log, Confirmation(run=run)).status == "published"
    return staged.snapshot


def end_what_waits(golden: Golden) -> None:
    """Publishes what was confirmed, confirms what was staged, continues a killed attempt, and ends killed ingests
    and writers.
    """
    for log, truth in golden.logs.items():
        attempt = state_of(golden, log).open_attempt
        if attempt and attempt.state is State.ONGOING:
            # The same run comes again: what it asks for is known again (I4).
            assert fold(golden, log, attempt.run) > attempt.id
            check_table(golden, log, truth["live"])
            continue
        if attempt:
            [again] = materialize(golden.pipeline, [log], Fold(attempt.run), in_process)
            assert (again.status, again.snapshot) == ("already", attempt.id), again
        if attempt and attempt.verdict is None:
            judge_all(golden.pipeline, log)
        assert confirm(golden.pipeline, log).error_code is None
        check_table(golden, log, kept_rows(truth)[truth["attempt"] or truth["latest"]])
    landed = [log for log in golden.logs if golden.pipeline.log(log).source]
    assert {o.error_code for o in ingest(golden.pipeline, landed, in_process)} == {None}
    assert all(outcome.error_code is None for outcome in clean(golden.pipeline, list(golden.logs)))
    assert list(write_intents.read_announced(golden.pipeline.store)) == []
    for log, truth in golden.logs.items():
        assert read(golden, log, ReadRequest(What.LIVE)) == truth["whole"]


def retire(golden: Golden) -> None:
    logs = list(golden.logs)
    for log in logs:
        for outcome in (subsume(golden.pipeline, log), truncate(golden.pipeline, log)):
            assert outcome.error_code is None, outcome
    for outcome in (*retain_local(golden.pipeline, logs), *clean(golden.pipeline, logs)):
        assert outcome.error_code is None, outcome


Fields = dict[Any, set[str]]


def collect(kind: Any, document: Any, found: Fields) -> None:
    """Records which fields of which stored value a document has."""
    inner = [one for one in get_args(kind) if one not in (..., NoneType)]
    if dataclasses.is_dataclass(kind):
        if document is None:
            return
        found[kind] |= set(document)
        for name, hint in get_type_hints(kind).items():
            collect(hint, document.get(name), found)
    elif isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        found[kind] |= set(kind._fields[: len(document)])
    elif inner and isinstance(document, list):
        for item in document:
            collect(inner[0], item, found)
    elif inner and document is not None:
        collect(inner[0], document, found)


def add_fields(golden: Golden, found: Fields) -> None:
    store = golden.pipeline.store
    for log in golden.logs:
        for entry in store.list(LogPaths(log).ledger):
            collect(LogState, json.loads(store.read(entry.path))["state"], found)
        for snapshot in state_of(golden, log).snapshots:
            if snapshot.manifest and snapshot.state in (State.STAGED, State.COMPLETED):
                assert read_manifest(store, log, snapshot).snapshot == snapshot.id
                collect(Manifest, json.loads(store.read(LogPaths(log).manifest(snapshot.id))), found)
    for entry in store.list("changelog/intents"):
        brought = "/arrivals-" in entry.path
        collect(tuple[Taking, ...] if brought else Intent, json.loads(store.read(entry.path)), found)
