"""Feeds of known tools: `init` writes their profile, and `run` gives the rows of the source."""

from __future__ import annotations

import json
import random
import re
from decimal import Context, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support import effort
from support.feeds.deliveries import lines
from support.feeds.profiled import TOOLS, live
from support.person import Person
from tidefold.sources.profiles.profile import list_shipped

OWN = """title = "shop"
has = ["meta.action", "new"]
op = "meta.action"
upsert = ["add", "change"]
delete = ["remove"]
row = ["new"]
table = ["meta.table"]
fields = { shop_seq = "meta.seq" }
orders = [["shop_seq"]]
"""
# What the records of a file of facts do not show: it has few rows.
KEYS = {"dms": "LINE_ID", "wal2json": "a", "wal2json_1": "b, c", "airbyte_manual": "user_id"}
KEYS |= {"salesforce": "Id"}


def _start(who: Person) -> None:
    (who.folder / "tidefold.yaml").unlink()
    for file in (who.folder / "landing").rglob("*.*"):
        file.unlink()


def _init(who: Person) -> str:
    done = who.call("init", "landing")
    assert done.exit_code == 0, done.output
    return done.stderr


def _answer(who: Person, keys: dict[str, str]) -> None:
    """Answers which columns are the key of a log, and lets rows go."""
    path = who.folder / "tidefold.yaml"
    text = path.read_text()
    if keys:
        text = re.sub(r"(?m)^  # ( +\S|\w+:)", r"  \1", text)
    for log, key in keys.items():
        text = re.sub(rf"(?m)(^  {log}:(?s:.*?)^    key: )\[.*?\]", rf"\1[{key}]", text, count=1)
    path.write_text(re.sub(r"max_row_drop: 0.5", "max_row_drop: 1", text))


def _run(who: Person) -> None:
    done = who.call("run", "--format", "json")
    assert done.exit_code == 0, done.output
    for step in json.loads(done.stdout)["steps"]["ingest"]:
        assert (step["facts"]["refused"], step["facts"]["problems"]) == ({}, []), step["message"]


def _table(who: Person, log: str) -> list[dict[str, Any]]:
    return DeltaTable(str(who.folder / "var/store/tables" / log)).to_pyarrow_table().to_pylist()


def _shown(rows: Any) -> list[tuple[str, ...]]:
    """Rows as texts: Canal writes all values as texts."""
    return sorted(
        (f"{row.get('id', row.get('_id', row.get('Id')))}", f"{row['name']}", f"{row['big']}") for row in rows
    )


@pytest.mark.parametrize("shift", range(effort.choose(1, 300)))
def test_a_feed_in_parts_of_any_order_becomes_the_rows_of_the_source(shift: int, person: Person) -> None:
    _start(person)
    chance, truth, later = random.Random(effort.SEED + shift), {}, []
    for name, tool in TOOLS.items():
        steps, rows = live(effort.SEED + shift, truncates=tool.truncates, moves=tool.moves)
        truth[name.replace("-", "_")] = rows
        records = [*tool.write(steps)]
        # `init` samples the first part.
        first = min(len(records), chance.randrange(9, 20))
        cuts = sorted({first, len(records), *(chance.randrange(first, len(records) + 1) for _ in range(3))})
        person.land(f"{name}/part_{chance.randrange(1000)}.jsonl", lines(*records[:first]))
        for at, (begin, end) in enumerate(pairwise(cuts), start=1):
            later.append((f"{name}/part_{1000 * at + chance.randrange(1000)}.jsonl", lines(*records[begin:end])))
    said = _init(person)
    # A part of few keys proves no key: `init` asks, and a person knows it.
    asked = re.findall(r"(?m)^question: (\S+): (.+?):", said)
    assert {what for _, what in asked} <= {"key"}, said
    _answer(person, {log: "Id" if log == "salesforce" else "id" for log, _ in asked})
    text = (person.folder / "tidefold.yaml").read_text()
    assert {*re.findall(r"(?m)^      profile: (\S+)", text)} == {*TOOLS}
    _run(person)
    chance.shuffle(later)
    for half in (later[::2], later[1::2]) if effort.THOROUGH else (later,):
        for place, text in half:
            person.land(place, text)
        _run(person)
    for name, rows in truth.items():
        assert _shown(_table(person, name)) == _shown(rows.values()), name


FACTS = {
    path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parents[1] / "data/profiles").iterdir())
}


