"""Pipelines whose snapshots can be damaged in every location, made once and copied for each case."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from support.pipelines import CONFIG, contents, judge_all, make_pipeline, put, table_rows
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import in_threads
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage.local_copies.copies import discard

LOG = "accounts"
Rows = dict[int, str | None]
# Each changes a row in every bucket, so that no snapshot shares a file with another one.
BATCHES: tuple[Rows, ...] = (
    {i: f"a {i}" for i in range(40)},
    {**{i: f"b {i}" for i in range(20)}, 30: None},
    {i: f"c {i}" for i in range(10, 40)},
)


def rows_after(*batches: Rows) -> Rows:
    merged: Rows = {}
    for batch in batches:
        merged |= batch
    return {i: text for i, text in merged.items() if text is not None}


FIRST, SECOND, THIRD = (rows_after(*BATCHES[: n + 1]) for n in range(3))


def configured(local: bool = True, retention: str = "3", **snapshots: str) -> str:
    head = f"store: store\nretention: {{snapshots: {retention}}}\n"
    head += "local: {mode: files, path: local}\n" if local else ""
    head += f"snapshots: {{{', '.join(f'{k}: {v}' for k, v in snapshots.items())}}}\n" if snapshots else ""
    return CONFIG.replace("store: store\n", head)


def take(pipeline: Pipeline, changes: Rows) -> None:
    put(pipeline, [{"id": i, "text": t, **({} if t else {"_op": DELETE})} for i, t in changes.items()])


def fold(pipeline: Pipeline, run: str, kind: KindPolicy | None = None) -> Outcome:
    [outcome] = materialize(pipeline, [LOG], Fold(run, kind=kind), in_threads())
    return outcome


def cycle(pipeline: Pipeline, run: str, changes: Rows, kind: KindPolicy | None = None) -> None:
    if changes:
        take(pipeline, changes)
    outcome = fold(pipeline, run, kind)
    assert outcome.status == "staged", outcome
    publish(pipeline)


def publish(pipeline: Pipeline) -> None:
    judge_all(pipeline)
    assert confirm(pipeline, LOG).status == "published"


def restore(
    pipeline: Pipeline, snapshot: int, mode: RestoreMode = RestoreMode.REPLAY, kind: KindPolicy | None = None
) -> Outcome:
    asking = Restore("back", RestorePoint(snapshot, mode), kind=kind)
    [outcome] = materialize(pipeline, [LOG], asking, in_threads())
    return outcome


@dataclass(frozen=True)
class Bench:
    """A finished pipeline, and a way to restore its first state.

    It is always under the same path, because a local folder is named after the address of the store.
    """

    work: Path
    template: Path
    config: str

    def reset(self) -> Pipeline:
        shutil.rmtree(self.work, ignore_errors=True)
        # Keeps hard links, which copytree would not.
        subprocess.run(["cp", "-a", str(self.template), str(self.work)], check=True)
        return make_pipeline(self.work, self.config)


def bench(root: Path, config: str, *, only_copy: int | None = None, cut: bool = True) -> Bench:
    """Makes three published snapshots.

    only_copy: the one that has a local copy.
    cut: retention was applied.
    """
    from tidefold.operations.retention.subsume import subsume
    from tidefold.operations.retention.truncate import truncate

    work = root / "work"
    work.mkdir(parents=True)
    pipeline = make_pipeline(work, config)
    for number, changes in enumerate(BATCHES, 1):
        cycle(pipeline, f"run-{number}", changes)
    assert table_rows(pipeline) == THIRD
    if cut:
        subsume(pipeline, LOG)
        truncate(pipeline, LOG)
    if only_copy and pipeline.local:
        discard(pipeline.local, [CopyName(LOG, i) for i in (1, 2, 3) if i != only_copy])
    subprocess.run(["cp", "-a", str(work), str(root / "template")], check=True)
    return Bench(work, root / "template", config)


def files_of(pipeline: Pipeline, snapshot: int) -> tuple[DataFile, ...]:
    known = pipeline.ledger(LOG).read().snapshot(snapshot)
    assert known
    return read_manifest(pipeline.store, LOG, known).files


def names_of(pipeline: Pipeline, snapshot: int, name: str) -> list[Path]:
    """Returns every name in the store of a snapshot's file."""
    paths = LogPaths(LOG)
    places = [data_path(folder, name) for folder in (paths.table, paths.snapshot(snapshot))]
    return [path for path in (Path(pipeline.store.uri(place)) for place in places) if path.exists()]


def copy_of(pipeline: Pipeline, snapshot: int) -> Path:
    assert pipeline.local
    return Path(pipeline.local.uri(str(CopyName(LOG, snapshot))))


def flip(path: Path) -> None:
    """Changes one byte in place: every hard link of the file has it."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    with path.open("r+b") as stream:
        stream.write(data)


def spoil(pipeline: Pipeline, snapshot: int, how: str, names: set[str] | None = None) -> None:
    """Damages the store's files of a snapshot under every name: `missing`, or `corrupt`."""
    for file in files_of(pipeline, snapshot):
        if names is not None and file.name not in names:
            continue
        seen: set[int] = set()
        for path in names_of(pipeline, snapshot, file.name):
            if how == "missing":
                path.unlink()
            elif path.stat().st_ino not in seen:
                seen.add(path.stat().st_ino)
                flip(path)


def stored(pipeline: Pipeline) -> dict[str, bytes]:
    """Returns every file of tables, snapshots, segments and local copies, with its bytes."""
    root = pipeline.config.path.parent
    tops = ("store/tables", "store/snapshots", "store/changelog", "local")
    return {f"{top}/{name}": data for top in tops for name, data in contents(root / top).items()}


def without_local(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, local=None)
