"""The size of the code: what counts as a line, and how it changed since a commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from code_size import count_code, main


def test_only_code_counts(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""A\nB"""\n\n# no\nimport os  # yes\n\n\ndef act():\n    """No."""\n    return [\n        1,\n    ]\n'
    )
    assert count_code(file) == 5


def test_the_lines_of_each_package_are_printed_and_their_change_since_a_commit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main([])
    lines = capsys.readouterr().out.splitlines()
    counts = {name: int(count.replace(",", "")) for count, name in (line.strip().split(maxsplit=1) for line in lines)}
    assert counts.pop("total") == sum(counts.values())
    assert {"tidefold.domain", "tidefold_airflow.operators", "templates and data"} <= counts.keys()
    # Of a commit, the packages of one folder: all of them would take seconds again.
    monkeypatch.setattr("code_size._PYTHON", ("plugins",))
    main(["HEAD"])
    assert re.search(r"^ +[\d,]+ +[+-][\d,]+ total$", capsys.readouterr().out, re.MULTILINE)
