"""Looks at CSV and Parquet files, and proposes a log for each folder of them: its columns, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import csv

from tidefold.changelog.schema import arrow_type
from tidefold.domain.table.types import PLAIN
from tidefold.sources.files.csv import Csv
from tidefold.sources.files.parquet import Parquet, plain_schema
from tidefold.sources.inference.proposal import ProposedColumn, ProposedLog, log_ids
from tidefold.sources.landing.listing import LandedFile, list_any, open_landed

_ORDER = "nothing says which of two rows is the newer one: name the columns in `order`, or `offset` under `source`"
_KEY = "nothing says which columns tell rows apart: name them in `key`"


def _csv_schema(file: LandedFile) -> pa.Schema:
    with open_landed(file) as stream, csv.open_csv(stream) as reader:
        return reader.schema


_SCHEMAS: dict[str, tuple[tuple[str, ...], Callable[[LandedFile], pa.Schema]]] = {
    "csv": (Csv.endings, lambda file: _csv_schema(file)),
    "parquet": (Parquet.endings, lambda file: plain_schema(open_landed(file))),
}


def propose_files(directory: Path, taken: Sequence[str]) -> list[ProposedLog]:
    """One proposal for each folder below `directory` that has such files; `taken` are ids of other logs."""
    proposals: list[ProposedLog] = []
    for format_ in _SCHEMAS:
        proposals += _propose(directory, format_, [*taken, *(log.id for log in proposals)])
    return proposals


def _propose(directory: Path, format_: str, taken: Sequence[str]) -> list[ProposedLog]:
    endings, schema_of = _SCHEMAS[format_]
    files = sorted(list_any(directory, endings)[0], key=lambda file: str(PurePosixPath(file.name).parent))
    folders = {folder: list(members) for folder, members in groupby(files, key=lambda f: PurePosixPath(f.name).parent)}
    ids = log_ids([_named(directory, folder) for folder in folders], taken)
    proposals = []
    for (folder, members), log in zip(folders.items(), ids, strict=True):
        notes = [_KEY, _ORDER]
        try:
            columns = tuple(_column(field) for field in schema_of(members[0]))
        except (pa.ArrowException, OSError) as error:
            columns = ()
            notes.insert(0, f"{members[0].name} cannot be read: {str(error).splitlines()[0]}")
        notes += [f"column {column.name}: {column.note}" for column in columns if column.type is None]
        seen = f"Files of {folder}, the columns as in {PurePosixPath(members[0].name).name}."
        proposals.append(
            ProposedLog(log, str(folder), str(folder), (), columns, "", "", 0, False, tuple(notes), format_, (), seen)
        )
    return proposals


def _named(directory: Path, folder: PurePosixPath) -> str:
    return folder.name or directory.resolve().name


def _column(field: pa.Field) -> ProposedColumn:
    """A column with the type that takes all values that its own type can have."""
    type_ = field.type
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return ProposedColumn(field.name, "timestamp")
    if pa.types.is_decimal(type_) and type_.precision <= 38:
        return ProposedColumn(field.name, f"decimal({type_.precision},{type_.scale})")
    wider = {pa.int8(): "int", pa.int16(): "int", pa.large_string(): "string", pa.large_binary(): "binary"}
    names = {**{arrow_type(name): name for name in PLAIN}, **wider}
    if type_ in names:
        return ProposedColumn(field.name, names[type_])
    if pa.types.is_list(type_) and type_.value_type in names:
        return ProposedColumn(field.name, f"array<{names[type_.value_type]}>")
    if pa.types.is_null(type_):
        return ProposedColumn(field.name, "string", "only nulls seen: check the type")
    return ProposedColumn(field.name, None, f"no type fits {type_}")
