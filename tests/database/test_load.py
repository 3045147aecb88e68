"""`source load`: the rows of a real PostgreSQL, and the stream of the same slot behind them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from support.landing import fold_waiting, land, make_landing, take
from support.pipelines import rows_of
from support.slot_stream import SlotStream
from tidefold.cli.app import app
from tidefold.errors import InvalidInputError, RefusedError, TidefoldError
from tidefold.operations.doctor.finding import FindingLevel
from tidefold.operations.doctor.pipeline_checks import check_slots
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.removal_details import CleanDetails
from tidefold.operations.ingest.load_dump import load_dump
from tidefold.operations.ingest.load_files import Load
from tidefold.operations.ingest.load_table import LoadDetails, TableLoad, drop, load_tables
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.clean import drop as drop_log
from tidefold.sources.debezium.loaded_rows import LoadMark
from tidefold.wiring import open_pipeline
from tidefold_airflow.ui.views.log import view_log
from torture.servers import Postgres, PostgresSession

ASKED = TableLoad("shop", "tidefold", "tidefold", "test")


class _Loaded:
    """A table `items` of 300 rows with its publication, and the log `items`."""

    def __init__(self, server: Postgres, session: PostgresSession, root: Path) -> None:
        self.server, self.session, self.root = server, session, root
        self.pipeline: Pipeline = make_landing(root)
        self.stream = SlotStream(session)
        session.execute(
            "drop table if exists items cascade",
            "create table items (id int primary key, text text)",
            "insert into items select n, 't' || n from generate_series(1, 300) n",
            "drop publication if exists tidefold",
            "create publication tidefold for table items",
        )
        self.opened: list[PostgresSession] = []

    def begin(self, statement: str) -> PostgresSession:
        """Opens a transaction, and returns its session."""
        session = self.server.session(self.session.rows("select current_database()")[0][0])
        assert isinstance(session, PostgresSession)
        session.execute("begin", statement)
        self.opened.append(session)
        return session

    def end_connections(self) -> None:
        self.session.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and (application_name = 'tidefold' or backend_type = 'walsender')"
        )

    def load(self, asked: TableLoad = ASKED) -> Outcome:
        [outcome] = load_tables(self.pipeline, ["items"], asked)
        return outcome

    def follow(self) -> None:
        """Lands what the slot has, ingests and publishes."""
        if records := self.stream.read():
            land(self.root, records[0]["offset"], records)
        taken = take(self.pipeline)
        assert taken.error is None, taken
        fold_waiting(self.pipeline, f"r{self.stream.next}")

    def require_equal(self) -> None:
        expected = dict(self.session.rows("select id, text from items"))
        assert rows_of(str(self.root / "store/tables/items")) == expected


@pytest.fixture
def loaded(server: Postgres, database: PostgresSession, tmp_path: Path) -> Iterator[_Loaded]:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    one = _Loaded(server, database, tmp_path)
    yield one
    for session in one.opened:
        session.close()
    for (slot,) in database.rows("select slot_name from pg_replication_slots where database = current_database()"):
        database.rows(f"select pg_drop_replication_slot('{slot}')")


def test_rows_are_loaded_and_the_stream_goes_on_without_a_gap(loaded: _Loaded) -> None:
    outcome = loaded.load()
    assert isinstance(outcome.details, LoadDetails)
    assert outcome.details.rows == 300
    connector = outcome.details.connector
    names = ("snapshot.mode", "slot.name", "publication.name", "table.include.list", "topic.prefix")
    assert [connector[name] for name in names] == ["no_data", "tidefold", "tidefold", "public.items", "shop"]
    loaded.follow()
    loaded.require_equal()
    done = CliRunner().invoke(app, ["explain", "items", "300", "-c", str(loaded.root / "tidefold.yaml")])
    assert "row 300" in done.output, done.output
    assert "public.items loaded offset 299" in done.output
    loaded.session.execute("update items set text = 'new' where id < 10", "delete from items where id = 300")
    loaded.session.execute("insert into items values (301, null)", "update items set id = 400 where id = 20")
    loaded.follow()
    loaded.require_equal()
    # The partition of loaded rows has a name for people.
    config = str(loaded.root / "tidefold.yaml")
    told = [CliRunner().invoke(app, [*words, "-c", config]).output for words in (["explain", "items", "5"], ["status"])]
    view = view_log(loaded.pipeline, loaded.pipeline.ledger("items").read())
    assert "loaded:4" in told[0]
    assert [one.partition for one in view.places] == ["loaded", "0"]
    assert not [text for text in told if re.search(r"(?<![\w.])-1\b", text)]


@pytest.mark.parametrize("is_ingested_first", [True, False])
def test_changes_of_transactions_that_were_open_beside_the_slot_are_newer_than_its_rows(
    loaded: _Loaded, is_ingested_first: bool
) -> None:
    """Their events lie before the slot's position, and the connector names no commit: decision 0068."""
    before = loaded.begin("update items set text = 'before' where id = 1")
    told: list[str] = []
    beside: list[PostgresSession] = []

    def tell(text: str) -> None:
        """While the slot waits for `before`, another transaction writes; the slot must not wait for it as well."""
        told.append(text)
        if text.startswith("waiting") and not beside:
            beside.append(loaded.begin("update items set text = 'beside' where id = 2"))
            before.execute("commit")
        elif text.startswith("waiting") and len(beside) == 1:
            beside.append(loaded.begin("update items set text = 'late' where id = 3"))
            beside[0].execute("commit")

    loaded.load(TableLoad("shop", "tidefold", "tidefold", "test", tell=tell))
    assert any("process" in text for text in told)
    if is_ingested_first:
        take(loaded.pipeline)
    for session in beside[1:]:
        session.execute("commit")
    loaded.session.execute("update items set text = 'after' where id = 4")
    loaded.follow()
    loaded.require_equal()
    assert loaded.session.rows("select text from items where id = 3") == [("late",)]


