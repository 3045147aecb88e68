"""A field that looks like an operation or a deletion comes only after `init`: it is named, and its next step works."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from support.feeds.deliveries import lines
from support.person import Person, take_first

AT = "2026-11-02T08:00:00Z"
LATE: dict[str, Any] = {"_deleted": True, "deleted": True, "isDeleted": True, "__deleted": "true", "op": "delete"}
LATE |= {"_fivetran_deleted": True, "_ab_cdc_deleted_at": AT, "operation": "delete", "changeType": "delete"}
# Columns of samples that have no delete yet, as tools and mainframes name and fill them.
WITHOUT_DELETES = {
    "ODQ_CHANGEMODE": "CU",
    "OPERATION_FLAG": "II",
    "op_code": "IU",
    "CHANGE_IND": "AC",
    "IUD_FLAG": "II",
}
WITHOUT_DELETES |= {"DTL__CAPXACTION": "IU", "dml_ind": "II", "row_status": "IU", "UPDATE_MODE": "IU", "JOENTT": "12"}
WITHOUT_DELETES |= {"IsDelete": ["", ""], "is_removed": ["false", "false"], "delete_flag": "NN", "hvr_op": "11"}
WITHOUT_DELETES |= {"event": ["create", "shipped"], "action": ["created", "destroyed"], "change": ["insert", "update"]}
WITHOUT_DELETES |= {"kind": ["mutation", "mutation"], "column_1": "II"}
# How the rows of a log come, and what its source says of that.
FORMS: dict[str, dict[str, Any]] = {
    "flat": {"format": "json", "record": "value"},
    "csv": {"format": "csv"},
    "within": {"format": "json", "record": "value", "row": "payload"},
}


def _land(who: Person, log: str, form: str, day: int, rows: list[dict[str, Any]], **more: Any) -> None:
    name = f"{log}/o-2026-11-0{day}"
    if form == "csv":
        names = [*rows[0], *more]
        cells = [",".join(f"{cell}" for cell in (*row.values(), *more.values())) for row in rows]
        who.land(f"{name}.csv", "\n".join([",".join(names), *cells]).replace("True", "true") + "\n")
    else:
        who.land(f"{name}.jsonl", lines(*({"payload": r, **more} if form == "within" else r | more for r in rows)))


def _rows(who: Person, log: str, store: str = "store") -> list[tuple[int, str]]:
    table = DeltaTable(str(who.folder / store / "tables" / log)).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["name"]) for row in table)


@pytest.mark.rotates(3)
@pytest.mark.parametrize("form", FORMS)
def test_a_late_mark_is_named_and_read_by_the_line_that_the_message_has(person: Person, form: str) -> None:
    columns = {
        "id": "long",
        "name": "string",
        "at": {"type": "timestamp", **({} if form == "csv" else {"encoding": "iso"})},
    }
    logs = {f"l{i}": {"source": {**FORMS[form], "path": f"landing/l{i}"}, "key": ["id"]} for i in range(len(LATE))}
    logs = {name: {**log, "columns": columns, "order": ["at"]} for name, log in logs.items()}
    path = person.folder / "tidefold.yaml"
    config = {"version": 1, "store": "store", "logs": logs}
    path.write_text(json.dumps(config))
    for log in logs:
        _land(person, log, form, 1, [{"id": i, "name": "a", "at": "2026-11-01T08:00:00Z"} for i in (1, 2, 3)])
    done = person.call("run")
    assert done.exit_code == 0, done.output
    for log, (name, value) in zip(logs, LATE.items(), strict=True):
        _land(person, log, form, 2, [{"id": 2, "name": "b", "at": AT}], **{name: value})
    done = person.call("run", "--format", "json")
    assert done.exit_code == 2, done.output
    for (log, name), step in zip(zip(logs, LATE, strict=True), json.loads(done.stdout)["steps"]["ingest"], strict=True):
        said = json.dumps(step["facts"]["problems"])
        assert f"has {name}" in said or f"has column {name}" in said, said
        [line] = re.findall(r"`op: (\{.*?\})`", said.replace('\\"', '"'))
        assert _rows(person, log)[1] == (2, "a"), said
        assert "`schema_evolution: {read: evolve}`" in said
        person.set(f"op: {line}", log=log, below="source")
        person.set("schema_evolution: {read: evolve}", log=log)
    if form == "within":  # `row` is a part of `op` there.
        config = yaml.safe_load(path.read_text())
        for log in config["logs"].values():
            assert log["source"]["op"]["row"] == log["source"].pop("row")
        path.write_text(json.dumps(config))
    done = person.call("run")
    assert done.exit_code == 0, done.output
    for log, name in zip(logs, LATE, strict=True):
        assert _rows(person, log) == [(1, "a"), (3, "a")], name


def test_a_mark_without_any_value_in_the_sample_is_a_question(person: Person) -> None:
    """It would become a column of the table, and its deletes rows."""
    (person.folder / "tidefold.yaml").unlink()
    rows = [{"id": i, "name": "a", "at": f"2026-11-01T08:00:0{i}Z"} for i in range(1, 4)]
    names = [name for name in LATE if not name.endswith("_at")]
    for at, name in enumerate(names):
        _land(person, f"l{at}", "flat", 1, rows, **{name: None})
    _land(person, "csv", "csv", 1, rows, op="")
    _land(person, "beside", "within", 1, rows, _ab_cdc_deleted_at=None)
    done = person.call("init", "landing")
    asked = re.findall(r"(?m)^question: \S+: op: .*no value.* Candidates: (\S+)$", done.stderr)
    assert sorted(asked) == sorted([*names, "op"]), done.stderr
    said = (person.folder / "tidefold.yaml").read_text()
    assert "op: {column: _ab_cdc_deleted_at, delete: any, row: payload}" in said


def test_a_mark_beside_a_row_says_nothing_while_it_is_false_or_ignored(person: Person) -> None:
    columns = {"id": "long", "name": "string"}
    log = {"source": {**FORMS["within"], "path": "landing/o"}, "key": ["id"], "columns": columns, "order": ["file"]}
    path = person.folder / "tidefold.yaml"
    path.write_text(json.dumps({"version": 1, "store": "store", "logs": {"o": {**log, "ignored": ["deleted"]}}}))
    _land(person, "o", "within", 1, [{"id": 1, "name": "a"}], deleted=True, is_deleted=False, op=None)
    assert person.call("run").exit_code == 0
    assert _rows(person, "o") == [(1, "a")]


def test_a_column_that_looks_like_an_operation_is_never_only_data(person: Person) -> None:
    (person.folder / "tidefold.yaml").unlink()
    for at, (name, (one, other)) in enumerate(WITHOUT_DELETES.items()):
        rows = f"id,name,{name},at\n1,a,{one},2026-11-01T08:00:00Z\n2,b,{other},2026-11-01T08:00:00Z\n"
        person.land(f"l{at}/o-2026-11-01.csv", rows)
    person.land(
        "seq/o-2026-11-01.jsonl",
        lines({"id": 1, "_CHANGE_SEQUENCE_NUMBER": "A/1"}, {"id": 2, "_CHANGE_SEQUENCE_NUMBER": "FF"}),
    )
    person.land(
        "gg/o-2026-11-01.json", lines({"table": "S.O", "op_type": "I", "op_ts": "2026-11-01 08:00:00", "ID": 1})
    )
    avro = {"id": 1, "name": {"string": "a"}, "__deleted": {"string": "true"}}
    person.land("avro/o+0+0000000000.json", lines(avro, {"id": 2, "name": None, "__deleted": None}))
    done = person.call("init", "landing")
    said = (person.folder / "tidefold.yaml").read_text()
    read = {*re.findall(r"op: \{column: ([\w$]+)", said)}
    assert {*WITHOUT_DELETES} - read == set(), done.stderr
    asked = dict(re.findall(r"(?m)^question: (\w+): (.*)", done.stderr))
    assert "`_CHANGE_SEQUENCE_NUMBER` says it, but as text" in asked["seq"]
    assert "format=json` in place of `json_row`" in asked["gg"]
    assert "Avro's types beside its values" in asked["o"]


def test_former_values_and_an_order_beside_a_row_are_not_left_out(person: Person) -> None:
    """Sequin writes the values that a row had under `changes`. Without the lines of a profile both would be lost."""
    (person.folder / "tidefold.yaml").unlink()

    def change(lsn: int, action: str, row: dict[str, Any], changes: dict[str, Any] | None = None) -> dict[str, Any]:
        return {"record": row, "changes": changes, "action": action, "metadata": {"commit_lsn": lsn, "table_name": "o"}}

    records = [change(1, "insert", {"id": 1, "name": "a"}), change(2, "insert", {"id": 2, "name": "b"})]
    records += [change(4, "update", {"id": 7, "name": "a"}, {"id": 1}), change(3, "delete", {"id": 2, "name": "b"})]
    logs = {"sequin": records, "part": [{**one, "was": one.pop("changes")} for one in map(dict, records)]}
    logs["order"] = [{"op": "insert", "ts_ms": 5 - i, "row": {"id": 1, "name": f"{i}"}} for i in range(4)]
    logs["only"] = [{"order": one["row"], **{name: one[name] for name in ("op", "ts_ms")}} for one in logs["order"]]
    for log, lined in logs.items():
        person.land(f"{log}/o-2026-11-01.jsonl", lines(*lined))
    said = person.call("init", "landing").stderr
    for log in logs:
        [told] = re.findall(rf"(?m)^question: {log}: .* Its lines: (.*)", said)
        own = person.folder / f"profiles/{log}.toml"
        own.parent.mkdir(exist_ok=True)
        own.write_text("\n".join(re.findall(r"`([^`]+)`", told)))
    (person.folder / "tidefold.yaml").unlink()
    said = person.call("init", "landing").stderr
    assert "question: sequin" not in said
    assert "question: part" not in said
    assert "order: [change_order]" in (person.folder / "tidefold.yaml").read_text()
    path = person.folder / "tidefold.yaml"
    text = re.sub(r"(?m)^  # ( +\S|\w+:)", r"  \1", path.read_text()).replace("key: [?]", "key: [id]")
    path.write_text(take_first(text))
    person.call("run")
    for log, rows in (("sequin", [(7, "a")]), ("part", [(7, "a")]), ("order", [(1, "0")]), ("only", [(1, "0")])):
        assert _rows(person, log, "var/store") == rows, said


def test_a_log_that_adds_columns_by_itself_adds_no_mark(person: Person) -> None:
    columns = {"id": "long", "name": "string"}
    log = {"source": {**FORMS["flat"], "path": "landing/o"}, "key": ["id"], "columns": columns, "order": ["file"]}
    log["schema_evolution"] = {"add": "evolve"}
    path = person.folder / "tidefold.yaml"
    path.write_text(json.dumps({"version": 1, "store": "store", "logs": {"o": log}}))
    _land(person, "o", "flat", 1, [{"id": 1, "name": "a"}])
    assert person.call("run").exit_code == 0
    _land(person, "o", "flat", 2, [{"id": 1, "name": "b"}], note="x")
    assert person.call("run").exit_code == 0
    _land(person, "o", "flat", 3, [{"id": 1, "name": "c", "note": "y"}], deleted=True)
    done = person.call("run")
    assert (done.exit_code, "If `deleted` says what a row does" in done.output) == (2, True), done.output
    assert _rows(person, "o") == [(1, "b")]
