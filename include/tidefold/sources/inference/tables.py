"""Finds Delta tables, and proposes a log for the change feed of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from tidefold.domain.table.table_spec import VERSION
from tidefold.sources.inference import roles
from tidefold.sources.inference.files import column_of_field
from tidefold.sources.inference.proposal import ProposedLog, log_ids
from tidefold.sources.landing.folders import Place, folder_at, name_at

_ROWS = 2000


def find_tables(directory: Place) -> list[PurePosixPath]:
    """Returns the folders of Delta tables below a folder, relative to it."""
    return [PurePosixPath(name) for name in folder_at(directory).find_tables()]


def propose_tables(directory: Place, tables: Sequence[PurePosixPath], taken: Sequence[str]) -> list[ProposedLog]:
    """Returns one proposal for each table. `taken` are ids of other logs."""
    ids = log_ids([table.name or name_at(directory) for table in tables], taken)
    return [_propose_table(log, directory, table) for log, table in zip(ids, tables, strict=True)]


def _propose_table(log: str, directory: Place, table: PurePosixPath) -> ProposedLog:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    notes: list[str] = []
    rows: list[dict[str, Any]] = []
    schema, records_changes = pa.schema([]), True
    try:
        place = folder_at(directory)
        opened = DeltaTable(f"{place.address}/{table}", storage_options=place.options)
        records_changes = opened.metadata().configuration.get("delta.enableChangeDataFeed") == "true"
        dataset = opened.to_pyarrow_dataset()
        schema, rows = dataset.schema, dataset.head(_ROWS).to_pylist()
    except (DeltaError, OSError, pa.ArrowException) as error:
        notes.append(f"the table cannot be read: {str(error).splitlines()[0]}")
    if not records_changes:
        notes.append("the table records no changes: set its property delta.enableChangeDataFeed = true")
    columns = tuple(column_of_field(field) for field in schema)
    notes += [f"column {column.name}: {column.note}" for column in columns if column.type is None]
    keys = roles.find_keys(log, columns, rows, None)
    question = roles.key_question(log, keys, rows, None)
    return ProposedLog(
        id=log,
        topic=str(table),
        path=str(table),
        key=keys[0] if keys else (),
        columns=columns,
        connector="",
        order=VERSION,
        records=len(rows),
        usable=not notes and question.sure,
        notes=tuple(notes),
        format="delta-cdf",
        sampled=f"Delta table {table}, {len(rows):,} rows sampled.",
        questions=(question,),
    )
