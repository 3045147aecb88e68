"""The operator that lets what follows tidefold's tasks start only after their tables are published."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tidefold.errors import find_next_step
from tidefold.operations.ground.outcome import Status
from tidefold.operations.ground.run_endings import MEANINGS, Require, RunEnding, find_ending, may_follow, worst
from tidefold_airflow.operators.base import TidefoldLogOperator, end_as_skipped, list_steps_before
from tidefold_airflow.operators.confirm import find_errors, find_left_out, read_states, read_steps
from tidefold_airflow.operators.run_context import airflow_errors, open_scope, parse_choice

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.domain.alarms import RunFailure
    from tidefold.domain.log_state import LogState

_log = logging.getLogger(__name__)


class TidefoldPublishedOperator(TidefoldLogOperator):
    """
    Succeeds if the tables of the run are published, and is skipped otherwise: what follows it is then skipped too.

    The task returns ``{ending: [log]}``, also if it is skipped: ``published`` has the logs that this run published. The
    endings are those of docs/reference/airflow.md.

    :param require: ``all``: every log that was not stopped on purpose is up to date; ``any``: one is.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def __init__(self, *, require: str = Require.ALL, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.require = parse_choice("require", require, Require)

    def execute(self, context: Context) -> dict[str, list[str]]:  # type: ignore[override]
        """Finds how the run ended for each log."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            states = read_states(scope)
            left_out = find_left_out(scope, states)
        before: list[Any] = list_steps_before(context["ti"].task)
        tasks = {one.task_id for one in before if not getattr(one, "is_retention", False)}
        summaries, failed = read_steps(context)
        summaries = {name: listed for name, listed in summaries.items() if name in tasks}
        errors = find_errors(summaries, failed & tasks, scope.logs)
        # A step that failed and names no log.
        endings = {log: [RunEnding.FAILED] if log in errors and not errors[log].code else [] for log in scope.logs}
        for summary in (one for listed in summaries.values() for one in listed):
            # What the gate refused, `confirm` decides.
            for log, result in summary.items():
                if log in endings and result["result"] != Status.FAILED:
                    ending = find_ending(result["result"], result["error"], result.get("exit_code", 0))
                    endings[log] += [ending] if ending else []
        for log in left_out:
            endings[log].append(RunEnding.LEFT_OUT)
        # Without news no step names it.
        for state in states:
            if state.stopped and RunEnding.PUBLISHED not in endings[state.log]:
                endings[state.log].append(RunEnding.STOPPED)
        ended = {log: worst(listed) for log, listed in endings.items()}
        named = {ending.value: [log for log, one in ended.items() if one is ending] for ending in RunEnding}
        grouped = {ending: logs for ending, logs in named.items() if logs}
        for line in _explain(ended, states, errors, left_out):
            _log.info("%s", line)
        words = "; ".join(f"{ending}: {', '.join(logs)}" for ending, logs in grouped.items())
        if not may_follow(ended.values(), self.require):
            context["ti"].xcom_push("return_value", grouped)
            end_as_skipped(f"What follows is skipped ({self.require} is required). {words}")
        _log.info("%s", words)
        return grouped


def _explain(
    ended: Mapping[str, RunEnding],
    states: Iterable[LogState],
    errors: Mapping[str, RunFailure],
    left_out: Mapping[str, str],
) -> Iterator[str]:
    """Yields for each log that is not up to date how the run ended, why, and the next step."""
    from tidefold.operations.inspect.log_status import status_of

    why = {log: f"{one.text}. Next: {find_next_step(one.code) or 'read the log of that task.'}"
           for log, one in errors.items()} | {**left_out}  # fmt: skip
    for state in states:
        if ended[state.log] is RunEnding.STOPPED and state.stopped:
            why[state.log] = f"{state.stopped.explain(state.log)}."
        elif ended[state.log] in (RunEnding.REFUSED, RunEnding.WAITS) and (refused := status_of(state).why):
            is_asked = ended[state.log] is RunEnding.WAITS
            step = "Answer among Airflow's required actions." if is_asked else find_next_step("GATE_FAILED")
            why[state.log] = f"{refused}. Next: {step}"
    for log, ending in ended.items():
        if MEANINGS[ending].follows != "yes":
            yield f"{log}: {ending}{f': {why[log]}' if log in why else '.'}"
