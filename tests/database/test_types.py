"""The table of types on a real server: a value has one text, in SQL, in Arrow and in DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pytest

from support.edge_values import KNOWN, UNKNOWN, list_statements
from tidefold.changelog.duckdb_connections import connect
from tidefold.errors import RefusedError, StorageError
from tidefold.sources.database.catalogue import SourceTable, list_tables, read_table
from tidefold.sources.database.connection import Database, Reader, quote_name
from tidefold.sources.database.types import DatabaseColumn, find_form, propose_type, to_column
from torture.servers import PostgresSession

_OTHER_TYPES = ("string", "int", "long", "decimal(20,0)", "timestamp", "array<string>")


@pytest.fixture(scope="module")
def table(database: PostgresSession) -> SourceTable:
    database.execute(*list_statements(2000))
    with Database.find("shop").begin() as reader:
        return read_table(reader, "public.edge")


def _find_types(column: DatabaseColumn) -> list[str]:
    proposed = propose_type(column)
    assert proposed is not None
    return [proposed[0], *(one for one in _OTHER_TYPES if one != proposed[0] and find_form(column, one))]


def _find_different(reader: Reader, column: DatabaseColumn, type_: str) -> list[object]:
    form = find_form(column, type_)
    assert form is not None
    form = form.of(quote_name(column.name))
    fits = f"not coalesce({form.unfit}, false)" if form.unfit else "true"
    rows = reader.read(f"select {form.select} as v, {form.text} as t from edge where {fits}")
    assert rows.num_rows > 500
    values = pa.table({"v": to_column(rows["v"], type_), "t": rows["t"]})
    local = form.local.replace(quote_name(column.name), "v")
    with connect() as duck:
        duck.register("rows", values)
        return duck.execute(f"select v, t, {local} from rows where {local} is distinct from t limit 3").fetchall()


def test_a_value_has_one_text_in_sql_and_in_arrow(table: SourceTable) -> None:
    different = {}
    with Database.find("shop").begin() as reader:
        for name in KNOWN:
            column = table.find_column(name)
            assert column is not None
            for type_ in _find_types(column):
                different[name, type_] = _find_different(reader, column, type_)
    assert {at: found for at, found in different.items() if found} == {}
    assert len(different) > 60


def test_other_values_have_other_texts(table: SourceTable, database: PostgresSession) -> None:
    for name in ("f8", "f4", "pad", "at", "ai", "ts", "d", "by", "n38", "j", "ip"):
        column = table.find_column(name)
        assert column is not None
        proposed = propose_type(column)
        assert proposed is not None
        form = find_form(column, proposed[0])
        assert form is not None
        [(texts, values)] = database.rows(
            f"select count(distinct {form.of(name).text}), count(distinct {_plain(name)}) from edge"
        )
        assert texts == values, name


def _plain(name: str) -> str:
    return {"pad": "rpad(pad::text, 9)", "f8": "f8::text", "f4": "f4::text"}.get(name, f"{name}::text")


def test_a_type_that_is_not_known_is_never_guessed(table: SourceTable) -> None:
    for name in UNKNOWN:
        column = table.find_column(name)
        assert column is not None
        assert propose_type(column) is None
        assert [type_ for type_ in _OTHER_TYPES if find_form(column, type_)] == []


def test_the_catalogue_says_key_domain_and_size(table: SourceTable, database: PostgresSession) -> None:
    assert (table.full_name, table.key, table.kind, table.described_kind) == ("public.edge", ("id",), "r", "")
    found = {one.name: (one.type, one.is_array, one.size, one.scale) for one in table.columns}
    assert found["dom"] == ("numeric", False, 10, 2)
    assert found["an"] == ("numeric", True, 10, 2)
    assert found["ts3"] == ("timestamp", False, 3, 0)
    assert found["m"][0] == "enum"
    database.execute(
        'create schema "of Ours"',
        'create table "of Ours"."T 1" (b text, a int not null, primary key (b, a) include (c), c int)',
        "create table no_key (a int)",
        "create view seen as select 1 as one",
    )
    with Database.find("shop").begin() as reader:
        tables = {one.full_name: one.key for one in list_tables(reader)}
        assert read_table(reader, "seen").described_kind == "a view"
    assert tables == {"of Ours.T 1": ("b", "a"), "public.edge": ("id",), "public.no_key": ()}


def test_nothing_can_be_written_and_no_secret_is_told(
    database: PostgresSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create sequence made")
    with pytest.raises(StorageError, match="read-only"), Database.find("shop").begin() as reader:
        reader.read("select nextval('made')")
    with pytest.raises(RefusedError, match="DATABASE_NO_TABLE"), Database.find("shop").begin() as reader:
        read_table(reader, "nowhere")
    monkeypatch.setenv(
        "AIRFLOW_CONN_SHOP", '{"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "password": "s3cr3t"}'
    )
    with pytest.raises(StorageError, match="DATABASE_UNREADABLE") as refused, Database.find("shop").begin():
        pass
    assert "s3cr3t" not in f"{refused.value} {refused.value.__cause__}"
