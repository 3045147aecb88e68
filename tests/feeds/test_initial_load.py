"""A database's own dump is the first content of a log, and its change stream follows: docs/how-to/land-files.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from support.pipelines import ingest_and_publish
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.wiring import open_pipeline

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "land-files.md"
Row = dict[str, Any]
# The life of the table. The stream starts before the third event, the dump is taken before the sixth.
LIFE: list[tuple[str, int, str | None]] = [
    ("c", 1, "new"), ("c", 2, "new"), ("u", 2, "paid"), ("c", 3, "new"), ("d", 1, None),
    ("u", 3, None), ("c", 4, "it's \"x\", \\ü\n2"), ("d", 2, None), ("c", 1, "again"),
]  # fmt: skip
STREAM, DUMP = 2, 5


def row(number: int, status: str | None, minute: int) -> Row:
    return {"id": number, "status": status, "total": f"{number}.50", "updated_at": f"2026-11-01T08:{minute:02d}:00Z"}


def rows_after(events: int) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for minute, (op, number, status) in enumerate(LIFE[:events]):
        if op == "d":
            rows.pop(number)
        else:
            rows[number] = row(number, status, minute)
    return rows


def stream(topic: str, source: Callable[[int], Row]) -> str:
    """What Debezium writes from its start on; positions are higher than 0."""
    lines = []
    for offset, minute in enumerate(range(STREAM, len(LIFE))):
        op, number, status = LIFE[minute]
        after = None if op == "d" else row(number, status, minute)
        before = {"id": number, "status": None, "total": None, "updated_at": None} if op == "d" else None
        said = {**source(minute), "snapshot": "false", "ts_ms": 1_762_000_000_000 + minute}
        value = {"op": op, "before": before, "after": after, "source": said}
        lines.append({"topic": topic, "partition": 0, "offset": offset, "key": {"id": number}, "value": value})
    return "".join(json.dumps(line) + "\n" for line in lines)


def of_postgresql(minute: int) -> Row:
    return {"connector": "postgresql", "sequence": f'[null,"{1000 + minute}"]'}


def of_mysql(minute: int) -> Row:
    return {"connector": "mysql", "file": "mysql-bin.000003", "pos": 1000 + minute, "row": 0}


def dump_csv(rows: Sequence[Row]) -> str:
    """As PostgreSQL's COPY with HEADER writes it."""

    def value(text: Any) -> str:
        if text is None:
            return ""
        return '"' + text.replace('"', '""') + '"' if re.search(r'[",\n\\]', str(text)) else str(text)

    lines = [",".join(rows[0])] + [",".join(value(v) for v in one.values()) for one in rows]
    return "\n".join(lines).replace("T08", " 08").replace("Z", "+00") + "\n"


def dump_tab(rows: Sequence[Row]) -> str:
    """As mysqldump --tab writes it."""
    lines = ["\t".join("\\N" if v is None else str(v).replace("\\", "\\\\") for v in one.values()) for one in rows]
    return "\n".join(lines).replace("T08", " 08").replace("Z", "") + "\n"


def load_dump(name: str, folder: Path, dump: Path) -> int:
    """Runs the statement of the page, if there is one, and loads the dump of the test. Returns the exit code."""
    (folder / "dump").mkdir(exist_ok=True)
    if name:
        [text] = re.findall(rf"-- {name}\n(.*?)```", PAGE.read_text(), re.DOTALL)
        text = text.replace("/tmp/orders/", f"{folder}/dump/").replace("/tmp/orders.txt", str(dump))
        duckdb.connect().execute(text)
    else:
        (folder / "dump" / dump.name).write_bytes(dump.read_bytes())
    [log] = open_pipeline(folder / "tidefold.yaml").config.logs
    done = CliRunner().invoke(app, ["source", "load", log, "--files", str(folder / "dump")])
    print(done.output)
    return done.exit_code


def table(pipeline: Pipeline) -> dict[int, Row]:
    [log] = pipeline.config.logs
    found = DeltaTable(pipeline.store.uri(f"tables/{log}")).to_pyarrow_table().to_pylist()
    plain = [{**one, "total": str(one["total"]), "updated_at": str(one["updated_at"])} for one in found]
    assert len({one["id"] for one in plain}) == len(plain)
    return {one["id"]: {name: one[name] for name in ("id", "status", "total", "updated_at")} for one in plain}


def begin(folder: Path) -> Pipeline:
    """What `init` writes; where the sample leaves a question, the proposal is taken."""
    done = CliRunner().invoke(app, ["init", "landing"])
    assert done.exit_code == 0, done.output
    return open_pipeline(folder / "tidefold.yaml")


