"""A plan shows the rows that an edit changes, and its rows are those of a log that had the edit from the beginning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.commands import call, call_json
from support.planned import DAY, configure, land, plan, run
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_engines


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    with open_engines(1) as lend, lend() as one:
        yield one


def test_a_plan_names_the_change_that_made_a_row_before_and_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    configure(tmp_path)
    land(
        tmp_path,
        "b.csv",
        ("U", 1, 1, "1.0", DAY % (1, 0), DAY % (5, 0)),
        ("U", 2, 1, "2.0", DAY % (1, 0), DAY % (1, 0)),
    )
    call("run")
    land(tmp_path, "a.csv", ("U", 1, 2, "1.5", DAY % (1, 0), DAY % (2, 0)), ("D", 2, 1, "", DAY % (2, 0), DAY % (1, 0)))
    call("run")
    configure(tmp_path, order="[changed]")
    refused = call("run", code=None).output
    assert "`tidefold plan orders` shows which rows" in refused
    assert "or the DAG tidefold_plan, publishes them" in refused
    before = read_files(tmp_path)
    done = call("plan", "orders").output
    assert "edit     order: created before, changed now" in done
    assert "1 before, 1 now" in done
    assert "0 added, 0 removed, 1 changed" in done
    assert "values   line in 1 row, amount in 1 row, changed in 1 row" in done
    assert "line: 2 -> 1, amount: 1.5 -> 1.0" in done
    assert "was: upsert of a.csv, row 1, order 2026-11-01T00:00:00Z, over 1 other change" in done
    assert "now: upsert of b.csv, row 1, order 2026-11-05T00:00:00Z, over 1 other change" in done
    assert read_files(tmp_path) == before
    [planned] = (tmp_path / "store/plans/orders").iterdir()
    assert "took" not in call("plan", "orders").output
    assert [planned] == [*(tmp_path / "store/plans/orders").iterdir()]


def read_files(folder: Path) -> dict[Path, bytes]:
    """All of a store except its plans."""
    plans = folder / "store/plans"
    files = (path for path in (folder / "store").rglob("*") if path.is_file() and plans not in path.parents)
    return {path: path.read_bytes() for path in files}


# Each edit of a log whose order is `changed`, and how many rows of the files below it changes.
EDITS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "nothing": ({}, {}),
    "order": ({"order": "[created]"}, {"changed": 1}),
    "key": ({"key": "id, line"}, {"added": 1}),
    "history": ({"merge": "history"}, {"versions added": 2}),
    "first": ({"merge": "first"}, {"changed": 1}),
    "decimal": ({"amount": "decimal(12,2)"}, {}),
    "zone": ({"zone": "Europe/Berlin"}, {"changed": 2}),
    "op is data": ({"op": False}, {"added": 1}),
    "buckets": ({"buckets": 16}, {}),
    "keyless": ({"merge": "append", "key": "", "order": ""}, {"added": 2}),
}
FILES = {
    "b.csv": [("U", 1, 1, "1.10", 1, 3), ("U", 1, 2, "1.20", 1, 1), ("U", 2, 1, "2.10", 1, 1)],
    "a.csv": [("U", 1, 1, "1.30", 1, 2), ("D", 3, 1, "", 1, 1)],
}


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory, engine: DuckDBEngine) -> Path:
    """A log that ingested `b.csv`, then `a.csv`."""
    folder = tmp_path_factory.mktemp("edited")
    pipeline = configure(folder, order="[changed]")
    for name, feed in FILES.items():
        land(folder, name, *((*values, DAY % (c, 0), DAY % (d, 0)) for *values, c, d in feed))
        run(pipeline, name, engine)
    return folder


@pytest.mark.parametrize("edit", EDITS)
def test_each_edit_shows_its_rows(edited: Path, engine: DuckDBEngine, edit: str) -> None:
    how, expected = EDITS[edit]
    made, _ = plan(configure(edited, **{"order": "[changed]", **how}), engine)
    assert {kind: count for kind, count in made.counts.items() if count} == expected
    assert made.passed
    assert bool(made.edits) == (edit != "nothing")
    for example in made.examples:
        assert example.now
        assert example.was or example.change == "added"


def test_landed_files_that_are_gone_are_named_with_the_rows_that_only_they_brought(
    tmp_path: Path, engine: DuckDBEngine
) -> None:
    pipeline = configure(tmp_path)
    for name, numbers in (("a.csv", (1, 2)), ("b.csv", (2, 3)), ("c.csv", (4,))):
        land(tmp_path, name, *(("U", i, 1, "1", DAY % (1, 0), DAY % (1, 0)) for i in numbers))
        run(pipeline, name, engine)
    (tmp_path / "landing/a.csv").rename(tmp_path / "backup.csv")
    land(tmp_path, "c.csv", ("U", 5, 1, "1", DAY % (1, 0), DAY % (1, 0)))
    for key in ("id", "id, line"):
        made, _ = plan(configure(tmp_path, key=key), engine)
        assert made.gone == ("a.csv", "c.csv")
        assert (made.counts["removed"], made.lost) == (2, 2)
    (tmp_path / "backup.csv").rename(tmp_path / "landing/a.csv")
    made, beside = plan(configure(tmp_path, key="id, line"), engine)
    assert made.gone == ("c.csv",)
    assert {e.name: e.number for e in beside.ledger("orders").read().landed} == {"a.csv": 1, "b.csv": 2, "c.csv": 3}


def test_the_same_edit_planned_again_reads_what_the_log_took_since(tmp_path: Path, engine: DuckDBEngine) -> None:
    pipeline = configure(tmp_path)
    land(tmp_path, "b.csv", ("U", 1, 1, "1", DAY % (1, 0), DAY % (2, 0)))
    run(pipeline, "r1", engine)
    plan(configure(tmp_path, order="[changed]"), engine)
    pipeline = configure(tmp_path)
    land(tmp_path, "a.csv", ("U", 1, 1, "2", DAY % (1, 0), DAY % (2, 0)))
    run(pipeline, "r2", engine)
    land(tmp_path, "z.csv", ("U", 1, 1, "3", DAY % (1, 0), DAY % (3, 0)))  # The log has not ingested it.
    made, beside = plan(configure(tmp_path, order="[changed]"), engine)
    assert "took 1 file:" in made.ingested
    assert (made.counts["changed"], made.rows) == (0, (1, 1))
    assert [(e.name, e.number) for e in beside.ledger("orders").read().landed] == [("b.csv", 1), ("a.csv", 2)]


def test_a_file_that_is_refused_as_a_whole_is_named_and_hides_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    configure(tmp_path, amount="decimal(12,2)")
    land(tmp_path, "a.csv", ("U", 1, 1, "1", DAY % (1, 0), DAY % (2, 0)))
    call("run")
    land(tmp_path, "b.csv", ("U", 2, 1, "junk", DAY % (1, 0), DAY % (2, 0)))
    call("run", code=2)
    call("quarantine", "settle", "orders", "--file", "b.csv", "--reason", "junk")
    # Refused before and now; then taken before, and refused now.
    configure(tmp_path, amount="decimal(12,2)", order="[changed]")
    told = call_json("plan", "orders")
    assert (told["exit_code"], told["plan"]["refused"], told["plan"]["rows"]) == (0, {"b.csv": 1}, [1, 1])
    configure(tmp_path, amount="decimal(12,2)", key="amount")
    land(tmp_path, "c.csv", ("U", 3, 1, "", DAY % (1, 0), DAY % (2, 0)))
    configure(tmp_path, amount="decimal(12,2)")
    call("run")
    configure(tmp_path, amount="decimal(12,2)", key="amount")
    told = call_json("plan", "orders")["plan"]
    assert told["refused"] == {"b.csv": 1, "c.csv": 1}
    assert [(one["key"], one["now"]) for one in told["examples"]] == [({"amount": None, "id": 3}, "")]  # No key.
    call("plan", "orders", "--apply")
    assert [row["id"] for row in call_json("read", "orders")["rows"]] == [1]
    assert "[LANDED_REFUSED] The only record of `b.csv`" in call("run", code=2).output  # Nobody settled this reading.
    # Without any row there is nothing to compare, and no quarantine of the pipeline has these records.
    configure(tmp_path, amount="date", key="amount, id")
    said = call("plan", "orders", code=2).output
    assert "[LANDED_REFUSED]" in said
    assert "next: Nothing of the pipeline changed. Correct the configuration, then call again." in said


def test_files_from_before_a_new_column_are_named_and_a_default_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    configure(tmp_path)
    land(tmp_path, "a.csv", ("U", 1, 1, "1", DAY % (1, 0), DAY % (2, 0)))
    call("run")

    def edit(column: str, order: str) -> None:
        configure(tmp_path, order=order)
        text = (tmp_path / "tidefold.yaml").read_text().replace("columns: {", f"columns: {{extra: {column}, ")
        (tmp_path / "tidefold.yaml").write_text(text)

    edit("string", "[created]")
    head = "op,id,line,amount,created,changed,extra\n"
    (tmp_path / "landing/b.csv").write_text(f"{head}U,2,1,1,{DAY % (1, 0)},{DAY % (2, 0)},new\n")
    call("run")
    edit("string", "[changed]")
    said = call("plan", "orders").output
    assert "1 landed files of the log are gone, have other bytes, or are refused: a.csv" in said
    assert "next:" not in said.split("cost")[1]
    assert "[PLAN_BEHIND]" in call("plan", "orders", "--apply", code=3).output
    edit("{type: string, default: null}", "[changed]")
    assert "next: tidefold plan orders --apply" in call("plan", "orders").output
    call("plan", "orders", "--apply")
    assert {row["id"]: row["extra"] for row in call_json("read", "orders")["rows"]} == {1: None, 2: "new"}


STREAM = """\
version: 1
store: store
spark: {above: 1GB}
logs:
  orders:
    source: {format: json, path: landing, record: value}
    key: [id]
    columns: {id: long, text: string, at: long}
    order: ORDER
