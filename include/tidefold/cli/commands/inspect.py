"""Commands that only look: validate, status, history, report. They start no JVM.

What `validate` looks at beside the configuration file itself: the files and folders that it names.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from tidefold.cli.options import Log, Logs, SnapshotId
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.config import Config, ConfigProblem, config_error, key_line
from tidefold.errors import InvalidInputError
from tidefold.quality.suite.suite import load_suite


def validate(
    terminal: Terminal,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of the file, for editors.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Also test the store, with small temporary files.")] = False,
) -> None:
    """Check the configuration and its suite files, offline; with --online also the store.

    Reports each mistake with file, line, key and the allowed values. Without --online no store is contacted. With
    --online small files are written, read, listed, copied and deleted, and a second write under the same name must
    be refused.

    Example: tidefold validate -c tidefold.yaml --online

    Next: tidefold ingest
    """
    from tidefold.config import json_schema, load_config

    if schema:
        terminal.result(json_schema(), json.dumps(json_schema(), indent=2))
        return
    from tidefold.presentation.tables import log_table

    config = load_config(terminal.config_path)
    check_suites(config)
    warnings = missing_folders(config)
    for warning in warnings:
        terminal.note(f"warning: {warning}")
    data = {"valid": True, "config": str(config.path), "logs": list(config.logs), "warnings": warnings}
    asked, said = _check_store(terminal) if online else ({}, [])
    terminal.result({**data, **asked}, f"{terminal.config_path} is valid.", *said, log_table(config.logs.values()))


def _check_store(terminal: Terminal) -> tuple[dict[str, Any], list[str]]:
    from tidefold.storage.identity import read_identity
    from tidefold.storage.store_check import probe

    pipeline = terminal.pipeline()
    store = pipeline.store
    done, store_id = probe(store), read_identity(store)
    said = [f"The store {store.uri('')} does what it must: {', '.join(done)}."]
    if store_id and not pipeline.config.store_id:
        said.append(f"Add this line, so that an empty or another store is refused: `store_id: {store_id}`")
    return {"store": store.uri(""), "done": done, "store_id": store_id}, said


def status(terminal: Terminal, logs: Logs = None) -> int:
    """Show the state of each log.

    Shows the published snapshot, the open attempt, changes not folded yet, source positions, refused records, why
    the newest snapshot was not published, the newest tail, holds, readers, segments to be deleted, local copies,
    and when the files were last proved (scrub, verify) and a restore was last drilled. Marks as OLD what is more
    than 35 days ago. Shows each ALARM by the thresholds of `alarms` in the configuration. Starts no Spark.

    Example: tidefold status accounts --format json

    Next: tidefold history LOG, tidefold report LOG
    """
    from tidefold.cli.output.outcomes import exit_code
    from tidefold.operations.inspect.status import status as read_status
    from tidefold.operations.local_copies.inventory import local_use
    from tidefold.operations.pipeline import now
    from tidefold.presentation.proofs import describe_status, proof_lines
    from tidefold.presentation.tables import alarm_lines, local_lines, position_table, remarks, status_table

    pipeline = terminal.pipeline()
    found = read_status(pipeline, choose_logs(pipeline, logs), proofs=True)
    parts = [status_table(found), "", *([position_table(found), ""] if any(s.positions for s in found) else [])]
    use = local_use(pipeline)
    data = {"logs": [describe_status(s) for s in found], "local": asdict(use) if use else None}
    lines = [line for s in found for line in proof_lines(s, now())]
    terminal.result(data, *parts, *alarm_lines(found), *remarks(found), *lines, *local_lines(use))
    return exit_code(s.error for s in found if s.error)


def history(terminal: Terminal, log: Log) -> None:
    """List every snapshot of a log, newest first.

    Shows state, kind, epoch, base, folded change sets, rows, full size and written size, verdict and run; for a
    restored snapshot its source and what was left out; for an aborted one the reason. Reads only the ledger; starts
    no Spark.

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


def report(terminal: Terminal, log: Log, snapshot: SnapshotId = None) -> None:
    """Print the address of the newest quality report of a log.

    The report is one self-contained HTML page. --snapshot selects the report of one snapshot.

    Example: xdg-open "$(tidefold report accounts)"

    Next: tidefold confirm LOG, or tidefold abort LOG
    """
    from tidefold.operations.inspect.history import newest_report

    pipeline = terminal.pipeline()
    found, address = newest_report(pipeline, pipeline.log(log).id, snapshot)
    passed = bool(found.verdict and found.verdict.passed)
    terminal.result({"log": log, "snapshot": found.id, "passed": passed, "report": address}, address)


def check_suites(config: Config) -> None:
    """Raises ConfigError naming each log whose suite file is missing or wrong, with the line that names the file."""
    problems = []
    columns = {log.id: {c.name: c.type for c in log.shape.columns} for log in config.logs.values()}
    for log in config.logs.values():
        try:
            load_suite(log.quality.suite, log.shape, log.quality.max_row_drop, columns)
        except InvalidInputError as error:
            place = ("logs", log.id, "quality", "suite")
            line = key_line(config.path, place)
            problems.append(
                ConfigProblem(error.code, line, ".".join(place), f"is of no use: {error.message}", error.hint)
            )
    if problems:
        raise config_error(config.path, problems)


def missing_folders(config: Config) -> list[str]:
    """Landing folders that are not there: no mistake, since files may land later."""
    return [
        f"{log.id}: the landing folder {log.source.folder} does not exist yet."
        for log in config.logs.values()
        if log.source and log.source.folder and not log.source.folder.is_dir()
    ]
