"""The cases of a rotating test: each plays at one of so many commits in a row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from conftest import list_other_parts
from support import effort


@dataclass(frozen=True)
class Case:
    """A collected test, as far as the rotation looks at it."""

    nodeid: str
    parts: int = 0
    whole: bool = False

    def get_closest_marker(self, name: str) -> Any:
        return getattr(pytest.mark, name)(self.parts, whole=self.whole).mark if self.parts else None


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_each_case_plays_once_in_so_many_commits(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case(f"a.py::test_{name}[{number}]", parts) for name in "xy" for number in range(7)]
    always = Case("a.py::test_always")
    played: Counter[Case] = Counter()
    for seed in range(parts):
        monkeypatch.setattr(effort, "SEED", seed)
        others = set(list_other_parts([*cases, always]))
        played.update({*cases, always} - others)
    assert played == Counter({**dict.fromkeys(cases, 1), always: parts})


def test_the_cases_of_a_whole_module_play_together(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {Case(f"a.py::test_{name}", 3, whole=True) for name in "xyz"}
    others = []
    for seed in range(3):
        monkeypatch.setattr(effort, "SEED", seed)
        others.append(len(set(list_other_parts(cases))))
    assert sorted(others) == [0, 3, 3]
