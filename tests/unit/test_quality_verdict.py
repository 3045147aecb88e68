"""Verdicts: the one-line summary, what is stored once and read again, and the page for people."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from uuid import uuid4

import pytest

from tidefold.lifecycle.errors import CorruptError
from tidefold.quality.judgement import CheckResult, Judgement, RowCount, clipped, summarize
from tidefold.quality.report import bars, readable_size, render
from tidefold.quality.verdict import (
    report_path,
    store_judgement,
    store_report,
    stored_judgement,
    verdict_of,
    verdict_path,
)
from tidefold.storage.memory import MemoryStore

ATTACK = '<script>alert("x")</script><img src=x onerror=y>\'"}}{{7*7}}'


def check(name: str, passed: bool = True, **facts: object) -> CheckResult:
    plain = CheckResult(name, "expect_something", "{}", "fail", True, passed)
    return replace(plain, **facts)  # type: ignore[arg-type]


JUDGEMENT = Judgement(
    log="accounts",
    snapshot=7,
    run="run-1",
    manifest="a" * 64,
    suite="b" * 64,
    passed=False,
    summary="1 of 2 checks failed: aid unique (3 duplicates)",
    checks=(
        check("aid not null", unexpected=0),
        check("aid unique", False, unexpected=3, sample=("1", "2"), detail="3 duplicates"),
    ),
    rows=1000,
    base=6,
    base_rows=990,
    files=8,
    files_carried=2,
    bytes_full=1 << 20,
    bytes_written=1 << 19,
    trend=(RowCount(5, 980), RowCount(6, 990), RowCount(7, 1000)),
    seconds=1.25,
    instant="2026-01-01T00:00:00+00:00",
)


def stored(store: MemoryStore, judgement: Judgement = JUDGEMENT) -> Judgement | None:
    return stored_judgement(store, judgement.log, judgement.snapshot, judgement.manifest, judgement.suite)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(uuid4().hex)


@pytest.mark.parametrize(
    ("checks", "line"),
    [
        ([check("a")], "1 check passed"),
        ([check("a"), check("b")], "2 checks passed"),
        (
            [
                check("aid unique", False, unexpected=3, detail="3 duplicates"),
                check("row count", False, detail="10 < 100"),
                check("c"),
            ],
            "2 of 3 checks failed: aid unique (3 duplicates); row count 10 < 100",
        ),
        (
            [check("a"), check("b", False, severity="warn", unexpected=1, detail="1 unexpected value")],
            "1 check passed; 1 warning: b (1 unexpected value)",
        ),
        ([check(n, False) for n in "abcde"], "5 of 5 checks failed: a; b; c; 2 more"),
        ([check("max", False, built_in=False, detail="12 > 10")], "1 of 1 check failed: max (12 > 10)"),
    ],
)
def test_the_summary_is_one_line_that_says_why(checks: list[CheckResult], line: str) -> None:
    assert summarize(checks) == line


def test_a_long_value_is_clipped() -> None:
    assert len(clipped("x" * 10_000)) < 250
    assert clipped("short") == "short"


def test_what_does_not_print_is_shown_as_its_escape() -> None:
    assert clipped("a\x1b[2J\u202eb\n\x00\ud800ü") == "a\\x1b[2J\\u202eb\\n\\x00\\ud800ü"


def test_a_stored_judgement_comes_back_as_it_was(store: MemoryStore) -> None:
    assert stored(store) is None
    store_judgement(store, JUDGEMENT)
    assert stored(store) == JUDGEMENT


def test_the_judgement_that_was_stored_first_stands(store: MemoryStore) -> None:
    store_judgement(store, JUDGEMENT)
    later = replace(JUDGEMENT, seconds=9.0)
    assert store_judgement(store, later) == JUDGEMENT


def test_a_judgement_of_other_files_is_refused(store: MemoryStore) -> None:
    store_judgement(store, JUDGEMENT)
    with pytest.raises(CorruptError) as refused:
        stored(store, replace(JUDGEMENT, manifest="c" * 64))
    assert refused.value.code == "VERDICT_UNUSABLE"
    with pytest.raises(CorruptError):
        store_judgement(store, replace(JUDGEMENT, manifest="c" * 64))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 2, "judgement": {}}'])
def test_an_unreadable_judgement_is_an_error_never_absent(store: MemoryStore, content: bytes) -> None:
    store.put_if_absent(verdict_path("accounts", 7, JUDGEMENT.suite), content)
    with pytest.raises(CorruptError):
        stored(store)


def test_two_suites_have_two_verdicts(store: MemoryStore) -> None:
    other = replace(JUDGEMENT, suite="c" * 64, passed=True)
    store_judgement(store, JUDGEMENT)
    store_judgement(store, other)
    assert (stored(store), stored(store, other)) == (JUDGEMENT, other)


def test_the_report_is_written_once_and_the_verdict_names_it(store: MemoryStore) -> None:
    path = store_report(store, JUDGEMENT)
    page = store.read(path)
    assert store_report(store, replace(JUDGEMENT, seconds=9.0)) == path == verdict_of(JUDGEMENT).path
    assert store.read(path) == page


def test_the_verdict_carries_what_the_ledger_needs() -> None:
    verdict = verdict_of(JUDGEMENT)
    assert (verdict.passed, verdict.suite, verdict.manifest) == (False, "b" * 64, "a" * 64)
    assert verdict.path == report_path("accounts", 7, JUDGEMENT.suite)


class Page(HTMLParser):
    """What a browser would make of a page: its elements and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_text_stays_text_wherever_it_appears() -> None:
    hostile = check(
        ATTACK, False, type=ATTACK, arguments=ATTACK, observed=ATTACK, sample=(ATTACK,), unexpected=1, detail=ATTACK
    )
    page = Page(render(replace(JUDGEMENT, log=ATTACK, run=ATTACK, summary=ATTACK, instant=ATTACK, checks=(hostile,))))
    clean = Page(render(replace(JUDGEMENT, checks=(check("a", False, observed="1", sample=("1",), unexpected=1),))))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in clean.tags]
    assert page.text.count(ATTACK) >= 8