def same(found: dict[int, Row], wanted: dict[int, Row]) -> None:
    for one in found.values():
        one["updated_at"] = one["updated_at"].replace(" ", "T").replace("+00:00", "Z").replace(".000000", "")
    assert found == wanted


CASES = {
    "postgresql": ("", "shop.public.orders", of_postgresql, dump_csv, "csv"),
    "mysql": ("dump-mysql.sql", "shop.orders", of_mysql, dump_tab, "txt"),
}


class InitialLoad(NamedTuple):
    """A case whose database was dumped after `DUMP` changes: what each test lands and compares."""

    name: str
    topic: str
    folder: Path
    dump: Path
    stream: str


def prepare_load(case: str, root: Path) -> InitialLoad:
    name, topic, source, dumped, ending = CASES[case]
    folder, dump = root / "landing" / topic, root / f"dump.{ending}"
    folder.mkdir(parents=True)
    dump.write_text(dumped(list(rows_after(DUMP).values())))
    return InitialLoad(name, topic, folder, dump, stream(topic, source))


@pytest.mark.parametrize("first", ["dump", "stream", "both"])
@pytest.mark.parametrize("case", CASES)
def test_a_dump_and_the_stream_that_began_before_it_give_the_rows_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, first: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name, topic, folder, dump, changed = prepare_load(case, tmp_path)
    changes = folder / f"{topic}+0+0000000000.jsonl"
    changes.write_text(changed)
    pipeline = begin(tmp_path)
    if first == "dump":
        changes.unlink()
        assert load_dump(name, tmp_path, dump) == 0
        assert ingest_and_publish(pipeline, "run-1").facts["changes"] == len(rows_after(DUMP))
        same(table(pipeline), rows_after(DUMP))
        changes.write_text(changed)
    else:
        if first == "stream":
            ingest(pipeline, list(pipeline.config.logs), in_process)
        assert load_dump(name, tmp_path, dump) == 0
    outcome = ingest_and_publish(pipeline, "run-2")
    assert outcome.error is None, outcome
    same(table(pipeline), rows_after(len(LIFE)))


@pytest.mark.parametrize("case", CASES)
def test_a_dump_after_the_first_snapshot_is_refused_by_name_and_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name, topic, folder, dump, changed = prepare_load(case, tmp_path)
    lines = changed.splitlines(keepends=True)
    (folder / f"{topic}+0+0000000000.jsonl").write_text("".join(lines[:-1]))
    pipeline = begin(tmp_path)
    ingest_and_publish(pipeline, "run-1")
    before = table(pipeline)
    same(before, before)  # In the same form.
    assert load_dump(name, tmp_path, dump) == 3
    (folder / f"{topic}+0+{len(lines) - 1:010d}.jsonl").write_text(lines[-1])
    outcome = ingest_and_publish(pipeline, "run-2")
    assert outcome.error is None
    assert outcome.facts["changes"] == 1
    newest = len(LIFE) - 1
    same(table(pipeline), {**before, 1: row(1, LIFE[newest][2], newest)})
    # The advice: begin again with both.
    [log] = pipeline.config.logs
    assert CliRunner().invoke(app, ["retain", "drop", log, "--yes"]).exit_code == 0
    assert load_dump(name, tmp_path, dump) == 0
    assert ingest_and_publish(pipeline, "run-3").error is None
    same(table(pipeline), rows_after(len(LIFE)))


@pytest.mark.parametrize("first", ["dump", "feed"])
def test_a_dump_of_plain_rows_is_one_more_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """Order columns are remembered with the rows, and deletes too: it may land at any time."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "landing" / "orders"
    folder.mkdir(parents=True)
    config = (
        "version: 1\nstore: store\nlogs:\n  orders:\n"
        "    source: {format: csv, path: landing/orders, op: {column: op, upsert: [I, c, u], delete: [d]}}\n"
        "    key: [id]\n    order: [updated_at]\n"
        '    columns: {id: long, status: string, total: "decimal(12,2)", updated_at: timestamp}\n'
    )
    (tmp_path / "tidefold.yaml").write_text(config)
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    feed = [{"op": op, **row(number, status, m)} for m, (op, number, status) in enumerate(LIFE) if m >= STREAM]
    files = {
        "dump": dump_csv([{"op": "I", **one} for one in rows_after(DUMP).values()]),
        "feed": dump_csv(feed),
    }
    for name in (first, *({"dump", "feed"} - {first})):
        (folder / f"{name}.csv").write_text(files[name])
        ingest_and_publish(pipeline, f"run-{name}")
    same(table(pipeline), rows_after(len(LIFE)))
