"""Compares a Delta table with what the database itself gave, row for row. No tidefold code reads the table."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from deltalake import DeltaTable

from local_airflow.settings import PROJECT

BANK = PROJECT / "tests" / "data" / "bank"
_TYPES = {"int": pa.int32(), "string": pa.string()}


class TruthError(Exception):
    """The table is not what the database held."""


def truth(log: str, phase: str, columns: dict[str, str], bank: Path = BANK) -> pa.Table:
    """The database's rows at the end of a phase, ordered by the first column."""
    # An unquoted empty field is null, a quoted one is the empty text.
    options = pyarrow.csv.ConvertOptions(
        column_types={name: _TYPES[kind] for name, kind in columns.items()},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with gzip.open(bank / "truth" / phase / f"pgbench_{log}.csv.gz") as stream:
        table = pyarrow.csv.read_csv(stream, convert_options=options)
    return table.sort_by(table.column_names[0])


def check(uri: str, log: str, phase: str, columns: dict[str, str], bank: Path = BANK) -> int:
    """The number of rows, all equal to the truth's. Raises TruthError saying where they first differ."""
    expected = truth(log, phase, columns, bank)
    found = DeltaTable(uri).to_pyarrow_table().select(list(columns)).cast(expected.schema).sort_by(next(iter(columns)))
    if found.equals(expected):
        return int(found.num_rows)
    if found.num_rows != expected.num_rows:
        raise TruthError(f"{log} after {phase}: {found.num_rows:,} rows, the database had {expected.num_rows:,}.")
    pairs = zip(found.to_pylist(), expected.to_pylist(), strict=True)
    mine, theirs = next((a, b) for a, b in pairs if a != b)
    raise TruthError(f"{log} after {phase}: the table has {mine}, the database had {theirs}.")
