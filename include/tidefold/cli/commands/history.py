"""`tidefold history`: lists the snapshots of a log."""

from __future__ import annotations

from dataclasses import asdict

from tidefold.cli.options import Log
from tidefold.cli.terminal import Terminal


def history(terminal: Terminal, log: Log) -> None:
    """List every snapshot of a log, newest first.

    Shows state, kind, epoch, base, folded change sets, rows, full size, written size, verdict and run. For a restored
    snapshot it also shows the source and the changes that were left out, for an aborted one the reason. Reads only the
    ledger. Starts no Spark.

    Example: tidefold history accounts

    Next: tidefold report LOG --snapshot ID
    """
    from tidefold.ledger.stored_form import to_document
    from tidefold.operations.inspect.history import find_restorers, local_of, schemas_told, tags_of
    from tidefold.operations.inspect.history import history as read_history
    from tidefold.operations.local_copies.inventory import local_use
    from tidefold.presentation.tables import history_table, local_lines, reasons

    pipeline = terminal.pipeline()
    snapshots = read_history(pipeline, pipeline.log(log).id)
    tags = tags_of(pipeline, log)
    restored = find_restorers(snapshots)
    local = local_of(pipeline, log)
    schemas = schemas_told(pipeline, log)
    lines = [*reasons(snapshots, tags, restored, local), *schemas]
    shown = [history_table(snapshots), "", *lines] if snapshots else [f"{log} has no snapshot yet."]
    data = [
        {**to_document(s), "tags": tags.get(s.id, []), "restored": restored.get(s.id), "local": s.id in local}
        for s in snapshots
    ]
    use = local_use(pipeline)
    terminal.result(
        {"log": log, "snapshots": data, "schemas": schemas, "local": asdict(use) if use else None},
        *shown,
        *local_lines(use),
    )
