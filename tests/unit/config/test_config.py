"""A good configuration gives these values; every bad one is refused with code, line and key. Bad inputs 1 to 28."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidefold.config import ConfigError, json_schema, load_config
from tidefold.config.models.spark import SparkConfig
from tidefold.domain.log_state import Column, TableSpec
from tidefold.errors import InvalidInputError, NotFoundError
from tidefold.yaml_files.document import SIZE_LIMIT

GOOD = """\
version: 1
store: var/store
spark: {master: "local[2]", driver_memory: 512m}
local: {mode: disabled}
retention: {snapshots: all}
logs:
  accounts:
    source:
      format: debezium-json
      connector: postgresql
      path: landing/accounts
    key: [aid, bid]
    columns:
      bid: int
      aid: long
      filler: string
    key_groups: 16
    buckets: 4
    on_bad_record: fail
    quality:
      suite: quality/accounts.yaml
      max_row_drop: 0.25
  tellers:
    source: {format: debezium-json, connector: postgresql, path: landing/tellers}
    key: [tid]
    columns: {tid: int, on: string, 1: string}
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "tidefold.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(folder: Path, text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        load_config(write(folder, text))
    return refused.value


def test_a_good_file_gives_absolute_paths_and_the_order_of_the_file(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    accounts = config.logs["accounts"]
    assert (config.path, config.store) == (tmp_path / "tidefold.yaml", "var/store")
    assert (config.spark.master, config.spark.driver_memory) == ("local[2]", "512m")
    assert accounts.landing == str(tmp_path / "landing/accounts")
    assert accounts.suite == tmp_path / "quality/accounts.yaml"
    assert accounts.quality.max_row_drop == 0.25
    columns = (Column("bid", "int"), Column("aid", "long"), Column("filler", "string"))
    assert accounts.shape == TableSpec(("aid", "bid"), columns, "postgresql", 16, 4, reading=())


def test_defaults(tmp_path: Path) -> None:
    tellers = load_config(write(tmp_path, GOOD)).logs["tellers"]
    assert (tellers.shape.order, tellers.shape.key_groups, tellers.shape.buckets) == ("postgresql", 128, 8)
    assert (tellers.on_bad_record, tellers.quality.suite, tellers.quality.max_row_drop) == ("quarantine", None, 0.5)


def test_a_source_has_the_options_of_its_format(tmp_path: Path) -> None:
    text = GOOD.replace("debezium-json, connector: postgresql", "json, op: {column: op, delete: [X]}")
    feed = load_config(write(tmp_path, text)).logs["tellers"].feed
    assert feed
    assert (feed.format, feed.path) == ("json", str(tmp_path / "landing/tellers"))
    op = feed.options["op"]
    assert (op["column"], op["delete"], op["row"], feed.options["record"]) == ("op", ["X"], None, "kafka")


def test_an_unknown_key_of_a_source_names_those_that_there_are(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD.replace("debezium-json, connector: postgresql", "json, op: {colum: op}"))
    assert "Allowed here: column, upsert, delete, ignore, missing, pairs, row." in str(error)
    assert "Did you mean `column`?" in str(error)


def test_column_names_are_text_as_written_not_what_yaml_makes_of_them(tmp_path: Path) -> None:
    tellers = load_config(write(tmp_path, GOOD)).logs["tellers"]
    assert [c.name for c in tellers.shape.columns] == ["tid", "on", "1"]


def test_nothing_can_be_changed_afterwards(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    with pytest.raises(ValueError, match="frozen"):
        config.store = "elsewhere"  # type: ignore[misc]


def test_columns_have_a_type_or_a_type_and_an_encoding(tmp_path: Path) -> None:
    columns = "{tid: int, on: 'decimal(12, 2)', 1: {type: array<timestamp>, encoding: iso}}"
    text = GOOD.replace("{tid: int, on: string, 1: string}", columns)
    tellers = load_config(write(tmp_path, text)).logs["tellers"]
    assert tellers.shape.columns == (
        Column("tid", "int"),
        Column("on", "decimal(12,2)"),
        Column("1", "array<timestamp>", "iso"),
    )


@dataclass(frozen=True)
class Bad:
    """`old` in the good file becomes `new`."""

    name: str
    old: str
    new: str
    code: str
    line: int
    key: str


A, T = "logs.accounts", "logs.tellers"
UNKNOWN_VALUE, OUT_OF_RANGE = "CONFIG_UNKNOWN_VALUE", "CONFIG_OUT_OF_RANGE"
LATER, OVERLAP = "NOT_IN_THIS_VERSION", "FOLDERS_OVERLAP"

FILLER, FILLER_IS, AF = "filler: string", "filler: {type:", f"{A}.columns.filler"
BAD = [
    Bad("duplicate key", "store: var/store", "store: a\nstore: b", "CONFIG_DUPLICATE_KEY", 3, "store"),
    Bad("duplicate log", "  tellers:", "  accounts:", "CONFIG_DUPLICATE_KEY", 23, f"{A}"),
    Bad(
        "duplicate column", "filler: string", "bid: string", "CONFIG_DUPLICATE_KEY", 16, f"{A}.columns.bid"
    ),
    Bad("unknown key above", "local:", "lokal:", "CONFIG_UNKNOWN_KEY", 4, "lokal"),
    Bad("unknown key in a log", "    buckets:", "    bucket:", "CONFIG_UNKNOWN_KEY", 18, f"{A}.bucket"),
    Bad(
        "unknown key in source", "      format:", "      formatt: x\n      format:",
        "CONFIG_UNKNOWN_KEY", 9, f"{A}.source.formatt",
    ),
    Bad(
        "a key that left", "      format:", "      schemas: x\n      format:",
        "CONFIG_UNKNOWN_KEY", 9, f"{A}.source.schemas",
    ),
    Bad("a Spark setting", "512m}", "512m, spark.jars: x.jar}", "CONFIG_UNKNOWN_KEY", 3, "spark.spark.jars"),
    Bad("merge key", "    buckets: 4", "    <<: {buckets: 4}", "CONFIG_UNKNOWN_KEY", 18, f"{A}.<<"),
    Bad("missing version", "version: 1", "", "CONFIG_MISSING_KEY", 1, "version"),
    Bad("missing store", "store: var/store", "", "CONFIG_MISSING_KEY", 1, "store"),
    Bad("missing path", "      path: landing/accounts", "", "CONFIG_MISSING_KEY", 8, f"{A}.source.path"),
    Bad("other version", "version: 1", "version: 2", "STORE_NEWER", 1, "version"),
    Bad("version as text", "version: 1", "version: '1'", UNKNOWN_VALUE, 1, "version"),
    Bad("version as boolean", "version: 1", "version: yes", UNKNOWN_VALUE, 1, "version"),
    Bad("text for a number", "buckets: 4", "buckets: four", "CONFIG_WRONG_TYPE", 18, f"{A}.buckets"),
    Bad("boolean for a number", "buckets: 4", "buckets: yes", "CONFIG_WRONG_TYPE", 18, f"{A}.buckets"),
    Bad("fraction for a number", "buckets: 4", "buckets: 4.5", "CONFIG_WRONG_TYPE", 18, f"{A}.buckets"),
    Bad("huge number", "buckets: 4", f"buckets: {'9' * 5000}", "CONFIG_WRONG_TYPE", 18, f"{A}.buckets"),
    Bad("number for text", "store: var/store", "store: 7", "CONFIG_WRONG_TYPE", 2, "store"),
    Bad("boolean for a column", "[aid, bid]", "[aid, no]", "CONFIG_WRONG_TYPE", 12, f"{A}.key[1]"),
    Bad("text for a list", "key: [tid]", "key: tid", "CONFIG_WRONG_TYPE", 25, f"{T}.key"),
    Bad("text for a mapping", "local: {mode: disabled}", "local: disabled", "CONFIG_WRONG_TYPE", 4, "local"),
    Bad("no value", "retention: {snapshots: all}", "retention:", "CONFIG_WRONG_TYPE", 5, "retention"),
    Bad("a log that is a list", GOOD[GOOD.index("  tellers:"):], "  tellers: []", "CONFIG_WRONG_TYPE", 23, f"{T}"),
    Bad("memory without unit", "512m", "512", "CONFIG_WRONG_TYPE", 3, "spark.driver_memory"),
    Bad("memory in words", "512m", "lots", "CONFIG_WRONG_TYPE", 3, "spark.driver_memory"),
    Bad("a limit without a unit", "512m}", "512m, above: 64}", "CONFIG_WRONG_TYPE", 3, "spark.above"),
    Bad("a negative limit", "512m}", "512m, above: -1MB}", "CONFIG_WRONG_TYPE", 3, "spark.above"),
    Bad("no logs", GOOD[GOOD.index("logs:"):], "logs: {}", "CONFIG_EMPTY_VALUE", 6, "logs"),
    Bad("empty store", "store: var/store", "store: ''", "CONFIG_EMPTY_VALUE", 2, "store"),
    Bad("row drop above one", "0.25", "1.5", OUT_OF_RANGE, 22, f"{A}.quality.max_row_drop"),
    Bad("row drop not a number", "0.25", ".nan", OUT_OF_RANGE, 22, f"{A}.quality.max_row_drop"),
    Bad("no buckets", "buckets: 4", "buckets: 0", OUT_OF_RANGE, 18, f"{A}.buckets"),
    Bad("too many key groups", "key_groups: 16", "key_groups: 70000", OUT_OF_RANGE, 17, f"{A}.key_groups"),
    Bad("more buckets than key groups", "buckets: 4", "buckets: 17", "BUCKETS_INVALID", 18, f"{A}.buckets"),
    Bad("unknown type", "aid: long", "aid: bigint", UNKNOWN_VALUE, 15, f"{A}.columns.aid"),
    Bad("too precise", "aid: long", "aid: 'decimal(39,2)'", UNKNOWN_VALUE, 15, f"{A}.columns.aid"),
    Bad("nested array", "aid: long", "aid: array<array<int>>", UNKNOWN_VALUE, 15, f"{A}.columns.aid"),
    Bad("type is a number", "aid: long", "aid: 5", "CONFIG_WRONG_TYPE", 15, f"{A}.columns.aid"),
    Bad("key of bytes", "aid: long", "aid: binary", "KEY_TYPE", 12, f"{A}.key[0]"),
    Bad("no encoding of its type", FILLER, f"{FILLER_IS} string, encoding: hex}}", "COLUMN_ENCODING", 16, AF),
    Bad("type is missing", FILLER, "filler: {encoding: hex}", "CONFIG_MISSING_KEY", 16, f"{AF}.type"),
    Bad("column with another key", FILLER, f"{FILLER_IS} string, kind: x}}", "CONFIG_UNKNOWN_KEY", 16, f"{AF}.kind"),
    Bad("unknown format", "format: debezium-json\n", "format: xml\n", UNKNOWN_VALUE, 9, f"{A}.source.format"),
    Bad("no format", "      format: debezium-json\n", "", "CONFIG_MISSING_KEY", 8, f"{A}.source.format"),
    Bad("a format of its own", "format: debezium-json\n", "format: [json]\n", UNKNOWN_VALUE, 9, f"{A}.source.format"),
    Bad(
        "a key of another format", "connector: postgresql\n", "connector: postgresql\n      record: value\n",
        "CONFIG_UNKNOWN_KEY", 11, f"{A}.source.record",
    ),
    Bad(
        "a key of another format, within", "format: debezium-json, connector: postgresql, path: landing/tellers",
        "format: json, op: {column: a, rows: b}, path: landing/tellers",
        "CONFIG_UNKNOWN_KEY", 24, f"{T}.source.op.rows",
    ),
    Bad(
        "an order that the format cannot have",
        "source: {format: debezium-json, connector: postgresql, path: landing/tellers}\n",
        "source: {format: json, path: landing/tellers}\n    order: postgresql\n",
        "ORDER_INVALID", 25, f"{T}.order",
    ),
    Bad(
        "unknown connector", "connector: postgresql\n", "connector: postgres\n",
        UNKNOWN_VALUE, 10, f"{A}.source.connector",
    ),
    Bad("unknown policy", "fail", "ignore", UNKNOWN_VALUE, 19, f"{A}.on_bad_record"),
    Bad(
        "connector of later", "connector: postgresql\n", "connector: db2\n",
        LATER, 10, f"{A}.source.connector",
    ),
    Bad("retain a word", "snapshots: all", "snapshots: some", OUT_OF_RANGE, 5, "retention.snapshots"),
    Bad("retain nothing", "snapshots: all", "snapshots: 0", OUT_OF_RANGE, 5, "retention.snapshots"),
    Bad("retain less than nothing", "snapshots: all", "snapshots: -1", OUT_OF_RANGE, 5, "retention.snapshots"),
    Bad("retain yes", "snapshots: all", "snapshots: yes", OUT_OF_RANGE, 5, "retention.snapshots"),
    Bad("unknown mode of copies", "mode: disabled", "mode: best-effort", UNKNOWN_VALUE, 4, "local.mode"),
    Bad("copies that go nowhere", "mode: disabled", "mode: files", "CONFIG_MISSING_KEY", 4, "local.path"),
    Bad("copies in no folder", "mode: disabled", "mode: files, path: ''", "CONFIG_EMPTY_VALUE", 4, "local.path"),
    Bad("copies in S3", "mode: disabled", "mode: files, path: 's3://b/a'", LATER, 4, "local.path"),
    Bad("copies upwards", "mode: disabled", "mode: files, path: ../local", "CONFIG_PATH", 4, "local.path"),
    Bad(
        "a token", '"local[2]", driver_memory: 512m', '"sc://host/;token=hunter2"',
        "CONFIG_SECRET", 3, "spark.master",
    ),
    Bad(
        "a header", '"local[2]", driver_memory: 512m', '"sc://host/;use_ssl=true;x-key=hunter2"',
        "CONFIG_SECRET", 3, "spark.master",
    ),
    Bad(
        "a user of Connect", '"local[2]", driver_memory: 512m', '"sc://me:hunter2@host:15002"',
        "CONFIG_SECRET", 3, "spark.master",
    ),
    Bad(
        "no address of Connect", '"local[2]", driver_memory: 512m', '"sc://host/path"',
        LATER, 3, "spark.master",
    ),
    Bad(
        "jobs on a server", '"local[2]", driver_memory: 512m', "sc://host:1, scheduled: submit",
        "SPARK_SCHEDULED", 3, "spark.scheduled",
    ),
    Bad(
        "waiting for no server", "driver_memory: 512m", "scheduled: submit, unreachable: in_process",
        "SPARK_SCHEDULED", 3, "spark.unreachable",
    ),
    Bad("an unknown schedule", "driver_memory: 512m", "scheduled: never", UNKNOWN_VALUE, 3, "spark.scheduled"),
    Bad("memory of a server", "local[2]", "sc://host:15002", "CONNECT_OPTION", 3, "spark.driver_memory"),
    Bad("a store of later", "var/store", "wasb://bucket/prefix", LATER, 2, "store"),
    Bad("a store that Spark cannot see", "var/store", "memory://name", LATER, 2, "store"),
    Bad("no address of S3", "var/store", "s3://Bucket_1/a", "CONFIG_PATH", 2, "store"),
    Bad("a version in the address", "var/store", "s3://bucket/a?versionId=hunter2", "CONFIG_PATH", 2, "store"),
    Bad("upwards in a bucket", "var/store", "s3://bucket/../a", "CONFIG_PATH", 2, "store"),
    Bad("no address of Google", "var/store", "gs://bucket/a?generation=1", "CONFIG_PATH", 2, "store"),
    Bad("no address of Azure", "var/store", "abfss://box@account.example.com/s", "CONFIG_PATH", 2, "store"),
    Bad("a password beside a container", "var/store", "abfss://me:hunter2@account/s", "CONFIG_SECRET", 2, "store"),
    Bad("a key with a slash in the store", "var/store", "s3://me:hun/ter2@bucket/b", "CONFIG_SECRET", 2, "store"),
    Bad("a landing folder of later", "landing/accounts", "wasb://b/a", LATER, 11, f"{A}.source.path"),
    Bad("no folder in Azure", "landing/accounts", "abfss://a@b.dfs.net/s", "CONFIG_PATH", 11, f"{A}.source.path"),
    Bad("missing key", "    key: [tid]\n", "", "LOG_WITHOUT_KEY", 23, f"{T}.key"),
    Bad("empty key", "key: [tid]", "key: []", "LOG_WITHOUT_KEY", 25, f"{T}.key"),
    Bad("key column twice", "[aid, bid]", "[aid, aid]", "KEY_COLUMN_TWICE", 12, f"{A}.key[1]"),
    Bad("key column unknown", "[aid, bid]", "[aid, cid]", "KEY_COLUMN_UNKNOWN", 12, f"{A}.key[1]"),
    Bad("key of float", "aid: long", "aid: float", "KEY_TYPE", 12, f"{A}.key[0]"),
    Bad("key of double", "aid: long", "aid: double", "KEY_TYPE", 12, f"{A}.key[0]"),
    Bad("system column", "filler:", "_filler:", "COLUMN_RESERVED", 16, f"{A}.columns._filler"),
    Bad("column with a blank", "filler:", "fil ler:", "COLUMN_INVALID", 16, f"{A}.columns.fil ler"),
    Bad("column with a dot", "filler:", "fil.ler:", "COLUMN_INVALID", 16, f"{A}.columns.fil.ler"),
    Bad("column with a line break", "filler:", '"fil\\nler":', "COLUMN_INVALID", 16, f"{A}.columns.fil\nler"),
    Bad("columns by case", "filler:", "BID:", "COLUMN_TWICE", 16, f"{A}.columns.BID"),
    Bad("id with a slash", "  tellers:", "  a/b:", "LOG_ID_INVALID", 23, "logs.a/b"),
    Bad("id with dots", "  tellers:", "  ..:", "LOG_ID_INVALID", 23, "logs..."),
    Bad("id with a blank", "  tellers:", "  a b:", "LOG_ID_INVALID", 23, "logs.a b"),
    Bad("id in capitals", "  tellers:", "  Tellers:", "LOG_ID_INVALID", 23, "logs.Tellers"),
    Bad("id of the gauges of sets", "  tellers:", "  set:", "LOG_ID_INVALID", 23, "logs.set"),
    Bad("password in the store", "var/store", "s3://me:hunter2@host/b", "CONFIG_SECRET", 2, "store"),
    Bad(
        "password in the path", "landing/accounts", "https://me:hunter2@host/b",
        "CONFIG_SECRET", 11, f"{A}.source.path",
    ),
    Bad("home folder", "landing/accounts", "~/landing", "CONFIG_PATH", 11, f"{A}.source.path"),
    Bad("path upwards", "var/store", "../store", "CONFIG_PATH", 2, "store"),
    Bad("chained address", "var/store", "zip::store", "CONFIG_PATH", 2, "store"),
    Bad("blank path", "landing/accounts", "' '", "CONFIG_PATH", 11, f"{A}.source.path"),
    Bad("suite upwards", "quality/accounts.yaml", "../a.yaml", "CONFIG_PATH", 21, f"{A}.quality.suite"),
    *(
        Bad(f"one slash after {scheme}", "var/store", f"{scheme}:/bucket/x", "CONFIG_PATH", 2, "store")
        for scheme in ("s3", "gs", "abfs", "abfss", "file")
    ),
    *(
        Bad(f"one slash after {scheme}", "landing/accounts", f"{scheme}:/x", "CONFIG_PATH", 11, f"{A}.source.path")
        for scheme in ("s3", "gs", "abfs", "abfss", "sftp")
    ),
    Bad("half a file address", "var/store", "file://var/store", "CONFIG_PATH", 2, "store"),
    Bad("same folder", "landing/tellers", "landing/accounts", OVERLAP, 24, f"{T}.source.path"),
    Bad("same folder, other words", "landing/tellers", "landing/./accounts/", OVERLAP, 24, f"{T}.source.path"),
    Bad("folder in a folder", "landing/tellers", "landing/accounts/t", OVERLAP, 24, f"{T}.source.path"),
    Bad("store in a landing folder", "var/store", "landing/accounts/s", OVERLAP, 11, f"{A}.source.path"),
    Bad("landing folder in the store", "landing/accounts", "var/store/in", OVERLAP, 11, f"{A}.source.path"),
    Bad("copies in the store", "mode: disabled", "mode: files, path: var/store/local", OVERLAP, 4, "local.path"),
    Bad("store among copies", "mode: disabled", "mode: files, path: var", OVERLAP, 4, "local.path"),
    Bad("copies as the store", "mode: disabled", "mode: files, path: ./var/store/", OVERLAP, 4, "local.path"),
    Bad(
        "copies in a landing folder", "mode: disabled", "mode: files, path: landing/accounts/copies",
        OVERLAP, 11, f"{A}.source.path",
    ),
    Bad("path and paths", "mode: disabled", "mode: files, path: a, paths: [b]", "LOCAL_PATHS", 4, "local.paths"),
    Bad("no folders", "mode: disabled", "mode: files, paths: []", "CONFIG_EMPTY_VALUE", 4, "local.paths"),
    Bad("nameless folder", "mode: disabled", "mode: files, paths: ['']", "CONFIG_EMPTY_VALUE", 4, "local.paths[0]"),
    Bad("roots in S3", "mode: disabled", "mode: files, paths: [a, s3://b/a]", LATER, 4, "local.paths[1]"),
    Bad("a root in a root", "mode: disabled", "mode: files, paths: [a, b, ./a/c]", OVERLAP, 4, "local.paths[2]"),
    Bad("a root twice", "mode: disabled", "mode: files, paths: [a, ./a/]", OVERLAP, 4, "local.paths[1]"),
    Bad("a root around the store", "mode: disabled", "mode: files, paths: [a, var]", OVERLAP, 4, "local.paths[1]"),
    Bad("a quota without a unit", "mode: disabled", "quota: 20000", "CONFIG_WRONG_TYPE", 4, "local.quota"),
    Bad("an empty quota", "mode: disabled", "quota: 0GB", "CONFIG_WRONG_TYPE", 4, "local.quota"),
    Bad("a quota of something", "mode: disabled", "quota: 20 bytes", "CONFIG_WRONG_TYPE", 4, "local.quota"),
    Bad("an unused folder of copies", "mode: disabled", "mode: disabled, path: var/store", OVERLAP, 4, "local.path"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=[b.name for b in BAD])
def test_a_mistake_is_refused_with_code_line_and_key(bad: Bad, tmp_path: Path) -> None:
    assert bad.old in GOOD
    error = refusal(tmp_path, GOOD.replace(bad.old, bad.new, 1))
    assert [(p.code, p.line, p.key) for p in error.problems] == [(bad.code, bad.line, bad.key)]
    assert error.code == bad.code
    assert f"{tmp_path / 'tidefold.yaml'}:{bad.line}: `{bad.key}`" in error.message
    assert "hunter2" not in str(error)


WHOLE: list[tuple[str, str | bytes, str, int]] = [
    ("empty", "", "CONFIG_EMPTY", 0),
    ("only comments", "# nothing\n", "CONFIG_EMPTY", 0),
    ("only null", "~\n", "CONFIG_NOT_A_MAPPING", 1),
    ("a list", "- a\n", "CONFIG_NOT_A_MAPPING", 1),
    ("a word", "tidefold\n", "CONFIG_NOT_A_MAPPING", 1),
    ("tab", GOOD.replace("  accounts:", "\taccounts:", 1), "CONFIG_TAB", 7),
    ("broken brackets", GOOD.replace("[aid, bid]", "[aid, bid", 1), "CONFIG_SYNTAX", 13),
    ("second document", f"{GOOD}---\na: 1\n", "CONFIG_SYNTAX", 27),
    ("python tag", GOOD.replace("var/store", "!!python/object/apply:os.system [id]", 1), "CONFIG_TAG", 2),
    ("other tag", GOOD.replace("var/store", "!secret x", 1), "CONFIG_TAG", 2),
    ("aliases", "a: &a [x, x]\nb: &b [*a, *a]\n", "CONFIG_ALIAS", 1),
    ("10 MB", b"#" * 10_000_000, "CONFIG_TOO_LARGE", 0),
    ("just too large", GOOD.encode() + b"#" * SIZE_LIMIT, "CONFIG_TOO_LARGE", 0),
    ("not UTF-8", GOOD.encode().replace(b"filler", b"f\xfcller", 1), "CONFIG_ENCODING", 16),
    ("byte order mark", b"\xef\xbb\xbf" + GOOD.encode(), "CONFIG_ENCODING", 1),
    ("UTF-16", GOOD.encode("utf-16"), "CONFIG_ENCODING", 1),
    ("control character", GOOD.replace("filler", "f\x07ller", 1), "CONFIG_ENCODING", 16),
    ("deep nesting", f"a: {'[' * 10_000}\n", "CONFIG_TOO_DEEP", 1),
    ("deep nesting by blocks", "- " * 5_000 + "a\n", "CONFIG_TOO_DEEP", 1),
    ("a key that is a list", f"? [a, b]\n: c\n{GOOD}", "CONFIG_WRONG_TYPE", 1),
]


@pytest.mark.parametrize(("text", "code", "line"), [w[1:] for w in WHOLE], ids=[w[0] for w in WHOLE])
def test_a_file_that_is_no_configuration_is_refused(text: str | bytes, code: str, line: int, tmp_path: Path) -> None:
    error = refusal(tmp_path, text)
    assert [(p.code, p.line) for p in error.problems] == [(code, line)]


def test_a_bomb_of_aliases_is_refused_at_its_first_anchor(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    assert refusal(tmp_path, "\n".join(lines)).code == "CONFIG_ALIAS"


def test_all_mistakes_are_listed_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("local:", "lokal:").replace("aid: long", "aid: bigint").replace("    key: [tid]\n", "")
    error = refusal(tmp_path, text)
    assert [(p.code, p.line) for p in error.problems] == [
        ("CONFIG_UNKNOWN_KEY", 4),
        ("CONFIG_UNKNOWN_VALUE", 15),
        ("LOG_WITHOUT_KEY", 23),
    ]
    assert error.code == "CONFIG_INVALID"
    assert all(f"[{p.code}]" in error.message for p in error.problems)


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("local:", "lokal:", "Did you mean `local`?"),
        (
            "    key: [tid]",
            "    colour: red\n    key: [tid]",
            "Remove it. docs/reference/config.md explains every key.",
        ),
        ("max_row_drop", "max_rows_drop", "Did you mean `max_row_drop`?"),
        ("aid: long", "aid: lng", "Did you mean `long`?"),
        ("connector: postgresql\n", "connector: postgres\n", "Did you mean `postgresql`?"),
        ("snapshots: all", "reader_publishes: 3", "Did you mean `grace_versions`?"),
        ("snapshots: all", "reader_minutes: 3", "Did you mean `grace_minutes`?"),
        ("store: var/store", "store: var/store\nsnapshots: {copy: always}", "Did you mean `copy_files`?"),
        ("key: [tid]", "key: tid", "Write it as a list: `[tid]`."),
        ("[aid, bid]", "[aid, no]", "Put it in quotes."),
        (
            "local[2]",
            "mesos",
            "Set `local[*]` (all cores), `local[4]` (four cores), or the address of a cluster.",
        ),
    ],
)
def test_a_mistake_comes_with_what_to_do(old: str, new: str, hint: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, GOOD.replace(old, new, 1)).hint == hint


def test_a_file_whose_logs_wait_for_answers_says_so(tmp_path: Path) -> None:
    """Each command said only that there is no log, also right after `tidefold init`."""
    head = GOOD[: GOOD.index("logs:")]
    error = refusal(tmp_path, f"{head}logs:\n\n  ## QUESTION key: which?\n  ## QUESTION op: which?\n  # a:\n")
    assert (error.code, [p.key for p in error.problems]) == ("CONFIG_EMPTY_VALUE", ["logs"])
    assert "has no log yet: answer the 2 QUESTION lines of the file first." in error.message


def test_an_unknown_key_says_what_is_allowed(tmp_path: Path) -> None:
    message = refusal(tmp_path, GOOD.replace("suite:", "file:")).message
    assert "Allowed here: suite, max_row_drop, max_refused, max_ties, max_left_out." in message


def test_folders_that_meet_through_a_link_are_found(tmp_path: Path) -> None:
    (tmp_path / "landing/accounts").mkdir(parents=True)
    os.symlink(tmp_path / "landing/accounts", tmp_path / "landing/tellers")
    assert refusal(tmp_path, GOOD).code == "FOLDERS_OVERLAP"


def test_local_copies_are_off_unless_asked_for(tmp_path: Path) -> None:
    """Requirement L3: disabled is the default; a folder alone does not turn them on."""
    for text, folders in (
        ("", ()),
        ("local: {mode: disabled}", ()),
        ("local: {path: var/local}", ()),
        ("local: {mode: files, path: var/local}", ("var/local",)),
        ("local: {mode: files, path: /data/local}", ("/data/local",)),
        ("local: {mode: files, paths: [var/b, /data/a]}", ("var/b", "/data/a")),
        ("local: {mode: disabled, paths: [var/b]}", ()),
    ):
        assert load_config(write(tmp_path, GOOD.replace("local: {mode: disabled}", text))).local.folders == folders


def test_spark_is_for_more_than_a_size_or_for_whatever_has_rows(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, GOOD)).spark.above == 64_000_000
    assert load_config(write(tmp_path, GOOD.replace("512m}", "512m, above: 0B}"))).spark.above == 0
    given = GOOD.replace("512m}", "512m, above: 64MiB}")
    assert load_config(write(tmp_path, given)).spark.above == 64 << 20


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500MB", 500 * 10**6),
        ("20GB", 20 * 10**9),
        ("20 GB", 20 * 10**9),
        ("20GiB", 20 << 30),
        ("1.5TiB", 3 << 39),
        ("7kB", 7000),
        ("123B", 123),
    ],
)
def test_a_quota_is_a_size_in_units_of_1000_or_1024(text: str, size: int, tmp_path: Path) -> None:
    given = GOOD.replace("mode: disabled", f"mode: files, path: c, quota: {text}")
    assert load_config(write(tmp_path, given)).local.quota == size
    assert re.fullmatch(json_schema()["$defs"]["LocalConfig"]["properties"]["quota"]["pattern"], text)


