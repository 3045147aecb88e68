"""A record of another schema stops its partition in order: what comes before it is taken, the rest waits (I31)."""

from __future__ import annotations

import gzip
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import CONFIG, TOPIC, land, offsets, quarantined, record, state_of, take
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import drop
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import open_store

TEXT = "{id: int, text: string}"
DEFAULT = CONFIG.replace("    on_bad_record: {policy}\n", "{more}")


def configured(root: Path, columns: str = TEXT, more: str = "") -> Pipeline:
    (root / "landing" / TOPIC).mkdir(parents=True, exist_ok=True)
    path = root / "tidefold.yaml"
    path.write_text(DEFAULT.format(columns=columns, more=more and f"    {more}\n"))
    return Pipeline(load_config(path), open_store("store", root))


def rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


def with_after(offset: int, item: int, **after: Any) -> dict[str, Any]:
    return record(offset, item, after={"id": item, **after})


MIXED = [
    with_after(0, 1, text="a"),
    with_after(1, 2, text="b"),
    with_after(2, 1, text="aa", more=5),
    with_after(3, 2, text="bb", more=None),
]


@pytest.mark.parametrize("extension", ["jsonl", "jsonl.gz"])
def test_an_unknown_column_stops_the_partition_in_order(tmp_path: Path, extension: str) -> None:
    """Fault: the default quarantined such records and took the others: rows missing, rows stale, the gate passed."""
    pipeline = configured(tmp_path)
    land(tmp_path, 0, MIXED, extension)
    land(tmp_path, 4, [with_after(4, 3, text="c", more=None)], extension)
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code, outcome.error.exit_code) == ("stopped", "UNKNOWN_COLUMN", 2)
    assert "Line 3 of `shop.public.items+0+0000000000." in outcome.message
    assert "add `more: {type: 'long', default: [?]}` to `columns`" in outcome.message
    assert (outcome.facts["changes"], outcome.facts["quarantined"], outcome.facts["refused"]) == (2, 0, {})
    assert rows(pipeline) == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]
    before = state_of(pipeline)
    again = take(pipeline)
    assert (again.status, again.error_code) == ("stopped", "UNKNOWN_COLUMN")
    assert state_of(pipeline) == before
    pipeline = configured(tmp_path, "{id: int, text: string, more: {type: 'long', default: null}}")
    assert take(pipeline).status == "taken"
    assert offsets(pipeline) == [0, 1, 2, 3, 4]
    assert rows(pipeline) == [
        {"id": 1, "text": "aa", "more": 5},
        {"id": 2, "text": "bb", "more": None},
        {"id": 3, "text": "c", "more": None},
    ]
    assert [landed.complete for landed in state_of(pipeline).landed] == [False, True, True]
    assert take(pipeline).status == "nothing"


def test_a_stop_at_the_first_record_takes_nothing(tmp_path: Path) -> None:
    pipeline = configured(tmp_path)
    land(tmp_path, 0, MIXED[2:])
    assert take(pipeline).error_code == "UNKNOWN_COLUMN"
    assert not state_of(pipeline).landed
    assert [p.code for p in state_of(pipeline).landing.listed] == ["UNKNOWN_COLUMN"]
    pipeline = configured(tmp_path, more="ignored: [more]")
    assert take(pipeline).facts["changes"] == 2
    assert rows(pipeline) == [{"id": 1, "text": "aa"}, {"id": 2, "text": "bb"}]


def test_each_partition_stops_by_itself(tmp_path: Path) -> None:
    pipeline = configured(tmp_path)
    land(tmp_path, 0, MIXED)
    other = [{**with_after(i, 10 + i, text=f"p{i}"), "partition": 1} for i in range(3)]
    land(tmp_path, 0, other, name="{topic}+1+{start:010d}.{extension}")
    assert take(pipeline).facts["changes"] == 5
    assert {p.partition: p.next_offset for p in state_of(pipeline).positions} == {0: 2, 1: 3}


def test_a_stopped_file_grows_and_stops_again(tmp_path: Path) -> None:
    pipeline = configured(tmp_path)
    land(tmp_path, 0, MIXED)
    take(pipeline)
    land(tmp_path, 0, [*MIXED, with_after(4, 3, text="c", more=1, other="x")])
    pipeline = configured(tmp_path, "{id: int, text: string, more: {type: long, default: null}}")
    outcome = take(pipeline)
    assert (outcome.error_code, outcome.facts["changes"]) == ("UNKNOWN_COLUMN", 2)
    assert "Line 5 of" in outcome.message
    land(tmp_path, 0, [*MIXED, with_after(4, 3, text="c", more=1, other="x"), with_after(5, 4, text="d", more=2)])
    pipeline = configured(tmp_path, "{id: int, text: string, more: {type: long, default: null}}", "ignored: [other]")
    assert take(pipeline).facts["changes"] == 2
    assert offsets(pipeline) == [0, 1, 2, 3, 4, 5]


