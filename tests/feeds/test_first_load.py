"""What stands between the first landed files and the first table: nothing is published that lacks one of them."""

from __future__ import annotations

import re

import pytest

from support.person import HEAD, ROWS, Person

LATER = "I,3,Eve,3.50,2026-11-02 08:00:00\n"


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
    assert [row["order_id"] for row in person.rows()] == [1, 2, 3]
    # With a table, a later refusal keeps nobody from the other rows.
    person.land("orders/o3.csv", "what\n1\n")
    person.land("orders/o4.csv", HEAD + LATER.replace("I,3", "I,4"))
    assert "published: snapshot 2 with 4 rows" in person.call("run", "orders").output


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
