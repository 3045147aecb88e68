"""What stands between the first landed files and the first table: nothing is published that lacks one of them."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.person import HEAD, ROWS, Person

LATER = "I,3,Eve,3.50,2026-11-02 08:00:00\n"


@pytest.mark.rotates(4)
@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("o0.csv", "order_id,customer,total,updated_at\n9,Zoe,1.00,2026-11-01 07:00:00\n", "LANDED_SCHEMA"),
        ("o0.csv", HEAD + "I,9,Zoe,much,2026-11-01 07:00:00\n", "LANDED_REFUSED"),
        ("o0.csv.gz", b"no gzip", "LANDED_FORMAT"),
        ("o0.csv.bz2", b"BZh9", "FOREIGN_FILE"),
    ],
)
def test_no_table_is_published_while_a_landed_file_is_refused(
    person: Person, name: str, text: str | bytes, code: str
) -> None:
    person.land(f"orders/{name}", text)
    for _ in range(2):  # Nor is it taken for known in the second run.
        done = person.call("run", "orders")
        assert done.exit_code == 2, done.output
        assert "[LOAD_INCOMPLETE]" in done.stderr
        assert f"[{code}]" in done.stderr
        assert name in done.stderr
        assert not (person.folder / "var/store/tables/orders/_delta_log").exists()
        person.land("orders/o2.csv", HEAD + LATER)

    line = next(iter(re.findall(r"set `(leave_out: [^`]+)` under `source`", done.stderr)))
    person.set(line, below="source")
    person.call("quarantine", "settle", "orders", "--reason", "known")
    assert [row["order_id"] for row in person.rows()] == [1, 2, 3]
    # With a table, a later refusal keeps nobody from the other rows.
    person.land("orders/o3.csv", "what\n1\n")
    person.land("orders/o4.csv", HEAD + LATER.replace("I,3", "I,4"))
    assert "published: snapshot 2 with 4 rows" in person.call("run", "orders").output


def test_a_file_without_a_time_among_files_with_one_is_named_before_and_in_the_first_run(person: Person) -> None:
    """The names of AWS DMS: a table of the changes alone was published, with the exit code 0."""
    person.set("{order: file}")
    person.set("{header: [op, order_id, customer, total, updated_at]}", below="source")
    (person.folder / "landing/orders/o1.csv").unlink()
    person.land("orders/LOAD00000001.csv", ROWS)
    person.land("orders/o-2026-11-21.csv", ROWS.replace("I,2", "U,2"))
    assert "warning: orders: [LANDED_TIME]" in person.call("validate").stderr
    done = person.call("run", "orders")
    assert (done.exit_code, "LOAD_INCOMPLETE" in done.stderr) == (2, True), done.output


def test_validate_tries_one_file_of_each_layout(person: Person) -> None:
    person.land("orders/load1.csv", "order_id,customer,total,updated_at\n9,Zoe,1.00,2026-11-01 07:00:00\n")
    person.land("orders/o2.csv", HEAD + "I,9,Zoe,much,2026-11-01 07:00:00\n")  # As the first one, and newer.
    person.land("orders/large1.csv", HEAD.replace("total", "sum") + ROWS * 20_000)
    for at, name in enumerate(("load1", "large1", "o1", "o2")):
        os.utime(person.folder / f"landing/orders/{name}.csv", (at, at))
    told = person.call("validate")
    assert told.exit_code == 0
    found = [line for line in told.stderr.splitlines() if line.startswith("warning: orders")]
    assert len(found) == 3, told.stderr
    for name in ("load1.csv", "large1.csv", "o2.csv"):
        assert any(f"`{name}`" in line for line in found), told.stderr


LOAD = "1,a,2026-11-01\n2,a,2026-11-01\n3,a,2026-11-01\n"
CHANGED = "U,1,b,2026-11-02\nD,2,,2026-11-02\n"
CHANGES = {
    "csv": (f"id,v,at\n{LOAD}", f"Op,id,v,at\n{CHANGED}"),
    "csv, header: [Op, id, v, at]": (LOAD, CHANGED),
    "json, record: value": (
        "".join(f'{{"id":{i},"v":"a","at":"2026-11-01"{op}}}\n' for i, op in enumerate(("", ',"Op":null', ""), 1)),
        '{"Op":"U","id":1,"v":"b","at":"2026-11-02"}\n{"Op":"D","id":2,"v":null,"at":"2026-11-02"}\n',
    ),
}


@pytest.mark.parametrize("source", CHANGES)
def test_a_full_load_without_operations_beside_changes_is_one_configuration(person: Person, source: str) -> None:
    """AWS DMS writes no operation into its full load, unless it is told to."""
    encoding = ", encoding: iso" if "json" in source else ""
    text = f"""
