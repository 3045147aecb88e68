"""Copies on the hosts of a cluster: each task writes and reads those of its own host. L5, L6, L7; I15, I16."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from support.faults import Fault, FaultyStore, Killed
from support.local_copies import land
from support.pipelines import judge_all, table_rows
from tidefold.compute.broadcast_work import TaskWork
from tidefold.compute.runners import TaskAnswer, in_process
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import TidefoldError
from tidefold.fold.tasks import FoldWork
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.removal_details import Approved
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.requests import Fold, SnapshotRequest
from tidefold.operations.restore.restore import Restore
from tidefold.operations.retention.clean import drop
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage.local_copies.host_copies import HostCopies, HostRecord, read_hosts, write_host
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline

PAIR = ["items", "orders"]
_CONFIG = """\
version: 1
store: store
spark: {{master: "spark://127.0.0.1:7077", above: 1TB}}
local: {{mode: files, path: {root}/local{more}}}
logs:
"""
_LOG = """
  {log}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{log}}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 16
    buckets: 4
"""


def make(root: Path, logs: Sequence[str] = PAIR, more: str = "") -> Pipeline:
    for log in PAIR:
        (root / "landing" / log).mkdir(parents=True, exist_ok=True)
    head = _CONFIG.format(root=root, more=more)
    (root / "tidefold.yaml").write_text(head + "".join(_LOG.format(log=log) for log in logs))
    return open_pipeline(root / "tidefold.yaml")


class Hosts:
    """Runs tasks on hosts in turns or, if it obeys, on those that the work prefers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str, obeys: bool = False) -> None:
        self._monkeypatch, self._names, self._obeys = monkeypatch, names, obeys

    def __call__(self, work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        answers = []
        for name in self._names:
            # A process of its own on each host.
            own = FoldWork(work.plans) if isinstance(work, FoldWork) else work
            self._monkeypatch.setenv("TIDEFOLD_HOST", name)
            self._monkeypatch.setenv("SPARK_LOCAL_IP", name)
            mine = [n for n, text in enumerate(tasks) if self._choose(work, n, text) == name]
            answers += list(zip(mine, in_process(own, [tasks[n] for n in mine]), strict=True))
        return [answer for _, answer in sorted(answers, key=lambda pair: pair[0])]

    def _choose(self, work: TaskWork, number: int, text: str) -> str:
        wanted = work.prefer(text, frozenset(self._names)) if self._obeys and isinstance(work, FoldWork) else ()
        named = [name for name in self._names if name in wanted]
        return (named or [self._names[number % len(self._names)]])[0]


def cycle(pipeline: Pipeline, run: str, hosts: Hosts, request: SnapshotRequest | None = None) -> Outcome:
    ingest(pipeline, ["items"], hosts)
    [outcome] = materialize(pipeline, ["items"], request or Fold(run), hosts)
    assert outcome.status == "staged", outcome
    judge_all(pipeline, "items")
    confirm(pipeline, "items", Confirmation(run=run))
    return outcome


def files_of(pipeline: Pipeline, host: str) -> dict[str, Path]:
    """Returns the copies on a host, by name, without its marks."""
    assert pipeline.hosts
    [folder] = Path(pipeline.hosts.folders[0]).glob("*/_hosts")
    paths = (path for path in (folder / host).rglob("*") if path.is_file())
    return {path.name: path for path in paths if path.name != "visited"}


def test_each_host_reads_what_its_tasks_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5, L6: by checksum, and only its own. Hits and bytes are counted."""
    pipeline, hosts = make(tmp_path), Hosts(monkeypatch, "one", "two")
    land(pipeline, 0, 40, ["items"])
    first = cycle(pipeline, "run-1", hosts)
    assert first.facts["local"]["bytes"] > 0
    for host in ("one", "two"):
        for name, path in files_of(pipeline, host).items():
            assert name.endswith(".seg") or name == hashlib.sha256(path.read_bytes()).hexdigest()
    land(pipeline, 40, 40, ["items"])
    second = cycle(pipeline, "run-2", hosts)
    # What the other host wrote comes from the store.
    read = second.facts["read"]
    assert read["local"]["files"] > 0 < read["store"]["files"]
    assert read["local"]["bytes"] > 0
    assert read["failed"] == []
    assert len(table_rows(pipeline, "items")) == 80


def test_the_preferred_host_is_the_same_for_each_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: from the second fold on that knows the hosts, all base files are hits, whatever the order of the tasks."""
    pipeline = make(tmp_path)
    for number in range(4):
        land(pipeline, number * 40, 40, ["items"])
        hosts = Hosts(
            monkeypatch, *(["one", "two", "three"][number % 3 :] + ["one", "two", "three"][: number % 3]), obeys=True
        )
        outcome = cycle(pipeline, f"run-{number}", hosts)
    served = outcome.facts["read"]
    assert served["local"]["files"] >= 4
    assert served["store"]["files"] <= 4  # Segments of an ingest, which another host may have written.
    assert len(table_rows(pipeline, "items")) == 160


def test_a_task_removes_what_the_ledger_has_retired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: on the host where it lands. A host that nobody visited is listed with what it holds."""
    pipeline, both, one = make(tmp_path), Hosts(monkeypatch, "one", "two"), Hosts(monkeypatch, "one")
    land(pipeline, 0, 40, ["items"])
    cycle(pipeline, "run-1", both)
    held = files_of(pipeline, "two")
    land(pipeline, 40, 40, ["items"])
    cycle(pipeline, "run-2", one)
    land(pipeline, 80, 40, ["items"])
    cycle(pipeline, "run-3", one)
    # Of the second snapshot, which was the base, and of the third; segments of the third ingest.
    snapshots = {path.parent.name for path in files_of(pipeline, "one").values()}
    assert snapshots == {"0000000000", "0000000002", "0000000003"}
    assert files_of(pipeline, "two") == held
    [outcome] = retain_local(pipeline, ["items"])
    [listed] = outcome.facts["hosts"]
    assert (listed["host"], listed["snapshot"], listed["files"]) == ("two", 1, len(held))
    assert listed["bytes"] == sum(path.stat().st_size for path in held.values())
    assert "`two`" in outcome.message
    assert "delete the folder `hosts/two`" in outcome.message
    # It plans nothing: what it would remove is on another machine.
    assert retain_local(pipeline, ["items"], plan=True)[0].status == "nothing"
    # The next task there removes all of it.
    land(pipeline, 120, 40, ["items"])
    cycle(pipeline, "run-4", both)
    assert not held.keys() & files_of(pipeline, "two").keys()
    assert retain_local(pipeline, ["items"])[0].facts["hosts"] == []


def test_a_host_that_is_gone_or_damaged_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L7, I15, I16: the store serves; a damaged copy is a counted fall-back."""
    pipeline, hosts = make(tmp_path), Hosts(monkeypatch, "one", "two")
    land(pipeline, 0, 40, ["items"])
    cycle(pipeline, "run-1", hosts)
    damaged = [path for name, path in files_of(pipeline, "one").items() if not name.endswith(".seg")]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    for path in files_of(pipeline, "two").values():
        path.unlink()
    land(pipeline, 40, 40, ["items"])
    outcome = cycle(pipeline, "run-2", hosts)
    assert 0 < len(outcome.facts["read"]["failed"]) <= len(damaged)
    assert {one["why"] for one in outcome.facts["read"]["failed"]} == {"altered"}
    assert len(table_rows(pipeline, "items")) == 80


def test_a_disk_that_fails_costs_only_the_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I15."""
    pipeline, hosts = make(tmp_path), Hosts(monkeypatch, "one", "two")
    (tmp_path / "local").write_text("a file where the folder should be")
    land(pipeline, 0, 40, ["items"])
    outcome = cycle(pipeline, "run-1", hosts)
    assert outcome.facts["local"]["bytes"] == 0
    assert outcome.facts["local"]["warning"]
    assert len(table_rows(pipeline, "items")) == 40


def test_a_quota_limits_each_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, hosts = make(tmp_path, more=", quota: 6kB"), Hosts(monkeypatch, "one")
    land(pipeline, 0, 40, ["items"])
    outcome = cycle(pipeline, "run-1", hosts)
    assert "LOCAL_QUOTA" in outcome.facts["local"]["warning"]
    assert sum(path.stat().st_size for path in files_of(pipeline, "one").values()) <= 6_000
    assert len(table_rows(pipeline, "items")) == 40


def test_a_restore_reads_the_copies_of_its_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L6."""
    pipeline, hosts = make(tmp_path), Hosts(monkeypatch, "one", "two", obeys=True)
    land(pipeline, 0, 40, ["items"])
    cycle(pipeline, "run-1", hosts)
    land(pipeline, 40, 40, ["items"])
    cycle(pipeline, "run-2", hosts)
    outcome = cycle(pipeline, "back", hosts, Restore("back", RestorePoint(2, RestoreMode.REPLAY)))
    assert outcome.facts["read"]["local"]["files"] == 4
    assert len(table_rows(pipeline, "items")) == 80


def test_a_restore_that_copies_nothing_visits_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: its snapshot links every file, so hosts that copied for the newest fold are not called unvisited."""
    pipeline, hosts = make(tmp_path), Hosts(monkeypatch, "one", "two")
    land(pipeline, 0, 40, ["items"])
    cycle(pipeline, "run-1", hosts)
    back = Restore("back", RestorePoint(1, RestoreMode.REPLAY))
    outcome = cycle(pipeline, "back", Hosts(monkeypatch, "driver"), back)
    assert (outcome.facts["local"]["bytes"], outcome.facts["local"]["warning"]) == (0, None)
    assert "local copy" not in outcome.message
    assert {record.host for record in read_hosts(pipeline.store)} == {"one", "two"}
    assert not list((tmp_path / "local").glob("*/_hosts/driver"))
    [kept] = retain_local(pipeline, ["items"])
    assert (kept.facts["hosts"], kept.message) == ([], "no local copy is to be removed")


def test_two_tasks_of_a_host_may_begin_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """L5: each of them finds no mark, and one is first to leave it. Neither has a warning."""
    pipeline, name = make(tmp_path), CopyName("items", 1)
    monkeypatch.setenv("TIDEFOLD_HOST", "one")
    assert pipeline.hosts
    one, other = HostCopies(pipeline.hosts), HostCopies(pipeline.hosts)

    class Crowded(LocalStore):
        """The other task begins and ends while the first one writes the record of the host."""

        def delete(self, paths: Iterable[str]) -> None:
            with other.create(LocalStore(tmp_path / "store"), name, "other") as stream:
                stream.write(b"other")
            super().delete(paths)

    with one.create(Crowded(tmp_path / "store"), name, "one") as stream:
        stream.write(b"one")
    kept = [host.keep(name, path, 3, [f"{name}/{path}"]) for host, path in ((one, "one"), (other, "other"))]
    assert [(copied.files, copied.error) for copied in kept] == [(1, ""), (1, "")]
    assert caplog.messages == []


def test_copies_of_a_dropped_log_are_listed_and_then_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C13."""
    pipeline, hosts = make(tmp_path), Hosts(monkeypatch, "one")
    land(pipeline, 0, 40)
    ingest(pipeline, PAIR, hosts)
    drop(pipeline, "orders", plan=False)
    pipeline = make(tmp_path, ["items"])
    [listed] = retain_local(pipeline, ["items"], plan=True)[0].facts["hosts"]
    assert (listed["log"], listed["dropped"], listed["files"]) == ("orders", True, 1)
    cycle(pipeline, "run-1", hosts)
    assert {path.parent.parent.name for path in files_of(pipeline, "one").values()} == {"items"}
    assert {log for one in read_hosts(pipeline.store) for log in one.logs} == {"items"}


def test_this_machine_removes_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: a small ingest runs here, and the folds on the cluster."""
    pipeline, hosts = make(tmp_path), Hosts(monkeypatch, "one")
    land(pipeline, 0, 40, ["items"])
    ingest(pipeline, ["items"], Hosts(monkeypatch, "here"))
    cycle(pipeline, "run-1", hosts)
    assert len(files_of(pipeline, "here")) == 1
    retain_local(pipeline, ["items"])
    assert len(files_of(pipeline, "here")) == 1, "this machine is another one"
    monkeypatch.setenv("TIDEFOLD_HOST", "here")
    [planned] = retain_local(pipeline, ["items"], plan=True)
    assert (planned.status, planned.facts["files"]) == ("planned", 1)
    assert len(files_of(pipeline, "here")) == 1
    assert retain_local(pipeline, ["items"], approved=Approved(frozenset()))[0].status == "nothing"
    assert len(files_of(pipeline, "here")) == 1, "a person approved nothing"
    [removed] = retain_local(pipeline, ["items"])
    assert (removed.status, removed.facts["paths"]) == ("removed", planned.facts["paths"])
    assert files_of(pipeline, "here") == {}


def test_this_machine_keeps_what_the_running_attempt_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table does not name these files yet."""
    pipeline, here = make(tmp_path), Hosts(monkeypatch, "here")
    land(pipeline, 0, 40, ["items"])
    ingest(pipeline, ["items"], here)
    [staged] = materialize(pipeline, ["items"], Fold("run-1"), here)
    assert staged.facts["local"]["bytes"] > 0
    before = files_of(pipeline, "here")
    retain_local(pipeline, ["items"])
    assert files_of(pipeline, "here") == before
    judge_all(pipeline, "items")
    confirm(pipeline, "items", Confirmation(run="run-1"))
    land(pipeline, 40, 40, ["items"])
    cycle(pipeline, "run-2", here)
    # Now the table names others.
    retain_local(pipeline, ["items"])
    assert not before.keys() & files_of(pipeline, "here").keys()


def test_an_unfinished_copy_goes_with_the_next_visit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L4: of a task that was killed, whatever it wrote so far."""
    pipeline, hosts = make(tmp_path), Hosts(monkeypatch, "one")
    land(pipeline, 0, 40, ["items"])
    cycle(pipeline, "run-1", hosts)
    whole = next(path for path in files_of(pipeline, "one").values() if path.parent.name == "0000000001")
    left = [whole.with_name("x.parquet.new.0f.part"), whole.with_name("x.parquet.new")]
    for path in left:
        path.write_bytes(b"half")
    land(pipeline, 40, 40, ["items"])
    cycle(pipeline, "run-2", hosts)
    assert not any(map(os.path.exists, left))


@pytest.mark.parametrize("fault", Fault)
def test_a_host_has_a_record_whatever_dies_while_it_is_replaced(tmp_path: Path, fault: Fault) -> None:
    """Fault: a worker that was killed between two calls had no record, and so its copies had none."""
    write_host(LocalStore(tmp_path), HostRecord("one", ("first",)))
    for at in range(3):
        with suppress(Killed, TidefoldError):
            write_host(FaultyStore(tmp_path, at, fault), HostRecord("one", ("later",)))
        [found] = read_hosts(LocalStore(tmp_path))
        assert found.host == "one"
    write_host(LocalStore(tmp_path), HostRecord("one", ("last",)))
    assert [one.names for one in read_hosts(LocalStore(tmp_path))] == [("last",)]
    assert len(LocalStore(tmp_path).list("hosts")) == 1
