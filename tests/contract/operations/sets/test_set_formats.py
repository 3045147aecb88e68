"""A set whose topics land as Avro, as Parquet, as JSON with schemas and as values alone: what plain JSON gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.bank_sets import BANK, ENDS, LOGS, TOPICS, check_bank, config, count_records, make_bank, replay, run
from tidefold.sources.inference.layout import find_transaction_topics, propose_sets
from tidefold.sources.inference.propose import propose

ALL = {name: count_records(name) for name in (*LOGS, ENDS)}
_ROWS = {
    "accounts": ("aid", "bid", "abalance"),
    "branches": ("bid", "bbalance"),
    "tellers": ("tid", "bid", "tbalance"),
    "history": ("hid", "tid", "aid", "delta"),
}
_SOURCE = ("version", "connector", "sequence", "snapshot")


def _pick(value: Mapping[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any] | None:
    return None if value is None else {name: value[name] for name in names}


def _value_of(name: str, record: Mapping[str, Any]) -> dict[str, Any] | None:
    value = record["value"]
    if value is None or name == ENDS:
        return None if value is None else dict(value)
    rows = {side: _pick(value[side], _ROWS[name]) for side in ("before", "after")}
    return {
        **rows, "source": _pick(value["source"], _SOURCE), "op": value["op"], "transaction": value["transaction"]
    }  # fmt: skip


def _avro(name: str, record_name: str, **fields: Any) -> dict[str, Any]:
    listed = [{"name": one, "type": ["null", kind], "default": None} for one, kind in fields.items()]
    return {"type": "record", "name": f"{record_name}_{name}", "fields": listed}


def _avro_schema(name: str) -> dict[str, Any]:
    if name == ENDS:
        count = _avro(name, "Count", data_collection="string", event_count="long")
        counts = {"type": "array", "items": count}
        value = _avro(name, "Value", status="string", id="string", event_count="long", data_collections=counts)
    else:
        row = _avro(name, "Row", **dict.fromkeys(_ROWS[name], "long"))
        block = _avro(name, "Block", id="string", total_order="long", data_collection_order="long")
        source = _avro(name, "Source", **dict.fromkeys(_SOURCE, "string"))
        value = _avro(
            name, "Value", before=row, after=row["name"], source=source, op="string", transaction=block
        )  # fmt: skip
    return _avro(name, "Record", topic="string", partition="long", offset="long", value=value)


def _arrow_schema(name: str) -> pa.Schema:
    text, number = pa.string(), pa.int64()
    if name == ENDS:
        count = pa.struct({"data_collection": text, "event_count": number}.items())
        kinds = {"status": text, "id": text, "event_count": number, "data_collections": pa.list_(count)}
    else:
        row = pa.struct([(column, number) for column in _ROWS[name]])
        block = pa.struct([("id", text), ("total_order", number), ("data_collection_order", number)])
        source = pa.struct([(column, text) for column in _SOURCE])
        kinds = {"before": row, "after": row, "source": source, "op": text, "transaction": block}
    value = pa.struct(list(kinds.items()))
    return pa.schema([("topic", text), ("partition", number), ("offset", number), ("value", value)])


def _write_avro(path: Path, name: str, records: list[dict[str, Any]]) -> None:
    with path.with_suffix(".avro").open("wb") as stream:
        fastavro.writer(stream, _avro_schema(name), records)


def _write_parquet(path: Path, name: str, records: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(records, schema=_arrow_schema(name)), path.with_suffix(".parquet"))


def _write_with_schemas(path: Path, name: str, records: list[dict[str, Any]]) -> None:
    fields = [{"field": column, "type": "int64", "optional": True} for column in _ROWS.get(name, ())]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields, "optional": True}]}
    wrapped = [
        {**record, "value": record["value"] and {"schema": schema, "payload": record["value"]}} for record in records
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in wrapped))


def _write_values(path: Path, name: str, records: list[dict[str, Any]]) -> None:
    """As a sink that writes values alone. Offsets are counted from the name of the file."""
    path.write_text("".join(json.dumps(record["value"] or record) + "\n" for record in records))


def _land(folder: Path, upto: Mapping[str, int], write: Callable[[Path, str, list[dict[str, Any]]], None]) -> None:
    """Lands whole files, because Avro and Parquet files do not grow."""
    for name, most in upto.items():
        landed = 0
        for file, lines in BANK.files[name]:
            landed += len(lines)
            path = folder / "landing" / TOPICS[name] / file
            if landed <= most and not any(path.parent.glob(f"{path.stem}.*")):
                records = [json.loads(line) for line in lines]
                heads = [{key: record[key] for key in ("topic", "partition", "offset")} for record in records]
                write(path, name, [{**h, "value": _value_of(name, r)} for h, r in zip(heads, records, strict=True)])


_FORMS: dict[str, tuple[str, Callable[[Path, str, list[dict[str, Any]]], None]]] = {
    "avro": ("debezium-avro", _write_avro),
    "parquet": ("debezium-parquet", _write_parquet),
    "json with schemas": ("debezium-json", _write_with_schemas),
    "values alone": ("debezium-json", _write_values),
}


@pytest.mark.rotates(4)
@pytest.mark.parametrize("form", _FORMS)
def test_a_set_lands_in_any_format(tmp_path: Path, form: str) -> None:
    name, write = _FORMS[form]
    pipeline = make_bank(tmp_path, config().replace("debezium-json", name))
    _land(tmp_path, {**ALL, "history": 800, "tellers": 1600}, write)
    outcomes = run(pipeline, "r1")
    first = check_bank(pipeline)
    assert first is not None, outcomes
    _land(tmp_path, {**ALL, "tellers": 1600}, write)
    run(pipeline, "r2")
    second = check_bank(pipeline)
    assert second is not None
    assert first < second < max(replay().rows)
    assert list(pipeline.set_ledger("bank").read().waits or {}) == ["tellers"]
    _land(tmp_path, ALL, write)
    run(pipeline, "r3")
    assert check_bank(pipeline) == max(replay().rows)


@pytest.mark.rotates(4)
@pytest.mark.parametrize("form", _FORMS)
def test_init_proposes_the_set_of_any_format(tmp_path: Path, form: str) -> None:
    make_bank(tmp_path)
    _land(tmp_path, ALL, _FORMS[form][1])
    landing = str(tmp_path / "landing")
    topics = find_transaction_topics(landing)
    logs = propose(landing, left_out=topics)
    assert sorted(log.id for log in logs) == sorted(LOGS)
    [found] = propose_sets(topics, logs)
    assert (found.id, found.topic, found.path) == ("bank", "bank.transaction", "bank.transaction")
    assert (sorted(found.logs), found.without) == (sorted(LOGS), ())