def test_addresses_of_stores(tmp_path: Path) -> None:
    for store in (f"file://{tmp_path}/store", f"{tmp_path}/store", "s3://bucket", "s3://bucket/folder/a"):
        assert load_config(write(tmp_path, GOOD.replace("var/store", store))).store == store


def test_a_missing_file_is_not_found_and_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as missing:
        load_config(tmp_path / "none.yaml")
    assert missing.value.code == "CONFIG_NOT_FOUND"
    with pytest.raises(InvalidInputError) as folder:
        load_config(tmp_path)
    assert folder.value.code == "CONFIG_NOT_A_FILE"


def test_the_json_schema_names_every_key_and_refuses_others() -> None:
    schema = json_schema()
    assert set(schema["properties"]) == {
        "version",
        "store",
        "store_id",
        "sets",
        "targets",
        "spark",
        "local",
        "retention",
        "snapshots",
        "uploads",
        "compaction",
        "alarms",
        "logs",
    }
    assert schema["additionalProperties"] is False
    assert json.loads(json.dumps(schema)) == schema


def test_a_wrong_master_is_refused_with_every_allowed_form(tmp_path: Path) -> None:
    message = str(refusal(tmp_path, GOOD.replace("local[2]", "mesos://host")))
    forms = ("local[N]", "local[*]", "spark://host:port", "yarn", "k8s://URL", "sc://host:port")
    assert all(form in message for form in forms)


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://a:1,b-2.c:77", "yarn", "k8s://https://h:6443"])
def test_every_cluster_of_spark_can_be_named(tmp_path: Path, master: str) -> None:
    assert load_config(write(tmp_path, GOOD.replace("local[2]", master))).spark.master == master


