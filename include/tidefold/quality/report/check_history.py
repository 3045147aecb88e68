"""One check over the judgements that are kept: its counts by snapshot, and the first one that had bad rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """Where the bad rows of a check began, the last time that it had some.

    snapshot: the first of the compared ones that had them without a good one between.
    recovered: the first good one after them; None: the check is bad.
    key: of one of these rows, as text; of several with one value, the row that changed last.
    landed, record: the landed file that brought this row, and its place in it, such as `line 3`.
    error: why the file is not known.
    """

    snapshot: int
    recovered: int | None = None
    key: str | None = None
    landed: str | None = None
    record: str | None = None
    error: str | None = None

    @property
    def since(self) -> str:
        return str(self.snapshot) if self.recovered is None else f"{self.snapshot}, recovered in {self.recovered}"

    @property
    def place(self) -> str:
        """Returns the file and the place in it, or why they are not known."""
        return ", ".join(filter(None, (self.landed, self.record))) if self.landed else f"unknown: {self.error}"


@dataclass(frozen=True, slots=True)
class CheckHistory:
    """One check in each compared snapshot, oldest first. severity: of the newest result.

    counts: None: the snapshot was judged without the check.
    bad_keys: some keys of the bad rows of `first_bad`.
    last_good: the compared snapshot right before it, if that was good.
    """

    name: str
    type: str
    severity: str
    counts: tuple[CheckCount | None, ...]
    first_bad: FirstBad | None
    bad_keys: tuple[str, ...] = ()
    last_good: int | None = None


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
    dated = [(at, one) for at, one in zip(ids, results, strict=True) if one]
    newest, good = dated[-1][1], [number for number, (_, one) in enumerate(dated) if not one.unexpected]
    counts = tuple(CheckCount(one.passed, one.unexpected) if one else None for one in results)
    history = CheckHistory(newest.name, newest.type, newest.severity, counts, None)
    if len(good) == len(dated):
        return history
    last = max(number for number, (_, one) in enumerate(dated) if one.unexpected)
    start = max((number for number in good if number < last), default=-1)
    at, first = dated[start + 1]
    recovered = dated[last + 1][0] if last + 1 < len(dated) else None
    before = dated[start][0] if start >= 0 else None
    bad = FirstBad(at, recovered, next(iter(first.keys), None))
    return replace(history, first_bad=bad, bad_keys=first.keys, last_good=before)
