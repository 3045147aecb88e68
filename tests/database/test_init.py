"""`init --connection`: a configuration from the catalogue of a database, which the connector's records fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.commands import call
from support.edge_values import KNOWN, UNKNOWN, list_statements
from tidefold.config import load_config
from torture.servers import PostgresSession


def test_tables_become_logs(database: PostgresSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database.execute(
        *list_statements(10),
        "create table no_key (a int, b text)",
        "create table parts (id int, day date, primary key (id, day)) partition by range (day)",
        "create table parts_1 partition of parts default",
        "create table by_float (id float8 primary key)",
        "create table silent (id int primary key)",
        "alter table silent replica identity nothing",
        "insert into no_key select n from generate_series(1, 1000) n",
        "analyze no_key",
    )
    monkeypatch.chdir(tmp_path)
    done = call("init", "landing", "--connection", "shop", "--prefix", "shop")
    config = load_config(Path("tidefold.yaml"))
    assert list(config.logs) == ["edge", "no_key", "parts", "silent"]
    edge = config.logs["edge"]
    assert edge.shape.key == ("id",)
    assert {one.name for one in edge.shape.columns} == {"id", *KNOWN}
    assert {*edge.shape.ignored} == {*UNKNOWN}
    types = {one.name: (one.type, one.encoding) for one in edge.shape.columns}
    assert types["n122"] == ("decimal(12,2)", "string")
    assert types["ts3"] == ("timestamp", "millis")
    assert types["tstz"] == ("timestamp", "iso")
    assert config.logs["parts"].shape.key == ("id", "day")
    assert config.logs["no_key"].shape.key == ()
    text = Path("tidefold.yaml").read_text()
    assert yaml.safe_load(text)["logs"]["parts"]["source"]["path"] == "landing/shop.public.parts"
    assert "publish_via_partition_root = true" in text
    assert "# Written by `tidefold init` from the catalogue of a database." in text
    assert "proved: edge: " in done.output
    assert "## Table public.silent.\n" in text
    assert "## Table public.no_key, about 1,000 rows." in text
    for word in ("landed files", "sample", "about 0 rows"):
        assert word not in text + done.output
    assert "# decimal.handling.mode=string" in text
    assert "QUESTION key: no log can have the key column id" in text.replace("\n  ##  ", " ")
    assert "look at silent: Its replica identity is NOTHING" in done.output
    assert "connector: heartbeat.interval.ms=10000" in done.output