def test_the_rest_of_a_stopped_file_must_be_the_file_that_was_taken(tmp_path: Path) -> None:
    pipeline = configured(tmp_path)
    path = land(tmp_path, 0, MIXED, "jsonl.gz")
    take(pipeline)
    path.write_bytes(gzip.compress(path.read_bytes()))
    pipeline = configured(tmp_path, "{id: int, text: string, more: {type: long, default: null}}")
    assert "LANDED_CHANGED" in (take(pipeline).error_code or "")


def test_a_column_that_the_source_dropped_stops_the_log(tmp_path: Path) -> None:
    """Debezium writes every column into every record: one that is missing is gone, or has another name."""
    pipeline = configured(tmp_path)
    land(tmp_path, 0, [with_after(0, 1, text="a"), with_after(1, 1), record(2, 1, "d")])
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == ("stopped", "MISSING_COLUMN")
    assert "set `text: {type: 'string', default: null}` in `columns`" in outcome.message
    assert rows(pipeline) == [{"id": 1, "text": "a"}]
    pipeline = configured(tmp_path, "{id: int, text: {type: string, default: null}}")
    assert take(pipeline).facts["changes"] == 2
    assert rows(pipeline) == []


def test_a_nullable_column_may_be_configured_before_it_comes(tmp_path: Path) -> None:
    """Fault: older records were MISSING_COLUMN for ever; `default: null` could not be told from no default."""
    pipeline = configured(tmp_path, "{id: int, text: string, more: {type: int, default: null}}", "on_bad_record: fail")
    land(tmp_path, 0, [with_after(0, 1, text="a"), with_after(1, 2, text="b", more=5)])
    assert take(pipeline).facts["refused"] == {}
    assert rows(pipeline) == [{"id": 1, "text": "a", "more": None}, {"id": 2, "text": "b", "more": 5}]


def test_an_update_with_a_placeholder_and_an_unknown_column_stops(tmp_path: Path) -> None:
    """Fault: such a record was refused as UNAVAILABLE_VALUE, which an update never is."""
    pipeline = configured(tmp_path)
    placeholder = {"id": 1, "text": "__debezium_unavailable_value", "more": 1}
    land(tmp_path, 0, [with_after(0, 1, text="a"), record(1, 1, "u", after=placeholder)])
    assert take(pipeline).error_code == "UNKNOWN_COLUMN"


def test_a_renamed_key_stops(tmp_path: Path) -> None:
    """Fault: a record whose key has another name was put aside as KEY_NULL, one by one."""
    pipeline = configured(tmp_path)
    land(tmp_path, 0, [with_after(0, 1, text="a"), record(1, 2, after={"number": 2, "text": "b"}, key={"number": 2})])
    assert take(pipeline).error_code == "UNKNOWN_COLUMN"


def test_what_the_configuration_says_outright_still_holds(tmp_path: Path) -> None:
    pipeline = configured(tmp_path, more="on_bad_record: quarantine")
    land(tmp_path, 0, MIXED)
    assert take(pipeline).facts["refused"] == {"UNKNOWN_COLUMN": 2}
    assert [entry["offset"] for entry in quarantined(pipeline)] == [2, 3]


def test_a_table_is_built_again_from_its_landed_files_across_add_drop_rename_and_widen(tmp_path: Path) -> None:
    """Fault: after `drop`, records from before an ADD or with a column that is gone were refused for ever."""
    landed = [
        (0, "{id: int, text: string, old: int}",
         [with_after(0, 1, text="a", old=1), with_after(1, 2, text="b", old=2)]),
        (2, "{id: int, text: string, old: int, more: {type: int, default: null}}",
         [with_after(2, 1, text="aa", old=1, more=5)]),
        (3, "{id: int, text: string, more: {type: int, default: null}}", [with_after(3, 3, text="c", more=6)]),
        (4, "{id: int, label: {type: string, aliases: [text]}, more: {type: long, default: null}}",
         [with_after(4, 2, label="bb", more=2**40)]),
    ]  # fmt: skip
    for start, columns, records in landed:
        more = "schema_evolution: {drop: evolve}\n    ignored: [old]" if start > 2 else ""
        pipeline = configured(tmp_path, columns, more)
        land(tmp_path, start, records)
        assert take(pipeline).status == "taken"
    before = rows(pipeline)
    assert before == [
        {"id": 1, "label": "aa", "more": 5},
        {"id": 2, "label": "bb", "more": 2**40},
        {"id": 3, "label": "c", "more": 6},
    ]
    drop(pipeline, "items", plan=False)
    assert take(pipeline).status == "taken"
    assert rows(pipeline) == before


