"""With several days in the folder `init` is at least as good as with one: keys and extracts are judged over files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

from support.person import Person

_DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")


def _land(who: Person, feed: str, header: str, days: Sequence[Sequence[str]], names: Sequence[str] = _DAYS) -> None:
    for name, rows in zip(names, days, strict=True):
        who.land(f"{feed}/{feed}_{name}.csv", "\n".join([header, *rows, ""]))


def _init(who: Person, feed: str) -> dict[str, Any]:
    (who.folder / "tidefold.yaml").unlink()
    done = who.call("init", f"landing/{feed}")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = yaml.safe_load((who.folder / "tidefold.yaml").read_text())["logs"][feed]
    return found


def _read(who: Person, feed: str) -> list[dict[str, Any]]:
    done = who.call("run", feed)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(who.call("read", feed, "--limit", "99", "--format", "json").stdout)["rows"]
    return found


def test_dated_files_with_the_same_keys_are_full_extracts(person: Person) -> None:
    """The price changes in a few rows, a product is new, and one is gone."""
    first = [f"P{n:03},Thing {n},{n}.50,{n % 7}" for n in range(40)]
    second = [*first[1:], "P040,Thing 40,4.00,1"]
    third = [row.replace("Thing 5,5.50", "Thing 5,6.00") for row in second]
    _land(person, "products", "sku,name,price,stock", [first, second, third])
    log = _init(person, "products")
    assert log["source"]["extract"] == "full"
    assert log["key"] == ["sku"]
    rows = {row["sku"]: row for row in _read(person, "products")}
    assert set(rows) == {f"P{n:03}" for n in range(1, 41)}
    assert str(rows["P005"]["price"]) == "6.00"


def test_a_key_that_comes_once_in_each_file_is_found_over_all_of_them(person: Person) -> None:
    """Updates: some bookings come again with a newer time. No other column is taken for the key, and none is asked."""
    days = [[f"B{n},{state},2026-11-0{d}T08:00:{n:02}" for n in range(d, d + 20)] for d, state in enumerate("nps", 1)]
    days = [days[0], days[1][10:], days[2][10:]]
    _land(person, "bookings", "booking,state,updated_at", days)
    log = _init(person, "bookings")
    assert (log["key"], log["order"]) == (["booking"], ["updated_at"])
    assert "extract" not in log["source"]
    rows = {row["booking"]: row["state"] for row in _read(person, "bookings")}
    assert (rows["B1"], rows["B22"], len(rows)) == ("n", "s", 22)


def test_files_without_a_date_of_their_own_are_no_full_extracts(person: Person) -> None:
    rows = [f"P{n:03},Thing {n}" for n in range(9)]
    _land(person, "things", "thing,name", [rows, rows], ["a", "b"])
    (person.folder / "tidefold.yaml").unlink()
    assert person.call("init", "landing/things").exit_code == 0
    assert "extract" not in (person.folder / "tidefold.yaml").read_text()


def test_what_init_left_open_is_refused_by_its_own_words(person: Person) -> None:
    person.set("{key: [k], order: [o]}")
    person.edit("- k", "- ?")
    person.edit("- o", "- ?")
    done = person.call("validate")
    assert done.exit_code == 2
    assert "2 mistakes" in done.stderr
    assert "CONFIG_WRONG_TYPE" not in done.stderr
    for place in ("logs.orders.key", "logs.orders.order"):
        assert f"`{place}` is still `?`" in done.stderr
    assert "QUESTION" in done.stderr
