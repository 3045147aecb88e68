"""Ingest beside others: files that change while they are listed or taken, and two ingests at once.

Promises I4, I6, I20, I23: nothing is taken twice, torn or out of order, and nothing that was not seen counts as absent.
"""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.interleaved import run_then
from support.landing import TOPIC, land, make_landing, offsets, record, state_of, store_files, take, text_of
from tidefold.compute.runners import Runner, TaskAnswer, TaskWork, in_process
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import INTENTS
from tidefold.errors import ConflictError, RefusedError, StorageError, TidefoldError, UnknownOutcomeError
from tidefold.ledger import Ledger
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.sources.debezium import json_source


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_landing(tmp_path)


def test_a_file_replaced_or_removed_after_planning_is_not_taken(pipeline: Pipeline, tmp_path: Path) -> None:
    for act, code in (("remove", "LANDED_GONE"), ("replace", "LANDED_CHANGED"), ("rewrite", "LANDED_CHANGED")):
        path = land(tmp_path, 0, [record(0), record(1)])

        def disturbed(work: TaskWork, tasks: Sequence[str], path: Path = path, act: str = act) -> list[TaskAnswer]:
            data = path.read_bytes()
            if act == "remove":
                path.unlink()
            elif act == "replace":
                path.with_suffix(".new").write_bytes(data)
                path.with_suffix(".new").replace(path)
            else:
                path.write_bytes(data.replace(b"t1000", b"t9999"))
                os.utime(path, (1, 1))
            return in_process(work, tasks)

        [outcome] = ingest(pipeline, ["items"], disturbed)
        assert (outcome.status, outcome.error_code) == ("error", code)
        assert not store_files(tmp_path)
    assert take(pipeline).facts["changes"] == 2


