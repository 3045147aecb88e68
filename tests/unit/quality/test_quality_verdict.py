"""Verdicts: the one-line summary, what is stored once and read again, and the page for people."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from support.dict_store import DictStore
from support.html_tags import Tags
from tidefold.domain.wording import clip_text, in_units
from tidefold.errors import CorruptError
from tidefold.quality.report.result import CheckResult, HistoryPoint, ValidationResult, summarize
from tidefold.quality.report.verdict_store import (
    audit_paths,
    find_stored_judgement,
    render,
    report_path,
    store_judgement,
    store_report,
    verdict_of,
    verdict_path,
)
from tidefold.quality.run.cost import CostPart
from tidefold.quality.run.statistics import ColumnStatistics

ATTACK = '<script>alert("x")</script><img src=x onerror=y>\'"}}{{7*7}}'


def check(name: str, passed: bool = True, **facts: object) -> CheckResult:
    plain = CheckResult(name, "expect_something", "{}", "fail", True, passed)
    return replace(plain, **facts)  # type: ignore[arg-type]


JUDGEMENT = ValidationResult(
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
    seconds=1.25,
    instant="2026-01-01T00:00:00+00:00",
)


def stored(store: DictStore, judgement: ValidationResult = JUDGEMENT) -> ValidationResult | None:
    return find_stored_judgement(store, judgement.log, judgement.snapshot, judgement.manifest, judgement.suite)


@pytest.fixture
def store() -> DictStore:
    return DictStore()


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
    assert len(clip_text("x" * 10_000)) < 250
    assert clip_text("short") == "short"


def test_what_does_not_print_is_shown_as_its_escape() -> None:
    assert clip_text("a\x1b[2J\u202eb\n\x00\ud800ü") == "a\\x1b[2J\\u202eb\\n\\x00\\ud800ü"


def test_a_stored_judgement_comes_back_as_it_was(store: DictStore) -> None:
    assert stored(store) is None
    store_judgement(store, JUDGEMENT)
    assert stored(store) == JUDGEMENT


def test_the_judgement_that_was_stored_first_stands(store: DictStore) -> None:
    store_judgement(store, JUDGEMENT)
    later = replace(JUDGEMENT, seconds=9.0)
    assert store_judgement(store, later) == JUDGEMENT


def test_other_files_of_the_same_number_have_a_judgement_of_their_own(store: DictStore) -> None:
    store_judgement(store, JUDGEMENT)
    other = replace(JUDGEMENT, manifest="c" * 64)
    assert stored(store, other) is None
    assert store_judgement(store, replace(other, seconds=9.0)).seconds == stored(store, other).seconds == 9.0
    assert stored(store) == JUDGEMENT


def test_a_judgement_that_was_moved_to_other_files_is_refused(store: DictStore) -> None:
    store_judgement(store, JUDGEMENT)
    moved = store.read(verdict_path("accounts", 7, JUDGEMENT.manifest, JUDGEMENT.suite))
    store.put_if_absent(verdict_path("accounts", 7, "c" * 64, JUDGEMENT.suite), moved)
    for act in (stored, store_judgement):
        with pytest.raises(CorruptError) as refused:
            act(store, replace(JUDGEMENT, manifest="c" * 64))
        assert refused.value.code == "VERDICT_UNUSABLE"


def test_an_audit_lies_beside_the_verdict_and_the_first_one_stands(store: DictStore) -> None:
    store_judgement(store, JUDGEMENT)
    path, page = audit_paths("accounts", 7, JUDGEMENT.suite, "20260101")
    audited = replace(JUDGEMENT, audit=True, passed=True)
    assert store_judgement(store, audited, path) == audited
    assert store_judgement(store, replace(audited, seconds=9.0), path) == audited
    assert store_report(store, audited, page) == page
    assert "Quality audit" in Tags(store.read(page).decode()).text
    assert stored(store) == JUDGEMENT


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 2, "judgement": {}}'])
def test_an_unreadable_judgement_is_an_error_never_absent(store: DictStore, content: bytes) -> None:
    store.put_if_absent(verdict_path("accounts", 7, JUDGEMENT.manifest, JUDGEMENT.suite), content)
    with pytest.raises(CorruptError):
        stored(store)


def test_two_suites_have_two_verdicts(store: DictStore) -> None:
    other = replace(JUDGEMENT, suite="c" * 64, passed=True)
    store_judgement(store, JUDGEMENT)
    store_judgement(store, other)
    assert (stored(store), stored(store, other)) == (JUDGEMENT, other)


def test_the_report_is_written_once_and_the_verdict_names_it(store: DictStore) -> None:
    path = store_report(store, JUDGEMENT)
    page = store.read(path)
    assert store_report(store, replace(JUDGEMENT, seconds=9.0)) == path == verdict_of(JUDGEMENT).path
    assert store.read(path) == page


def test_the_verdict_carries_what_the_ledger_needs() -> None:
    verdict = verdict_of(JUDGEMENT)
    assert (verdict.passed, verdict.suite, verdict.manifest) == (False, "b" * 64, "a" * 64)
    assert verdict.path == report_path("accounts", 7, JUDGEMENT.manifest, JUDGEMENT.suite)


def test_hostile_text_stays_text_wherever_it_appears() -> None:
    def page_of(text: str) -> Tags:
        shown = check(
            text, False, type=text, arguments=json.dumps({text: [text]}), observed=text, sample=(text,),
            keys=(text,), unexpected=1, detail=text, compared=text,
        )  # fmt: skip
        column = ColumnStatistics(text, text, 1, 0, total="7", least=text, most=text, categories=((text, 1),))
        judged = replace(JUDGEMENT, log=text, run=text, summary=text, instant=text, as_of=text, checks=(shown,))
        history = (HistoryPoint(1, 5, 1, 0, 1.0, ((text, "6"),), text),)
        return Tags(render(replace(judged, statistics=(column,), history=history, cost=(CostPart(text, 1, 1.0, 1),))))

    assert [tag for tag, _ in page_of(ATTACK).tags] == [tag for tag, _ in page_of("a").tags]
    assert page_of(ATTACK).text.count(ATTACK) >= 14


def test_arguments_are_words_and_back_ticks_are_code() -> None:
    shown = check(
        "`ttl` of qty", False, arguments='{"column":"qty","max_value":1000,"value_set":["a",2]}', detail="see `bid`"
    )
    html = render(replace(JUDGEMENT, checks=(shown,), summary="1 of 1 checks failed: `ttl` of qty"))
    assert "column: qty, max value: 1000, value set: a, 2" in html
    assert "see <code>bid</code>" in html
    assert "`" not in html


def test_the_page_loads_and_runs_nothing() -> None:
    html = render(JUDGEMENT)
    page = Tags(html)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", html, re.IGNORECASE)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "a", "form", "base"}
    assert not [name for _, attributes in page.tags for name in attributes if name in ("src", "href", "style")]
    policies = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies
    assert (policies[0] or "").startswith("default-src 'none'")


def test_the_page_shows_verdict_checks_and_numbers() -> None:
    text = Tags(render(JUDGEMENT)).text
    for part in (
        "accounts",
        "snapshot 7",
        "Fail",
        JUDGEMENT.summary,
        "1,000",
        "+10 (+1.0%)",
        "1.0 MB",
        "the first 2 of 3",
    ):
        assert part in text, part
    # The failed check is what the reader came for.
    assert text.index("aid unique", text.index("Observed")) < text.index("aid not null", text.index("Observed"))


@pytest.mark.parametrize("base_rows", [None, 0, 5])
def test_the_page_stands_empty_tables_and_first_snapshots(base_rows: int | None) -> None:
    base = None if base_rows is None else 1
    judgement = replace(JUDGEMENT, base=base, base_rows=base_rows, rows=0, checks=())
    assert "</html>" in render(judgement)


def test_every_judged_snapshot_is_a_row_of_the_trend_and_the_newest_is_first() -> None:
    history = tuple(HistoryPoint(i, 100 * i, i % 2, 1, 0.5, (("b", str(-i)),), "ABORTED") for i in range(1, 21))
    column = ColumnStatistics("b", "long", 5, 0, total="-1099")
    html = render(replace(JUDGEMENT, snapshot=21, rows=1000, history=history, statistics=(column,)))
    trend = html[html.index("Over the snapshots") : html.index("Columns that are compared")]
    assert trend.count("<meter") == 21
    assert trend.count('<meter max="2000"') == 21
    assert trend.index("this one") < trend.index("2,000") < trend.index("1,900")
    assert "-1,099" in trend
    assert trend.count('class="soft"') == 20


def test_a_sum_that_an_older_judgement_lacks_is_a_dash() -> None:
    column = ColumnStatistics("b", "double", 5, 0, total="NaN")
    html = render(replace(JUDGEMENT, history=(HistoryPoint(1, 0, 0, 0, 0.5),), rows=0, statistics=(column,)))
    trend = html[html.index("Over the snapshots") : html.index("Columns that are compared")]
    assert "NaN" in trend
    assert "–" in trend


def test_a_page_shows_the_keys_of_bad_rows_and_what_each_part_cost() -> None:
    shown = check("c", False, unexpected=30, sample=("5", "6"), keys=("aid=1", "aid=2"), compared="snapshot 6")
    cost = (CostPart("expectations", 7, 1.25, 4),)
    text = Tags(render(replace(JUDGEMENT, checks=(shown,), cost=cost))).text
    for part in ("aid=1", "aid=2", "the first 2 of 30", "compared with snapshot 6", "4 Spark jobs", "1.25"):
        assert part in text, part


def test_a_page_stays_small_whatever_was_found() -> None:
    shown = check(
        "c" * 80,
        False,
        arguments=json.dumps({"a": "x" * 10_000}),
        detail="d" * 200,
        sample=("s" * 200,) * 10,
        unexpected=99,
    )
    html = render(replace(JUDGEMENT, checks=(shown,) * 1000))
    assert "700 more" in html
    assert len(html) < 2_000_000


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.5 kB"), (1 << 50, "1125.9 TB")])
def test_sizes_are_readable(count: int, text: str) -> None:
    assert in_units(count) == text
