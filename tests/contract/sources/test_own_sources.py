"""Sources of one's own: the contract, and that no setting of a log counts less for them than for the others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from support.commands import call
from tidefold.changelog.schema import MERGE
from tidefold.compute.runners import in_process
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.sources import api
from tidefold.sources.debezium.json_source import KafkaLines
from tidefold.sources.json_lines.plain_rows import PlainRows
from tidefold.sources.lines import DELETE, UPSERT, LineSource
from tidefold.testing import SourceContract
from tidefold.testing.source_contract import Begin
from tidefold.testing.storage_contracts import read_orders, run_orders

KAFKA = "notes+0+0000000000.jsonl"


def _read_page() -> dict[str, Any]:
    """What the Python of the page defines."""
    page: dict[str, Any] = {}
    text = (Path(__file__).parents[3] / "docs/how-to/extend.md").read_text().split("## A source of your own\n")[1]
    for block in re.findall(r"```python\n(.*?)```", text.split("\n## ")[0], re.DOTALL):
        exec(block.replace("from feeds import Feed\n", ""), page)
    return page


PAGE = _read_page()


class Pairs(LineSource):
    """Lines such as `id=7 text=hello`, and `id=7` alone for a delete. Its author thought of nothing else."""

    endings = (".txt",)

    def read(self, line: bytes) -> Any:
        row: dict[str, Any] = dict(pair.split("=") for pair in line.decode().split())
        row = {name: int(text) if text.isdigit() else text for name, text in row.items()}
        return (DELETE if set(row) <= {"id", "n"} and "n" not in row else UPSERT), row


class Timed(Pairs):
    """The time of a change is its `n`."""

    def read(self, line: bytes) -> Any:
        op, row = super().read(line)
        return op, row, row["n"] * 1000


class TestPairs(SourceContract):
    source = PAGE["Pairs"]
    log: ClassVar = {"key": ["id"], "columns": {"id": "long", "text": "string"}}
    files: ClassVar = {
        KAFKA: b"id=7 text=hello\nid=8 text=you\n",
        "notes+0+0000000002.jsonl": b"id=9 text=new\nid=7\nid=8 text=all\n",
    }
    rows: ClassVar = [{"id": 8, "text": "all"}, {"id": 9, "text": "new"}]
    bad = ("notes+0+0000000005.jsonl", b"id=x\nid\n")


class TestFeed(PAGE["TestFeed"]):  # type: ignore[misc]
    """At one order the last line counts, and a delete is no less than a row."""

    files: ClassVar = {
        "f-1.rec": b"#feed count=3\n5|+|1|a\n6|+|2|b\n8|-|2|\n",
        "f-2.rec": b"#feed count=5\n7|+|2|late\n9|+|1|zzz\n9|+|1|aaa\n9|+|3|gone\n9|-|3|\n",
    }
    rows: ClassVar = [{"id": 1, "number": 9, "text": "aaa"}]

    def test_a_file_that_can_never_be_complete_is_a_problem(self, begin: Begin) -> None:
        outcome = self.take(begin(), {"a.rec": b"no header\n", "b.rec": b"#feed count=x\n"})
        assert outcome.error_code == "LANDED_DAMAGED"
        assert "`a.rec` is damaged" in outcome.message
        assert "(1 more, see `tidefold status orders`)" in outcome.message

    def test_files_of_no_clear_order_are_ordered_by_their_number(self, begin: Begin) -> None:
        pipeline = begin(order="file")
        self.take(pipeline, {"f-1.rec": b"#feed count=1\n9|+|1|old\n", "f-2.rec": b"#feed count=1\n5|+|1|new\n"})
        run_orders(pipeline, "run-1")
        assert [row["text"] for row in read_orders(pipeline)] == ["new"]


def test_a_configuration_is_tried_with_files_of_a_source_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "entry_points", lambda group: [SimpleNamespace(name="own", load=lambda: PAGE["Feed"])])
    log = {**TestFeed.log, "source": {"format": "custom", "name": "own", "path": "none"}}
    Path("tidefold.yaml").write_text(json.dumps({"version": 1, "store": "store", "logs": {"orders": log}}))
    Path("cases/one/landing").mkdir(parents=True)
    for name, content in TestFeed.files.items():
        Path("cases/one/landing", name).write_bytes(content)
    Path("cases/one/rows.csv").write_text("id,number,text\n1,9,aaa\n")
    assert "one: as expected: 1 row;" in call("plan", "orders", "--cases", "cases").output
    Path("cases/one/rows.csv").write_text("id,number,text\n1,9,zzz\n")
    assert "- id=1, number=9, text=zzz" in call("plan", "orders", "--cases", "cases", code=3).output


class TestJson(SourceContract):
    lines: ClassVar = {"format": "json", "record": "value", "op": {"column": "op"}}
    log: ClassVar = {"key": ["id"], "order": ["n"], "columns": {"id": "long", "n": "long"}}
    files: ClassVar = {
        "a.json": b'{"op":"c","id":1,"n":1}\n{"op":"c","id":2,"n":2}\n',
        "b.json": b'{"op":"d","id":1,"n":4}\n{"op":"u","id":1,"n":3}\n',
    }
    rows: ClassVar = [{"id": 2, "n": 2}]
    bad = ("c.json", b'{"op":"c","id":3}\n{"op":\n')


ID_N: dict[str, Any] = {"id": "long", "n": "long"}
TEXT: dict[str, Any] = {"id": "long", "text": "string"}
SUMS = {"columns": ID_N, "merge": {"engine": "aggregate", "aggregates": {"n": "sum"}}}
A = [{"id": 1, "text": "a"}]


class Settings:
    """A log with the source `source`, whose author did not know the setting."""

    source: Any = Pairs
    lines: ClassVar = {"format": "custom", "name": "own"}
    log: ClassVar = {"key": ["id"]}
    runner: Any = staticmethod(in_process)
    begin = SourceContract.begin
    land = SourceContract.take

    def take(self, begin: Begin, log: Mapping[str, Any], *feed: str) -> tuple[Pipeline, list[Outcome]]:
        """Ingests each text as a file, and publishes after each."""
        pipeline = begin(**{**log, "source": {**self.lines, "path": "landing", **log.get("source", {})}})
        outcomes, start = [], 0
        for text in feed:
            name = f"n-{start}.txt" if "order" in log else f"notes+0+{start:010}.jsonl"
            outcomes += [self.land(pipeline, {name: f"{text}\n".encode()})]
            start += len(text.splitlines())
            if outcomes[-1].facts.get("changes"):
                run_orders(pipeline, f"run-{start}")
        return pipeline, outcomes


def rows_of(pipeline: Pipeline) -> list[dict[str, Any]]:
    rows = [{name: row[name] for name in row if not name.startswith("_")} for row in read_orders(pipeline)]
    return sorted(rows, key=repr)


class TestSettings(Settings):
    @pytest.mark.parametrize(
        ("log", "feed", "rows"),
        [
            (SUMS, "id=1 n=5\nid=1 n=7", [{"id": 1, "n": 12}]),
            ({"merge": "partial"}, "id=1 text=a n=1\nid=1 n=2", [{"id": 1, "n": 2, "text": "a"}]),
            ({"merge": "first", "columns": TEXT}, "id=1 text=a\nid=1 text=b", [{"id": 1, "text": "a"}]),
            ({"ignored": ["n"], "columns": TEXT}, "id=1 text=a n=1", [{"id": 1, "text": "a"}]),
            (
                {"columns": ID_N | {"text": {"type": "string", "default": "d"}}},
                "id=2 n=1",
                [{"id": 2, "n": 1, "text": "d"}],
            ),
            ({"columns": {"id": "long", "text": {"type": "string", "aliases": ["old"]}}}, "id=1 old=a", A),
            ({"columns": TEXT, "source": {"placeholder": "UNSENT"}}, "id=1 text=a\nid=1 text=UNSENT", A),
            ({"columns": {"id": "long"}, "schema_evolution": {"add": "evolve"}}, "id=1 text=a", A),
        ],
        ids=["aggregate", "partial", "first", "ignored", "default", "aliases", "placeholder", "evolve"],
    )
    def test_counts(self, begin: Begin, log: Mapping[str, Any], feed: str, rows: list[dict[str, Any]]) -> None:
        pipeline, _ = self.take(begin, {"columns": ID_N | TEXT, **log}, feed)
        assert rows_of(pipeline) == rows

    def test_left_out_files_are_left_out(self, begin: Begin) -> None:
        log = {"columns": TEXT, "source": {"leave_out": ["*+0000000001.jsonl"]}}
        _, outcomes = self.take(begin, log, "id=1 text=a", "id=2 text=b")
        assert [one.status for one in outcomes] == ["taken", "nothing"]

    def test_late_changes_are_quarantined(self, begin: Begin) -> None:
        log = {"columns": ID_N, "order": ["n"], "late": {"allowed_lateness": 10, "policy": "quarantine"}}
        _, outcomes = self.take(begin, log, "id=1 n=1000", "id=2 n=900")
        assert outcomes[1].facts["refused"] == {"LATE": 1}

    def test_a_log_without_a_key_refuses_deletes(self, begin: Begin) -> None:
        _, outcomes = self.take(begin, {"columns": TEXT, "merge": "append", "key": []}, "id=1 text=a\nid=1")
        assert outcomes[0].facts["refused"] == {"KEYLESS_CHANGE": 1}

    def test_a_refused_record_that_lands_again_is_refused_once(self, begin: Begin) -> None:
        pipeline, _ = self.take(begin, {"columns": TEXT}, "id=1 text=a\nid\nid=2 text=b")
        outcome = self.land(pipeline, {f"again/{KAFKA}": b"id=1 text=a\nid\nid=2 text=b\nid=3 text=c\n"})
        assert (outcome.facts["changes"], outcome.facts["repeated"]) == (1, 2)
        assert rows_of(pipeline) == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]

    def test_a_bad_record_can_fail_the_log(self, begin: Begin) -> None:
        _, outcomes = self.take(begin, {"columns": TEXT, "on_bad_record": "fail"}, "id=1 text=a\nid")
        assert outcomes[0].error_code == "BAD_RECORDS"

    @pytest.mark.parametrize(
        "log",
        [{"merge": "history"}, {"ttl": {"column": "at", "on": "create-and-write", "days": 9}}],
        ids=["history", "ttl"],
    )
    def test_a_log_that_needs_times_gets_them_or_an_error(self, begin: Begin, log: Mapping[str, Any]) -> None:
        log = {**log, "columns": ID_N | ({"at": "timestamp"} if "ttl" in log else {})}
        _, [without] = self.take(begin, log, "id=1 n=3")
        assert without.error_code == "SOURCE_FAILED"
        assert "without its time" in without.message
        self.source = Timed
        pipeline, _ = self.take(begin, log, f"id=1 n={2_000_000_000}")
        [row] = read_orders(pipeline)
        assert row.get("at", row.get("_valid_from")) == datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)


class Naive(KafkaLines):
    """Reads lines as the reader of a source that tidefold brings, and knows none of its rules."""

    endings = (".txt",)
    order: ClassVar[Any] = None
    offset: ClassVar[Any] = None
    op: ClassVar[int] = UPSERT

    def takes_any_name(self, shape: Any) -> bool:
        return True

    def reader(self, shape: Any) -> Any:
        rows = PlainRows(shape)

        def take(at: Any, line: bytes) -> None:
            if not at.is_new(None, None, None):
                return
            data = msgspec.Raw(
                msgspec.json.encode({k: int(v) for k, v in (p.split("=") for p in line.decode().split())})
            )
            row, absent = rows.row(data, at.unsent)
            at.account.changes += 1
            order = rows.order(row) if self.order is None else self.order
            at.batch.add(self.op, order, at.number if self.offset is None else self.offset, None, row, absent)

        return take


class TestLoud(Settings):
    """What a reader below `LineSource` forgets is an error that names the source. Nothing is ingested."""

    @pytest.mark.parametrize(
        ("naive", "log", "why"),
        [
            ({}, SUMS, "gave UPSERT: a log with `merge: aggregate` and `deletes: apply` takes only DELETE, MERGE"),
            ({"op": DELETE}, {"merge": {"engine": "last", "deletes": "ignore"}}, "gave DELETE"),
            ({"op": DELETE}, {"merge": {"engine": "last", "deletes": "quarantine"}}, "gave DELETE"),
            ({"op": MERGE}, {}, "gave MERGE"),
            ({"order": (5,), "op": 9}, {"order": ["n"]}, "gave 9"),
            ({"order": ()}, {"order": ["n"]}, "gave 0 order values, the log needs 1"),
            ({"offset": -1}, {"order": ["n"]}, "gave a negative offset"),
            ({"offset": None, "order": (None,)}, {"order": ["n"]}, "without its offset or its order"),
        ],
    )
    def test_an_error(self, begin: Begin, naive: Any, log: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(self), "source", type("Naive", (Naive,), naive))
        pipeline, [outcome] = self.take(begin, {"columns": ID_N, **log}, "id=1 n=5")
        assert outcome.error_code == "SOURCE_FAILED"
        assert outcome.message.startswith("[SOURCE_FAILED] Source `own` ")
        assert why in outcome.message
        assert pipeline.ledger("orders").find() is None or not pipeline.ledger("orders").read().change_sets

    def test_a_late_change(self, begin: Begin) -> None:
        self.source = Naive
        log = {"columns": ID_N, "order": ["n"], "late": {"allowed_lateness": 10, "policy": "quarantine"}}
        pipeline, outcomes = self.take(begin, log, "id=1 n=1000", "id=2 n=900")
        assert "gave an order below 990, before which changes are late" in outcomes[1].message
        assert rows_of(pipeline) == [{"id": 1, "n": 1000}]
