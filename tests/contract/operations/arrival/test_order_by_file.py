"""`order: file`: the time in the name of a file, else its arrival (decision 0060)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.arrival import Landing, Row
from tidefold.sources.landing.name_times import find_time, is_unclear

COLUMNS = "columns: {id: long, v: string}"
HOUR = 3_600_000_000


def rows(*values: str) -> list[Row]:
    return [{"id": key, "v": value} for key, value in enumerate(values, 1)]


def land(at: Landing, form: str, name: str, given: list[Row]) -> None:
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(given), at.folder / "landing/o" / f"{name}.parquet")
    else:
        at.land(f"{name}.{'csv' if form == 'csv' else 'jsonl'}", given)


def values(at: Landing, log: str = "o") -> list[str]:
    return [row["v"] for row in at.rows(log)]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_the_time_in_the_name_orders_files_whenever_they_land(tmp_path: Path, form: str) -> None:
    source = "format: json, record: value" if form == "json" else f"format: {form}"
    at = Landing.make(tmp_path / "at", {"o": f"key: [id]\n{COLUMNS}\norder: file"}, source)
    land(at, form, "a-2026-11-03", rows("third"))
    at.run()
    land(at, form, "b-2026-11-02", rows("second", "second"))
    land(at, form, "c_20261101", rows("first", "first", "first"))
    at.run()
    assert values(at) == ["third", "second", "first"]
    assert [one["ties"] for one in at.snapshots("o")] == [0, 0]
    # The same day: the later name is the later arrival, and a tie.
    land(at, form, "d-2026-11-03", rows("again"))
    assert "ties: 1 key" in at.run().output
    assert values(at) == ["again", "second", "first"]
    # A file of the other kind is refused by name, and a run that ignores every new file is no success.
    land(at, form, "undated", rows("never"))
    assert "LANDED_TIME" in at.run(code=2).output
    assert values(at) == ["again", "second", "first"]


def test_without_times_the_arrival_orders_files(tmp_path: Path) -> None:
    at = Landing.make(tmp_path / "at", {"o": f"key: [id]\n{COLUMNS}\norder: file"}, "format: csv")
    at.land("z.csv", rows("one", "one"))
    at.run()
    at.land("a.csv", rows("two"))
    at.run()
    assert (values(at), [one["ties"] for one in at.snapshots("o")]) == (["two", "one"], [0, 0])
    # Only their names put these in order.
    at.land("b.csv", rows("b"))
    at.land("c.csv", rows("c"))
    at.run()
    assert (values(at), at.snapshots("o")[0]["ties"]) == (["c", "one"], 1)
    at.land("d-2026-11-01.csv", rows("never"))
    assert "LANDED_TIME" in at.run(code=2).output


def test_a_column_and_then_the_file(tmp_path: Path) -> None:
    logs = {"o": "key: [id]\ncolumns: {id: long, v: string, day: date}\norder: [day, file]"}
    at = Landing.make(tmp_path / "at", logs, "format: csv")
    at.land("2026-11-02T12.csv", [{"id": 1, "v": "late", "day": "2026-11-01"}])
    at.run()
    at.land("2026-11-02T06-00.csv", [{"id": 1, "v": "early", "day": "2026-11-01"}])
    at.run()
    assert values(at) == ["late"]
    at.land("2026-11-02T13-00.csv", [{"id": 1, "v": "later", "day": "2026-11-01"}])
    at.land("2026-11-03.csv", [{"id": 1, "v": "older day", "day": "2026-10-31"}])
    at.run()
    assert values(at) == ["later"]


def test_a_history_has_no_version_that_equals_the_one_before(tmp_path: Path) -> None:
    at = Landing.make(
        tmp_path / "at",
        {"o": f"key: [id]\n{COLUMNS}\norder: file\nmerge: history\nquality: {{max_row_drop: 1}}"},
        "format: csv, time_zone: Europe/Berlin",
    )
    for day in (1, 2, 4):
        at.land(f"2026-11-0{day}.csv", rows("same"))
        at.run()
    assert values(at) == ["same"]
    at.land("2026-11-03.csv", rows("other"))
    at.run()
    found = json.loads(at.call("read", "o", "--format", "json").stdout)["rows"]
    spans = sorted((row["_valid_from"][:19], row["v"]) for row in found)
    # Midnight in Berlin. The third file, which came before, is a version again.
    assert spans == [
        ("2026-10-31 23:00:00", "same"), ("2026-11-02 23:00:00", "other"), ("2026-11-03 23:00:00", "same"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("orders-1970-01-02.csv", 24),
        ("orders_19700102.csv.gz", 24),
        ("19700102T0600.csv", 30),
        ("1970-01-02T06-00-00Z.csv", 30),
        ("19700102_060000.csv", 30),
        ("19700102060000.csv", 30),
        ("dt=1970-01-02/part-0.csv", 24),
        ("1970-01-01/1970-01-02.csv", 24),
        ("from-1970-01-02-to-1970-01-03.csv", None),
        ("orders-7.csv", None),
        ("1793520000.csv", None),
        ("1970-13-02.csv", None),
        ("liste_02.01.1970.csv", 24),
        ("02.01.1970 06-00-00.csv", 30),
        ("02.01.1970/part-0.csv", 24),
        ("01.01.1970_bis_02.01.1970.csv", None),
        ("1.02.01.1970.csv", None),
        ("02.13.1970.csv", None),
        ("02-01-1970.csv", None),
        ("02.01.70.csv", None),
    ],
)
def test_times_in_names(name: str, hours: int | None) -> None:
    assert find_time(name) == (None if hours is None else hours * HOUR)


# The name of an older file, and that of a newer one: what each feed calls its files.
PAIRS = [
    ("20261101-1100010000", "20261101-1200010000"),  # AWS DMS
    ("20261101-110000999", "20261101-120000456"),  # Qlik
    ("2026_11_01_1793530800000_0", "2026_11_01_1793534400000_0"),  # Airbyte
    ("o-2026-11-01_1793530800", "o-2026-11-01_1793534400"),  # no clock shows 17:93:53
    ("o-2027-01-15_1800023400", "o-2027-01-15_180002-1"),  # 14:30, and not 18:00:02
    ("o_2026-11-01_11.00.00", "o_2026-11-01_12.00.00"),
    ("o_20261101T110000456Z", "o_20261101T110000999Z"),
    ("20261101110000456", "20261101110000999"),
    ("o-2026-11-01-9", "o-2026-11-01-10"),
    ("o-2026-11-01-9h", "o-2026-11-01-10h"),
    ("o-2026-11-01-11AM", "o-2026-11-01-1PM"),
    ("o-2026-11-01-001", "o-2026-11-01-002"),
    ("o-2026-11-01-part-0001", "o-2026-11-01-part-0002"),
    ("o-2026-11-01_p2", "o-2026-11-01_p10"),
    ("o-2026-11-01-1-9", "o-2026-11-01-1-10"),
    ("o-2026-11-01T11-00-00+0200", "o-2026-11-01T10-00-00+0000"),
    ("20261101_080000_00002_x7k2p_0f1e2d3c-aaaa-bbbb-cccc-0123456789ab",
     "20261101_080000_00012_a7k2p_0a1e2d3c-aaaa-bbbb-cccc-0123456789ab"),  # Trino
    ("dt=2026-11-01/part-00012-tid-1234567890123456789-0f1e2d3c-aaaa-bbbb-cccc-0123456789ab-12-1-c000",
     "dt=2026-11-01/part-00013-tid-1034567890123456789-0a1e2d3c-aaaa-bbbb-cccc-0123456789ab-2-1-c000"),  # Databricks
    ("year=2026/month=11/day=01/hour=09/t+3+0000009999", "year=2026/month=11/day=01/hour=09/t+3+0000010000"),  # Kafka
    ("dt=2026-11-01/hour=9/z", "dt=2026-11-01/hour=10/a"),
    ("year=2026/month=9/day=30/hour=9/z", "year=2026/month=10/day=1/hour=8/a"),
    ("2026/11/01/09/z", "2026/11/01/10/a"),
]  # fmt: skip


@pytest.mark.parametrize(("older", "newer"), PAIRS)
def test_names_order_by_all_that_they_say(older: str, newer: str) -> None:
    first, second = find_time(f"{older}.csv"), find_time(f"{newer}.csv")
    assert first is not None
    assert second is not None
    assert first < second


@pytest.mark.parametrize(
    ("older", "newer"), [PAIRS[0], PAIRS[9], ("dt=2026-11-01/hour=9/z", "dt=2026-11-01/hour=10/a")]
)
def test_a_late_file_finds_its_place_by_all_that_its_name_says(older: str, newer: str, tmp_path: Path) -> None:
    at = Landing.make(tmp_path / "at", {"o": f"key: [id]\n{COLUMNS}\norder: file"}, "format: csv")
    for name, value in ((newer, "newer"), (older, "older")):
        at.land(f"{name}.csv", rows(value))
        at.run()
    assert (values(at), at.snapshots("o")[0]["ties"]) == (["newer"], 0)


@pytest.mark.parametrize(("older", "newer"), [PAIRS[6], ("o_9", "o_10"), ("hour=9/z", "hour=10/a")])
def test_files_of_one_run_count_by_the_numbers_of_their_names(older: str, newer: str, tmp_path: Path) -> None:
    for order in ("file", "[n]"):
        columns = "columns: {id: long, v: string, n: {type: long, default: 1}}"
        at = Landing.make(tmp_path / order, {"o": f"key: [id]\n{columns}\norder: {order}"}, "format: csv")
        at.land(f"{newer}.csv", rows("newer"))
        at.land(f"{older}.csv", rows("older"))
        at.run()
        assert values(at) == ["newer"], order


# The last one has 16 digits, but is no time near its date.
NAMES_OF_NO_TIME = [
    *("o-20261101-999999999999", "o-20261101-000061", "o-20261101110000-12345678"),
    "o-20261101-1000000000000000",
]


@pytest.mark.parametrize("name", NAMES_OF_NO_TIME)
def test_digits_after_a_date_that_nothing_reads_are_refused(name: str, tmp_path: Path) -> None:
    at = Landing.make(tmp_path / "at", {"o": f"key: [id]\n{COLUMNS}\norder: file"}, "format: csv")
    at.land(f"{name}.csv", rows("older"))
    assert is_unclear(f"{name}.csv")
    assert "LANDED_TIME" in at.run(code=2).output


def test_the_advice_for_a_name_leads_to_one_that_is_taken(tmp_path: Path) -> None:
    for number, (first, refused) in enumerate((("o-2025-11-01", "LOAD00000001"), ("o", "o-2026-11-01"))):
        at = Landing.make(tmp_path / str(number), {"o": f"key: [id]\n{COLUMNS}\norder: file"}, "format: csv")
        at.land(f"{first}.csv", rows("first"))
        at.run()
        at.land(f"{refused}.csv", rows("second"))
        told = at.run(code=2).output
        [advice, *_] = re.findall(r"under a name[^`]*`([^`]+)\.csv`", told)
        (at.folder / f"landing/o/{refused}.csv").unlink()
        at.land(f"{advice}.csv", rows("second"))
        at.run()
        assert values(at) == ["second"]


def test_a_time_zone_counts_for_names_without_z() -> None:
    assert find_time("2026-07-01T12-00.csv", "Europe/Berlin") == find_time("2026-07-01T10-00Z.csv", "Europe/Berlin")


@pytest.mark.rotates(4)
@pytest.mark.parametrize("mode", ["skip", "replay", "stay"])
@pytest.mark.parametrize("source", ["its own files", "an older snapshot"])
def test_versions_that_only_a_dropped_column_told_apart_can_be_restored(tmp_path: Path, mode: str, source: str) -> None:
    lines = "key: [id]\ncolumns: {id: long, v: long, w: long}\norder: file\nmerge: history\nignored: [x]\n"
    lines += "schema_evolution: {drop: evolve}\nquality: {max_row_drop: 1}"
    at = Landing.make(tmp_path / "at", {"o": lines}, "format: json, record: value, names: any")
    for day, (v, w) in enumerate([(1, 1), (1, 2), (5, 2)], 1):
        at.land(f"x-2026-01-0{day}.jsonl", [{"id": 1, "v": v, "w": w}])
        at.run()
    at.edit(", w: long", "")
    at.edit("ignored: [x]", "ignored: [w]")
    at.land("x-2026-01-04.jsonl", [{"id": 2, "v": 1, "w": 1}])
    at.run()
    assert [row["v"] for row in at.rows("o")] == [1, 5, 1]
    if source == "an older snapshot":
        for file in (at.folder / "store/snapshots/o/0000000003/_data").iterdir():
            file.unlink()
        for file in (at.folder / "store/tables/o/_data").iterdir():
            if f"-{3:010d}-" in file.name or "0000000003" in file.name:
                file.unlink()
    at.call("restore", "o", "3", "--log-position", mode)
    at.call("step", "quality", "o")
    at.call("step", "confirm", "o")
    assert at.rows("o") == [{"id": 1, "v": 1}, {"id": 1, "v": 5}]
