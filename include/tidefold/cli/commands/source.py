"""What concerns the database from which a log comes.

attest compares the published table with it.

Example: tidefold source attest accounts --connection shop
"""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Log, Terminal
from tidefold.operations.attest.attest import attest as act
from tidefold.operations.attest.proof import AttestDetails, AttestRequest
from tidefold.operations.ground.outcome import for_each_log

ConnectionName = Annotated[
    str, typer.Option("--connection", help="An Airflow connection of type postgres, or AIRFLOW_CONN_NAME.")
]
SourceTableName = Annotated[str, typer.Option("--table", help="schema.table; default: as the topic of the log says.")]
LeaveOut = Annotated[list[str] | None, typer.Option("--leave-out", help="A column that is not compared.")]
Patience = Annotated[float, typer.Option("--patience", help="Seconds that a look waits for news of the log.", min=0)]
LagSeconds = Annotated[
    float, typer.Option("--lag", help="Seconds after which a change is in the log for certain.", min=0)
]
_NAMED = 20


def attest(
    terminal: Terminal,
    log: Log,
    connection: ConnectionName,
    table: SourceTableName = "",
    leave_out: LeaveOut = None,
    patience: Patience = 60.0,
    lag: LagSeconds = 3600.0,
) -> int:
    """Prove that the published table equals its source, while both change.

    Needs the right to SELECT the table, also on a replica. Counts and adds up checksums for each group of keys in one
    read-only transaction, and reads rows of the groups that differ. A key that the log changes after the published
    position proves nothing; it is looked at again after the next publication. A key that differs at rest in two looks
    is a fault: it is named with its columns and, by explain, with the change that made it. Where the log has no later
    change, the second look counts after --lag seconds, also that of the next call.

    Differences that the log knows are counted apart: quarantined and left out rows, rows that expired, ignored deletes,
    defaults, NaN as null. Exit code 0: equal at rest. 5: it differs. 3 or 6: it cannot be told. The store keeps the
    proof, which status and the page show. Starts no Spark.

    Example: tidefold source attest accounts --connection shop

    Next: tidefold explain LOG KEY, tidefold status LOG
    """
    pipeline = terminal.pipeline()
    by = f"{getpass.getuser()} (command line)"
    request = AttestRequest(connection, table, tuple(leave_out or ()), patience, lag, by)
    outcomes = for_each_log([pipeline.log(log).id], lambda one: act(pipeline, one, request))
    code = print_outcomes(terminal, outcomes)
    for outcome in outcomes:
        faults = outcome.details.faults if isinstance(outcome.details, AttestDetails) else ()
        for fault in faults[:_NAMED]:
            excuse = f" ({fault.excuse}, counted apart)" if fault.excuse else ""
            terminal.line(f"  {outcome.log}: {fault}{excuse}")
    return code