_BESIDE = {"int": "int32", "long": "int64", "double": "double", "boolean": "boolean", "string": "string"}


def _beside(one: dict[str, Any], kinds: dict[str, str]) -> dict[str, Any]:
    """The record with its schema beside it. `kinds`: the types of its columns."""
    fields = [{"type": _BESIDE[kind], "optional": True, "field": name} for name, kind in kinds.items()]
    after = {"type": "struct", "field": "after", "fields": [{"type": "int32", "field": "id"}, *fields]}
    return one | {"value": {"schema": {"type": "struct", "fields": [after]}, "payload": one["value"]}}


# (type of the column before, its value, the renamed column, its type in the source, its value, both values at the end)
_RETYPED: list[tuple[str, Any, str, str, Any, list[Any]]] = [
    ("int", 5, "long", "long", 2**40, [5, 2**40]),
    ("int", 5, "string, encoding: json", "string", "x", ["5", "x"]),
    ("boolean", True, "string, encoding: json", "string", "x", ["true", "x"]),
    ("string", "5", "int, encoding: any", "int", 6, [5, 6]),
    ("string", "5.5", "double, encoding: any", "double", 6.5, [5.5, 6.5]),
    ("double", 5.0, "int, encoding: any", "int", 6, [5, 6]),
    ("int", 5, "double, encoding: any", "double", 6.5, [5.0, 6.5]),
    ("int", 1, "boolean, encoding: any", "boolean", False, [True, False]),
    ("string", "true", "boolean, encoding: any", "boolean", False, [True, False]),
    ("int", 5, "'decimal(12,2)', encoding: any", "string", "6.25", [Decimal("5.00"), Decimal("6.25")]),
    ("double", 5.5, "'decimal(12,2)', encoding: any", "string", "6.25", [Decimal("5.50"), Decimal("6.25")]),
]


@pytest.mark.parametrize("beside", [False, True])
def test_a_rename_with_a_change_of_type_is_built_again(beside: bool, tmp_path: Path) -> None:
    """Changes that the log itself cannot make (`retype` from text) are made by `drop` and a new ingest: one column for
    each change.
    """
    cases = list(enumerate(_RETYPED))
    records = [
        record(0, 1, after={"id": 1, **{f"was{n}": value for n, (_, value, *_) in cases}}),
        record(1, 2, after={"id": 2, **{f"now{n}": later for n, (*_, later, _) in cases}}),
    ]
    if beside:
        kinds = {f"was{n}": old for n, (old, *_) in cases}, {f"now{n}": new for n, (*_, new, _, _) in cases}
        records = [_beside(one, columns) for one, columns in zip(records, kinds, strict=True)]
    pipeline = configured(tmp_path, "{id: int, " + ", ".join(f"was{n}: {old}" for n, (old, *_) in cases) + "}")
    land(tmp_path, 0, records[:1])
    assert take(pipeline).error_code is None
    land(tmp_path, 1, records[1:])
    renamed = ", ".join(f"now{n}: {{type: {column}, aliases: [was{n}]}}" for n, (_, _, column, *_) in cases)
    pipeline = configured(tmp_path, f"{{id: int, {renamed}}}")
    drop(pipeline, "items", plan=False)
    outcome = take(pipeline)
    assert (outcome.error_code, outcome.facts["refused"]) == (None, {})
    first, second = rows(pipeline)
    found = [(case, [first[f"now{n}"], second[f"now{n}"]]) for n, case in cases]
    assert found == [(case, case[-1]) for case in _RETYPED]


