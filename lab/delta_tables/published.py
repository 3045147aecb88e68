"""Published tables with deletion vectors in files: other readers, commands of Spark, and what tidefold does next."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from local_airflow.settings import PROJECT
from support.arrival import Landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = dict[int, str]
LOGS = ("marked", "fed")
_ENTRY = "key: [id]\ncolumns: {id: int, text: string}\norder: file\nbuckets: 4\ndeletion_vectors: true\n"
# The environment of DuckDB: its newest version that has the extension `delta` as a package.
_HOME = PROJECT / "var" / "duckdb"
_DUCKDB = ("duckdb==1.5.5", "duckdb-extension-delta==1.5.5")
_READ_BY_DUCKDB = """
import glob, json, os, sys, duckdb, duckdb_extension_delta
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
folder = os.path.dirname(duckdb_extension_delta.__file__)
[extension] = glob.glob(f"{folder}/extensions/*/delta.duckdb_extension")
connection.execute(f"LOAD '{extension}'")
scan = "SELECT id, text FROM delta_scan('{}', version = {})"
versions = [int(text) for text in sys.argv[2:]]
print(json.dumps({one: connection.execute(scan.format(sys.argv[1], one)).fetchall() for one in versions}))
"""


@dataclass(frozen=True)
class Command:
    """What somebody does to a published table.

    sql: statements of Spark, with `{t}` for the table.
    ways: how the refusal of the next run ends; none: the next run publishes.
    keeps_feed: the change feed of older versions stays.
    refused_by: readers that refuse the version that it makes.
    """

    sql: Sequence[str]
    ways: Sequence[str] = ()
    keeps_feed: bool = True
    refused_by: Sequence[str] = ()


UNDONE, REPLACED, AGAIN = "RESTORE", "--reconcile", "new table"
FILES = (UNDONE, REPLACED)
_MERGE = (
    "MERGE INTO {t} t USING (SELECT 5 AS id, 'm' AS text UNION ALL SELECT 9001, 'n') s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT (id, text) VALUES (s.id, s.text)"
)
COMMANDS: dict[str, Command] = {
    "VACUUM DRY RUN": Command(["VACUUM {t} DRY RUN"]),
    "VACUUM": Command(["VACUUM {t}"]),
    "VACUUM LITE": Command(["VACUUM {t} LITE"]),
    "VACUUM RETAIN 0 HOURS": Command(["VACUUM {t} RETAIN 0 HOURS"], keeps_feed=False),
    "COMMENT ON TABLE": Command(["COMMENT ON TABLE {t} IS 'x'"]),
    "comment of a column": Command(["ALTER TABLE {t} ALTER COLUMN text COMMENT 'x'"]),
    "SHALLOW CLONE to another table": Command(["CREATE TABLE {c} SHALLOW CLONE {t}"]),
    "OPTIMIZE": Command(["OPTIMIZE {t}"], FILES),
    "OPTIMIZE ZORDER BY": Command(["OPTIMIZE {t} ZORDER BY (text)"], FILES),
    "REORG APPLY (PURGE)": Command(["REORG TABLE {t} APPLY (PURGE)"], FILES),
    "RESTORE to version 1": Command(["RESTORE TABLE {t} TO VERSION AS OF 1"], FILES),
    "RESTORE to version 0, and back": Command(
        ["RESTORE TABLE {t} TO VERSION AS OF 0", "RESTORE TABLE {t} TO VERSION AS OF 4"]
    ),
    "INSERT": Command(["INSERT INTO {t} BY NAME SELECT 9000 AS id, 'x' AS text"], FILES),
    "UPDATE": Command(["UPDATE {t} SET text = 'x' WHERE id = 5"], FILES),
    "DELETE": Command(["DELETE FROM {t} WHERE id < 20"], FILES),
    "MERGE": Command([_MERGE], FILES),
    "ADD COLUMN": Command(["ALTER TABLE {t} ADD COLUMN more STRING"], (UNDONE,)),
    "SET TBLPROPERTIES": Command(["ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')"], (UNDONE,)),
    "ADD CONSTRAINT": Command(["ALTER TABLE {t} ADD CONSTRAINT pos CHECK (id >= 0)"], (AGAIN,)),
    "column mapping on": Command(
        ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"], (AGAIN,), refused_by=("Polars",)
    ),
    "row tracking on": Command(["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"], (AGAIN,)),
}


@dataclass
class Seen:
    """What came of a command: how the next run ends, what leads on, and what is not as it must be.

    refused_by: readers that refuse the table until then.
    """

    versions: int = 0
    next_run: str = ""
    refused_by: list[str] = field(default_factory=list)
    leads_on: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Store:
    """A pipeline with two published logs, and the rows of each version of both tables."""

    at: Landing
    versions: list[Rows] = field(default_factory=list)
    files: int = 0

    @classmethod
    def make(cls, folder: Path) -> Store:
        """Versions 0 to 4, of which four have vectors; version 3 is a restore of what version 1 showed."""
        lines = {"marked": _ENTRY, "fed": f"{_ENTRY}change_feed: true\n"}
        made = cls(Landing.make(folder, lines, top="snapshots: {kind: incremental}\nretention: {snapshots: 20}\n"))
        made.publish({key: f"a {key}" for key in range(400)})
        made.publish({1: "b", 2: "b", 3: None, 90: None, 501: "new"})
        made.publish({**dict.fromkeys(range(30, 50), "c"), 501: None, 3: "back"})
        made.restore(2)
        made.publish({7: "d", 8: None, 502: "new"})
        return made

    def copy(self, folder: Path) -> Store:
        shutil.copytree(self.at.folder, folder)
        return Store(Landing(folder), list(self.versions), self.files)

    def table(self, log: str) -> Path:
        return self.at.folder / "store" / "tables" / log

    def land(self, changes: Mapping[int, str | None]) -> Rows:
        """Lands changes of both logs. Returns the rows that they make of the newest version."""
        self.files += 1
        rows = [{"id": key, "text": text or "", "op": "u" if text else "d"} for key, text in changes.items()]
        self.at.land(f"{self.files:04d}.jsonl", rows)
        after = {**(self.versions[-1] if self.versions else {}), **changes}
        return {key: text for key, text in after.items() if text}

    def publish(self, changes: Mapping[int, str | None]) -> None:
        self.versions.append(self.land(changes))
        self.at.run()

    def restore(self, snapshot: int) -> None:
        for log in LOGS:
            self.at.call("restore", log, str(snapshot), "--log-position", "skip")
            self.at.call("step", "quality", log)
            self.at.call("step", "confirm", log)
        self.versions.append(self.versions[snapshot - 1])


def try_command(spark: SparkSession, name: str, base: Store, root: Path) -> Seen:
    """Runs a command on both tables of a copy, then `tidefold run`, each way out of a refusal, verify and restore."""
    command, seen = COMMANDS[name], Seen()
    store = base.copy(root / "0")
    own = len(store.versions)
    for log in LOGS:
        for statement in command.sql:
            clone = f"delta.`{root / f'clone-{log}'}`"
            spark.sql(statement.replace("{t}", f"delta.`{store.table(log)}`").replace("{c}", clone)).collect()
        seen.versions += _compare(spark, store, log, command.refused_by, seen)
        if "{c}" in command.sql[0]:
            seen.wrong += _differ("its clone", _by_spark(spark, root / f"clone-{log}"), store.versions[-1])
        if command.keeps_feed:
            _fold_feed(spark, store, log, seen, own)
    wanted = store.land({11: "after", 12: None, 600: "after"})
    said = store.at.run(code=None)
    codes = re.findall(r"\[([A-Z_]+)\]", said.output)
    seen.next_run = codes[0] if codes else "publishes"
    if (said.exit_code == 0) != (not command.ways):
        seen.wrong.append(f"the next run: {said.exit_code}: {said.output[:300]}")
    for number, way in enumerate(command.ways or [""], 1):
        one = store.copy(root / str(number))
        try:
            for log in LOGS if way else ():
                _lead_on(spark, one, log, way)
            _go_on(spark, one, wanted, command.keeps_feed)
            seen.leads_on += [way] if way else []
        except AssertionError as error:
            seen.wrong.append(f"{way or 'after it'}: {str(error)[:600]}")
    return seen


def _lead_on(spark: SparkSession, store: Store, log: str, way: str) -> None:
    """Does what the refusal of the next publication says, to the letter."""
    said = store.at.call("step", "confirm", log, code=3).output
    [step] = [line for line in said.splitlines() if line.startswith("next: ")]
    commands = re.findall(r"`tidefold ([^`]+)`", step)
    if way == UNDONE:
        [version] = re.findall(r"RESTORE to version (\d+)", step)
        spark.sql(f"RESTORE TABLE delta.`{store.table(log)}` TO VERSION AS OF {version}")
        commands = commands[:1]
    elif way == REPLACED:
        commands = commands[1:]
    else:
        [folder] = re.findall(r"Move `([^`]+)` out of the store", step)
        (store.at.folder / "store" / folder).rename(store.at.folder / f"moved-{log}")
    assert commands, step
    for each in commands:
        store.at.call(*each.split())


def _go_on(spark: SparkSession, store: Store, wanted: Rows, keeps_feed: bool) -> None:
    """Both tables are equal to all readers, whole, can be restored, and go on."""
    for log in LOGS:
        _require_newest(spark, store, log, wanted)
    store.restore(2)
    store.publish({13: "last"})
    for log in LOGS:
        _require_newest(spark, store, log, store.versions[-1])
    _require_whole(store, keeps_feed)
    store.at.call("retain", "clean")


def _require_whole(store: Store, keeps_feed: bool) -> None:
    """Change files that somebody deleted are named; nothing else is damaged."""
    done = store.at.call("check", "verify", "--format", "json", code=None)
    found = [one for outcome in json.loads(done.stdout)["outcomes"] for one in outcome["facts"]["damage"]]
    assert keeps_feed or done.exit_code == 5, done.output
    assert {one["part"] for one in found} <= (set() if keeps_feed else {"change data file"}), done.output


def _require_newest(spark: SparkSession, store: Store, log: str, wanted: Rows) -> None:
    table = store.table(log)
    version = DeltaTable(str(table)).version()
    for reader, read in _READERS.items():
        found = read(spark, table, [version])[version]
        assert not (wrong := _differ(f"{log} by {reader}", found, wanted)), wrong


def _compare(spark: SparkSession, store: Store, log: str, refused_by: Sequence[str], seen: Seen) -> int:
    """Compares each version of ours by each reader, and a newer one between the readers. Returns how many there are."""
    table = store.table(log)
    count = DeltaTable(str(table)).version() + 1
    newer: dict[int, Rows] = {}
    for reader, read in _READERS.items():
        versions = range(len(store.versions) if reader in refused_by else count)
        if len(versions) < count:
            seen.wrong += _require_refusal(spark, table, reader)
            seen.refused_by = sorted({*seen.refused_by, reader})
        for version, found in read(spark, table, versions).items():
            own = version < len(store.versions)
            wanted = store.versions[version] if own else newer.setdefault(version, found)
            seen.wrong += _differ(f"version {version} of {log} by {reader}", found, wanted)
    return count


def _differ(what: str, found: Rows, wanted: Rows) -> list[str]:
    if found == wanted:
        return []
    return [f"{what}: {list(found.items() - wanted.items())[:3]} instead of {list(wanted.items() - found.items())[:3]}"]


def _require_refusal(spark: SparkSession, table: Path, reader: str) -> list[str]:
    try:
        _READERS[reader](spark, table, [DeltaTable(str(table)).version()])
    except Exception as error:
        return [] if "requires reader features" in str(error) else [f"{reader}: {str(error)[:300]}"]
    return [f"{reader} reads the newest version"]


def _by_spark(spark: SparkSession, table: Path, version: int | None = None) -> Rows:
    reader = spark.read.format("delta")
    found = (reader if version is None else reader.option("versionAsOf", version)).load(str(table))
    return _rows(row.asDict() for row in found.select("id", "text").collect())


def _by_deltalake(table: Path, version: int) -> Rows:
    opened = QueryBuilder().register("t", DeltaTable(str(table), version=version))
    return _rows(pa.table(opened.execute("SELECT id, text FROM t").read_all()).to_pylist())


def _by_duckdb(table: Path, versions: Sequence[int]) -> dict[int, Rows]:
    command = [str(_HOME / "bin" / "python"), "-c", _READ_BY_DUCKDB, str(table), *map(str, versions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {version: _rows({"id": key, "text": text} for key, text in found[str(version)]) for version in versions}


# The rows of these versions by each reader.
_READERS: dict[str, Callable[[SparkSession, Path, Sequence[int]], dict[int, Rows]]] = {
    "Spark": lambda spark, table, versions: {one: _by_spark(spark, table, one) for one in versions},
    "deltalake": lambda spark, table, versions: {one: _by_deltalake(table, one) for one in versions},
    "Polars": lambda spark, table, versions: {
        one: _rows(polars.read_delta(str(table), version=one).to_dicts()) for one in versions
    },
    "DuckDB": lambda spark, table, versions: _by_duckdb(table, versions),
}


def _rows(found: Any) -> Rows:
    listed = [(row["id"], row["text"]) for row in found]
    assert len(dict(listed)) == len(listed), "a key is there twice"
    return dict(listed)


def _fold_feed(spark: SparkSession, store: Store, log: str, seen: Seen, own: int) -> None:
    """The change feed of our versions leads from one to the next, by Spark."""
    if log != "fed":
        return
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    changes = reader.option("endingVersion", own - 1).load(str(store.table(log))).collect()
    for version in range(1, own):
        rows = dict(store.versions[version - 1])
        mine = [row for row in changes if row["_commit_version"] == version]
        for row in sorted(mine, key=lambda row: row["_change_type"] in ("insert", "update_postimage")):
            rows.pop(row["id"], None)
            if row["_change_type"] in ("insert", "update_postimage"):
                rows[row["id"]] = row["text"]
        seen.wrong += _differ(f"the change feed of version {version}", rows, store.versions[version])


def install_duckdb() -> None:
    """Makes the environment of DuckDB once."""
    if (_HOME / "bin" / "python").exists():
        return
    uv = str(PROJECT / ".venv" / "bin" / "uv")
    subprocess.run([uv, "--quiet", "venv", "--python", "3.11", str(_HOME)], check=True)
    subprocess.run([uv, "--quiet", "pip", "install", "--python", str(_HOME / "bin" / "python"), *_DUCKDB], check=True)
