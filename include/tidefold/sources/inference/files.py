"""Samples typed files and Delta tables, and proposes a log for each folder of them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.changelog.schema import find_column_type
from tidefold.domain.table.table_spec import VERSION
from tidefold.errors import CorruptError, TidefoldError
from tidefold.sources.debezium.typed_records import DebeziumAvro, DebeziumParquet
from tidefold.sources.feed import Feed
from tidefold.sources.files.base import Csv
from tidefold.sources.files.parquet import Parquet, open_parquet, plain_schema, read_batches
from tidefold.sources.inference import layout, roles
from tidefold.sources.inference.columns import name_column
from tidefold.sources.inference.dialect import (
    Dialect,
    UnnamedFiles,
    dialect_of,
    has_blanks_behind,
    is_split_twice,
    merge_dialects,
    patterns_of,
    read_beginning,
)
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn, ProposedLog, log_ids
from tidefold.sources.inference.rows import SampledFeed, propose_rows
from tidefold.sources.inference.values import UNZONED, column_of_texts, find_spellings
from tidefold.sources.landing.folders import Place, explain_table, folder_at, name_at
from tidefold.sources.landing.listing import LandedFile, list_any, open_landed
from tidefold.sources.landing.problems import explain_foreign
from tidefold.sources.landing.streams import CutShortError, DamagedError
from tidefold.sources.records.text_forms import Spelling, swap_day_month

_ROWS = 2000
# The column of Airbyte's raw tables.
_AIRBYTE = "_airbyte_data"
Headers = Mapping[str, Sequence[str]]
NO_HEADERS: Headers = {}
# The rows by the name of their file.
_Parts = Mapping[str, Sequence[Mapping[str, Any]]]
Found = tuple[tuple[ProposedColumn, ...], _Parts, dict[str, Any], tuple[ProposalQuestion, ...], list[str]]
_SOURCES: dict[str, type[DebeziumAvro | DebeziumParquet]] = {
    "debezium-avro": DebeziumAvro,
    "debezium-parquet": DebeziumParquet,
}
_NAMED = re.compile(r"(?:(?P<plus>[\w.-]+)\+\d+\+\d+|(?P<dash>[\w.-]+)-\d+-\d+)(\.\w+)+", re.ASCII)
_ENVELOPE = {"op", "source", "after"}
_UNREADABLE = (OSError, pa.ArrowException, CutShortError, DamagedError)


def propose_files(
    directory: Place,
    taken: Sequence[str],
    tables: Sequence[PurePosixPath] = (),
    headers: Headers = NO_HEADERS,
    *,
    unnamed: UnnamedFiles | None = None,
    others: Collection[LandedFile] = (),
) -> list[ProposedLog]:
    """Returns one proposal for each folder below `directory` that has such files.

    taken: ids of other logs.
    tables: folders of Delta tables, whose files are not a feed.
    headers: the column names of logs whose CSV files have no header line.
    unnamed: files with other names.
    others: files of other formats.
    """
    proposals: list[ProposedLog] = []
    strange = unnamed or UnnamedFiles()
    for format_, endings, more in (("csv", Csv.endings, strange.rows), ("parquet", Parquet.endings, strange.parquet)):
        files = [
            file
            for file in [*list_any(directory, endings)[0], *more]
            if not any(PurePosixPath(file.name).is_relative_to(table) for table in tables) and file not in others
        ]
        folders = layout.by_folder(files)
        names = [_name_log(directory, folder, members) for folder, members in folders.items()]
        ids = log_ids(names, [*taken, *(log.id for log in proposals)])
        for (folder, members), log in zip(folders.items(), ids, strict=True):
            feed = _csv(members, headers.get(log, ())) if format_ == "csv" else _parquet(members)
            proposals.append(_propose_folder(log, folder, format_, members, feed))
    return proposals


def _name_log(directory: Place, folder: PurePosixPath, files: Sequence[LandedFile]) -> str:
    """Returns the name of the folder. For files directly in the landing folder it returns their common name."""
    stems = {layout.stem_of(file) for file in files}
    own = stems.pop() if len(stems) == 1 else ""
    return folder.name or own or name_at(directory)


def _propose_folder(
    log: str, folder: PurePosixPath, format_: str, files: Sequence[LandedFile], proposals: Found
) -> ProposedLog:
    columns, parts, options, questions, notes = proposals
    rows = [row for part in parts.values() for row in part]
    refused = options.pop("refused", 0)
    stems = layout.strange_stems(files)
    if stems:
        notes = [*notes, f"its folder holds files of several kinds ({', '.join(stems[:4])}): give each a folder"]
    seen = ", ".join(PurePosixPath(file.name).name for file in layout.choose_sample(files))
    path = str(folder)
    named = "the landing folder itself" if path == "." else path
    sampled = f"Files of {named}, {len(rows):,} rows sampled of {seen}."
    named_by_folders = layout.find_folder_columns(files, [column.name for column in columns])
    folder_columns = tuple(column_of_texts(name, texts).column for name, texts in named_by_folders.items())
    return propose_rows(
        SampledFeed(
            log,
            path,
            path,
            format_,
            columns,
            rows,
            sampled,
            options,
            notes=tuple(notes),
            questions=questions,
            names=[file.name for file in files],
            parts=parts,
            folder_columns=folder_columns,
            marker=layout.find_marker(files),
            refused=refused,
        )
    )


def _csv(files: Sequence[LandedFile], header: Sequence[str]) -> Found:
    sample = {file.name: read_beginning(file) for file in layout.choose_sample(files)}
    begun = list(sample.values())
    if foreign := next((why for data, _ in begun if (why := explain_foreign(data))), ""):
        return (), {}, {}, (), [f"a file {foreign}"]
    if any(b"\r" in data and b"\n" not in data for data, _ in begun):
        return (), {}, {}, (), ["its lines end with CR alone: write each with LF (`tr '\\r' '\\n' < FILE`)"]
    dialects = {name: dialect_of(data, whole, header) for name, (data, whole) in sample.items()}
    if escape := next((one.escape for one in dialects.values() if one and one.escape), ""):
        dialects = {name: dialect_of(data, whole, header, escape) for name, (data, whole) in sample.items()}
    usable = [dialect for dialect in dialects.values() if dialect]
    if not usable:
        return (), {}, {}, (), ["its files hold no line yet"]
    first = merge_dialects(usable)
    if not first.header and all(map(is_split_twice, usable)):
        return (), {}, {}, (), [f"`{first.delimiter * 2}` separates its values: write them with one character"]
    if _AIRBYTE in first.names:
        return (), {}, {}, (), [f"its rows are texts in `{_AIRBYTE}`, as Airbyte writes them: let it write JSON lines"]
    if all(map(has_blanks_behind, usable)):
        return (), {}, {}, (), [_explain_blanks(first)]
    parts = {
        name: [dict(zip(d.names, row, strict=True)) for row in d.rows[:_ROWS]] for name, d in dialects.items() if d
    }
    rows = [row for part in parts.values() for row in part]
    names = list(dict.fromkeys(name for d in usable for name in d.names))
    cells = {name: [row.get(name) for row in rows] for name in names}
    spellings = find_spellings(cells.values())
    texts = {name: column_of_texts(name, values, spellings[0]) for name, values in cells.items()}
    formats = list(dict.fromkeys(f for text in texts.values() for f in text.formats))
    options = {**patterns_of(files, Csv.endings), **first.options, **_number_options(spellings)}
    options |= {"timestamp_formats": _one_each(formats)} if formats else {}
    columns = tuple(_optional(texts[name].column, [d.names for d in usable]) for name in names)
    if any(column.name in first.quoted and column.type != "string" for column in columns):
        options["quoted_null"] = True
    options["refused"] = sum(one.refused for one in usable)
    notes = [] if len({d.delimiter for d in usable}) == 1 else ["its files are not separated by the same character"]
    return (
        columns,
        parts,
        options,
        (*first.questions, *_format_questions(formats), *_number_questions(spellings)),
        notes,
    )


def _number_options(spellings: Sequence[Spelling]) -> dict[str, str]:
    first = spellings[0]
    decimal = {"decimal": first.decimal} if first.decimal != "." or len(spellings) > 1 else {}
    return decimal | ({"thousands": first.thousands} if first.thousands else {})


def _number_questions(spellings: Sequence[Spelling]) -> list[ProposalQuestion]:
    text = (
        "is 1.234 or 1,234 in these files more than a thousand? Set `decimal`, and `thousands` to the other character"
    )
    marks = tuple(dict.fromkeys(one.decimal for one in spellings))
    return [ProposalQuestion("decimal", text, marks)] if len(spellings) > 1 else []


def _explain_blanks(dialect: Dialect) -> str:
    mark = dialect.delimiter
    return (
        f"a blank stands behind each `{mark}` and would be part of the value: write the files without it "
        f"(`sed 's/{mark} /{mark}/g' FILE`)"
    )


def _optional(column: ProposedColumn, files: Sequence[Sequence[str]]) -> ProposedColumn:
    return column.make_optional() if any(column.name not in names for names in files) else column


def _one_each(formats: Sequence[str]) -> list[str]:
    """Keeps the first of two formats that differ only in the order of day and month."""
    return [f for i, f in enumerate(formats) if swap_day_month(f) == f or swap_day_month(f) not in formats[:i]]


def _format_questions(formats: Sequence[str]) -> list[ProposalQuestion]:
    both = [f for f in formats if swap_day_month(f) != f and swap_day_month(f) in formats]
    text = "does the day or the month come first? No day of the sample is above 12"
    return [ProposalQuestion("timestamp_formats", text, tuple(both), has_default=False)] if both else []


def _parquet(files: Sequence[LandedFile]) -> Found:
    notes: list[str] = []
    schemas: list[pa.Schema] = []
    parts: dict[str, list[dict[str, Any]]] = {}
    for file in layout.choose_sample(files):
        try:
            with open_landed(file) as stream, open_parquet(stream) as opened:
                schemas.append(plain_schema(opened))
                batch = next(read_batches(opened, schemas[-1], _ROWS), None)
            parts[file.name] = batch.to_pylist() if batch is not None else []
        except _UNREADABLE as error:
            notes.append(f"{file.name} cannot be read: {str(error).splitlines()[0]}")
    fields: dict[str, pa.Field] = {}
    for field in (field for schema in schemas for field in schema):
        fields[field.name] = fields.get(field.name, field) if pa.types.is_null(field.type) else field
    by_name = {name: column_of_field(field) for name, field in fields.items()}
    rows = [row for part in parts.values() for row in part]
    texts = {name: [row.get(name) for row in rows] for name, column in by_name.items() if column.type == "string"}
    by_name |= {name: timed for name, values in texts.items() if (timed := _find_time(name, values))}
    columns = tuple(_optional(column, [schema.names for schema in schemas]) for column in by_name.values())
    # Ingest reports damaged files. One readable file is enough to know the columns.
    return columns, parts, patterns_of(files, Parquet.endings), (), [] if schemas else notes


def _find_time(name: str, values: Sequence[Any]) -> ProposedColumn | None:
    """Returns a column of times if all texts are times of ISO 8601."""
    column = column_of_texts(name, values)
    return column.column if column.column.type in ("date", "timestamp") and not column.formats else None


def column_of_field(field: pa.Field) -> ProposedColumn:
    """Returns a column whose type holds all values of the field's type."""
    type_, note = find_column_type(field.type), ""
    if type_ is None:
        note = f"no type fits {field.type}"
    elif pa.types.is_timestamp(field.type) and not field.type.tz:
        note = UNZONED
    elif field.type == pa.uint64():
        note = f"numbers from {2**63} on are refused"
    elif pa.types.is_null(field.type):
        note = "only nulls seen: check the type"
    return ProposedColumn(field.name, type_, note)