@pytest.mark.parametrize("master", ["sc://host", "sc://host:15002", "sc://a-b.c:1/;use_ssl=true;user_id=me@b.c"])
def test_a_spark_connect_server_can_be_named(tmp_path: Path, master: str) -> None:
    text = GOOD.replace('"local[2]", driver_memory: 512m', f'"{master}"')
    assert load_config(write(tmp_path, text)).spark.master == master


def test_settings_of_spark_are_texts_as_spark_writes_them(tmp_path: Path) -> None:
    text = GOOD.replace("driver_memory: 512m", "conf: {spark.speculation: true, spark.x: 4}")
    assert load_config(write(tmp_path, text)).spark.conf == {"spark.speculation": "true", "spark.x": "4"}


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("spark.driver.memory: 4g", "Use the key `spark.driver_memory`"),
        ("spark.sql.files.ignoreMissingFiles: true", "could hide rows"),
        ("executor.cores: 4", "begin with `spark.`"),
    ],
)
def test_settings_that_tidefold_needs_are_refused_by_name(tmp_path: Path, setting: str, says: str) -> None:
    text = GOOD.replace("driver_memory: 512m", f"conf: {{{setting}}}")
    message = str(refusal(tmp_path, text))
    assert "SPARK_SETTING" in message
    assert setting.split(":")[0] in message
    assert says in message


