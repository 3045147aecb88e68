"""The operator that writes changes of a program to a log without landed files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import airflow_errors, require_one_log

if TYPE_CHECKING:
    from tidefold.operations.outcome import Outcome
    from tidefold_airflow.operators.run_context import TaskScope


class TidefoldWriteOperator(TidefoldLogOperator):
    """
    Appends changes to one log that the configuration names without a ``source``. Starts no Spark.

    ``changes`` gets the number of changes that the log has of this writer, and returns those after them: rows, lists of
    rows or Arrow tables. All of them are in the log when the task succeeds, and none if it fails. A retry or a cleared
    task continues where the log is, so nothing is lost or comes twice. ``uploads`` of the configuration limits batches,
    attempts and memory.

    :param changes: The function that returns the changes from an offset on.
    :param writer: The name of the writer. Tasks that run at the same time need different names.
    :param logs, only, config: As for TidefoldSparkOperator; one log. (templated)
    """

    def __init__(self, *, changes: Callable[[int], Iterable[Any]], writer: str = "airflow", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.changes = changes
        self.writer = writer

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.ingest.write_changes import write_changes

        with airflow_errors():
            require_one_log(scope)
        return write_changes(scope.pipeline, log, self.changes, self.writer)
