"""Logs that are dropped, and begun anew under the same name, while others are at work; and runs that meet a busy or a
damaged log. Promises I3, I5, I11, I12, I20, I28; requirement C13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from support.interleaved import run_then
from support.landing_pair import PAIR, land, make, rows
from support.pipelines import judge_all, make_pipeline, publish, put, table_rows
from support.writing import make_changelog
from tidefold.changelog import write_intents
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.domain.log_state import Consumer, DeletionState
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.references import register
from tidefold.errors import ConflictError, RefusedError, TidefoldError
from tidefold.ledger import Ledger
from tidefold.operations.ground import recovery
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import drop
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import StoredObject
from tidefold.storage.local_store import LocalStore


class Interrupted(LocalStore):
    """Lets somebody else work in the middle: at the first call that `when` (verb, paths) is true of."""

    def __init__(self, root: Path, when: Callable[[str, list[str]], bool], others: Callable[[], object]) -> None:
        super().__init__(root)
        self._when, self._others = when, others

    def _maybe(self, verb: str, paths: list[str]) -> None:
        if self._when(verb, paths):
            self._when = lambda verb, paths: False
            self._others()

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        self._maybe("list", [folder])
        return super().list(folder, unfinished)

    def delete(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        self._maybe("delete", paths)
        super().delete(paths)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """`items` holds one change."""
    made = make(tmp_path)
    land(tmp_path, "items", 0)
    ingest(made, ["items"], in_process)
    return made


def taken_anew(pipeline: Pipeline) -> None:
    assert ingest(pipeline, ["items"], in_process)[0].status == "taken"


def dropping(pipeline: Pipeline, when: Callable[[str, list[str]], bool], others: Callable[[], object]) -> None:
    store = Interrupted(pipeline.config.path.parent / "store", when, others)
    with suppress(TidefoldError):
        drop(replace(pipeline, store=store), "items", plan=False)


def test_a_slow_drop_leaves_the_log_that_began_anew(pipeline: Pipeline) -> None:
    def others() -> None:
        assert drop(pipeline, "items", plan=False).status == "dropped"
        taken_anew(pipeline)

    dropping(pipeline, lambda verb, _: verb == "delete", others)
    assert rows(pipeline, "items") == [0]


def test_a_log_that_begins_right_after_the_last_head_was_written_keeps_everything(pipeline: Pipeline) -> None:
    """Also its pages: the same files ingested again make pages with the same content."""
    root = pipeline.config.path.parent
    for number in range(1, 40):
        land(root, "items", number)
    ingest(pipeline, ["items"], in_process)
    dropping(
        pipeline,
        lambda verb, _: verb == "delete" and pipeline.ledger("items").find() is None,
        lambda: taken_anew(pipeline),
    )
    assert rows(pipeline, "items") == list(range(40))
    assert Ledger(pipeline.store, "items").read().generation == 1


def test_one_that_looks_for_leftovers_leaves_the_log_that_began_meanwhile(pipeline: Pipeline) -> None:
    drop(pipeline, "items", plan=False)
    dropping(pipeline, lambda verb, paths: paths == ["tables/items"], lambda: taken_anew(pipeline))
    assert rows(pipeline, "items") == [0]


def test_two_drops_at_once_leave_one_head(pipeline: Pipeline) -> None:
    before = pipeline.ledger("items").read()
    dropping(pipeline, lambda verb, _: verb == "delete", lambda: drop(pipeline, "items", plan=False))
    [head] = pipeline.store.list("logs/items")
    assert head.path.startswith(LogPaths("items").ledger)
    assert pipeline.ledger("items").read().deletion is DeletionState.GONE
    begun = pipeline.ledger("items").begin(before.shape)
    assert (begun.epoch, begun.fence > before.fence, begun.version > before.version) == (before.epoch, True, True)


def test_an_ingest_in_flight_does_not_bring_a_dropped_log_back(pipeline: Pipeline) -> None:
    land(pipeline.config.path.parent, "items", 1)

    others = run_then(lambda: drop(pipeline, "items", plan=False))
    assert ingest(pipeline, ["items"], others)[0].error_code == "INTAKE_FENCED"
    assert pipeline.ledger("items").find() is None


def test_a_job_of_a_dropped_log_does_nothing_to_the_next_of_that_name(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 1, "text": "1"}])
    publish(pipeline, "first")
    put(pipeline, [{"id": 2, "text": "old"}])

    def sleeps(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        abort(pipeline, "accounts", "in the way")
        drop(pipeline, "accounts", plan=False)
        put(pipeline, [{"id": 50, "text": "new"}])
        assert materialize(pipeline, ["accounts"], Fold("new"), in_process)[0].status == "staged"
        return in_process(work, tasks)

    [zombie] = materialize(pipeline, ["accounts"], Fold("old"), sleeps)
    assert zombie.error_code
    judge_all(pipeline)
    assert confirm(pipeline, "accounts").status == "published"
    assert table_rows(pipeline) == {50: "new"}


def test_pages_of_the_dropped_log_are_not_those_of_the_next(pipeline: Pipeline) -> None:
    """A drop that died left old heads; what prunes them must not take the pages of the new log for theirs."""
    root = pipeline.config.path.parent
    for number in range(1, 40):
        land(root, "items", number)
    ingest(pipeline, ["items"], in_process)

    def dies() -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        dropping(pipeline, lambda verb, paths: any("/ledger/" in path for path in paths), dies)
    taken_anew(pipeline)
    pipeline.ledger("items").prune(keep=2)
    assert len(pipeline.ledger("items").read().landed) == 40


def test_a_writer_takes_the_shape_of_the_log_and_not_its_own(pipeline: Pipeline) -> None:
    """Rows of key groups that the log does not have would belong to no bucket, and vanish."""
    shape = replace(pipeline.log("orders").shape, order="arrival")
    writer = make_changelog(pipeline.store).log("orders", replace(shape, key_groups=64, buckets=16))
    writer.append([{"id": i, "text": "x"} for i in range(100)])
    other = make_changelog(pipeline.store, settings={"name": "other"}).log("orders", shape)
    other.append([{"id": 1, "text": "x"}])
    other.flush()
    with pytest.raises(RefusedError) as refused:
        writer.flush()
    assert refused.value.code == "SHAPE_CHANGED"


def test_a_writer_begins_a_log_anew_at_once(pipeline: Pipeline) -> None:
    drop(pipeline, "items", plan=False)
    writer = make_changelog(pipeline.store).log("items", replace(pipeline.log("items").shape, order="arrival"))
    writer.append([{"id": 1, "text": "x"}])
    writer.flush()
    assert len(pipeline.ledger("items").read().change_sets) == 1


def test_a_busy_log_is_not_a_refusal(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever read what the run brought may tell the log yet: so its segment stays."""
    land(pipeline.config.path.parent, "items", 1)
    seen: list[write_intents.Announced] = []
    real = Ledger.commit

    def busy(ledger: Ledger, move, **more):  # type: ignore[no-untyped-def]
        if not seen:
            seen.extend(write_intents.read_announced(pipeline.store))
            raise ConflictError("LEDGER_BUSY", "Others were faster.")
        return real(ledger, move, **more)

    monkeypatch.setattr(Ledger, "commit", busy)
    assert ingest(pipeline, ["items"], in_process)[0].error_code == "LEDGER_BUSY"
    for run in seen:
        recovery.recover_run(pipeline.store, run)
    assert rows(pipeline, "items") == [0, 1]
    real(pipeline.ledger("items"), lambda state: register(state, Consumer("somebody", 1)))
    assert ingest(pipeline, ["items"], in_process)[0].status == "nothing"
    assert rows(pipeline, "items") == [0, 1]


def test_a_damaged_log_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make(tmp_path, [*PAIR, "third"])
    for log in PAIR:
        land(tmp_path, log, 0)
    ingest(pipeline, PAIR, in_process)
    for log in PAIR:
        land(tmp_path, log, 1)
    real = write_intents.bring

    def dies(*said):  # type: ignore[no-untyped-def]
        real(*said)
        raise KeyboardInterrupt

    monkeypatch.setattr(write_intents, "bring", dies)
    with suppress(KeyboardInterrupt):
        ingest(pipeline, PAIR, in_process)
    monkeypatch.undo()
    newest = max(entry.path for entry in pipeline.store.list(LogPaths("orders").ledger))
    (tmp_path / "store" / newest).chmod(0o600)
    (tmp_path / "store" / newest).write_bytes(b"{}")
    land(tmp_path, "third", 0)
    outcomes = {o.log: o for o in ingest(pipeline, [*PAIR, "third"], in_process)}
    assert outcomes["third"].status == "taken"
    assert outcomes["orders"].error_code == "UNREADABLE"
    assert rows(pipeline, "items") == [0, 1]
