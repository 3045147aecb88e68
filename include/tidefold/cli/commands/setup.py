"""The commands before the first run: `demo` and `validate`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from tidefold.cli.terminal import Terminal
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.domain.wording import count_noun
from tidefold.errors import NotFoundError, RefusedError, TidefoldError

if TYPE_CHECKING:
    from tidefold.config import Config, LogConfig, SetConfig
    from tidefold.operations.ground.pipeline import Pipeline

# The columns, key and order of a log that has data are in its ledger.
_UNASKED = "The store was not asked whether its logs fit this file: `tidefold validate --online` does."


def demo(
    terminal: Terminal,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A new folder for the demo.")] = "tidefold-demo",
    spark: Annotated[bool, typer.Option("--spark", help="Let Spark do the larger steps.")] = False,
) -> int:
    """Publish the tables of a sample database, in a folder of its own.

    Lands real Debezium changes of a pgbench database in DIR, runs the whole cycle, lands the changes of a later phase,
    and runs it again. It needs no Airflow, and without --spark no Java. DIR must not exist.

    Example: tidefold demo

    Next: tidefold read accounts -c tidefold-demo/tidefold.yaml
    """
    from tidefold.cli.full_run import open_runs
    from tidefold.cli.output.outcomes import exit_code
    from tidefold.cli.sample import LOGS, PHASES, SMALL, land, prepare
    from tidefold.cli.terminal import run_id
    from tidefold.operations.requests import Fold
    from tidefold.spark.jars import find_delta_jars
    from tidefold.spark.submit import QUICK_COMPILER

    root = Path(directory)
    if root.exists():
        raise RefusedError("DEMO_EXISTS", f"{root} exists already.")
    if spark:
        # Before anything is written: after `tidefold spark jars` the same command works.
        find_delta_jars()
        # Its jobs take seconds: the second compiler would cost more than it saves.
        os.environ.setdefault(QUICK_COMPILER, "1")
    own = replace(terminal, config_path=prepare(root, SMALL if spark else None))
    pipeline = own.pipeline()
    outcomes = []
    with open_runs(own, pipeline) as begin:
        for phase in PHASES[:2]:
            terminal.line(f"{phase}: {count_noun(land(own.config_path, phase), 'file')} landed in {root / 'landing'}")
            whole = begin(Fold(run_id(None)))
            whole.run(list(LOGS))
            outcomes += [outcome for step in whole.outcomes.values() for outcome in step]
    code = exit_code(outcomes)
    terminal.json(
        {
            "command": terminal.command,
            "config": str(own.config_path),
            "exit_code": code,
            "outcomes": [o.to_dict() for o in outcomes],
        }
    )
    terminal.note(f"next: tidefold read accounts --limit 3 -c {own.config_path}")
    return code


def validate(
    terminal: Terminal,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of the file, for editors.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Also test the store and the landing places.")] = False,
) -> None:
    """Check the configuration; --online: store and landing places too.

    Needs no store without --online. Reports each mistake with file, line, key and the allowed values. Reads landed
    files of this machine as the next run would: of each layout the newest file, among the 20 newest. Ingested files are
    left out; a store elsewhere is asked for them only with --online. With --online, tidefold compares each log with its
    ledger. It writes, reads, lists, copies and deletes small files in the store. It also checks that the store refuses
    a second write under the same name, and that each landing place can be listed.

    Example: tidefold validate -c tidefold.yaml --online

    Next: tidefold run
    """
    from tidefold.config import json_schema, load_config

    if schema:
        terminal.result(json_schema(), json.dumps(json_schema(), indent=2))
        return
    from tidefold.operations.doctor.landed_sample import find_misfits
    from tidefold.presentation.tables import log_table
    from tidefold.storage.outage import trying_addresses

    config = load_config(terminal.config_path)
    check_suites(config)
    # Warnings come after what fails.
    with trying_addresses():
        asked, store_lines, unlisted = _check_store(terminal) if online else ({}, [_UNASKED], [])
    warnings = [
        *missing_folders(config),
        *unlisted,
        *map(str, find_misfits(config, local=not online)),
        *find_missing_topics(config),
        *find_idle_settings(config),
        *find_coarse_orders(config),
        *find_growing_copies(config),
    ]
    for warning in warnings:
        terminal.note(f"warning: {warning}")
    sets = [_describe_set(one) for one in config.sets.values()]
    data = {"valid": True, "config": str(config.path), "logs": list(config.logs), "sets": sets, "warnings": warnings}
    lines = [line for one in config.sets.values() for line in _set_lines(one)]
    parts = [f"{terminal.config_path} is valid.", *store_lines, log_table(config.logs.values()), *lines]
    terminal.result({**data, **asked}, *parts)


def _describe_set(one: SetConfig) -> dict[str, Any]:
    return {
        "set": one.name,
        "logs": list(one.logs),
        "transactions": one.topic,
        "may_be_empty": list(one.may_be_empty),
        "equal_sums": one.equal_sums,
    }


def _set_lines(one: SetConfig) -> list[str]:
    lines = [f"set {one.name}: {', '.join(one.logs)}", f"  transactions: {one.topic}"]
    lines += [f"  equal sums: {' = '.join(columns)}" for columns in one.equal_sums]
    return [*lines, *([f"  may be empty: {', '.join(one.may_be_empty)}"] if one.may_be_empty else [])]


def _check_store(terminal: Terminal) -> tuple[dict[str, Any], list[str], list[str]]:
    """Returns what is known of the store, the lines about it, and warnings."""
    from tidefold.storage.identity import probe, read_identity

    pipeline = terminal.pipeline()
    store = pipeline.store
    done, store_id = probe(store), read_identity(store)
    for log in pipeline.config.logs:
        _check_columns(pipeline, log)
    landing_lines, warnings = _check_landing(pipeline.config)
    lines = [f"The store {store.address} passed: {', '.join(done)}.", *landing_lines]
    if store_id and not pipeline.config.store_id:
        lines.append(f"Add this line, so that tidefold refuses an empty store or another one: `store_id: {store_id}`")
    return {"store": store.address, "done": done, "store_id": store_id}, lines, warnings


def _check_landing(config: Config) -> tuple[list[str], list[str]]:
    """Returns what was looked at, and a warning for each place elsewhere that has nothing yet.

    Raises TidefoldError for the first that fails. The doctor looks at topics and tables.
    """
    from tidefold.sources.landing.folders import folder_at

    listed, others, warnings = [], [], []
    for log in config.logs.values():
        if not log.landing or log.topic:
            others.append(log.id)
            continue
        try:
            next(iter(folder_at(log.landing).list_files()), None)
            listed.append(log.id)
        except NotFoundError as error:
            if "://" in log.landing:  # `missing_folders` names those of this machine.
                warnings.append(f"{log.id}: {error.message} Next: {error.hint}")
        except TidefoldError as error:
            message = f"The landing place of {log.id} failed: {error.message}"
            raise type(error)(error.code, message, hint=error.hint) from error
    lines = [f"Landing places that can be listed: {', '.join(listed)}."] if listed else []
    if others:
        lines.append(f"Not looked at, as no files land: {', '.join(others)}. `tidefold check doctor` looks at topics.")
    return lines, warnings


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


def missing_folders(config: Config) -> Iterator[str]:
    """Yields a warning for each landing folder of this machine that is missing, or belongs to a table.

    A missing one is no mistake: files may land later.
    """
    from tidefold.sources.landing.folders import explain_table, find_table_above

    folders = {log.id: log.landing for log in config.logs.values() if log.landing and "://" not in log.landing}
    for log, landing in folders.items():
        if not (config.logs[log].topic or Path(landing).is_dir()):
            yield f"{log}: the landing folder {landing} does not exist yet."
        elif kind := find_table_above(landing):
            yield f"{log}: the landing folder {landing} belongs to a table. {explain_table(kind).capitalize()}."


def find_missing_topics(config: Config) -> list[str]:
    """Returns a warning for each set whose transaction topic has landed nothing on this machine: it publishes nothing.

    Names the folder beside it that the key may mean.
    """
    from tidefold.yaml_files.messages import suggest

    warnings = []
    for one in config.sets.values():
        folder = Path(one.topic)
        if one.kafka or "://" in one.topic or (folder.is_dir() and any(folder.iterdir())):
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


def find_idle_settings(config: Config) -> Iterator[str]:
    """Yields a warning for each setting of a log that has no effect."""
    kind = config.snapshots.kind
    for log in config.logs.values():
        if kind is KindPolicy.INCREMENTAL and log.ttl and log.ttl.cleanup_interval is None:
            yield f"{log.id}: `ttl` drops no row: incremental snapshots keep them. Set `ttl.cleanup_interval: 1d`."
        if log.deletion_vectors and not log.shape.marks_rows:
            yield f"{log.id}: `deletion_vectors` has no effect with `merge: {log.shape.merge.engine}`. Remove it."
        elif kind is KindPolicy.FULL and log.deletion_vectors:
            yield f"{log.id}: full snapshots have no deletion vectors. Set `snapshots: {{kind: auto}}`."


def find_coarse_orders(config: Config) -> list[str]:
    """Returns a warning for each log whose order columns often cannot tell which of two changes is newer."""
    warnings = []
    for log in config.logs.values():
        shape, types = log.shape, {column.name: column.type for column in log.shape.columns}
        if not shape.column_order or shape.orders_by_file:
            continue
        named = ", ".join(shape.column_order)
        if set(shape.column_order) <= set(shape.key):
            why = "lies inside the key, so all changes of a key have one order"
        elif all(types[name] == "date" for name in shape.column_order):
            why = "is a date, so changes of one day have one order"
        elif types[shape.column_order[0]] == "timestamp" and (zone := _find_changing_zone(log)):
            why = f"without a zone is in {zone}: an older change may win in the hour that its clocks show twice"
            first = shape.column_order[0]
            warnings.append(f"logs.{log.id}.order: `{first}` {why}. Let the source write UTC, or put a counter first.")
            continue
        else:
            continue
        hint = f"The later arrival counts. If names of files have a time, set `order: [{named}, file]`."
        warnings.append(f"logs.{log.id}.order: `{named}` {why}. {hint}")
    return warnings


def _find_changing_zone(log: LogConfig) -> str:
    """Returns the time zone of times without one if its clocks change; empty: they do not."""
    name = str(log.feed.options.get("time_zone") or "UTC") if log.feed else "UTC"
    offsets = {datetime(2026, month, 1, tzinfo=ZoneInfo(name)).utcoffset() for month in range(1, 13)}
    return name if len(offsets) > 1 else ""


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
