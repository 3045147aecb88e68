"""docs/explanation/comparison.md has every row, a score of a known kind, and a place where a `yes` is shown."""

from __future__ import annotations

import re

from local_airflow.settings import PROJECT

ROWS = re.findall(r"^\| (\d+) \|(.*)\|$", (PROJECT / "docs/explanation/comparison.md").read_text(), re.MULTILINE)


def test_there_are_sixteen_rows_in_order() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 17))


def test_each_row_has_scores_and_a_link() -> None:
    for number, cells in ROWS:
        _, own, shown, *others = (cell.strip() for cell in cells.split(" | "))
        assert own.startswith(("yes", "partly", "no")), number
        assert re.search(r"\]\([a-z-]+\.md", shown), number
        assert len(others) == 4
        assert {*others} <= {"yes", "partly", "no", "-", "?"}, number
        # A score that is not full says what is missing.
        assert not own.startswith("partly") or ":" in own, number
