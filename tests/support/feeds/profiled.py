"""The life of a source table, and how each tool of a change feed writes it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Row = dict[str, Any]
_T = 1_793_530_800


class Step(NamedTuple):
    """What happens to a row; without both rows the table is emptied."""

    old: Row | None
    new: Row | None


def live(seed: int, *, truncates: bool = True, moves: bool = True) -> tuple[list[Step], dict[int, Row]]:
    """Returns the steps of a random table, and its rows in the end.

    truncates, moves: whether the tool can say that the table is emptied, and that a row gets another key.
    """
    chance, rows, steps = random.Random(seed), dict[int, Row](), list[Step]()

    def make(key: int) -> Row:
        name = chance.choice((None, "Zoë", 'a "b"', "", f"n{chance.randrange(99)}"))
        return {"id": key, "name": name, "big": chance.randrange(10**37, 10**38)}

    def step(old: Row | None, new: Row | None) -> None:
        steps.append(Step(old, new))
        rows.pop(old["id"], None) if old else None
        rows.update({new["id"]: new} if new else {})

    for key in (1, 2, 3):
        step(None, make(key))
    for _ in range(chance.randrange(6, 20)):
        what, key = chance.randrange(12), chance.randrange(1, 9)
        old = rows.get(key)
        if what == 0 and rows:
            emptied = [Step(None, None)] if truncates else [Step(row, None) for row in rows.values()]
            steps += emptied
            rows.clear()
        elif old is None:
            step(None, make(key))
        elif what < 3:
            step(old, None)
        elif what < 6 and (to := chance.randrange(1, 9)) not in rows:
            for one in [(old, make(to))] if moves else [(old, None), (None, make(to))]:
                step(*one)
        else:
            step(old, {**make(key), "name": old["name"] if what < 9 else None})
    return steps, rows


def _word(step: Step, insert: str, update: str, delete: str, truncate: str = "") -> str:
    if step.new is None:
        return delete if step.old else truncate
    return update if step.old else insert


def _changed(step: Step) -> Row | None:
    """The former values of what changed, as MySQL's tools write them."""
    old, new = step
    return {name: value for name, value in old.items() if value != new[name]} if old and new else None


def maxwell(steps: Sequence[Step]) -> Iterator[Any]:
    for at, step in enumerate(steps):
        about = {"database": "shop", "table": "items", "type": _word(step, "insert", "update", "delete"), "ts": _T + at,
                 "xid": at, "commit": True, "position": f"binlog.{6 + at // 9:06d}:{4 + 11 * (at % 9)}"}  # fmt: skip
        yield {**about, "data": step.new or step.old, **({"old": _changed(step)} if step.old and step.new else {})}
        yield {"type": "table-alter", "database": "shop", "table": "items", "old": {}, "def": {}, "ts": 1, "sql": "x"}


def _texts(row: Row | None) -> Row | None:
    return row and {name: value if value is None else str(value) for name, value in row.items()}


def canal(steps: Sequence[Step]) -> Iterator[Any]:
    groups: list[list[Step]] = []
    for step in steps:
        alike = groups and step.new and _word(groups[-1][0], "I", "U", "D") == _word(step, "I", "U", "D")
        if alike and len(groups[-1]) < 3:
            groups[-1].append(step)
        else:
            groups.append([step])
    for at, group in enumerate(groups):
        word = _word(group[0], "INSERT", "UPDATE", "DELETE", "TRUNCATE")
        is_ddl, old = word == "TRUNCATE", [_texts(_changed(one)) for one in group] if word == "UPDATE" else None
        data = None if is_ddl else [_texts(one.new or one.old) for one in group]
        yield {"data": data, "database": "shop", "es": 1000 * _T, "id": at, "isDdl": is_ddl, "old": old, "sql": "",
               "pkNames": None if is_ddl else ["id"], "table": "items", "ts": 1000 * _T + at, "type": word}  # fmt: skip
        yield {"data": None, "database": "shop", "es": 1, "id": at, "isDdl": True, "old": None, "pkNames": None,
               "sql": "ALTER", "table": "other", "ts": 1, "type": "ALTER"}  # fmt: skip


