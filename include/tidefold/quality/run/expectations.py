"""Runs checks with Great Expectations over judged rows: it names the metrics that it wants, and judges their counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tidefold.domain.wording import clip_text
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.interruption import raise_if_interrupted
from tidefold.quality.report.result import SAMPLES, CheckResult, as_text, key_text, result
from tidefold.quality.run.cost import Meter
from tidefold.quality.run.counts import Count, CountRows, Sample, not_computed
from tidefold.quality.run.engine import JudgedRows
from tidefold.quality.run.gx_import import load
from tidefold.quality.run.metrics import Answerable, find_answers
from tidefold.quality.suite.check import Check, Severity, Types, canonical
from tidefold.yaml_files.messages import suggest

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.validator.metric_configuration import MetricConfiguration

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# Great Expectations returns results in its own order. This mark in an expectation's meta identifies its check.
_POSITION = "tidefold_check"
_ALL = "all of the log"
# Counts of bad rows without any of their values: all of them come from one aggregation.
_COUNTS = {"result_format": "BASIC", "partial_unexpected_count": 0}
# Each check with samples reads the rows again.
_SAMPLED = 20
_SEVERITY = {Severity.FAIL: "critical", Severity.WARN: "warning"}
_NOUN = {
    "expect_column_values_to_be_unique": "duplicate",
    "expect_compound_columns_to_be_unique": "duplicate",
    "expect_column_values_to_not_be_null": "null",
}


def evaluate(
    rows: JudgedRows, checks: Sequence[Check], key: Sequence[str] = (), meter: Meter | None = None
) -> tuple[CheckResult, ...]:
    """Returns the result of every check over all rows, in the order of `checks`.

    First it counts for all checks together. Only failed checks are then queried for samples
    (docs/contributors/benchmarks/quality.md).
    Raises InvalidInputError if Great Expectations does not know a check or refuses its arguments. Raises TidefoldError
    if a check could not be computed: it has not passed.

    key: the columns that identify a row.
    """
    load()
    meter = meter or Meter()
    expectations = [build_expectation(check, position) for position, check in enumerate(checks)]
    with meter.part("expectations", len(checks)):
        answers = _by_position(compute(_ALL, lambda: rows.validate(expectations, _COUNTS)))
    missing = [c.name for position, c in enumerate(checks) if position not in answers]
    if missing:
        raise not_computed(missing[0], "Great Expectations gave no result for it")
    results = [_result(check, answers[position]) for position, check in enumerate(checks)]
    bad = [position for position, r in enumerate(results) if not r.passed and r.unexpected]
    bad = sorted(bad, key=lambda position: checks[position].severity)[:_SAMPLED]
    if bad:
        with meter.part("samples", len(bad)):
            # New objects, because an expectation belongs to one suite only.
            _add_samples(rows, results, [build_expectation(checks[position], position) for position in bad], key)
    return tuple(results)


def _add_samples(
    rows: JudgedRows, results: list[CheckResult], failed: Sequence[Expectation], key: Sequence[str]
) -> None:
    """Adds values and keys of some bad rows, for people. A failed check stays failed if they cannot be read."""
    wanted = {"result_format": "SUMMARY", "partial_unexpected_count": SAMPLES, "return_unexpected_index_query": False}
    form = {**wanted, "unexpected_index_column_names": list(key)} if key else wanted
    try:
        answers = _by_position(compute(_ALL, lambda: rows.validate(failed, form)))
    except TidefoldError as error:
        _log.warning("no samples of bad rows: %s", error)
        return
    for position, answer in answers.items():
        if not find_exception(answer.exception_info or {}):
            sample, keys = _sample(answer.to_json_dict()["result"], key)
            results[position] = replace(results[position], sample=sample, keys=keys)


def _sample(seen: Mapping[str, Any], key: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    indexed = (seen.get("partial_unexpected_index_list") or [])[:SAMPLES]
    if not key or not indexed:
        values = seen.get("partial_unexpected_list") or ()
        return tuple(clip_text(as_text(v)) for v in values if v is not None)[:SAMPLES], ()
    keys = tuple(key_text({name: row.get(name) for name in key}) for row in indexed)
    # A check of the key itself shows only the key.
    values = [{name: v for name, v in row.items() if name not in key} for row in indexed]
    shown = [next(iter(v.values())) if len(v) == 1 else v for v in values if v]
    if all(v is None for v in shown):
        return (), keys
    return tuple(clip_text(as_text(v)) for v in shown), keys


def build_expectation(check: Check, position: int) -> Expectation:
    """Returns the expectation of a check. Raises InvalidInputError.

    position: marks its result.
    """
    from great_expectations.exceptions.exceptions import ExpectationNotFoundError
    from great_expectations.expectations import registry
    from great_expectations.expectations.metadata_types import FailureSeverity

    try:
        kind = registry.get_expectation_impl(check.type)
    except ExpectationNotFoundError as error:
        near = suggest(check.type, registry.list_registered_expectation_implementations(), "")
        raise InvalidInputError(
            "SUITE_UNKNOWN_EXPECTATION",
            f"Great Expectations has no expectation `{check.type}`.",
            hint=f"Correct `type` in the suite file. {near}".rstrip(),
        ) from error
    try:
        return kind(**check.kwargs, meta={_POSITION: position}, severity=FailureSeverity(_SEVERITY[check.severity]))
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            "SUITE_BAD_ARGUMENTS", f"Check `{check.name}` ({check.type}): {' '.join(str(error).split())}."
        ) from error


def compute(what: str, find: Callable[[], _T]) -> _T:
    """Returns what a function finds. Any exception of an engine becomes an error of this log, never a pass."""
    try:
        return find()
    except TidefoldError:
        raise
    except Exception as error:
        raise_if_interrupted(error)
        raise not_computed(what, str(error)) from error


def _by_position(answers: Sequence[ExpectationValidationResult]) -> dict[int, ExpectationValidationResult]:
    return {a.expectation_config.meta[_POSITION]: a for a in answers if a.expectation_config}


def _result(check: Check, answer: ExpectationValidationResult) -> CheckResult:
    broken = find_exception(answer.exception_info or {})
    if broken:
        raise not_computed(check.name, broken)
    seen: Mapping[str, Any] = answer.to_json_dict()["result"]
    observed, unexpected = seen.get("observed_value"), seen.get("unexpected_count")
    return result(
        check,
        bool(answer.success),
        observed=None if "observed_value" not in seen else clip_text(as_text(observed)),
        unexpected=unexpected,
        detail="" if answer.success else _detail(check, observed, unexpected),
    )


def find_exception(info: Mapping[str, Any]) -> str | None:
    """Returns the message of an exception. It is flat, or nested under the id of each metric that failed."""
    flat = [info, *(v for v in info.values() if isinstance(v, Mapping))]
    raised = (
        i.get("exception_message") or "it raised an error without a message" for i in flat if i.get("raised_exception")
    )
    return next(map(str, raised), None)


def _detail(check: Check, observed: object, unexpected: int | None) -> str:
    if unexpected is not None:
        noun = _NOUN.get(check.type, "unexpected value")
        return f"{unexpected:,} {noun}" + ("" if unexpected == 1 else "s")
    if isinstance(observed, int | float):
        wanted, least, most = (check.kwargs.get(k) for k in ("value", "min_value", "max_value"))
        if wanted is not None:
            return f"{observed}, not {wanted}"
        if isinstance(least, int | float) and observed < least:
            return f"{observed} < {least}"
        if isinstance(most, int | float) and observed > most:
            return f"{observed} > {most}"
    return "no value" if observed is None else clip_text(f"found {as_text(observed)}")


def list_metrics(expectation: Expectation, form: dict[str, Any]) -> list[MetricConfiguration]:
    """Returns the metrics that an expectation wants, by name and arguments."""
    needs = expectation.get_validation_dependencies(runtime_configuration={"result_format": form})
    asked: list[MetricConfiguration] = needs.get_metric_configurations()
    return asked


def judge_counts(
    expectations: Sequence[Expectation],
    form: dict[str, Any],
    types: Types,
    count: CountRows,
    sample: Callable[[Sample], list[Any]] | None = None,
    can_count: Callable[[Count], bool] = lambda _: True,
) -> tuple[list[ExpectationValidationResult], list[Expectation]]:
    """Returns the results of the expectations whose metrics are known, and the other expectations.

    form: the result format of Great Expectations.
    sample: returns some bad rows; None: there are no samples.
    can_count: whether `count` can do it.
    """

    def can_answer(one: Answerable) -> bool:
        return can_count(one) if isinstance(one, Count) else one is None or sample is not None

    judged, others = [], []
    for one in expectations:
        asked = list_metrics(one, form)
        answers = find_answers(asked, types)
        if answers is not None and all(map(can_answer, answers)):
            judged.append((one, asked, [_name_check(answer, one) for answer in answers]))
        else:
            others.append(one)
    wanted = [*dict.fromkeys(n for _, _, answers in judged for n in answers if isinstance(n, Count))]
    counts = dict(zip(wanted, count(wanted) if wanted else (), strict=True))

    def answer(one: Answerable) -> Any:
        return counts[one] if isinstance(one, Count) else sample(one) if one and sample else []

    return [
        _judge(one, form, {metric.id: answer(n) for metric, n in zip(asked, answers, strict=True)})
        for one, asked, answers in judged
    ], others


def _name_check(answer: Answerable, expectation: Expectation) -> Answerable:
    check = expectation.configuration
    return replace(answer, check=check.type, arguments=canonical(check.kwargs)) if isinstance(answer, Count) else answer


def _judge(expectation: Expectation, form: dict[str, Any], metrics: dict[Any, Any]) -> ExpectationValidationResult:
    from great_expectations.core import ExpectationValidationResult

    try:
        result = expectation.metrics_validate(metrics, runtime_configuration={"result_format": {**form}})
    except Exception as error:  # Any exception here must become an error of this check, never a pass.
        raise_if_interrupted(error)
        raised = {"raised_exception": True, "exception_message": str(error)}
        result = ExpectationValidationResult(success=False, exception_info=raised)
    result.expectation_config = expectation.configuration
    return result