def test_the_page_loads_and_runs_nothing() -> None:
    html = render(JUDGEMENT)
    page = Page(html)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", html, re.IGNORECASE)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "a", "form", "base"}
    assert not [name for _, attributes in page.tags for name in attributes if name in ("src", "href", "style")]
    policies = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies
    assert (policies[0] or "").startswith("default-src 'none'")


def test_the_page_shows_verdict_checks_and_numbers() -> None:
    text = Page(render(JUDGEMENT)).text
    for part in (
        "accounts",
        "snapshot 7",
        "Fail",
        JUDGEMENT.summary,
        "1,000",
        "+10 (+1.0%)",
        "1.0 MiB",
        "the first 2 of 3",
    ):
        assert part in text, part
    # The failed check is what the reader came for.
    assert text.index("aid unique", text.index("Observed")) < text.index("aid not null", text.index("Observed"))


@pytest.mark.parametrize(
    ("base_rows", "trend"), [(None, (RowCount(1, 0),)), (0, (RowCount(1, 0), RowCount(2, 0))), (5, ())]
)
def test_the_page_stands_empty_tables_and_first_snapshots(base_rows: int | None, trend: tuple[RowCount, ...]) -> None:
    base = None if base_rows is None else 1
    judgement = replace(JUDGEMENT, base=base, base_rows=base_rows, rows=0, trend=trend, checks=())
    assert "</html>" in render(judgement)


def test_the_tallest_bar_fills_the_chart_and_the_last_is_the_current() -> None:
    drawn = bars([RowCount(i, i * 10) for i in range(1, 31)])
    assert [b.current for b in drawn] == [False] * 29 + [True]
    assert (drawn[-1].y, drawn[-1].height) == (0.0, 140.0)
    assert drawn[-1].x + drawn[-1].width <= 980


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 50, "1024.0 TiB")])
def test_sizes_are_readable(count: int, text: str) -> None:
    assert readable_size(count) == text
