"""Tables and values for people: one line a value, in the words of the JSON, readable in a narrow terminal, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tidefold.cli.terminal import Format, Terminal
from tidefold.domain.wording import format_cell, list_values
from tidefold.presentation.tables import plain_table

COLUMNS = ("log", "rows>", "made")
ACCOUNTS = ("accounts", "12,000", "2026-11-29 09:44")
Draw = Callable[[int, Sequence[Sequence[str]]], list[str]]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Draw:
    def lines(width: int, rows: Sequence[Sequence[str]]) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        Terminal(Path("x"), Format.TEXT, debug=False).result({}, plain_table(COLUMNS, rows))
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return lines


def test_a_value_is_one_line_in_the_words_of_json() -> None:
    """Fault: rows had Python's True and False, and a value with a newline made two lines of a row."""
    assert format_cell([True, None, "a"]) == "[true, null, a]"
    assert format_cell(b"\x00\x01") == "AAE="
    assert list_values({"id": 1, "ok": False, "text": "a\nb\tc\x1b[2J"}) == r"id=1, ok=false, text=a\nb\tc\x1b[2J"


@pytest.mark.parametrize("width", [100_000, 80, 20])
def test_no_cell_makes_lines_or_commands_of_a_terminal(draw: Draw, width: int) -> None:
    lines = draw(width, [("a\nb\x1b[2J", "1", "-")])
    assert any("a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2J" in line for line in lines)
    assert len(lines) == 3
    assert "\x1b" not in "".join(lines)


def test_a_terminal_in_which_words_would_be_torn_shows_the_rows_field_by_field(draw: Draw) -> None:
    """Fault: with COLUMNS=60, `status` had columns of two characters, and headers of one."""
    assert draw(22, [ACCOUNTS])[0].split() == ["log", "rows", "made"]
    both = ["log   accounts", "rows  12,000", "made  2026-11-29 09:44"]
    assert draw(21, [ACCOUNTS, ACCOUNTS]) == [*both, "", *both]
    assert draw(10, []) == ["log, rows, made"]