def test_a_file_that_grows_while_it_is_taken_is_taken_as_planned(pipeline: Pipeline, tmp_path: Path) -> None:
    path = land(tmp_path, 0, [record(0)])

    def growing(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        with path.open("ab") as stream:
            stream.write(text_of([record(1)]))
        return in_process(work, tasks)

    assert ingest(pipeline, ["items"], growing)[0].facts["changes"] == 1
    take(pipeline)
    assert offsets(pipeline) == [0, 1]


@pytest.mark.parametrize("extension", ["jsonl", "jsonl.gz"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_of_a_file_that_grows_though_newer_ones_are_there_nothing_is_taken(
    pipeline: Pipeline, tmp_path: Path, when: str, extension: str
) -> None:
    lines = text_of([record(0), record(1)])
    ends = [gzip.compress(lines), gzip.compress(text_of([record(2)]))] if extension == "jsonl.gz" else []
    torn, rest = ends or [lines[:-30], lines[-30:] + text_of([record(2)])]
    first = land(tmp_path, 0, torn, extension)
    land(tmp_path, 3, [record(3)])

    def growing(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        if when == "after":
            with parse_grows(first, rest):
                return in_process(work, tasks)
        first.write_bytes(torn + rest)
        return in_process(work, tasks)

    [outcome] = ingest(pipeline, ["items"], growing)
    assert (outcome.error_code, outcome.error.exit_code) == ("LANDED_GROWING", ConflictError.exit_code)
    assert store_files(tmp_path) == []
    assert take(pipeline).facts["quarantined"] == 0
    assert offsets(pipeline) == [0, 1, 2, 3]


@contextmanager
def parse_grows(file: Path, rest: bytes) -> Iterator[None]:
    """The file grows while it is read."""
    real = json_source.parse_lines

    def parsed(stream: Any, task: Any, *others: Any) -> Any:
        found = real(stream, task, *others)
        if task.file.path == str(file):
            with file.open("ab") as end:
                end.write(rest)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_source, "parse_lines", parsed)
        yield


def test_a_folder_that_cannot_be_read_for_a_moment_loses_nothing(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in (0, 1):
        land(tmp_path, start, [record(start)], name=f"h{start}/{{topic}}+0+{{start:010d}}.{{extension}}")
    real = os.scandir

    def scandir(folder: int) -> Any:
        if os.readlink(f"/proc/self/fd/{folder}").endswith("h0"):
            raise OSError(errno.EIO, "Input/output error")
        return real(folder)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        outcome = take(pipeline)
    assert (outcome.error_code, outcome.error.exit_code) == ("LANDING_UNREADABLE", StorageError.exit_code)
    assert take(pipeline).facts["files"] == 2
    assert offsets(pipeline) == [0, 1]


def overtaken(pipeline: Pipeline) -> Runner:
    """A runner during which another ingest runs from beginning to end."""

    def overtake() -> None:
        assert take(pipeline).status in ("taken", "incomplete")

    return run_then(overtake)


def named_files(pipeline: Pipeline) -> set[str | None]:
    """The segments and quarantine files that the ledger names."""
    state = state_of(pipeline)
    return {c.location.segment for c in state.change_sets} | {entry.quarantine for entry in state.landed} - {None}


def stored_files(pipeline: Pipeline) -> set[str | None]:
    stored = (*pipeline.store.list("changelog"), *pipeline.store.list("logs/items/quarantine"))
    return {entry.path for entry in stored if not entry.path.startswith(f"{INTENTS}/")}


def test_the_slower_of_two_ingests_at_once_is_refused_takes_nothing_and_leaves_nothing_behind(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    land(tmp_path, 0, [record(0), "{bad"])
    land(tmp_path, 1, [record(1)])
    [outcome] = ingest(pipeline, ["items"], overtaken(pipeline))
    assert (outcome.status, outcome.error_code) == ("error", "OFFSETS_TAKEN")
    assert offsets(pipeline) == [0, 1]
    assert stored_files(pipeline) == named_files(pipeline)
    assert take(pipeline).status == "nothing"


HEARTBEAT = record(7, topic="__debezium-heartbeat.shop", value={"ts_ms": 1})


@pytest.mark.parametrize("line", [record(1), "{bad", HEARTBEAT], ids=["repeated", "refused", "ignored"])
def test_two_ingests_at_once_account_once_for_a_file_without_new_offsets(
    pipeline: Pipeline, tmp_path: Path, line: dict[str, Any] | str
) -> None:
    land(tmp_path, 0, [record(0), record(1)])
    take(pipeline)
    member = gzip.compress(text_of([line]))
    land(tmp_path, 1, member, "jsonl.gz")
    # The same account twice is one account, and no error.
    assert ingest(pipeline, ["items"], overtaken(pipeline))[0].error_code in ("OFFSETS_TAKEN", "LANDED_REFUSED", None)
    assert [entry.records for entry in state_of(pipeline).landed] == [2, 1]
    land(tmp_path, 1, member + gzip.compress(text_of([record(2), record(3)])), "jsonl.gz")
    take(pipeline)
    assert offsets(pipeline) == [0, 1, 2, 3]


def test_two_ingests_at_once_of_different_partitions_are_both_taken(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(0)])
    other = text_of([record(0, partition=1)])

    def take_other() -> None:
        land(tmp_path, 0, other, name="{topic}+1+{start:010d}.{extension}")
        first.rename(tmp_path / "aside")
        assert take(pipeline).status == "taken"
        (tmp_path / "aside").rename(first)

    first = tmp_path / "landing" / TOPIC / f"{TOPIC}+0+0000000000.jsonl"
    assert ingest(pipeline, ["items"], run_then(take_other))[0].status == "taken"
    assert [(p.partition, p.next_offset) for p in state_of(pipeline).positions] == [(0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (RefusedError("LOG_DROPPED", "It is being dropped."), False),
        (ConflictError("OFFSETS_TAKEN", "Others were faster."), False),
        (ConflictError("LEDGER_BUSY", "Others were faster, and may yet tell the log what we brought."), True),
        (UnknownOutcomeError("UNKNOWN", "The answer was lost."), True),
        (StorageError("STORAGE", "The disk is full."), True),
    ],
)
@pytest.mark.parametrize("done", [False, True])
def test_what_was_written_is_removed_only_when_it_is_certain_that_nothing_was_committed(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: TidefoldError, left: bool, done: bool
) -> None:
    land(tmp_path, 0, [record(0), "{bad"])
    real = Ledger.commit

    def commit(ledger: Ledger, move: Callable[[LogState], LogState]) -> LogState:
        if done:
            real(ledger, move)
        raise error

    monkeypatch.setattr(Ledger, "commit", commit)
    assert take(pipeline).error_code == error.code
    assert len(stored_files(pipeline)) == (2 if left or done else 0)
    assert bool(pipeline.store.list(INTENTS)) is left
    monkeypatch.undo()
    # What was left is told to the log by the next ingest.
    assert take(pipeline).status == ("nothing" if left or done else "taken")
    assert offsets(pipeline) == [0]
    assert stored_files(pipeline) == named_files(pipeline)
    assert pipeline.store.list(INTENTS) == []