def test_a_load_into_a_log_that_has_rows_replaces_them(loaded: _Loaded) -> None:
    loaded.load()
    loaded.follow()
    loaded.session.execute("update items set text = 'streamed' where id = 7")
    loaded.follow()
    loaded.session.rows("select pg_drop_replication_slot('tidefold')")
    loaded.session.execute("delete from items where id > 200", "update items set text = 'unseen' where id < 5")
    loaded.load()
    loaded.session.execute("update items set text = 'seen' where id = 6")
    stream = SlotStream(loaded.session)
    stream.next, loaded.stream = loaded.stream.next, stream
    loaded.follow()
    loaded.require_equal()
    # All that landed makes the same table again.
    drop_log(loaded.pipeline, "items", plan=False)
    loaded.follow()
    loaded.require_equal()


def test_a_load_replaces_all_that_landed_before_also_in_a_log_that_begins_again(loaded: _Loaded) -> None:
    """Changes of the time between two slots are in no stream: rows that were deleted then must not come back."""
    loaded.load()
    loaded.session.execute("update items set text = 'first' where id = 1", "insert into items values (301, 'streamed')")
    loaded.follow()
    drop_log(loaded.pipeline, "items", plan=False)
    loaded.session.rows("select pg_drop_replication_slot('tidefold')")
    loaded.session.execute("delete from items where id in (7, 301)")
    loaded.load()
    loaded.follow()
    loaded.require_equal()