@pytest.mark.parametrize("master", ["yarn", "spark://a:1,b:2"])
def test_a_driver_on_the_cluster_is_refused(tmp_path: Path, master: str) -> None:
    conf = "conf: {spark.submit.deployMode: MODE}"
    text = GOOD.replace("local[2]", master).replace("driver_memory: 512m", conf)
    error = refusal(tmp_path, text.replace("MODE", "cluster"))
    assert [(p.code, p.key) for p in error.problems] == [("DEPLOY_MODE", "spark.conf.spark.submit.deployMode")]
    assert load_config(write(tmp_path, text.replace("MODE", "client"))).spark.conf


def with_copies(folders: str) -> str:
    return GOOD.replace("local[2]", "spark://host:7077").replace("{mode: disabled}", f"{{mode: files, {folders}}}")


@pytest.mark.parametrize("folders", ["path: copies, shared: true", "path: /copies", "paths: [/copies, /more]"])
def test_hosts_of_a_cluster_have_copies(tmp_path: Path, folders: str) -> None:
    assert load_config(write(tmp_path, with_copies(folders))).local.folders


@pytest.mark.parametrize("folders", ["path: copies", "paths: [/copies, more]"])
def test_a_folder_beside_the_file_is_none_of_a_host(tmp_path: Path, folders: str) -> None:
    assert "LOCAL_ON_CLUSTER" in str(refusal(tmp_path, with_copies(folders)))


@pytest.mark.parametrize(
    ("spark", "has_connection", "way", "reason"),
    [
        ({}, False, "by_size", "it is not set"),
        ({}, True, "connect", "Airflow has a connection"),
        ({"master": "sc://host"}, False, "connect", "`spark.master`"),
        ({"scheduled": "by_size"}, True, "by_size", "`spark.scheduled` is `by_size`"),
        ({"scheduled": "submit"}, True, "submit", "`spark.scheduled` is `submit`"),
    ],
)
def test_where_the_steps_of_tasks_run(spark: dict[str, Any], has_connection: bool, way: str, reason: str) -> None:
    chosen, why = SparkConfig(**spark).choose_scheduled(has_connection)
    assert chosen == way
    assert reason in why


def test_a_catalog_is_refused_with_the_statement_that_registers_a_table(tmp_path: Path) -> None:
    error = refusal(tmp_path, GOOD + "\ncatalog: {database: sales}\n")
    [problem] = error.problems
    assert (problem.code, problem.key) == ("CONFIG_UNKNOWN_KEY", "catalog")
    assert "CREATE TABLE" in problem.hint