def test_real_output_of_each_tool_becomes_its_rows(person: Person) -> None:
    _start(person)
    for name, facts in FACTS.items():
        assert facts["source"]
        person.land(f"{name}/part_1.jsonl", lines(*facts["records"]))
    said = _init(person)
    assert {*re.findall(r"(?m)^question: (\S+): (\S+?):", said)} == {(log, "key") for log in KEYS}, said
    _answer(person, KEYS)
    _run(person)
    for name, facts in FACTS.items():
        names = facts["rows"][0]
        rows = [{n: row.get(n, row.get(n.strip("_"))) for n in names} for row in _table(person, name.replace("-", "_"))]
        assert _plain(rows) == _plain(facts["rows"]), name


def _plain(rows: list[dict[str, Any]]) -> list[str]:
    def text(value: Any) -> str:
        return f"{value.normalize(Context(prec=60)):f}" if isinstance(value, Decimal) else f"{value}"

    return sorted(str({name: text(value) for name, value in row.items()}) for row in rows)


def test_each_shipped_profile_is_written_by_a_tool_of_the_property() -> None:
    assert {*list_shipped()} - {"dynamodb-full", "singer", "airbyte"} == {*TOOLS}
    assert {*list_shipped()} - {"dynamodb-full"} == {facts.get("profile", name) for name, facts in FACTS.items()}


MONGO = {"operationType": "insert", "ns": {"db": "s", "coll": "o"}, "documentKey": {"_id": 1}}
MONGO |= {"clusterTime": {"$timestamp": {"t": 7, "i": 1}}, "fullDocument": {"_id": 1, "name": "a", "big": 1}}
OGG = {"table": "S.O", "op_type": "I", "op_ts": "2026-11-01 15:40:06.000000", "pos": f"{1:020d}"}
OGG |= {"after": {"id": 1, "name": "a", "big": 1}}
CANAL = {"data": [{"id": "1", "name": "a", "big": "1"}], "database": "s", "table": "o", "type": "INSERT", "es": 1}
CANAL |= {"isDdl": False, "pkNames": ["id"], "ts": 1793530800000, "id": 1}


@pytest.mark.parametrize(
    ("first", "then", "config", "why"),
    [
        (MONGO, {"operationType": "update", "fullDocument": None}, {}, "deleted before it was looked up"),
        (OGG, {"op_type": "U", "before": {"id": 1}, "after": {"id": 9, "big": 2}}, {"merge": "partial"}, "old key"),
        (OGG, {"op_type": "T", "after": None}, {"merge": "partial"}, "CLEAR_UNORDERED"),
        (CANAL, {"type": "TRUNCATE", "data": None}, {"order": ["canal_ts", "file"]}, "CLEAR_UNORDERED"),
        (CANAL, {"type": "UPSERT"}, {}, "is 'UPSERT', not one of INSERT, UPDATE, DELETE"),
        (CANAL, {"data": [{"id": "2"}]}, {}, "MISSING_COLUMN"),
        (CANAL, {"data": {"id": "2"}}, {}, "not as Canal writes it"),
    ],
)
def test_what_a_record_cannot_say_is_refused_by_name(
    first: dict[str, Any], then: dict[str, Any], config: dict[str, Any], why: str, person: Person
) -> None:
    _start(person)
    person.land(
        "o/o-2026-11-01.jsonl", lines(first, {**first, "table": "else"}) if "database" in first else lines(first)
    )
    person.call("init", "landing")
    text = re.sub(r"(?m)^  # ( +\S|\w+:)", r"  \1", (person.folder / "tidefold.yaml").read_text())
    key = "_id" if first is MONGO else "id"
    (person.folder / "tidefold.yaml").write_text(re.sub(r"    key: \[.*?\]", f"    key: [{key.strip('_')}]", text))
    for line, value in config.items():
        person.set(f"{line}: {json.dumps(value)}", log="o")
    assert person.call("run").exit_code == 0
    person.land("o/o-2026-11-02.jsonl", lines({**first, **then}))
    person.call("run")
    assert why in person.call("quarantine", "show", "o", "--format", "json").stdout
    assert _shown(_table(person, "o")) == [("1", "a", "1")]


@pytest.mark.parametrize("name", ["s/part-1.jsonl", "s/s+0+0000000000.jsonl"])
def test_each_table_of_a_stream_is_a_log(name: str, person: Person) -> None:
    """They share the folder. Each has its own key, columns and truncates."""
    _start(person)
    other = {**CANAL, "table": "p", "pkNames": ["no"], "data": [{"no": "7", "at": "x"}]}
    person.land(name, lines(CANAL, other, {**other, "type": "DELETE", "id": 2}, {**CANAL, "id": 2}))
    said = _init(person)
    assert "question:" not in said, said
    assert person.call("validate").exit_code == 0
    _run(person)
    assert _shown(_table(person, "o")) == [("1", "a", "1")]
    assert _table(person, "p") == []
    person.edit("table: s.p", "table: s.o")
    assert "FOLDERS_OVERLAP" in person.call("validate").stderr


