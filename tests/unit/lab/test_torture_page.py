"""docs/contributors/benchmarks/torture.md is written from the stored record of the torture rig."""

from __future__ import annotations

from torture import page


def test_the_page_is_what_the_record_says() -> None:
    assert page.PAGE.read_text() == page.render(page.read_record())


def test_a_seed_that_found_something_is_named() -> None:
    seed = {"database": "mariadb", "found": "", "phases": 4, "comparisons": 20, "rows": 1_000, "records": 1_000}
    seed |= {"kills": 1, "cpu": 20, "workload": {"alter: add": 2}, "commands": {"run": 3}, "code": "abc"}
    said = page.render({"1": seed, "3": {**seed, "found": "unequal"}})
    assert "Unequal, blocked or silent: 1 of 2 seeds: 3." in said
    assert "| MariaDB | 2 | 8 | 40 | 2,000 | 2,000 | 2 | 20 |" in said
    assert "| 3 | mariadb | envelope (older code) | abc | found |" in said
    assert "2 of the seeds ran with older code" in said


def test_seeds_of_today_say_what_they_tried() -> None:
    seed = {"database": "postgresql", "found": "", "phases": 4, "comparisons": 20, "rows": 1_000, "records": 1_000}
    seed |= {"kills": 1, "cpu": 20, "workload": {"form: set": 1, "draw: scale": 1}, "commands": {}, "code": "abc"}
    said = page.render({"2": {**seed, "stored": page.STORED_FORMAT}, "4": seed})
    assert "| scale | 1 | 0 |" in said
    assert "| 2 | postgresql | set | abc | equal |" in said
    assert "| 4 | postgresql | set (older code) | abc | equal |" in said
