"""The size of the code is reviewed like a cost: a package that grows changes tests/data/size.json."""

from __future__ import annotations

import json
from pathlib import Path

from code_size import ACCEPTED, ACCEPTED_NAMES, count_code, count_participles, measure, measure_names


def test_no_package_grew_without_a_change_of_the_file() -> None:
    accepted = json.loads(ACCEPTED.read_text())
    grown = {name: (accepted.get(name, 0), lines) for name, lines in measure().items() if lines > accepted.get(name, 0)}
    assert not grown, "Name what it replaces, then: .venv/bin/python scripts/code_size.py accept"


def test_no_package_has_more_values_without_a_telling_name() -> None:
    accepted = json.loads(ACCEPTED_NAMES.read_text())
    grown = {name: n for name, n in measure_names().items() if n > accepted.get(name, 0)}
    assert not grown, "Name what the value holds: `failure`, `missing`, `stat`."


def test_each_binding_of_such_a_name_counts(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "def find(known, *, is_known):\n    if (found := known):\n        there, what = found\n    said: int = 1\n"
    )
    assert count_participles(file) == 4


def test_only_code_counts(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""A\nB"""\n\n# no\nimport os  # yes\n\n\ndef act():\n    """No."""\n    return [\n        1,\n    ]\n'
    )
    assert count_code(file) == 5