def test_a_profile_that_is_no_profile_is_named(person: Person) -> None:
    for name, code in (("maxwel", "PROFILE_UNKNOWN"), ("own.toml", "PROFILE_UNREADABLE")):
        person.set(f"profile: {name}", log="lines", below="source")
        (person.folder / "own.toml").write_text('title = "x"\nrows = ["a"]\n')
        done = person.call("validate")
        assert done.exit_code == 2
        assert code in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "is_noticed"),
    [
        ('row = ["new"]', 'row = ["old"]', True),
        ('delete = ["remove"]', 'delete = ["remove", "add"]', True),
        ('delete = ["remove"]', 'delete = ["remove", "drop"]', False),
        ("table: shop.o", "table: shop.p", True),
    ],
)
def test_an_edited_profile_is_noticed_as_an_edited_configuration_is(
    old: str, new: str, is_noticed: bool, person: Person
) -> None:
    _start(person)
    own, at = person.folder / "profiles/own.toml", {"table": "shop.o", "seq": 1, "at": 1}
    own.parent.mkdir()
    own.write_text(OWN)
    person.land("o/o-1.jsonl", lines(*({"meta": {"action": "add", **at}, "new": {"id": key}} for key in (1, 2))))
    assert "question:" not in _init(person)
    _run(person)
    place = own if old in OWN else person.folder / "tidefold.yaml"
    text = place.read_text().replace('["add", "change"]', '["change"]') if "add" in new else place.read_text()
    place.write_text(text.replace(old, new))
    person.land("o/o-2.jsonl", lines({"meta": {"action": "change", **at}, "new": {"id": 2}}))
    done = person.call("run")
    assert ("SHAPE_CHANGED" in done.output, done.exit_code) == (is_noticed, 3 * is_noticed), done.output
    person.edit(new, old) if place != own else own.write_text(OWN)
    assert person.call("run").exit_code == 0


def test_several_rows_of_a_refused_record_come_back_with_it(person: Person) -> None:
    _start(person)
    person.land("o/o-2026-11-01.jsonl", lines(CANAL, {**CANAL, "data": [{"id": "7", "name": "b", "big": "1"}]}))
    person.call("init", "landing")
    assert person.call("run").exit_code == 0
    rows = [{"id": f"{at}", "name": "a", "big": "1"} for at in (2, 3)] + [{"id": "4", "name": "a"}]
    person.land("o/o-2026-11-02.jsonl", lines({**CANAL, "data": rows, "id": 2}))
    person.call("run")
    assert len(_table(person, "o")) == 2
    person.set("big: {type: string, default: null}", log="o", below="columns")
    done = person.call("quarantine", "retry", "o")
    assert done.exit_code == 0, done.output
    assert person.call("run").exit_code == 0
    assert [row["id"] for row in sorted(_table(person, "o"), key=lambda row: row["id"])] == ["1", "2", "3", "4", "7"]


def test_a_bootstrap_of_maxwell_has_no_position_and_is_refused_with_a_step_that_reads_it(person: Person) -> None:
    """Maxwell writes `position` of events, and none of the rows that `bootstrap` reads from the table."""
    _start(person)
    at = {"database": "shop", "table": "o", "ts": 1793500000}
    event = {**at, "type": "insert", "position": "bin.000001:100", "data": {"id": 1, "v": "a"}}
    person.land("o/o-2026-11-01.jsonl", lines({**event, "primary_key_columns": ["id"]}))
    person.call("init", "landing")
    assert person.call("run").exit_code == 0
    ends = [{**at, "type": f"bootstrap-{end}", "data": {}} for end in ("start", "complete")]
    rows = [{**at, "type": "bootstrap-insert", "data": {"id": key, "v": "b"}} for key in (1, 2)]
    person.land("o/o-2026-11-02.jsonl", lines(ends[0], *rows, ends[1]))
    done = person.call("step", "ingest")
    assert (done.exit_code, "[LANDED_REFUSED] All 2 records" in done.output) == (2, True), done.output
    shown = person.call("quarantine", "show", "o").output
    assert "Order column maxwell_position is null or missing. Maxwell writes no position" in " ".join(shown.split())
    # The advised step.
    text = (person.folder / "tidefold.yaml").read_text()
    text = re.sub(r"order: \[maxwell_position\]", "order: file", re.sub(r" +maxwell_position: .*\n", "", text))
    (person.folder / "tidefold.yaml").write_text(text)
    person.call("retain", "drop", "o", "--yes")
    assert person.call("run").exit_code == 0
    assert sorted((row["id"], row["v"]) for row in _table(person, "o")) == [(1, "b"), (2, "b")]