def goldengate(steps: Sequence[Step]) -> Iterator[Any]:
    for at, step in enumerate(steps):
        images = {name: row for name, row in (("before", step.old), ("after", step.new)) if row}
        yield {"table": "SHOP.ITEMS", "op_type": _word(step, "I", "U", "D", "T"), "op_ts": "2026-11-01 15:40:06.000000",
               "pos": f"{3 + at // 5:010d}{97 * (at % 5):010d}", **images}  # fmt: skip


def _named(row: Row) -> list[Row]:
    kinds = {"id": "integer", "name": "text", "big": "numeric"}
    return [{"name": name, "type": kinds[name], "value": value} for name, value in row.items()]


def wal2json(steps: Sequence[Step]) -> Iterator[Any]:
    for at, step in enumerate(steps):
        place = {"lsn": f"{at // 7:X}/{0xFFFF0000 + at:X}", "timestamp": "2026-11-01 10:00:00.1+00"}
        table = {"schema": "public", "table": "items"}
        rows = {"columns": _named(step.new)} if step.new else {}
        rows |= {"identity": _named({"id": step.old["id"]})} if step.old else {}
        yield {"action": "B", **place}
        yield {"action": _word(step, "I", "U", "D", "T"), **place, **table, **rows}
        yield {"action": "C", **place}


def wal2json_1(steps: Sequence[Step]) -> Iterator[Any]:
    for at in range(0, len(steps), 3):
        changes = []
        for step in steps[at : at + 3]:
            change = {"kind": _word(step, "insert", "update", "delete"), "schema": "public", "table": "items"}
            if step.new:
                change |= {"columnnames": [*step.new], "columntypes": ["?"] * 3, "columnvalues": [*step.new.values()]}
            if step.old:
                change["oldkeys"] = {"keynames": ["id"], "keytypes": ["integer"], "keyvalues": [step.old["id"]]}
            changes.append(change)
        yield {"nextlsn": f"0/{100 + at:X}", "timestamp": "2026-11-01 10:00:00+00", "change": changes}


def _given(row: Row | None) -> Row | None:
    return row and {name: value for name, value in row.items() if value is not None}


def dms(steps: Sequence[Step]) -> Iterator[Any]:
    yield {"metadata": {"record-type": "control", "operation": "create-table", "timestamp": "2026-11-01T00:00:00Z"},
           "control": {"table-def": {}}}  # fmt: skip
    for at, step in enumerate(steps):
        about = {"timestamp": f"2026-11-01T10:00:{at // 10:02d}.{at % 10:06d}Z", "record-type": "data",
                 "operation": _word(step, "insert", "update", "delete"), "partition-key-type": "schema-table",
                 "schema-name": "shop", "table-name": "items", "transaction-id": at}  # fmt: skip
        before = {"before-image": {"id": step.old["id"]}} if step.old and step.new and at % 2 else {}
        beside = {"BI_id": step.old["id"]} if step.old and step.new and not at % 2 else {}
        yield {"data": {**(_given(step.new or step.old) or {}), **beside}, "metadata": about, **before}


