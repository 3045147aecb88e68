"""A store that fails at a chosen call, and what the crash simulators share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from support.pipelines import CONFIG, make_pipeline
from tidefold.domain.paths import LogPaths, data_path, vector_name
from tidefold.errors import StorageError, TidefoldError, UnknownOutcomeError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.storage.local_store import LocalStore


class Killed(BaseException):
    """The process is dead: nothing may catch this and continue."""


class Fault(StrEnum):
    """What happens at the chosen call."""

    ERROR_BEFORE = "an error before anything happened"
    ERROR_AFTER = "an error after it took effect"
    KILLED_BEFORE = "the process dies before"
    KILLED_AFTER = "the process dies after"


class FaultyStore(LocalStore):
    """Counts the calls that change something. The call with the number `at` fails as configured; with `for_ever`
    all later ones too.
    """

    def __init__(self, root: Path, at: int | None = None, fault: Fault | None = None, for_ever: bool = False) -> None:
        super().__init__(root)
        self.at, self.fault, self.for_ever = at, fault, for_ever
        self.calls = 0

    @contextmanager
    def _call(self) -> Iterator[None]:
        number, self.calls = self.calls, self.calls + 1
        hit = number == self.at or (self.for_ever and self.at is not None and number > self.at)
        if hit and self.fault is Fault.ERROR_BEFORE:
            raise StorageError("STORAGE", f"Call {number} failed.")
        if hit and self.fault is Fault.KILLED_BEFORE:
            raise Killed
        yield
        if hit and self.fault is Fault.ERROR_AFTER:
            raise UnknownOutcomeError("UNKNOWN_OUTCOME", f"The answer of call {number} was lost.")
        if hit and self.fault is Fault.KILLED_AFTER:
            raise Killed

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        if self.calls == self.at and self.fault is Fault.KILLED_BEFORE:
            # A killed writer leaves its half behind.
            half = Path(f"{self._full(path)}.killed.part")
            half.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(b"half")
        with self._call(), super().create(path) as stream:
            yield stream

    def link(self, source: str, target: str, copy: bool = False) -> str:
        with self._call():
            return super().link(source, target, copy)

    @contextmanager
    def replace(self, paths: Sequence[str]) -> Iterator[BinaryIO]:
        if self.calls == self.at and self.fault is Fault.KILLED_BEFORE:
            Path(f"{self._full(paths[-1])}.killed.part").write_bytes(b"half")
        with self._call(), super().replace(paths) as stream:
            yield stream

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._call():
                super().delete([path])

    def sync(self, path: str) -> None:
        with self._call():
            super().sync(path)


def on_copy(template: Path, folder: Path, config: str = CONFIG, **fault: Any) -> Pipeline:
    shutil.rmtree(folder, ignore_errors=True)
    # Hard links stay links, as on the disk of a user.
    shutil.copytree(template, folder)
    return reopened(folder, config, **fault)


def reopened(folder: Path, config: str = CONFIG, **fault: Any) -> Pipeline:
    pipeline = make_pipeline(folder, config)
    return replace(pipeline, store=FaultyStore(folder / "store", **fault))


def attempt(pipeline: Pipeline, act: Callable[[Pipeline, str], None]) -> None:
    try:
        act(pipeline, "run-2")
    except (Killed, TidefoldError):
        return


def check_nothing_left_over(pipeline: Pipeline, completed: list[int]) -> None:
    state, paths = pipeline.ledger("accounts").read(), LogPaths("accounts")
    owned, homes = set(), {paths.table}
    for snapshot in state.snapshots:
        if snapshot.id in completed:
            manifest = read_manifest(pipeline.store, "accounts", snapshot)
            homes.add(manifest.data_folder)
            owned |= {data_path(home, f.name) for f in manifest.files for home in (manifest.data_folder, paths.table)}
            owned |= {data_path(paths.table, vector_name(f.deletions.vector)) for f in manifest.files if f.deletions}
    stored = [e.path for top in ("snapshots", "tables") for e in pipeline.store.list(top, unfinished=True)]
    assert {path for path in stored if "/_delta_log/" not in path} == owned
    logs = {path.split("/_delta_log/")[0] for path in stored if "/_delta_log/" in path}
    assert logs == homes
