"""Ordinary feeds, as different programs write them: `init`, then a whole run, twice; the table is what it must be."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from support.counted_outside import require_each_record_in_one_count
from support.feeds.business import BUSINESS, CONVERTED
from support.feeds.deliveries import DELIVERIES, DeliveredFeed
from support.feeds.ordinary import FEEDS, FIRST, Event, OrdinaryFeed, arrow_rows, csv_text, json_row, lines
from support.feeds.streams import CONVERTED_STREAMS, STREAMS, WITH_PROFILES
from support.feeds.tools import TOOL_FEEDS
from support.pipelines import ingest_and_publish
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.operations.ingest.ingest import ingest
from tidefold.wiring import Pipeline, open_pipeline


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    return tmp_path


def begun(folder: Path, feed: OrdinaryFeed) -> Pipeline:
    """The pipeline that `init` writes, with the answers of a person who knows the feed where it asks."""
    feed.write(folder / "landing", feed.events(1), 1)
    asked = ["init", "landing", *(["--interactive"] if feed.answers else [])]
    done = CliRunner().invoke(app, asked, input=f"{feed.answers}\n\n")
    assert done.exit_code == 0, done.output
    assert "question:" not in done.stderr, done.stderr
    return open_pipeline(folder / "tidefold.yaml")


def table(pipeline: Pipeline) -> dict[int, dict[str, Any]]:
    [log] = pipeline.config.logs
    rows = DeltaTable(pipeline.store.uri(f"tables/{log}")).to_pyarrow_table().to_pylist()
    names = ("order_id", "customer", "total", "status", "updated_at")
    spelled = {name.casefold(): name for name in rows[0]}
    found = {row[spelled["order_id"]]: {name: row[spelled[name]] for name in names} for row in rows}
    assert len(found) == len(rows)
    return found


def plain(rows: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Rows without what a feed cannot say: the kind of a number, and the day of a spreadsheet."""
    return {
        key: {**row, "total": float(row["total"]), "updated_at": row["updated_at"].strftime("%H:%M:%S")}
        for key, row in rows.items()
    }


_ALL = [*FEEDS, *TOOL_FEEDS]


@pytest.mark.rotates(6)
@pytest.mark.parametrize("feed", _ALL, ids=[feed.name for feed in _ALL])
def test_a_feed_becomes_its_table_without_a_word_of_the_user(feed: OrdinaryFeed, folder: Path) -> None:
    pipeline = begun(folder, feed)
    first = ingest_and_publish(pipeline, "first")
    assert (first.error_code, first.facts["refused"]) == (None, {}), first.message
    assert plain(table(pipeline)) == plain(
        feed.truth(feed.events(1) if "late" not in feed.name else feed.events(1)[:8])
    )
    feed.write(folder / "landing", feed.events(2), 2)
    second = ingest_and_publish(open_pipeline(folder / "tidefold.yaml"), "second")
    assert (second.error_code, second.facts["refused"]) == (None, {}), second.message
    assert plain(table(pipeline)) == plain(feed.truth([*feed.events(1), *feed.events(2)]))
    if feed.name != "a Delta table":
        assert require_each_record_in_one_count(pipeline) >= len(FIRST)


def test_files_that_no_reader_knows_are_named(folder: Path) -> None:
    (folder / "landing").mkdir()
    for name in ("orders.csv.bz2", "orders.xlsx"):
        (folder / "landing" / name).write_bytes(b"\x28\xb5\x2f\xfd")
    done = CliRunner().invoke(app, ["init", "landing"])
    assert done.exit_code == 2
    assert "orders.csv.bz2" in done.stderr
    assert "orders.xlsx" in done.stderr


