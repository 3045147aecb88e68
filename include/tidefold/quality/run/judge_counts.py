"""Great Expectations judges counts: it names the metrics that it wants, they are counted at once, it judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidefold.quality.run.counts import Count, CountRows, Sample
from tidefold.quality.run.metrics import Answerable, find_answers
from tidefold.quality.suite.check import Types

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.validator.metric_configuration import MetricConfiguration


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

    known, others = [], []
    for one in expectations:
        asked = list_metrics(one, form)
        answers = find_answers(asked, types)
        if answers is not None and all(map(can_answer, answers)):
            known.append((one, asked, answers))
        else:
            others.append(one)
    wanted = [*dict.fromkeys(n for _, _, answers in known for n in answers if isinstance(n, Count))]
    counts = dict(zip(wanted, count(wanted) if wanted else (), strict=True))

    def answer(one: Answerable) -> Any:
        return counts[one] if isinstance(one, Count) else sample(one) if one and sample else []

    return [
        _judge(one, form, {metric.id: answer(n) for metric, n in zip(asked, answers, strict=True)})
        for one, asked, answers in known
    ], others


def _judge(expectation: Expectation, form: dict[str, Any], metrics: dict[Any, Any]) -> ExpectationValidationResult:
    from great_expectations.core import ExpectationValidationResult

    try:
        result = expectation.metrics_validate(metrics, runtime_configuration={"result_format": {**form}})
    except Exception as error:  # Any exception here must become an error of this check, never a pass.
        raised = {"raised_exception": True, "exception_message": str(error)}
        result = ExpectationValidationResult(success=False, exception_info=raised)
    result.expectation_config = expectation.configuration
    return result
