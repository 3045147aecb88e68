"""The operator that reads the first rows of logs from their database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import TaskScope, airflow_errors

if TYPE_CHECKING:
    from tidefold.operations.ground.outcome import Outcome


class TidefoldLoadOperator(TidefoldLogOperator):
    """
    Loads the rows of PostgreSQL tables as they were when it made the slot of their connector: all of them, or nothing.
    The next run ingests them. The task's log has the settings with which the connector then starts.

    A task that is tried again fails by name while a broken try left its slot.

    :param connection: Connection of type ``postgres``, whose user may make replication slots. (templated)
    :param slot, publication: Names that the connector uses. (templated)
    :param logs, only, config: As for TidefoldSparkOperator; the tables of one connector. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "connection", "slot", "publication")

    def __init__(
        self,
        *,
        connection: str,
        slot: str = "tidefold",
        publication: str = "tidefold",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.connection = connection
        self.slot = slot
        self.publication = publication

    def act_on_all(self, scope: TaskScope) -> list[Outcome]:
        from tidefold.operations.ingest.load_table import LoadDetails, TableLoad, load_tables

        names = self.connection, self.slot, self.publication
        asked = TableLoad(*names, f"run {scope.run}", "", self.log.info)
        with airflow_errors():
            outcomes = load_tables(scope.pipeline, scope.logs, asked)
        for outcome in outcomes[:1]:
            if isinstance(outcome.details, LoadDetails):
                self.log.info(
                    "Start the connector with:\n%s", "\n".join(map("=".join, outcome.details.connector.items()))
                )
        return outcomes
