"""The script that spreads commit times over days keeps their order and all else of a record."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shift_times import commit_time_of, lines_of, main, spread
from support.landing import record, text_of, tombstone
from tidefold.domain.commit_times import format_instant

BANK = Path(__file__).parents[2] / "data" / "bank" / "landing" / "phase2"


def test_instants_lie_at_equal_distances_in_their_order() -> None:
    now = spread([30, 10, 20, 20, 40], datetime(2026, 11, 1, tzinfo=UTC), 4)
    assert [format_instant(now[at])[:10] for at in (10, 20, 30, 40)] == [f"2026-11-0{n}" for n in (1, 2, 3, 4)]


def test_only_times_change(tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "f+0+0.jsonl").write_bytes(text_of([record(0), record(1, ts_ms=5), tombstone(2)]))
    assert main([str(tmp_path / "in"), str(tmp_path / "out"), "--start", "2026-11-01", "--days", "2"]) == 0
    before = [json.loads(line) for line in lines_of(tmp_path / "in" / "a" / "f+0+0.jsonl")]
    after = [json.loads(line) for line in lines_of(tmp_path / "out" / "a" / "f+0+0.jsonl")]
    assert [format_instant(commit_time_of(one) or 0)[:10] for one in after[:2]] == ["2026-11-01", "2026-11-02"]
    for one in (*before[:2], *after[:2]):
        for name in ("ts_ms", "ts_us"):
            one["value"].pop(name, None)
            one["value"]["source"].pop(name, None)
    assert before == after


def test_the_sample_can_be_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(BANK), str(tmp_path), "--start", "2026-11-01", "--days", "5"])
    assert "over 5 days" in capsys.readouterr().out
    names = {p.relative_to(BANK) for p in BANK.rglob("*.gz")}
    assert {p.relative_to(tmp_path) for p in tmp_path.rglob("*.gz")} == names
    times = [
        at for n in names for line in lines_of(tmp_path / n) if (at := commit_time_of(json.loads(line))) is not None
    ]
    days = {format_instant(at)[:10] for at in times}
    assert days == {f"2026-11-0{n}" for n in range(1, 6)}
    assert gzip.decompress((tmp_path / min(names)).read_bytes())
