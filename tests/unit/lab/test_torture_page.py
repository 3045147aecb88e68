"""docs/contributors/benchmarks/torture.md is written from the stored record of the torture rig."""

from __future__ import annotations

from torture import page


def test_the_page_is_what_the_record_says() -> None:
    assert page.PAGE.read_text() == page.render(page.read_record())


def test_a_seed_that_found_something_is_named() -> None:
    seed = {"database": "mariadb", "found": "", "phases": 4, "comparisons": 20, "rows": 1_000, "records": 1_000}
    seed |= {"kills": 1, "cpu": 20, "workload": {"alter: add": 2}, "commands": {"run": 3}, "code": "abc"}
    stays = "blocked: {'t0': ' 3 KEY_TAKEN_OVER'}: {'t0': '{\"reason\": \"OTHER_CODE\"}"
    said = page.render({"1": seed, "3": {**seed, "found": "unequal: t0"}, "5": {**seed, "found": stays}})
    assert "Unequal, blocked or silent: 2 of 3 seeds: 3, 5." in said
    assert "| MariaDB | 3 | 12 | 60 | 3,000 | 3,000 | 3 | 20 |" in said
    assert "| 3 | mariadb | envelope (older code) | abc | **unequal** |" in said
    assert "| 5 | mariadb | envelope (older code) | abc | stopped with `KEY_TAKEN_OVER`, told |" in said
    assert "3 of the seeds ran with older code" in said


def test_seeds_of_today_say_what_they_tried() -> None:
    seed = {"database": "postgresql", "found": "", "phases": 4, "comparisons": 20, "rows": 1_000, "records": 1_000}
    seed |= {"kills": 1, "cpu": 20, "workload": {"form: set": 1, "draw: scale": 1}, "commands": {}, "code": "abc"}
    said = page.render({"2": {**seed, "stored": page.STORED_FORMAT}, "4": seed})
    assert "| scale | 1 | 0 |" in said
    assert "| 2 | postgresql | set | abc | equal |" in said
    assert "| 4 | postgresql | set (older code) | abc | equal |" in said