def test_a_value_that_does_not_fit_a_renamed_column_is_no_unknown_column(tmp_path: Path) -> None:
    """Fault: a record with a former name was judged by today's, so its log stopped with advice that the configuration
    refuses: the name is an alias already.
    """
    pipeline = configured(tmp_path, "{id: int, now: {type: int, aliases: [was]}}")
    land(tmp_path, 0, [with_after(0, 1, was="five"), with_after(1, 2, was=2), with_after(2, 3, was=3, more=1)])
    outcome = take(pipeline)
    assert outcome.error_code == "UNKNOWN_COLUMN"
    assert "`after` has more," in outcome.message
    assert outcome.facts["refused"] == {"VALUE_INVALID": 1}
    assert rows(pipeline) == [{"id": 2, "now": 2}]


def test_files_of_rows_with_other_columns_stop_the_log(tmp_path: Path) -> None:
    pipeline = configured(tmp_path)
    text = (tmp_path / "tidefold.yaml").read_text()
    source = f"source: {{format: csv, path: landing/{TOPIC}}}\n    order: [id]"
    lines = [f"    {source}" if "source:" in line else line for line in text.splitlines()]
    (tmp_path / "tidefold.yaml").write_text("\n".join(lines) + "\n")
    pipeline = Pipeline(load_config(tmp_path / "tidefold.yaml"), open_store("store", tmp_path))
    (tmp_path / "landing" / TOPIC / "a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "landing" / TOPIC / "b.csv").write_text("id,text,more\n2,b,5\n")
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code, outcome.facts["changes"]) == ("stopped", "LANDED_SCHEMA", 1)
    (tmp_path / "tidefold.yaml").write_text("\n".join([*lines, "    ignored: [more]"]) + "\n")
    pipeline = Pipeline(load_config(tmp_path / "tidefold.yaml"), open_store("store", tmp_path))
    assert take(pipeline).facts["changes"] == 1
    assert [(row["id"], row["text"]) for row in rows(pipeline)] == [(1, "a"), (2, "b")]


def test_a_record_that_is_sent_again_without_the_new_column_does_not_stop(tmp_path: Path) -> None:
    """It was taken before, by its order, also where a file of the same run has what came before it."""
    pipeline = configured(tmp_path, "{id: int, text: string, more: int}")
    land(tmp_path, 0, [with_after(i, i, text="a", more=i) for i in range(3)])
    land(tmp_path, 3, [record(3, 1, order=1001, after={"id": 1, "text": "a"}), with_after(4, 4, text="b", more=4)])
    outcome = take(pipeline)
    assert (outcome.status, outcome.facts["changes"], outcome.facts["resent"]) == ("taken", 4, 1)


EVOLVE = "schema_evolution: {add: evolve, drop: evolve}"


def test_with_evolve_the_column_is_added_in_the_middle_of_the_stream(tmp_path: Path) -> None:
    pipeline = configured(tmp_path, more=EVOLVE)
    land(
        tmp_path,
        0,
        [*MIXED, with_after(4, 3, text="c", more=6, other=["x"]), with_after(5, 4, text="d", more=None, other=None)],
    )
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code, outcome.facts["changes"]) == ("taken", None, 6)
    assert outcome.facts["added"] == {"more": "long", "other": "array<string>"}
    expected = [
        {"id": 1, "text": "aa", "more": 5, "other": None},
        {"id": 2, "text": "bb", "more": None, "other": None},
        {"id": 3, "text": "c", "more": 6, "other": ["x"]},
        {"id": 4, "text": "d", "more": None, "other": None},
    ]
    assert rows(pipeline) == expected
    assert take(pipeline).status == "nothing"
    assert [s.found for s in state_of(pipeline).schemas] == [(), (3,), (3, 4)]
    pipeline = configured(tmp_path, "{id: int, text: string, other: array<string>}", EVOLVE)
    land(tmp_path, 6, [with_after(6, 5, text="e", more=7, other=None)])
    assert take(pipeline).facts["changes"] == 1
    assert {c.name for c in state_of(pipeline).shape.columns} == {"id", "text", "more", "other"}
    pipeline = configured(tmp_path, "{id: int, text: string, other: array<string>}", f"{EVOLVE}\n    ignored: [more]")
    land(tmp_path, 7, [with_after(7, 6, text="f", more=8, other=None)])
    assert take(pipeline).facts["changes"] == 1
    assert [row["id"] for row in rows(pipeline)] == [1, 2, 3, 4, 5, 6]
    assert "more" not in rows(pipeline)[0]


def test_with_evolve_the_first_record_of_a_log_may_bring_a_column(tmp_path: Path) -> None:
    pipeline = configured(tmp_path, more=EVOLVE)
    land(tmp_path, 0, [with_after(0, 1, text="a", more=True)])
    assert take(pipeline).facts["changes"] == 1
    assert rows(pipeline) == [{"id": 1, "text": "a", "more": True}]