def find_tables(directory: Place) -> dict[PurePosixPath, str]:
    """Returns the kinds of the tables below a folder, by their folders relative to it."""
    return {PurePosixPath(name): kind for name, kind in folder_at(directory).find_tables().items()}


def propose_tables(directory: Place, tables: Mapping[PurePosixPath, str], taken: Sequence[str]) -> list[ProposedLog]:
    """Returns one proposal for each table. `taken` are ids of other logs."""
    ids = log_ids([table.name or name_at(directory) for table in tables], taken)
    return [_propose_table(log, directory, *table) for log, table in zip(ids, tables.items(), strict=True)]


def _propose_table(log: str, directory: Place, table: PurePosixPath, kind: str) -> ProposedLog:
    # Other formats do not load what reads them.
    from tidefold.sources.delta.sample import sample_table

    notes: list[str] = []
    rows: list[dict[str, Any]] = []
    ignored: tuple[str, ...] = ()
    schema, records_changes, is_replaced = pa.schema([]), True, False
    try:
        if kind != "Delta":
            raise CorruptError("LANDED_TABLE", explain_table(kind))
        sample = sample_table(f"{folder_at(directory).address}/{table}", _ROWS)
        schema, rows = sample.rows.schema, sample.rows.to_pylist()
        records_changes, is_replaced, ignored = sample.has_feed, sample.is_replaced, sample.unfit
    except (TidefoldError, OSError, ValueError, pa.ArrowException) as error:
        notes.append(f"the table cannot be read: {str(error).splitlines()[0]}")
    columns = tuple(column_of_field(field) for field in schema)
    keys = roles.find_keys(log, columns, rows, None)
    questions = [roles.key_question(log, keys, rows, None)]
    if not records_changes and not is_replaced:
        why = "the table records no changes, so each run reads all of it. With delta.enableChangeDataFeed = true, "
        why += "`delta-cdf` reads what changed"
        questions.append(ProposalQuestion("source.format", "", ("delta", "delta-cdf"), sure=True, because=why))
    names = {column.name: name_column(column).name for column in columns}
    return ProposedLog(
        id=log,
        topic=str(table),
        path=str(table),
        key=tuple(names[name] for name in keys[0]) if keys else (),
        columns=tuple(map(name_column, columns)),
        connector="",
        order=VERSION,
        records=len(rows),
        usable=not notes and all(question.sure for question in questions),
        notes=tuple(notes),
        format="delta" if is_replaced or not records_changes else "delta-cdf",
        options=(("replaced", "accept"),) if is_replaced else (),
        sampled=f"{kind} table {table.name or name_at(directory)}, {len(rows):,} rows sampled.",
        questions=tuple(questions),
        ignored=ignored,
    )