def test_clean_deletes_what_loads_left_and_keeps_the_newest_load(
    loaded: _Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = loaded.root / "store/landed/items/_load"
    killed = Load.begin(loaded.pipeline, "items")
    killed.order, killed.columns = (1, 0), loaded.pipeline.log("items").shape.columns
    killed.write(0, [])
    loaded.load()
    first = {one for one in folder.rglob("*.parquet") if killed.folder not in str(one)}
    loaded.follow()
    assert _clean(loaded) == set()
    _age(folder)
    assert _clean(loaded) == {folder / killed.folder / "000000.parquet"}
    loaded.session.rows("select pg_drop_replication_slot('tidefold')")
    loaded.load()
    second = {*folder.rglob("*.parquet")} - first
    _age(folder)
    assert _clean(loaded) == first
    loaded.follow()
    loaded.require_equal()
    # As files of a topic; a log that starts again then needs a new load.
    config = loaded.root / "tidefold.yaml"
    config.write_text(config.read_text() + "retention: {landed: 1d}\n")
    loaded.pipeline = open_pipeline(config)
    assert _clean(loaded) == set()
    later = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    monkeypatch.setattr("tidefold.operations.retention.clean.now", lambda: later)
    assert _clean(loaded) == second
    drop_log(loaded.pipeline, "items", plan=False)
    assert take(loaded.pipeline).error_code == "LANDED_GONE"
    loaded.session.rows("select pg_drop_replication_slot('tidefold')")
    loaded.load()
    loaded.follow()
    loaded.require_equal()


def _age(folder: Path) -> None:
    for one in folder.rglob("*.parquet"):
        os.utime(one, (1, 1))


def _clean(loaded: _Loaded) -> set[Path]:
    """Returns the files of loads that `clean` deletes."""
    [_, cleaned] = clean(loaded.pipeline, ["items"])
    assert isinstance(cleaned.details, CleanDetails)
    return {loaded.root / "store" / one for one in cleaned.details.paths if "/_load/" in one}


def test_lists_are_written_so_that_many_rows_are_read_at_a_time(loaded: _Loaded) -> None:
    """A reader takes few rows at a time of lists of a dictionary, which cost an ingest three times the CPU."""
    loaded.session.execute("alter table items add column tags text[]", "update items set tags = array['a', text]")
    loaded.pipeline = make_landing(loaded.root, "{id: int, text: string, tags: array<string>}")
    loaded.load()
    [path] = (loaded.root / "store/landed").rglob("*.parquet")
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        encodings = {group.column(at).path_in_schema: group.column(at).encodings for at in range(group.num_columns)}
    assert not [one for name, kinds in encodings.items() if "tags" in name for one in kinds if "DICTIONARY" in one]
    assert take(loaded.pipeline).error is None


def test_a_load_that_breaks_off_leaves_nothing(loaded: _Loaded) -> None:
    loaded.session.execute("alter table items add column at date", "update items set at = 'infinity' where id = 77")
    loaded.pipeline = make_landing(loaded.root, "{id: int, text: string, at: date}")
    with pytest.raises(InvalidInputError, match="Row id=77 has a `at`") as refused:
        loaded.load()
    assert refused.value.code == "LOAD_VALUE"
    assert loaded.session.rows("select count(*) from pg_replication_slots") == [(0,)]
    assert [one.path for one in loaded.pipeline.store.list("landed")] == []
    loaded.pipeline = make_landing(loaded.root, "{id: int, text: string, at: string}")
    loaded.load()
    taken = take(loaded.pipeline)
    assert (taken.error, loaded.pipeline.ledger("items").read().landed[0].changes) == (None, 300)


def test_a_slot_that_a_killed_load_left_is_found_and_dropped(loaded: _Loaded) -> None:
    load = Load.begin(loaded.pipeline, "items")
    load.note(LoadMark("", (), 0, "", "", "test", "now", "tidefold", "shop"))
    load.order, load.columns = (1, 0), loaded.pipeline.log("items").shape.columns
    load.write(0, [])
    loaded.session.rows("select pg_create_logical_replication_slot('tidefold', 'pgoutput')")
    with pytest.raises(RefusedError, match="already") as refused:
        loaded.load()
    assert refused.value.code == "SLOT_EXISTS"
    assert take(loaded.pipeline).status == "nothing"
    [left] = [one for one in check_slots(loaded.pipeline.config) if one.level is FindingLevel.WARN]
    assert "slot `tidefold` at connection `shop` holds" in left.message
    assert "--drop-slot" in left.hint
    assert "is dropped" in drop(loaded.pipeline, ["items"], ASKED)
    assert [one.path for one in loaded.pipeline.store.list("landed")] == []
    loaded.load()
    loaded.follow()
    loaded.require_equal()


def test_a_lost_connection_ends_the_load_and_leaves_nothing(loaded: _Loaded) -> None:
    """The server ends all connections of the load while its rows are read."""
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if "its snapshot is read" in text:
            loaded.end_connections()

    with pytest.raises(TidefoldError) as broken:
        loaded.load(TableLoad("shop", "tidefold", "tidefold", "test", tell=tell))
    assert broken.value.code == "DATABASE_UNREADABLE"
    assert take(loaded.pipeline).status == "nothing"
    assert loaded.session.rows("select count(*) from pg_replication_slots") == [(0,)]
    assert [one.path for one in loaded.pipeline.store.list("landed")] == []
    loaded.load()
    loaded.follow()
    loaded.require_equal()


def test_no_connection_breaks_a_load_whose_rows_are_complete(loaded: _Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Load.finish

    def finish_alone(load: Load, mark: LoadMark) -> None:
        finish(load, mark)
        loaded.end_connections()

    monkeypatch.setattr(Load, "finish", finish_alone)
    loaded.load()
    loaded.session.execute("update items set text = 'new' where id = 9")
    loaded.follow()
    loaded.require_equal()


@pytest.mark.parametrize(
    ("ddl", "code"),
    [
        ("create view other as select * from items", "LOAD_RELATION"),
        ("create materialized view other as select * from items", "LOAD_RELATION"),
        ("create unlogged table other (id int primary key, text text)", "LOAD_RELATION"),
        ("create table other (id int primary key, text text)", "PUBLICATION_MISSING"),
        ("create table other (id int primary key)", "LOAD_COLUMNS"),
        ("create table other (id int primary key, text text, more int)", "LOAD_COLUMNS"),
        ("create table other (id int primary key, text point)", "LOAD_COLUMNS"),
    ],
)
def test_what_cannot_be_loaded_is_refused_by_name(loaded: _Loaded, ddl: str, code: str) -> None:
    loaded.session.execute("drop table if exists other", ddl)
    if code == "LOAD_COLUMNS":
        loaded.session.execute("alter publication tidefold add table other")
    with pytest.raises(TidefoldError, match="other") as refused:
        loaded.load(TableLoad("shop", "tidefold", "tidefold", "test", "public.other"))
    assert refused.value.code == code
    assert loaded.session.rows("select count(*) from pg_replication_slots") == [(0,)]
    kind = "materialized view" if "materialized" in ddl else ddl.split()[1].replace("unlogged", "table")
    loaded.session.execute(f"drop {kind} other")


def test_a_partitioned_table_is_read_by_its_partitions(loaded: _Loaded) -> None:
    loaded.session.execute(
        "drop table items cascade",
        "create table items (id int primary key, text text) partition by range (id)",
        "create table low partition of items for values from (0) to (100)",
        "create table high partition of items for values from (100) to (1000)",
        "insert into items select n, 't' || n from generate_series(1, 300) n",
        "drop publication tidefold",
        "create publication tidefold for table items with (publish_via_partition_root = true)",
    )
    loaded.load()
    loaded.session.execute("update items set text = 'new' where id in (50, 150)")
    loaded.follow()
    loaded.require_equal()


def _write_dump(root: Path, kind: str) -> str:
    rows = pa.table({"id": pa.array(range(1, 301), pa.int32()), "text": [f"t{n}" for n in range(1, 301)]})
    (root / "dump").mkdir()
    for number in range(2):
        part = rows.slice(number * 150, 150)
        if kind == "parquet":
            pq.write_table(part, root / f"dump/{number}.parquet")
        else:
            csv.write_csv(part, root / f"dump/{number}.csv")
    return str(root / "dump")


@pytest.mark.parametrize(("kind", "position"), [("parquet", "0"), ("csv", "0"), ("parquet", "slot")])
def test_a_dump_is_loaded_before_the_stream(loaded: _Loaded, kind: str, position: str) -> None:
    slot = loaded.session.rows("select lsn::text from pg_create_logical_replication_slot('tidefold', 'pgoutput')")
    loaded.session.execute("delete from items where id = 5", "update items set text = 'new' where id = 6")
    folder = _write_dump(loaded.root, kind)
    outcome = load_dump(loaded.pipeline, "items", folder, slot[0][0] if position == "slot" else position, "test")
    assert "300 rows of 2 files loaded" in outcome.message
    loaded.follow()
    loaded.require_equal()


def test_a_dump_with_a_row_that_the_log_cannot_have_is_refused_as_a_whole(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump/a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "dump/b.csv").write_text("id,text\n2,b\nx,c\n")
    with pytest.raises(InvalidInputError, match=r"b\.csv.*row 2") as refused:
        load_dump(pipeline, "items", str(tmp_path / "dump"), "0", "test")
    assert refused.value.code == "LOAD_VALUE"
    assert list(pipeline.store.list("landed")) == []
    with pytest.raises(InvalidInputError, match="no position"):
        load_dump(pipeline, "items", str(tmp_path / "dump"), "mysql-bin.1:4", "test")
