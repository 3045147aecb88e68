"""One check over the judgements that are kept: its counts by snapshot, and the first one that had bad rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.quality.report.result import CheckResult, ValidationResult


@dataclass(frozen=True, slots=True)
class CheckCount:
    """The result of a check in one snapshot. unexpected: the number of bad rows; None: the check counts none."""

    passed: bool
    unexpected: int | None

    @property
    def text(self) -> str:
        return ("ok" if self.passed else "bad") if self.unexpected is None else f"{self.unexpected:,}"


@dataclass(frozen=True, slots=True)
class FirstBad:
    """Where the bad rows of a check began.

    snapshot: the first one with bad rows of those that are compared.
    key: of one of these rows, as text.
    landed, record: the landed file that brought this row, and its place in it, such as `line 3`.
    error: why the file is not known.
    """

    snapshot: int
    key: str | None = None
    landed: str | None = None
    record: str | None = None
    error: str | None = None

    @property
    def place(self) -> str:
        """Returns the file and the place in it, or why they are not known."""
        return ", ".join(filter(None, (self.landed, self.record))) if self.landed else f"unknown: {self.error}"


@dataclass(frozen=True, slots=True)
class CheckHistory:
    """One check in each compared snapshot, oldest first. severity: of the newest result.

    counts: None: the snapshot was judged without the check.
    """

    name: str
    type: str
    severity: str
    counts: tuple[CheckCount | None, ...]
    first_bad: FirstBad | None


def compare_checks(judged: Sequence[ValidationResult]) -> tuple[CheckHistory, ...]:
    """Returns the history of every check, in the order of the newest judgement; checks that left the suite are last.

    A check with other arguments is another check. Those of built-in ones differ from run to run.
    """
    results = [{_identify(check): check for check in one.checks} for one in judged]
    checks = dict.fromkeys(check for one in reversed(results) for check in one)
    ids = [one.snapshot for one in judged]
    return tuple(_follow(ids, [one.get(check) for one in results]) for check in checks)


def _identify(check: CheckResult) -> tuple[str, str, str]:
    return check.name, check.type, "" if check.built_in else check.arguments


def _follow(ids: Sequence[int], results: Sequence[CheckResult | None]) -> CheckHistory:
    newest = [one for one in results if one][-1]
    dated = zip(ids, results, strict=True)
    bad = [FirstBad(at, next(iter(one.keys), None)) for at, one in dated if one and one.unexpected]
    counts = tuple(CheckCount(one.passed, one.unexpected) if one else None for one in results)
    return CheckHistory(newest.name, newest.type, newest.severity, counts, bad[0] if bad else None)