def group_typed(
    directory: Place, tables: Sequence[PurePosixPath] = (), skipped: Collection[str] = ()
) -> dict[tuple[str, str], list[LandedFile]]:
    """Groups such files by format and topic, without those whose names are skipped."""
    groups: dict[tuple[str, str], list[LandedFile]] = {}
    for format_, source in _SOURCES.items():
        for file in list_any(directory, [f".{extension}" for extension in source.extensions])[0]:
            named = _NAMED.fullmatch(PurePosixPath(file.name).name)
            below = file.name in skipped or any(PurePosixPath(file.name).is_relative_to(table) for table in tables)
            if named and not below and (format_ == "debezium-avro" or _has_envelopes(file)):
                groups.setdefault((format_, named["plus"] or named["dash"]), []).append(file)
    return groups


def _has_envelopes(file: LandedFile) -> bool:
    """Whether the columns of a Parquet file are those of a Debezium record."""
    try:
        with open_landed(file) as stream:
            schema = pq.read_schema(stream)
    except _UNREADABLE:
        return False
    value = schema.field("value").type if "value" in schema.names else pa.struct(list(schema))
    return pa.types.is_struct(value) and {field.name for field in value} >= _ENVELOPE


def sample_records(format_: str, file: LandedFile, count: int) -> list[dict[str, Any]]:
    """Returns the first records of a file in their JSON form."""
    source = _SOURCES[format_](Feed(format_, file.root))
    try:
        with open_landed(file) as stream:
            records = list(islice(source.sample(stream, file.size), count))
    except _UNREADABLE:
        return []  # A sample does not need the whole file. Ingest reports what is wrong with it.
    return [json.loads(msgspec.json.encode(record)) for record in records]
