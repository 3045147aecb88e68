"""One behaviour suite for every store of bytes, and what a changelog and snapshots need besides.

Every store of tidefold passes these tests, and a third party runs them against its own. Each test is a promise that
tidefold relies on: a store that breaks one can lose data.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tidefold.changelog.reader import ChangelogReader
from tidefold.changelog.writer import Changelog, WriterSettings
from tidefold.compute.runners import in_threads
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.errors import AlreadyExistsError, InvalidInputError, NotFoundError, RefusedError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.restore.export import restore_to
from tidefold.operations.retention.clean import clean
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.full_run import FullRun
from tidefold.spark.steps import AnyStep
from tidefold.storage import Store, open_store
from tidefold.storage.identity import probe
from tidefold.wiring import open_changelog, open_pipeline

_SHAPE = TableSpec(("id",), (Column("id", "int"), Column("text", "string")), "arrival", 16, 4)
_CONFIG = """
version: 1
store: {address}
snapshots: {{kind: {kind}}}
logs:
  orders:
    order: arrival
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 16
    buckets: 4
"""


class StoreContract:
    """What every store of bytes promises. A subclass gives the fixture `store`: a new, empty store each time."""

    @pytest.fixture
    def store(self) -> Store:
        """An empty store."""
        raise NotImplementedError("A subclass of StoreContract gives the fixture `store`.")

    def test_what_is_put_is_read_whole_or_in_part(self, store: Store) -> None:
        store.put_if_absent("a/b/c.bin", b"0123456789")
        assert store.read("a/b/c.bin") == b"0123456789"
        assert store.read("a/b/c.bin", 2, 3) == b"234"
        assert store.read("a/b/c.bin", 8, 9) == b"89"
        assert store.read("a/b/c.bin", 7) == b"789"
        assert store.read("a/b/c.bin", 10, 5) == store.read("a/b/c.bin", 3, 0) == b""
        with store.open("a/b/c.bin") as stream:
            stream.seek(-2, 2)
            assert stream.read() == b"89"

    def test_an_empty_file_is_a_file(self, store: Store) -> None:
        store.put_if_absent("empty", b"")
        assert store.read("empty") == store.read("empty", 0, 4) == b""
        with store.open("empty") as stream:
            assert stream.read() == b""
        with pytest.raises(AlreadyExistsError), store.create("empty"):
            pass
        assert store.link("empty", "other") in ("link", "copy")
        assert [(e.path, e.bytes) for e in store.list("")] == [("empty", 0), ("other", 0)]

    def test_a_stream_to_a_taken_name_is_refused_and_leaves_its_bytes(self, store: Store) -> None:
        store.put_if_absent("x", b"first")
        with pytest.raises(AlreadyExistsError), store.create("x") as stream:
            stream.write(b"second")
        assert store.read("x") == b"first"
        assert [e.path for e in store.list("", unfinished=True)] == ["x"]

    def test_nothing_is_seen_of_a_stream_before_its_end(self, store: Store) -> None:
        with store.create("f/long") as stream:
            stream.write(b"first")
            stream.write(memoryview(b"second"))
            assert stream.tell() == 11
            assert store.list("f") == []
        assert store.read("f/long") == b"firstsecond"

    def test_a_taken_name_is_refused_and_keeps_its_bytes(self, store: Store) -> None:
        store.put_if_absent("x", b"first")
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent("x", b"second")
        assert store.read("x") == b"first"

    def test_of_many_writers_of_a_name_exactly_one_wins(self, store: Store) -> None:
        won: list[int] = []

        def put(number: int) -> None:
            try:
                store.put_if_absent("race", str(number).encode())
            except AlreadyExistsError:
                return
            won.append(number)

        threads = [threading.Thread(target=put, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert store.read("race") == str(won[0]).encode()

    def test_a_stream_that_fails_leaves_nothing(self, store: Store) -> None:
        def write() -> None:
            with store.create("half") as stream:
                stream.write(b"torn")
                raise RuntimeError("process trouble")

        with pytest.raises(RuntimeError):
            write()
        assert store.list("") == []

    def test_absent_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            store.read("nothing")
        with pytest.raises(NotFoundError):
            store.link("nothing", "target")
        store.put_if_absent("folder/file", b"bytes")
        for path in ("nothing", "folder/nothing"):
            with pytest.raises(NotFoundError), store.open(path):
                pass
        assert store.list("nothing") == []

    def test_a_link_holds_the_same_bytes_and_outlives_its_source(self, store: Store) -> None:
        store.put_if_absent("one", b"bytes")
        assert store.link("one", "sub/two") in ("link", "copy")
        assert store.link("one", "sub/two") == "kept"
        store.delete(["one", "one"])
        assert store.read("sub/two") == b"bytes"

    def test_a_link_over_other_bytes_is_refused(self, store: Store) -> None:
        store.put_if_absent("one", b"bytes")
        store.put_if_absent("two", b"other bytes")
        store.put_if_absent("three", b"BYTES")
        for other in ("two", "three"):
            with pytest.raises(AlreadyExistsError):
                store.link("one", other)
        assert store.read("three") == b"BYTES"

    def test_replaced_names_hold_the_new_bytes_and_others_the_old(self, store: Store) -> None:
        """Only repairs replace. A store that cannot, such as S3, refuses taken names and says what to do."""
        store.put_if_absent("d/one", b"old")
        store.link("d/one", "other")
        try:
            with store.replace(["d/two", "d/one"]) as stream:
                stream.write(b"newer")
            store.delete(["d/two"])
        except RefusedError:
            store.delete(["d/one"])
        with store.replace(["d/one", "e/f/two"]) as stream:
            stream.write(b"new ")
            stream.write(memoryview(b"bytes"))
            assert [e.path for e in store.list("e")] == []
        assert (store.read("d/one"), store.read("e/f/two"), store.read("other")) == (b"new bytes", b"new bytes", b"old")
        assert [e.path for e in store.list("", unfinished=True)] == ["d/one", "e/f/two", "other"]

    def test_a_replacement_that_fails_changes_nothing(self, store: Store) -> None:
        store.put_if_absent("keep", b"old")

        def write() -> None:
            with store.replace(["a", "b"]) as stream:
                stream.write(b"torn")
                raise RuntimeError("process trouble")

        with pytest.raises(RuntimeError):
            write()
        assert [e.path for e in store.list("", unfinished=True)] == ["keep"]
        for path in ("../out", "/etc/passwd"):
            with pytest.raises(InvalidInputError), store.replace(["a", path]):
                raise AssertionError("never begun")

    def test_a_listing_is_deep_sorted_and_sized(self, store: Store) -> None:
        for path in ("f/b", "f/a/x", "g"):
            store.put_if_absent(path, path.encode())
        assert [(e.path, e.bytes) for e in store.list("f")] == [("f/a/x", 5), ("f/b", 3)]
        assert store.list("none") == []
        # A name that begins alike is another folder.
        store.put_if_absent("ff/c", b"")
        assert [e.path for e in store.list("f")] == ["f/a/x", "f/b"]

    def test_many_are_deleted_at_once_and_absent_ones_are_no_error(self, store: Store) -> None:
        for path in ("f/a", "f/b", "keep"):
            store.put_if_absent(path, b"")
        store.delete(["f/a", "f/never", "f/b"])
        store.delete([])
        assert [e.path for e in store.list("")] == ["keep"]

    @pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/passwd"])
    def test_paths_outside_the_root_are_refused(self, store: Store, path: str) -> None:
        with pytest.raises(InvalidInputError) as refused:
            store.read(path)
        assert refused.value.code == "PATH_OUTSIDE_ROOT"


class ChangelogStorageContract(StoreContract):
    """What the storage of a changelog promises. A subclass gives the fixture `address`: a new, empty address each time.

    The address is opened by its scheme, as a configuration would open it.
    """

    @pytest.fixture
    def address(self) -> str:
        """An address of the store, without anything in it."""
        raise NotImplementedError("A subclass of ChangelogStorageContract gives the fixture `address`.")

    @pytest.fixture
    def store(self, address: str) -> Store:
        return open_store(address, Path("/"))

    def test_a_store_is_opened_again_by_its_address(self, store: Store) -> None:
        """Tasks in other processes get nothing but the address."""
        store.put_if_absent("a/b", b"bytes")
        again = open_store(store.address, Path("/"))
        assert type(again) is type(store)
        assert (again.read("a/b"), again.address) == (b"bytes", store.address)
        with pytest.raises(AlreadyExistsError):
            again.put_if_absent("a/b", b"other")

    def test_what_a_pipeline_relies_on_is_probed(self, store: Store) -> None:
        """`tidefold validate --online` and the doctor do the same."""
        assert "refuse a second put" in probe(store)
        assert store.list("", unfinished=True) == []

    def test_what_a_writer_flushed_is_read_back(self, store: Store) -> None:
        with Changelog(store, WriterSettings(name="one")) as changelog:
            log = changelog.log("orders", _SHAPE)
            log.append([{"id": i, "text": f"row {i}"} for i in range(2_000)])
            log.flush()
            log.append({"_op": "delete", "id": 7})
        read = [row for _, changes in ChangelogReader(store, "orders") for row in changes.to_pylist()]
        assert sorted(row["id"] for row in read if not row["_op"]) == list(range(2_000))
        assert [row["id"] for row in read if row["_op"]] == [7]

    def test_two_writers_of_one_log_both_count(self, store: Store) -> None:
        """Their commits race for the same version of the ledger: the conditional put decides."""
        names = [f"writer-{number}" for number in range(4)]

        def write(name: str) -> None:
            with Changelog(store, WriterSettings(name=name)) as changelog:
                log = changelog.log("orders", _SHAPE)
                for number in range(5):
                    log.append({"id": names.index(name) * 5 + number, "text": name})
                    log.flush()

        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        read = [row["id"] for _, changes in ChangelogReader(store, "orders") for row in changes.to_pylist()]
        assert sorted(read) == list(range(20))

    def test_an_error_leaves_no_segment(self, store: Store) -> None:
        def write() -> None:
            with Changelog(store) as changelog:
                log = changelog.log("orders", _SHAPE)
                log.append({"id": 1, "text": "given up"})
                log.persist(0).result()
                raise RuntimeError("process trouble")

        with pytest.raises(RuntimeError):
            write()
        assert [e.path for e in store.list("changelog", unfinished=True) if e.path.endswith(".seg")] == []


class SnapshotStorageContract(ChangelogStorageContract):
    """What the storage of snapshots promises: their files are Delta tables that other readers open by `uri`."""

    @pytest.fixture(params=["full", "incremental"])
    def pipeline(self, request: pytest.FixtureRequest, address: str, tmp_path: Path) -> Pipeline:
        """A pipeline whose configuration names the address."""
        config = tmp_path / "tidefold.yaml"
        config.write_text(_CONFIG.format(address=address, kind=request.param))
        return open_pipeline(config)

    def test_a_delta_table_is_written_and_read_by_its_uri(self, store: Store) -> None:
        table = pa.table({"id": [1, 2, 3]})
        write_deltalake(store.uri("tables/t"), table, storage_options=store.options())
        assert store.list("tables/t/_delta_log")[0].path == f"tables/t/_delta_log/{0:020d}.json"
        opened = DeltaTable(store.uri("tables/t"), storage_options=store.options())
        assert opened.to_pyarrow_table().column("id").to_pylist() == [1, 2, 3]

    def test_a_pipeline_publishes_what_was_written(self, pipeline: Pipeline) -> None:
        model: dict[int, str] = {}
        for number in range(3):
            with open_changelog(pipeline) as changelog:
                log = changelog.log("orders", pipeline.log("orders").shape)
                rows = {i: f"{number} {i}" for i in range(number * 10, number * 10 + 40)}
                log.append([{"id": i, "text": text} for i, text in rows.items()])
                log.append({"_op": "delete", "id": number * 10})
            model |= rows
            del model[number * 10]
            run_orders(pipeline, f"run-{number}")
            assert _read_table(pipeline) == model
        state = pipeline.ledger("orders").read()
        assert [s.state.value for s in state.snapshots] == ["COMPLETED"] * 3

    def test_a_snapshot_is_restored_elsewhere(self, pipeline: Pipeline, tmp_path: Path) -> None:
        with open_changelog(pipeline) as changelog:
            changelog.log("orders", pipeline.log("orders").shape).append([{"id": i, "text": "a"} for i in range(40)])
        run_orders(pipeline, "run-1")
        with open_changelog(pipeline) as changelog:
            changelog.log("orders", pipeline.log("orders").shape).append([{"id": i, "text": "b"} for i in range(40)])
        run_orders(pipeline, "run-2")
        restore_to(pipeline, "orders", 1, str(tmp_path / "restored"), None, in_threads())
        restored = DeltaTable(str(tmp_path / "restored")).to_pyarrow_table()
        assert set(restored.column("text").to_pylist()) == {"a"}
        assert restored.num_rows == 40

    def test_nothing_but_what_the_ledger_knows_is_left(self, pipeline: Pipeline) -> None:
        with open_changelog(pipeline) as changelog:
            changelog.log("orders", pipeline.log("orders").shape).append([{"id": 1, "text": "a"}])
        run_orders(pipeline, "run-1")
        clean(pipeline, ["orders"])
        assert [e.path for e in pipeline.store.list("", unfinished=True) if e.path.endswith(".part")] == []
        assert _read_table(pipeline) == {1: "a"}


def run_orders(pipeline: Pipeline, run: str) -> None:
    """Folds, judges and publishes in this process. Raises AssertionError with the outcomes if a step fails."""

    def run_step(step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        return list(run_without_spark(pipeline, step, logs).done)

    full = FullRun(pipeline, Fold(run), run_step=run_step)
    full.run(["orders"])
    done = [outcome for outcomes in full.outcomes.values() for outcome in outcomes]
    assert [outcome.message for outcome in done if outcome.error] == []
    assert full.outcomes["confirm"][0].status == "published", done


def read_orders(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Returns the rows of the table."""
    uri, options = pipeline.store.uri(LogPaths("orders").table), pipeline.store.options()
    rows: list[dict[str, Any]] = DeltaTable(uri, storage_options=options).to_pyarrow_table().to_pylist()
    return rows


def _read_table(pipeline: Pipeline) -> dict[int, str]:
    return {row["id"]: row["text"] for row in read_orders(pipeline)}
