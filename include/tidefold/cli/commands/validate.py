"""`tidefold validate`: checks the configuration, and the files and folders that it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidefold.cli.terminal import Terminal
from tidefold.domain.snapshot.kind_selection import KindPolicy
from tidefold.errors import NotFoundError

if TYPE_CHECKING:
    from tidefold.config import Config, SetConfig
    from tidefold.operations.pipeline import Pipeline


def validate(
    terminal: Terminal,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of the file, for editors.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Also test the store, with small temporary files.")] = False,
) -> None:
    """Check the configuration and its suite files without a store; with --online also test the store.

    Reports each mistake with file, line, key and the allowed values. With --online, tidefold writes, reads, lists,
    copies and deletes small files in the store. It also checks that the store refuses a second write under the same
    name.

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
    warnings = [
        *missing_folders(config),
        *find_missing_topics(config),
        *find_lasting_rows(config),
        *find_growing_copies(config),
    ]
    for warning in warnings:
        terminal.note(f"warning: {warning}")
    sets = [_describe_set(one) for one in config.sets.values()]
    data = {"valid": True, "config": str(config.path), "logs": list(config.logs), "sets": sets, "warnings": warnings}
    asked, said = _check_store(terminal) if online else ({}, [])
    lines = [line for one in config.sets.values() for line in _set_lines(one)]
    terminal.result(
        {**data, **asked}, f"{terminal.config_path} is valid.", *said, log_table(config.logs.values()), *lines
    )


def _describe_set(one: SetConfig) -> dict[str, Any]:
    sums = [[f"{log}.{column}" for log, column in columns] for columns in one.equal_sums]
    return {
        "set": one.name,
        "logs": list(one.logs),
        "transactions": one.transactions,
        "may_be_empty": list(one.may_be_empty),
        "equal_sums": sums,
    }


def _set_lines(one: SetConfig) -> list[str]:
    lines = [f"set {one.name}: {', '.join(one.logs)}", f"  transactions: {one.transactions}"]
    lines += [f"  equal sums: {' = '.join(columns)}" for columns in _describe_set(one)["equal_sums"]]
    return [*lines, *([f"  may be empty: {', '.join(one.may_be_empty)}"] if one.may_be_empty else [])]


def _check_store(terminal: Terminal) -> tuple[dict[str, Any], list[str]]:
    from tidefold.storage.identity import read_identity
    from tidefold.storage.store_check import probe

    pipeline = terminal.pipeline()
    store = pipeline.store
    done, store_id = probe(store), read_identity(store)
    for log in pipeline.config.logs:
        _check_columns(pipeline, log)
    said = [f"The store {store.address} passed: {', '.join(done)}."]
    if store_id and not pipeline.config.store_id:
        said.append(f"Add this line, so that tidefold refuses an empty store or another one: `store_id: {store_id}`")
    return {"store": store.address, "done": done, "store_id": store_id}, said


def _check_columns(pipeline: Pipeline, log: str) -> None:
    """Raises RefusedError for a key, an order or columns that do not fit the ledger: the next run would refuse them."""
    from tidefold.domain.table.schema_evolution import evolve

    try:
        state = pipeline.ledger(log).read()
    except NotFoundError:
        return  # The log has no ledger yet.
    config = pipeline.log(log)
    evolve(state, config.shape, config.policies, "")


def check_suites(config: Config) -> None:
    """Raises ConfigError naming each log whose suite file is missing or wrong, with the line that names the file."""
    from tidefold.config import ConfigProblem, config_error, key_line
    from tidefold.operations.quality.suites import find_suite_errors

    problems = []
    for log, error in find_suite_errors(config).items():
        if error:
            place = ("logs", log, "quality", "suite")
            line = key_line(config.path, place)
            problems.append(
                ConfigProblem(error.code, line, ".".join(place), f"cannot be used: {error.message}", error.hint)
            )
    if problems:
        raise config_error(config.path, problems)


def missing_folders(config: Config) -> list[str]:
    """Returns a warning for each missing landing folder of this machine. It is no mistake: files may land later."""
    return [
        f"{log.id}: the landing folder {landing} does not exist yet."
        for log in config.logs.values()
        if log.source and (landing := log.source.landing) and "://" not in landing and not Path(landing).is_dir()
    ]


def find_missing_topics(config: Config) -> list[str]:
    """Returns a warning for each set whose transaction topic has landed nothing on this machine: it publishes nothing.

    Names the folder beside it that the key may mean.
    """
    from tidefold.yaml_files.model import suggest

    warnings = []
    for one in config.sets.values():
        folder = Path(one.transactions)
        if "://" in one.transactions or (folder.is_dir() and any(folder.iterdir())):
            continue
        why = "is empty" if folder.is_dir() else "does not exist yet"
        beside = [path.name for path in folder.parent.glob("*") if path.is_dir() and path != folder]
        near = suggest(folder.name, [name for name in beside if name.endswith(".transaction")])
        hint = f" {near}" if near else ""
        warnings.append(
            f"sets.{one.name}.transactions: the folder {folder} {why}. The set publishes nothing before its "
            f"transaction topic lands there.{hint}"
        )
    return warnings


def find_lasting_rows(config: Config) -> list[str]:
    """Logs whose expired rows no snapshot would ever drop."""
    if config.snapshots.kind is not KindPolicy.INCREMENTAL:
        return []
    return [
        f"{log.id}: `ttl` drops no row, because incremental snapshots keep them. Set `ttl.cleanup_interval: 1d`."
        for log in config.logs.values()
        if log.ttl and log.ttl.cleanup_micros is None
    ]


def find_growing_copies(config: Config) -> list[str]:
    """Returns a warning if each run copies whole tables in an object store, and every copy is kept."""
    if "://" not in config.store or config.store.startswith("file://"):
        return []
    if config.snapshots.kind is not KindPolicy.FULL or config.retention.keep is not None:
        return []
    return [
        "each run copies its whole tables inside the store, and every copy is kept. Set `snapshots: {kind: auto}` and "
        "`retention: {snapshots: 30}`, as `tidefold init` does."
    ]