def mongodb(steps: Sequence[Step]) -> Iterator[Any]:
    for at, step in enumerate(steps):
        row = step.new or step.old or {}
        document = {
            "fullDocument": row and {"_id": row["id"], "name": row["name"], "big": {"$numberDecimal": f"{row['big']}"}}
        }
        yield {"_id": {"_data": f"8265{at:04X}"}, "operationType": _word(step, "insert", "update", "delete", "drop"),
               "clusterTime": {"$timestamp": {"t": _T + at // 3, "i": at % 3 + 1}},
               "ns": {"db": "shop", "coll": "items"},
               **({"documentKey": {"_id": row["id"]}} if row else {}), **(document if step.new else {})}  # fmt: skip


def _typed(row: Row) -> Row:
    texts = {name: {"N": str(value)} if isinstance(value, int) else {"S": value} for name, value in row.items()}
    return {name: value if row[name] is not None else {"NULL": True} for name, value in texts.items()}


def dynamodb(steps: Sequence[Step]) -> Iterator[Any]:
    for at, step in enumerate(steps):
        row = step.new or step.old or {}
        stream = {"ApproximateCreationDateTime": _T, "Keys": _typed({"id": row["id"]}), "SizeBytes": 1,
                  "SequenceNumber": f"{4421584500000000017450439091 + at}"}  # fmt: skip
        stream |= {"NewImage": _typed(step.new)} if step.new else {}
        yield {"eventID": f"{at}", "eventName": _word(step, "INSERT", "MODIFY", "REMOVE"), "dynamodb": stream}


def dynamodb_export(steps: Sequence[Step]) -> Iterator[Any]:
    for at, step in enumerate(steps):
        image = {"NewImage": _typed(_given(step.new) or {})} if step.new else {}
        yield {"Metadata": {"WriteTimestampMicros": {"N": f"{_T * 1_000_000 + at}"}},
               "Keys": _typed({"id": (step.new or step.old or {})["id"]}), **image}  # fmt: skip


def cockroachdb(steps: Sequence[Step]) -> Iterator[Any]:
    for at, step in enumerate(steps):
        row = step.new or step.old or {}
        yield {"after": step.new, "key": [row["id"]], "updated": f"{_T + at // 4}312562986.{at % 4:010d}"}
        yield {"resolved": f"{_T}112562986.0000000000"}


def kcat(steps: Sequence[Step]) -> Iterator[Any]:
    for at, step in enumerate(steps):
        row = step.new or step.old or {}
        yield {"topic": "items", "partition": 0, "offset": at, "tstype": "create", "ts": 1000 * _T, "broker": 1,
               "key": json.dumps({"id": row["id"]}), "payload": step.new and json.dumps(step.new)}  # fmt: skip


def salesforce(steps: Sequence[Step]) -> Iterator[Any]:
    for at, (old, new) in enumerate(steps):
        row = new or old or {}
        changed = [name for name, value in row.items() if name != "id" and old and value != old[name]]
        about = {"entityName": "Item__c", "recordIds": [f"{row['id']}"], "changeType": _word(Step(old, new), "CREATE",
                 "UPDATE", "DELETE"), "commitNumber": 10**13 + at // 3, "sequenceNumber": at % 3 + 1,
                 "changedFields": changed if new and old else []}  # fmt: skip
        seen = {name: value for name, value in row.items() if name != "id"}
        unsent = {name: None if new and old and name not in changed else value for name, value in seen.items()}
        yield {"ChangeEventHeader": about, **(unsent if new else dict.fromkeys(seen))}


@dataclass(frozen=True)
class Tool:
    """A tool of a change feed. truncates, moves: see `live`. key: the name of the key in the table."""

    write: Callable[[Sequence[Step]], Iterator[Any]]
    truncates: bool = True
    moves: bool = True


TOOLS = {
    "maxwell": Tool(maxwell, truncates=False),
    "canal": Tool(canal),
    "goldengate": Tool(goldengate),
    "wal2json": Tool(wal2json),
    "wal2json-1": Tool(wal2json_1, truncates=False),
    "dms": Tool(dms, truncates=False),
    "mongodb": Tool(mongodb, truncates=True, moves=False),
    "dynamodb": Tool(dynamodb, truncates=False, moves=False),
    "dynamodb-export": Tool(dynamodb_export, truncates=False, moves=False),
    "cockroachdb": Tool(cockroachdb, truncates=False, moves=False),
    "kcat": Tool(kcat, truncates=False, moves=False),
    "salesforce": Tool(salesforce, truncates=False, moves=False),
}
