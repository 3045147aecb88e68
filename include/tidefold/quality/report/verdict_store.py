"""Stores each verdict once with its page in HTML, and reads it again instead of judging twice."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal, InvalidOperation

import msgspec

from tidefold.domain.log_state import Snapshot, Verdict
from tidefold.domain.paths import LogPaths
from tidefold.errors import AlreadyExistsError, CorruptError, NotFoundError
from tidefold.quality.report.page import load_page
from tidefold.quality.report.result import CheckResult, ValidationResult, point_of
from tidefold.storage import Store
from tidefold.stored_forms import decode_form, encode_form

_SUMMED = 4
_TEMPLATE = "report.html.j2"
# Limits the page, so that a browser opens it at once. verdict.json has all of them.
_SHOWN = 300


def render(judgement: ValidationResult) -> str:
    """Returns the whole page as HTML. The same judgement gives the same page."""
    checks = sorted(judgement.checks, key=lambda c: 0 if c.failed else 1 if c.warned else 2)
    points = [*judgement.history, point_of(judgement, "audit" if judgement.audit else "this one")]
    template = load_page("tidefold.quality.report", _TEMPLATE, status=_status, pairs=_pairs, grouped=_group_thousands)
    return template.render(
        judged=judgement,
        checks=checks[:_SHOWN],
        left_out=max(len(checks) - _SHOWN, 0),
        counts={status: sum(_status(c) == status for c in checks) for status in ("fail", "warn", "pass")},
        change=_change(judgement.rows, judgement.base_rows),
        points=points,
        summed=[name for name, _ in points[-1].sums][:_SUMMED],
        most_rows=max(point.rows for point in points) or 1,
    )


def _status(check: CheckResult) -> str:
    return "pass" if check.passed else check.severity


def _pairs(check: CheckResult) -> list[tuple[str, str]]:
    """Pairs the keys and values of the shown rows. A missing one is empty."""
    long = max(len(check.keys), len(check.sample))
    keys, values = ([*texts, *[""] * (long - len(texts))] for texts in (check.keys, check.sample))
    return list(zip(keys, values, strict=True))


def _group_thousands(number: str) -> str:
    """Returns a number as text, with its thousands separated."""
    try:
        return f"{Decimal(number):,}"
    except InvalidOperation:
        return number


def _change(rows: int, base_rows: int | None) -> str:
    """Compares the row count with the snapshot before: `+1,000 (+2.5 %)`."""
    if base_rows is None:
        return "first snapshot"
    difference = rows - base_rows
    share = f" ({difference / base_rows:+.1%})" if base_rows else ""
    return f"{difference:+,}{share}"


class VerdictFile(msgspec.Struct, frozen=True):
    """verdict.json."""

    judgement: ValidationResult


def verdict_path(log: str, snapshot: int, manifest: str, suite: str) -> str:
    """Returns the path of the verdict of a suite over the files of a manifest (their sha256).

    A ledger that was rebuilt may give the number of an aborted attempt again, with other files.
    """
    return f"{LogPaths(log).quality(snapshot)}/verdict-{suite[:16]}-{manifest[:16]}.json"


def report_path(log: str, snapshot: int, manifest: str, suite: str) -> str:
    """Returns the path of the report page of that verdict."""
    return f"{LogPaths(log).quality(snapshot)}/report-{suite[:16]}-{manifest[:16]}.html"


def audit_paths(log: str, snapshot: int, suite: str, name: str) -> tuple[str, str]:
    """Returns the paths of an audit and its page. They are next to the verdict, which an audit never changes."""
    folder = f"{LogPaths(log).quality(snapshot)}/audit-{suite[:16]}-{name}"
    return f"{folder}.json", f"{folder}.html"


def find_stored_judgement(
    store: Store, log: str, snapshot: int, manifest: str, suite: str, path: str = ""
) -> ValidationResult | None:
    """Returns the stored judgement of this suite over exactly these files, or None. Raises CorruptError.

    path: of an audit; else it is that of the verdict.
    """
    path = path or verdict_path(log, snapshot, manifest, suite)
    try:
        judged = decode_form(path, store.read(path), VerdictFile, "VERDICT_UNUSABLE").judgement
    except NotFoundError:
        return None
    if (judged.log, judged.snapshot, judged.manifest, judged.suite) != (log, snapshot, manifest, suite):
        raise CorruptError("VERDICT_UNUSABLE", f"`{path}` judges other files or another suite.")
    return judged


def find_judgement(store: Store, log: str, snapshot: Snapshot) -> ValidationResult | None:
    """Returns what is stored behind the verdict of a snapshot; None: no verdict, or no file. Raises CorruptError."""
    verdict = snapshot.verdict
    if verdict is None:
        return None
    # The ledger names the page; the result is beside it.
    path = verdict.path.replace("/report-", "/verdict-").removesuffix("html") + "json"
    return find_stored_judgement(store, log, snapshot.id, verdict.manifest, verdict.suite, path)


def store_judgement(store: Store, judged: ValidationResult, path: str = "") -> ValidationResult:
    """Stores a judgement. If another process stored one first for the same files and suite, that one counts."""
    path = path or verdict_path(judged.log, judged.snapshot, judged.manifest, judged.suite)
    try:
        store.put_if_absent(path, msgspec.json.format(encode_form(VerdictFile(judged)), indent=1))
    except AlreadyExistsError:
        first = find_stored_judgement(store, judged.log, judged.snapshot, judged.manifest, judged.suite, path)
        return first or judged
    return judged


def store_report(store: Store, judged: ValidationResult, page: str = "") -> str:
    """Writes the page if it does not exist, and returns its path. The page depends only on the stored judgement."""
    page = page or report_path(judged.log, judged.snapshot, judged.manifest, judged.suite)
    # After a crash between page and ledger: that page was made from the same judgement.
    with suppress(AlreadyExistsError):
        store.put_if_absent(page, render(judged).encode())
    return page


def verdict_of(judgement: ValidationResult) -> Verdict:
    """Returns the verdict that the ledger keeps. Its path is that of the page; verdict.json is next to it."""
    path = report_path(judgement.log, judgement.snapshot, judgement.manifest, judgement.suite)
    return Verdict(judgement.passed, judgement.suite, judgement.manifest, path, judgement.summary)
