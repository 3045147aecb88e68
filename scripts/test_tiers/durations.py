"""CPU seconds of tests: read what a run recorded, compare it with the committed file, accept it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ACCEPTED = Path("tests/data/durations.json")
# A file is named when it takes more than this factor and so many CPU seconds more.
GROWTH, LEAST = 1.5, 2.0


@dataclass(frozen=True)
class RecordedTest:
    """What the recorder wrote about one test.

    cpu: CPU seconds, its fixtures and child processes included.
    is_random: the commit decides which part is played, so the seconds are not compared.
    """

    test: str
    cpu: float
    outcome: str
    is_random: bool

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


def read_records(folder: Path) -> list[RecordedTest]:
    lines = (line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines())
    return [RecordedTest(**json.loads(line)) for line in lines]


def sum_files(records: Iterable[RecordedTest]) -> dict[str, float]:
    """Returns CPU seconds by file, without random tests."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for record in records:
        if not record.is_random:
            seconds[record.file] += record.cpu
    return {file: round(total, 1) for file, total in sorted(seconds.items())}


def list_grown(accepted: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Returns a line for each file that takes clearly longer than accepted, the largest growth first."""
    grown = {
        file: (accepted.get(file, 0.0), seconds)
        for file, seconds in now.items()
        if seconds > GROWTH * accepted.get(file, 0.0) and seconds > accepted.get(file, 0.0) + LEAST
    }
    ordered = sorted(grown.items(), key=lambda entry: entry[1][0] - entry[1][1])
    return [f"{seconds:7.1f} s, accepted {before:.1f} s: {file}" for file, (before, seconds) in ordered]


def list_slowest(records: Iterable[RecordedTest], count: int = 10) -> list[str]:
    """Returns a line for each of the slowest tests."""
    ordered = sorted(records, key=lambda record: -record.cpu)
    return [f"{record.cpu:7.1f} s: {record.test}" for record in ordered[:count]]


def count_outcomes(records: Iterable[RecordedTest]) -> str:
    """Returns the closing line of a run."""
    counts = Counter(record.outcome for record in records)
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def read_accepted(tier: str) -> dict[str, float]:
    if not ACCEPTED.exists():
        return {}
    return dict(json.loads(ACCEPTED.read_text()).get(tier, {}))


def accept(tier: str, now: Mapping[str, float]) -> None:
    """Writes the seconds of a tier into the committed file; other tiers stay."""
    stored = json.loads(ACCEPTED.read_text()) if ACCEPTED.exists() else {}
    stored[tier] = dict(now)
    ACCEPTED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