"""


def test_a_file_that_has_grown_since_is_read_as_far_as_the_log_took_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    (tmp_path / "tidefold.yaml").write_text(STREAM.replace("ORDER", "position"))
    lines = [f'{{"id": {n % 2}, "text": "t{n}", "at": {9 - n}}}\n' for n in range(6)]
    landed = tmp_path / "landing/orders+0+0000000000.jsonl"
    for end in (2, 4):  # It grows while it is ingested, too: its records have offsets, so no number decides.
        landed.write_text("".join(lines[:end]))
        call("run")
    landed.write_text("".join(lines))
    (tmp_path / "tidefold.yaml").write_text(STREAM.replace("ORDER", "[at]"))
    for _ in range(2):
        told = call_json("plan", "orders")["plan"]
        assert told["gone"] == []
        landed.write_text("".join(lines) + lines[0])  # It grows again, while nothing is ingested.
    assert {one["key"]["id"]: (one["before"]["text"], one["after"]["text"]) for one in told["examples"]} == {
        0: ("t2", "t0"),
        1: ("t3", "t1"),
    }


def test_what_cannot_be_planned_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    configure(tmp_path)
    assert "LOG_UNKNOWN" in call("plan", "orders", code=4).output
    land(tmp_path, "a.csv", ("U", 1, 1, "1", DAY % (1, 0), DAY % (2, 0)))
    call("run")
    with (tmp_path / "landing/a.csv").open("a") as more:
        more.write(",".join(map(str, ("U", 2, 1, "1", DAY % (1, 0), DAY % (2, 0)))) + "\n")
    call("run")
    said = call("plan", "orders", code=3).output
    assert "PLAN_UNSUPPORTED" in said
    assert "`a.csv` grew while it was ingested" in said
    call("move", "savepoint", "orders", "--to", str(tmp_path / "saved"))
    call("retain", "drop", "orders", "--yes")
    call("move", "import", "orders", str(tmp_path / "saved"))
    call("step", "quality", "orders")
    call("step", "confirm", "orders")
    assert "its first rows were imported" in call("plan", "orders", code=3).output


def test_a_gate_that_refuses_the_rows_gives_exit_code_3_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    configure(tmp_path)
    land(tmp_path, "a.csv", ("U", 1, 1, "1", DAY % (1, 0), DAY % (2, 0)))
    call("run")
    (tmp_path / "suite.yaml").write_text("checks:\n  - row_count: {min: 2}\n")
    config = (
        (tmp_path / "tidefold.yaml").read_text().replace("max_row_drop: 1.0", "max_row_drop: 1.0, suite: suite.yaml")
    )
    (tmp_path / "tidefold.yaml").write_text(config)
    told = call_json("plan", "orders")
    assert (told["exit_code"], told["plan"]["passed"]) == (3, False)
    assert told["plan"]["rows"] == [1, 1]
    assert call("plan", "orders", code=3).output.count("edit     none") == 1
