"""A changed byte in the quarantine becomes no row: the name of each file proves its content. Promise I10."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.commands import call

CONFIG = """\
version: 1
store: store
spark: {above: 1GB}
logs:
  sales:
    source: {format: json, record: value, path: landing}
    key: [id]
    order: [day]
    columns: {id: long, day: {type: date, encoding: iso}, amount: NUMBER}
    quality: {max_refused: 1}
"""
GOOD, BAD = '{"id": 1, "day": "2026-01-01", "amount": 5}\n', '{"id": 2, "day": "2026-01-02", "amount": "777"}\n'


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The quarantine file of two refused records, which a corrected configuration can read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    (tmp_path / "tidefold.yaml").write_text(CONFIG.replace("NUMBER", "long"))
    (tmp_path / "landing/a.jsonl").write_text(GOOD + BAD + BAD.replace('"id": 2', '"id": 3'))
    call("run")
    (tmp_path / "tidefold.yaml").write_text(CONFIG.replace("NUMBER", "{type: long, encoding: any}"))
    [path] = (tmp_path / "store/logs/sales/quarantine").rglob("*.jsonl")
    return path


def alter(path: Path) -> bytes:
    """Changes one digit of a value. Returns what was there."""
    before = path.read_bytes()
    path.unlink()
    path.write_bytes(re.sub(rb"777", b"778", before, count=1))
    assert path.read_bytes() != before
    return before


def test_a_changed_digit_is_named_and_becomes_no_row(stored: Path, tmp_path: Path) -> None:
    call("check", "verify", "--deep")
    before = alter(stored)
    assert "QUARANTINE_CORRUPT" in call("quarantine", "retry", "sales", code=5).output
    assert "QUARANTINE_CORRUPT" in call("quarantine", "show", "sales", code=5).output
    assert stored.name in call("check", "verify", "--deep", code=5).output
    assert "refused records" in call("check", "verify", "--share", "5%", code=5).output
    # The log itself goes on.
    (tmp_path / "landing/b.jsonl").write_text('{"id": 9, "day": "2026-01-03", "amount": 9}\n')
    call("run")
    stored.unlink()
    stored.write_bytes(before)
    assert "2 became changes" in call("quarantine", "retry", "sales").output
    call("run")
    shown = call("read", "sales").stdout
    assert shown.count("777") == 2
    assert "778" not in shown


def test_what_is_left_after_a_retry_is_proved_too(stored: Path, tmp_path: Path) -> None:
    call("quarantine", "settle", "sales", "--file", "a.jsonl", "--reason", "wrong", "--by", "ann")
    (tmp_path / "landing/c.jsonl").write_text(BAD.replace('"777"', '"777 pieces"') + BAD.replace('"777"', "7770.5"))
    call("run", code=2)
    text = CONFIG.replace("NUMBER", "{type: long, encoding: number}")
    (tmp_path / "tidefold.yaml").write_text(text)
    call("quarantine", "retry", "sales", code=0)
    [path] = (tmp_path / "store/logs/sales/quarantine").rglob("*.jsonl")
    alter(path)
    call("quarantine", "settle", "sales", "--file", "c.jsonl", "--reason", "part", "--by", "ann", code=5)
    # Whoever settles everything needs nothing of the file.
    call("quarantine", "settle", "sales", "--reason", "all", "--by", "ann")
    call("check", "verify", "--deep")
