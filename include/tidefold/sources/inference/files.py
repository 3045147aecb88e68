"""Samples CSV and Parquet files, and proposes a log for each folder of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.changelog.schema import arrow_type
from tidefold.domain.table.types import PLAIN
from tidefold.sources.files.csv import Csv
from tidefold.sources.files.parquet import Parquet, plain_schema
from tidefold.sources.inference import layout
from tidefold.sources.inference.dialect import Dialect, dialect_of, has_blanks_behind, is_utf16
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn, ProposedLog, log_ids
from tidefold.sources.inference.rows import SampledFeed, propose_rows
from tidefold.sources.inference.sniff import UnnamedFiles, patterns_of, read_beginning
from tidefold.sources.inference.values import column_of_texts
from tidefold.sources.landing.folders import Place, name_at
from tidefold.sources.landing.listing import LandedFile, list_any, open_landed

_ROWS = 2000
Headers = Mapping[str, Sequence[str]]
NO_HEADERS: Headers = {}


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


Found = tuple[
    tuple[ProposedColumn, ...], Sequence[Mapping[str, Any]], dict[str, Any], tuple[ProposalQuestion, ...], list[str]
]


def _propose_folder(
    log: str, folder: PurePosixPath, format_: str, files: Sequence[LandedFile], found: Found
) -> ProposedLog:
    columns, rows, options, questions, notes = found
    stems = layout.strange_stems(files)
    if stems:
        notes = [*notes, f"its folder holds files of several kinds ({', '.join(stems[:4])}): give each a folder"]
    seen = ", ".join(PurePosixPath(file.name).name for file in layout.choose_sample(files))
    path = str(folder)
    named = "the landing folder itself" if path == "." else path
    sampled = f"Files of {named}, {len(rows):,} rows sampled of {seen}."
    return propose_rows(
        SampledFeed(log, path, path, format_, columns, rows, sampled, options, notes=tuple(notes), questions=questions)
    )


def _csv(files: Sequence[LandedFile], header: Sequence[str]) -> Found:
    begun = [read_beginning(file) for file in layout.choose_sample(files)]
    if any(is_utf16(data) for data, _ in begun):
        return (), (), {}, (), ["its files are UTF-16: write each as UTF-8 (`iconv -f UTF-16 -t UTF-8 FILE`)"]
    if any(b"\r" in data and b"\n" not in data for data, _ in begun):
        return (), (), {}, (), ["its lines end with CR alone: write each with LF (`tr '\\r' '\\n' < FILE`)"]
    found = [dialect for data, whole in begun if (dialect := dialect_of(data, whole, header))]
    if not found:
        return (), (), {}, (), ["its files hold no line yet"]
    first = found[0]
    if all(map(has_blanks_behind, found)):
        return (), (), {}, (), [_explain_blanks(first)]
    rows = [dict(zip(d.names, row, strict=True)) for d in found for row in d.rows[:_ROWS]]
    names = list(dict.fromkeys(name for d in found for name in d.names))
    texts = {name: column_of_texts(name, [row.get(name) for row in rows]) for name in names}
    formats = list(dict.fromkeys(f for text in texts.values() for f in text.formats))
    options = {**patterns_of(files, Csv.endings), **first.options}
    options |= {"timestamp_formats": _one_each(formats)} if formats else {}
    columns = tuple(_optional(texts[name].column, [d.names for d in found]) for name in names)
    notes = [] if len({d.delimiter for d in found}) == 1 else ["its files are not separated by the same character"]
    return columns, rows, options, (*first.questions, *_format_questions(formats)), notes


def _explain_blanks(dialect: Dialect) -> str:
    mark = dialect.delimiter
    return (
        f"a blank stands behind each `{mark}` and would be part of the value: write the files without it "
        f"(`sed 's/{mark} /{mark}/g' FILE`)"
    )


def _optional(column: ProposedColumn, files: Sequence[Sequence[str]]) -> ProposedColumn:
    return column.make_optional() if any(column.name not in names for names in files) else column


def _swap_day_month(format_: str) -> str:
    return format_.replace("%d/%m", "%m/%d") if "%d/%m" in format_ else format_.replace("%m/%d", "%d/%m")


def _one_each(formats: Sequence[str]) -> list[str]:
    """Keeps the first of two formats that differ only in the order of day and month."""
    return [f for i, f in enumerate(formats) if _swap_day_month(f) == f or _swap_day_month(f) not in formats[:i]]


def _format_questions(formats: Sequence[str]) -> list[ProposalQuestion]:
    both = [f for f in formats if _swap_day_month(f) != f and _swap_day_month(f) in formats]
    text = "does the day or the month come first? No day of the sample is above 12"
    return [ProposalQuestion("timestamp_formats", text, tuple(both))] if both else []


def _parquet(files: Sequence[LandedFile]) -> Found:
    notes: list[str] = []
    schemas: list[pa.Schema] = []
    rows: list[dict[str, Any]] = []
    for file in layout.choose_sample(files):
        try:
            with open_landed(file) as stream:
                schemas.append(plain_schema(stream))
            with open_landed(file) as stream, pq.ParquetFile(stream) as opened:
                batch = next(opened.iter_batches(_ROWS), None)
            rows += batch.to_pylist() if batch is not None else []
        except (pa.ArrowException, OSError) as error:
            notes.append(f"{file.name} cannot be read: {str(error).splitlines()[0]}")
    fields = {field.name: field for schema in schemas for field in schema}
    found = {name: column_of_field(field) for name, field in fields.items()}
    texts = {name: [row.get(name) for row in rows] for name, column in found.items() if column.type == "string"}
    found |= {name: timed for name, values in texts.items() if (timed := _find_time(name, values))}
    columns = tuple(_optional(column, [schema.names for schema in schemas]) for column in found.values())
    # Ingest reports damaged files. One readable file is enough to know the columns.
    return columns, rows, patterns_of(files, Parquet.endings), (), [] if schemas else notes


def _find_time(name: str, values: Sequence[Any]) -> ProposedColumn | None:
    """Returns a column of times if all texts are times of ISO 8601."""
    found = column_of_texts(name, values)
    return found.column if found.column.type in ("date", "timestamp") and not found.formats else None


def column_of_field(field: pa.Field) -> ProposedColumn:
    """Returns a column whose type holds all values of the field's type."""
    type_ = field.type
    if pa.types.is_timestamp(type_):
        return ProposedColumn(field.name, "timestamp", "" if type_.tz else "without a zone: read as UTC")
    if pa.types.is_decimal(type_) and type_.precision <= 38:
        return ProposedColumn(field.name, f"decimal({type_.precision},{type_.scale})")
    wider = {pa.int8(): "int", pa.int16(): "int", pa.large_string(): "string", pa.large_binary(): "binary"}
    wider |= {pa.uint8(): "int", pa.uint16(): "int", pa.uint32(): "long"}
    if type_ == pa.uint64():
        return ProposedColumn(field.name, "long", f"numbers from {2**63} on are refused")
    names = {**{arrow_type(name): name for name in PLAIN}, **wider}
    if type_ in names:
        return ProposedColumn(field.name, names[type_])
    if pa.types.is_list(type_) and type_.value_type in names:
        return ProposedColumn(field.name, f"array<{names[type_.value_type]}>")
    if pa.types.is_null(type_):
        return ProposedColumn(field.name, "string", "only nulls seen: check the type")
    return ProposedColumn(field.name, None, f"no type fits {type_}")
