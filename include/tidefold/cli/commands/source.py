"""What concerns the database from which a log comes.

load reads the first rows of a log from it. attest compares the published table with it.

Example: tidefold source attest accounts --connection shop
"""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Log, Terminal
from tidefold.errors import InvalidInputError
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
Dump = Annotated[str, typer.Option("--files", help="Folder of a dump: its Parquet or CSV files.")]
DumpPosition = Annotated[
    str, typer.Option("--position", help="LSN, or FILE:POSITION of the binlog; 0: before all that is streamed.")
]
LoadedLogs = Annotated[list[str], typer.Argument(help="Logs whose tables one connector streams.", metavar="LOG...")]
Slot = Annotated[str, typer.Option("--slot", help="Replication slot of the connector, which the load makes.")]
PublicationName = Annotated[str, typer.Option("--publication", help="Publication of the connector, which must exist.")]
DropSlot = Annotated[bool, typer.Option("--drop-slot", help="Drop the slot that a broken load left, and load nothing.")]
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
    from tidefold.operations.attest.attest import attest as act
    from tidefold.operations.attest.proof import AttestDetails, AttestRequest

    pipeline = terminal.pipeline()
    by = f"{getpass.getuser()} (command line)"
    request = AttestRequest(connection, table, tuple(leave_out or ()), patience, lag, by, tell=terminal.note)
    outcomes = for_each_log([pipeline.log(log).id], lambda one: act(pipeline, one, request))
    code = print_outcomes(terminal, outcomes)
    for outcome in outcomes:
        faults = outcome.details.faults if isinstance(outcome.details, AttestDetails) else ()
        for fault in faults[:_NAMED]:
            excuse = f" ({fault.excuse}, counted apart)" if fault.excuse else ""
            terminal.line(f"  {outcome.log}: {fault}{excuse}")
    return code


def load(
    terminal: Terminal,
    logs: LoadedLogs,
    connection: ConnectionName = "",
    slot: Slot = "tidefold",
    publication: PublicationName = "tidefold",
    table: SourceTableName = "",
    drop_slot: DropSlot = False,
    files: Dump = "",
    position: DumpPosition = "0",
) -> int:
    """Load the rows of tables, to which their change stream is then joined without a gap.

    It makes the replication slot of the connector, and reads the tables as they were at that moment, while others
    write. The rows land in the store; the next run ingests them, before everything that the connector streams. Start
    the connector with the settings that the command prints. A load into a log that has rows replaces them. A load that
    breaks off loads nothing; if it leaves its slot, which holds WAL, --drop-slot drops it. Needs the right REPLICATION.

    --files loads a dump of one table instead, as Parquet or CSV, which was taken at --position.

    Example: tidefold source load accounts --connection shop

    Next: tidefold run LOG
    """
    from tidefold.operations.ingest.load_dump import load_dump
    from tidefold.operations.ingest.load_table import LoadDetails, TableLoad, drop, load_tables

    pipeline, by = terminal.pipeline(), f"{getpass.getuser()} (command line)"
    ids = [pipeline.log(log).id for log in logs]
    if bool(files) == bool(connection) or (files and ids[1:]):
        raise InvalidInputError("LOAD_FROM", "A load has one --connection, or one log and its --files.")
    if files:
        outcomes = [load_dump(pipeline, ids[0], str(Path(files).absolute()), position, by)]
        return print_outcomes(terminal, outcomes, after=f"tidefold run {ids[0]}")
    asked = TableLoad(connection, slot, publication, by, table, terminal.note)
    if drop_slot:
        terminal.line(drop(pipeline, ids, asked))
        return 0
    outcomes = load_tables(pipeline, ids, asked)
    details = outcomes[0].details
    for name, value in details.connector.items() if isinstance(details, LoadDetails) else ():
        terminal.line(f"{name}={value}")
    return print_outcomes(terminal, outcomes, after=f"start the connector, then `tidefold run {' '.join(ids)}`")