def test_envelopes_without_a_source_are_explained(folder: Path) -> None:
    """As Flink's `debezium-json` writes them."""
    (folder / "landing/customers").mkdir(parents=True)
    rows = [{"before": None, "after": {"id": i, "name": "a"}, "op": "c"} for i in range(3)]
    (folder / "landing/customers/part-0-0.json").write_text(lines(rows))
    done = CliRunner().invoke(app, ["init", "landing"])
    assert done.exit_code == 0
    assert "its records have no `source`" in done.stderr
    assert "connector unknown" not in done.stderr


def test_what_cannot_be_taken_is_named(folder: Path) -> None:
    feed = FEEDS[0]
    pipeline = begun(folder, feed)
    (folder / "landing/orders/readme.txt").write_text("hello\n")
    (folder / "landing/orders/orders_2026-11-09.csv").write_text("op,order_id\nI,1\n")
    [outcome] = ingest(pipeline, list(pipeline.config.logs), in_process)
    named = {Path(problem["file"]).name for problem in outcome.facts["problems"]}
    assert named == {"readme.txt", "orders_2026-11-09.csv"}


_DELIVERED = [*DELIVERIES, *BUSINESS, *STREAMS]
_CONVERTED = [*CONVERTED, *CONVERTED_STREAMS]


@pytest.mark.rotates(4)
@pytest.mark.parametrize("feed", _DELIVERED, ids=[feed.name for feed in _DELIVERED])
def test_a_feed_of_two_deliveries_becomes_its_table(feed: DeliveredFeed, folder: Path) -> None:
    feed.land(folder / "landing", feed.first)
    _expect_table(feed, folder, feed.second)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("feed", _CONVERTED, ids=[feed.name for feed in _CONVERTED])
def test_the_command_that_init_names_makes_a_feed_of_rows(feed: DeliveredFeed, folder: Path) -> None:
    feed.land(folder / "landing", feed.first)
    done = CliRunner().invoke(app, ["init", "landing"])
    [asked] = [line for line in done.stderr.splitlines() if line.startswith("question: ")]
    command = asked.rpartition("(`")[2].removesuffix("`)")
    if shutil.which(command.partition(" ")[0]) is None:
        pytest.skip(f"{command.partition(' ')[0]} is not installed")
    (folder / "tidefold.yaml").unlink()

    feed.land(folder / "other", {**feed.first, **feed.second})
    mended = {name: _run_on(command, folder / "other" / name) for name in {**feed.first, **feed.second}}
    feed.land(folder / "landing", {name: mended[name] for name in feed.first})
    _expect_table(feed, folder, {name: mended[name] for name in feed.second})


@pytest.mark.rotates(4)
@pytest.mark.parametrize("feed", WITH_PROFILES, ids=[feed.name for feed in WITH_PROFILES])
def test_the_profile_that_init_names_reads_a_feed(feed: DeliveredFeed, folder: Path) -> None:
    feed.land(folder / "landing", feed.first)
    done = CliRunner().invoke(app, ["init", "landing"])
    [asked] = [line for line in done.stderr.splitlines() if line.startswith("question: ")]
    named = re.search(r"`(profiles/\S+)`", asked)
    assert named, asked
    path = folder / named[1]
    path.parent.mkdir()
    path.write_text("\n".join(re.findall(r"`([^`]+)`", asked.partition("Its lines: ")[2])))
    (folder / "tidefold.yaml").unlink()
    _expect_table(feed, folder, feed.second)


def test_a_word_for_no_value_among_numbers_is_named_with_the_line_that_makes_it_null(folder: Path) -> None:
    """As R writes it. It may be a value of another column, so `init` does not decide."""
    (folder / "landing/scores").mkdir(parents=True)
    (folder / "landing/scores/a.csv").write_text(
        '"","id","score","updated_at"\n"1",1,NA,"2026-11-01 08:00:00"\n"2",2,1.5,"2026-11-01 08:00:00"\n'
    )
    done = CliRunner().invoke(app, ["init", "landing", "--interactive"], input="id\n\n\n")
    assert done.exit_code == 0, done.output
    path = folder / "tidefold.yaml"
    text = path.read_text()
    line = re.search(r"`(null: [^`]+)` below `source`", text)
    assert line, text
    text = text.replace("format: csv\n", f"format: csv\n      {line[1]}\n")
    path.write_text(re.sub(r"score: string.*", "score: double", text))
    ingest_and_publish(pipeline := open_pipeline(path), "first")
    rows = DeltaTable(pipeline.store.uri("tables/scores")).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["score"] for row in rows} == {1: None, 2: 1.5}