def test_with_evolve_a_column_without_a_certain_type_stops_the_log(tmp_path: Path) -> None:
    pipeline = configured(tmp_path, more=EVOLVE)
    land(tmp_path, 0, [with_after(0, 1, text="a"), with_after(1, 2, text="b", more=None)])
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code, outcome.facts["changes"]) == ("stopped", "UNKNOWN_COLUMN", 1)
    assert "add `more: {type: 'TYPE', default: [?]}`" in outcome.message
    # Fault: the line was printed as if it could be copied, and `TYPE` is no type.
    assert "shows no type for more, such as when the value is null: choose one" in outcome.message


def test_a_column_that_was_added_is_in_the_table_and_in_a_table_built_again(tmp_path: Path) -> None:
    pipeline = configured(tmp_path, more=EVOLVE)
    for run, records in enumerate((MIXED[:2], MIXED[2:])):
        land(tmp_path, 2 * run, records)
        assert take(pipeline).status == "taken"
        [outcome] = materialize(pipeline, ["items"], Fold(f"r{run}"), in_process)
        assert outcome.status == "staged", outcome.message
        judge_all(pipeline, "items")
        confirm(pipeline, "items", Confirmation(run=f"r{run}"))
    table = DeltaTable(pipeline.store.uri("tables/items")).to_pyarrow_table().sort_by("id").to_pylist()
    assert table == [{"id": 1, "text": "aa", "more": 5}, {"id": 2, "text": "bb", "more": None}]
    drop(pipeline, "items", plan=False)
    take(pipeline)
    assert rows(pipeline) == table


def test_what_was_taken_before_a_stop_is_folded_and_confirmed(tmp_path: Path) -> None:
    pipeline = configured(tmp_path)
    land(tmp_path, 0, MIXED)
    assert take(pipeline).status == "stopped"
    [outcome] = materialize(pipeline, ["items"], Fold("r1"), in_process)
    assert outcome.status == "staged"
    judge_all(pipeline, "items")
    assert confirm(pipeline, "items", Confirmation(run="r1")).error_code is None


@given(data=st.data())
@settings(max_examples=choose(5, 12), deadline=None)
def test_any_history_of_columns_ends_as_in_the_source(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Columns come and go at any record, files are cut anywhere. A stop is answered with what the source did.

    Fault: a DROP was not seen where the column had a default, so old values mixed with those of the next column.
    """
    root = tmp_path_factory.mktemp("history")
    names, records, source = ["a", "b", "c"], [], dict[int, dict[str, Any]]()
    there: set[str] = set()
    for offset in range(data.draw(st.integers(1, 14))):
        changed = data.draw(st.sets(st.sampled_from(names), max_size=1))
        there ^= changed
        for row in source.values():  # ALTER TABLE changes every row, and sends no event.
            for name in changed:
                row[name] = None
        item = data.draw(st.integers(1, 3))
        row = {"id": item, **{name: data.draw(st.integers(0, 9)) for name in sorted(there)}}
        records.append(record(offset, item, after=row))
        source[item] = dict.fromkeys(names) | row
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, 13)))), len(records)]
    suffix = data.draw(st.sampled_from(["jsonl", "jsonl.gz"]))
    for start, end in pairwise(cut for cut in cuts if cut <= len(records)):
        if start < end:
            land(root, start, records[start:end], suffix)
    columns, dropped = {"id": "int"}, False
    for _ in range(2 * len(records)):
        listed = "{" + ", ".join(f"{n}: {t}" for n, t in columns.items()) + "}"
        pipeline = configured(root, listed, "schema_evolution: {drop: evolve}")
        outcome = take(pipeline)
        if outcome.error_code is None:
            break
        assert outcome.status == "stopped"
        if outcome.error_code == "UNKNOWN_COLUMN":
            columns |= {name: "{type: long, default: null}" for name in names if f"`{name}: {{type" in outcome.message}
        else:
            [gone] = [name for name in names if f"`after` has no {name}, which earlier" in outcome.message]
            del columns[gone]
            dropped = True
    assert columns.keys() == {"id", *there}
    expected = [{name: source[item][name] for name in columns} for item in sorted(source)]
    assert rows(pipeline) == expected
    assert sum(landed.records for landed in state_of(pipeline).landed) == len(records)
    if not dropped:
        drop(pipeline, "items", plan=False)
        assert take(pipeline).status == "taken"
        assert rows(pipeline) == expected