version: 1
store: var/store
logs:
  o:
    source: {{format: {source}, path: landing/o, op: {{column: Op, missing: upsert}}}}
    key: [id]
    columns: {{id: long, v: string, at: {{type: date{encoding}}}}}
    order: [at]
"""
    (person.folder / "tidefold.yaml").write_text(text)
    for name, rows in zip(("LOAD1", "changes1"), CHANGES[source], strict=True):
        person.land(f"o/{name}.{source[:4].rstrip(',')}", rows)
    assert "warning: o: " not in person.call("validate").stderr
    assert [(row["id"], row["v"]) for row in person.rows("o")] == [(1, "b"), (3, "a")]
    # It is a decision: without it such rows are refused.
    (person.folder / "tidefold.yaml").write_text(
        text.replace(", missing: upsert", "").replace("var/store", "var/other")
    )
    assert person.call("run", "o").exit_code == 2


def test_the_full_load_of_parquet_needs_no_operation_either(person: Person) -> None:
    person.edit("op: {column: op}", "op: {column: op, missing: upsert}")
    person.edit("format: csv", "format: parquet")
    (person.folder / "landing/orders/o1.csv").unlink()
    row = {"order_id": 1, "customer": "Ann", "total": Decimal("1.50"), "updated_at": datetime(2026, 11, 1, tzinfo=UTC)}
    amount, instant = pa.decimal128(12, 2), pa.timestamp("us", "UTC")
    kinds = {"order_id": pa.int64(), "customer": pa.string(), "total": amount, "updated_at": instant}
    types = pa.schema(kinds.items())
    pq.write_table(pa.Table.from_pylist([row, {**row, "order_id": 2}], types), "landing/orders/load.parquet")
    later = [{**row, "op": op, "updated_at": datetime(2026, 11, 2, tzinfo=UTC)} for op in ("D",)]
    pq.write_table(pa.Table.from_pylist(later, types.append(pa.field("op", pa.string()))), "landing/orders/new.parquet")
    assert [row["order_id"] for row in person.rows()] == [2]


def test_the_rows_of_one_file_have_an_order_and_their_ties_are_no_warning(person: Person) -> None:
    """A warning in each run of DMS, MongoDB and TiCDC, with the right rows, was not read."""
    person.land("orders/o1.csv", HEAD + ROWS + ROWS.replace("Ann", "Anna").replace("I,", "U,"))
    done = person.call("run", "orders")
    assert "ties: 1 key has" in done.stdout
    assert "warning" not in done.stderr
    assert next(row["customer"] for row in person.rows()) == "Anna"


def test_many_ties_are_a_warning(person: Person) -> None:
    person.land("orders/o2.csv", HEAD + ROWS.replace("Ann", "Anna"))
    done = person.call("run", "orders")
    assert "warning: orders: 1 of 2 folded keys have different changes of one order" in done.stderr
    person.land("orders/o3.csv", HEAD + "".join(f"I,{i},Bob,1.00,2026-11-03 08:00:00\n" for i in range(100)))
    person.land("orders/o4.csv", HEAD + "I,7,Joe,1.00,2026-11-03 08:00:00\n")
    done = person.call("run", "orders")
    assert "ties: 1 key has" in done.stdout
    assert "warning" not in done.stderr


def test_a_refused_file_that_is_moved_away_no_longer_holds_the_table(person: Person) -> None:
    person.land("orders/o0.csv", "what\n1\n")
    assert person.call("run", "orders").exit_code == 2
    (person.folder / "landing/orders/o0.csv").unlink()
    assert [row["order_id"] for row in person.rows()] == [1, 2]


def test_a_file_that_is_being_written_holds_nothing(person: Person) -> None:
    person.land("orders/o2.csv", HEAD + LATER.rstrip())
    done = person.call("run", "orders")
    assert done.exit_code == 0, done.output
    person.land("orders/o2.csv", HEAD + LATER)
    assert [row["order_id"] for row in person.rows()] == [1, 2, 3]