def _run_on(command: str, file: Path) -> bytes:
    line = command.replace("FILE", shlex.quote(str(file)))
    return subprocess.run(line, shell=True, check=True, capture_output=True).stdout


def _expect_table(feed: DeliveredFeed, folder: Path, second: Mapping[str, bytes | str]) -> None:
    """Runs `init`, then the first and the second delivery."""
    asked = ["init", "landing", *(["--interactive"] if feed.answers else [])]
    done = CliRunner().invoke(app, asked, input=f"{feed.answers}\n\n")
    assert done.exit_code == 0, done.output
    assert "question:" not in done.stderr, done.stderr
    for files in ({}, second):
        feed.land(folder / "landing", files)
        pipeline = open_pipeline(folder / "tidefold.yaml")
        taken = ingest_and_publish(pipeline, "second" if files else "first")
        assert (taken.error_code, taken.facts["refused"]) == (None, {}), taken.message
    [log] = pipeline.config.logs
    rows = DeltaTable(pipeline.store.uri(f"tables/{log}")).to_pyarrow_table().to_pylist()
    found = {tuple(row[name] for name in feed.key): row for row in rows}
    assert {key: {name: found[key][name] for name in wanted} for key, wanted in feed.truth.items()} == feed.truth
    assert found.keys() == feed.truth.keys()
    assert require_each_record_in_one_count(pipeline) > len(found)


_NAMES = (
    "a b.X", "Zoë.X", "it's \"quoted\".X", "line\nend.X", "-rf.X", "100%.X", "a+b.X", "orders+0+1.X",
    "orders-2026-11-01.X", "orders-0-0000000007.X", "orders+0+0000000007.X", "(1).X", "[x].X", "{{x}}.X",
    "$(x).X", "x;y.X", "\\.X", "\u202eevil.X", "n" * 200 + ".X", "CON.X", "x.X.bak", "no ending",
    "dir with space/deep/x.X", "2026/11/01/x.X", "partition=0/x.X",
)  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_each_record_is_in_one_count_whatever_its_file_is_called(folder: Path, ending: str) -> None:
    events = FIRST[:3]
    for number, name in enumerate(_NAMES):
        path = folder / "landing/orders" / name.replace("X", ending)
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [Event(e.op, {**e.row, "order_id": 100 * number + i}) for i, e in enumerate(events)]
        if ending == "parquet":
            pq.write_table(arrow_rows(rows), path)
        else:
            lined = lines({"op": e.op, **json_row(e.row)} for e in rows)
            path.write_text(csv_text(rows) if ending == "csv" else lined)
    format_ = "json, record: value, names: any" if ending == "jsonl" else ending
    note = ", note: string" if ending == "csv" else ""
    at = "{type: timestamp, encoding: iso}" if ending == "jsonl" else "timestamp"
    columns = f"order_id: long, customer: string, total: 'decimal(12,2)', status: string, updated_at: {at}{note}"
    (folder / "tidefold.yaml").write_text(
        f"version: 1\nstore: var/store\nlogs:\n  orders:\n    source: {{format: {format_}, path: landing/orders, "
        f"op: {{column: op}}}}\n    key: [order_id]\n    columns: {{{columns}}}\n    order: [updated_at]\n"
    )
    pipeline = open_pipeline(folder / "tidefold.yaml")
    [outcome] = ingest(pipeline, ["orders"], in_process)
    assert outcome.facts["refused"] == {}, outcome.message
    assert require_each_record_in_one_count(pipeline) == 3 * (len(_NAMES) - 2)
